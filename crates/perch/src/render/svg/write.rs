//! Shapes as SVG. What is alike and follows one another is written as one element: a machine of thousands of PUs would be
//! mostly repeated attributes, as drawing libraries write them.

use super::{Anchor, Area, MARGIN, Shape};
use perch_core::text::printable;
use plotters::style::RGBColor;
use std::fmt::Write;

/// What shapes must share to be one element.
#[derive(Debug, PartialEq, Eq)]
enum Style {
    Filled(RGBColor),
    Framed(RGBColor),
    Line(RGBColor, u32),
    Text(u32, Anchor, RGBColor),
}

impl Style {
    fn of(shape: &Shape) -> Self {
        match shape {
            Shape::Filled(_, colour) => Self::Filled(*colour),
            Shape::Framed(_, colour) => Self::Framed(*colour),
            Shape::Line(_, colour) => Self::Line(*colour, 1),
            Shape::Path(_, width, colour) => Self::Line(*colour, *width),
            Shape::Text(_, _, size, anchor, colour) => Self::Text(*size, *anchor, *colour),
        }
    }

    fn attributes(&self) -> String {
        match self {
            Self::Filled(colour) => format!("fill=\"{}\"", hex(*colour)),
            Self::Framed(colour) => format!("fill=\"none\" stroke=\"{}\"", hex(*colour)),
            Self::Line(colour, width) => format!(
                "fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"",
                hex(*colour)
            ),
            Self::Text(size, anchor, colour) => {
                let side = match anchor {
                    Anchor::Left | Anchor::Upwards => "start",
                    Anchor::Middle => "middle",
                    Anchor::Right => "end",
                };
                format!(
                    "text-anchor=\"{side}\" font-family=\"sans-serif\" font-size=\"{size}\" fill=\"{}\"",
                    hex(*colour)
                )
            }
        }
    }
}

/// The document, of a size without its margin, on white.
pub(super) fn document(shapes: &[Shape], size: (i32, i32)) -> String {
    let (w, h) = (size.0 + 2 * MARGIN, size.1 + 2 * MARGIN);
    let mut out = format!(
        "<svg width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <rect x=\"0\" y=\"0\" width=\"{w}\" height=\"{h}\" fill=\"#FFFFFF\"/>\n"
    );
    for alike in shapes.chunk_by(|a, b| Style::of(a) == Style::of(b)) {
        let style = Style::of(&alike[0]);
        let attributes = style.attributes();
        let body: String = alike.iter().map(body).collect();
        match style {
            Style::Text(..) => out += &format!("<g {attributes}>\n{body}</g>\n"),
            _ => out += &format!("<path {attributes} d=\"{body}\"/>\n"),
        }
    }
    out + "</svg>\n"
}

/// A shape without its style: a part of a path, or a text.
fn body(shape: &Shape) -> String {
    match shape {
        Shape::Filled(of, _) | Shape::Framed(of, _) => {
            let Area { x, y, w, h } = of.moved(MARGIN, MARGIN);
            format!("M{x} {y}h{w}v{h}h{}z", -w)
        }
        Shape::Line(ends, _) => path(ends),
        Shape::Path(points, ..) => path(points),
        Shape::Text(text, (x, y), _, anchor, _) => {
            let (x, y) = (x + MARGIN, y + MARGIN);
            let turned = match anchor {
                Anchor::Upwards => format!(" transform=\"rotate(270,{x},{y})\""),
                _ => String::new(),
            };
            let text = escaped(&printable(text));
            format!("<text x=\"{x}\" y=\"{y}\" dy=\".5ex\"{turned}>{text}</text>\n")
        }
    }
}

fn path(points: &[(i32, i32)]) -> String {
    let mut out = String::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let step = if at == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{step}{} {}", x + MARGIN, y + MARGIN);
    }
    out
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}
