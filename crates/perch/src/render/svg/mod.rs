//! Pictures as SVG: machines, timelines, series, heat maps. Their fonts are the reader's; they bring their own light background,
//! so that they can be read on a dark page too.

pub mod heat;
pub mod machine;
pub mod noise;
pub mod series;
pub mod timeline;
mod write;

use perch_core::text::printable;
use plotters::style::RGBColor;
use std::collections::BTreeMap;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Dark grey, of text.
pub const INK: RGBColor = RGBColor(34, 34, 34);
/// Grey, of frames and of what matters less.
pub const GREY: RGBColor = RGBColor(130, 130, 130);
/// Very light grey, of empty boxes.
pub const PALE: RGBColor = RGBColor(246, 246, 246);

/// Light versions of Okabe and Ito's colours, which also the colour-blind tell apart, under dark text.
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(240, 190, 90),
    RGBColor(110, 175, 220),
    RGBColor(100, 200, 170),
    RGBColor(228, 165, 200),
    RGBColor(235, 150, 100),
    RGBColor(175, 220, 245),
    RGBColor(240, 232, 120),
];

/// What has no colour of its own.
pub const OTHERS: RGBColor = RGBColor(205, 205, 205);

/// Where a text is, seen from its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// To the right of it.
    Left,
    /// Around it.
    Middle,
    /// To the left of it.
    Right,
    /// Around it, and turned upwards.
    Upwards,
}

/// A rectangle in pixels: left, top, width, height.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Area {
    /// Pixels from the left.
    pub x: i32,
    /// Pixels from the top.
    pub y: i32,
    /// Its width.
    pub w: i32,
    /// Its height.
    pub h: i32,
}

impl Area {
    /// A rectangle.
    pub fn new(x: i32, y: i32, w: i32, h: i32) -> Self {
        Self { x, y, w, h }
    }

    /// The same elsewhere.
    #[must_use]
    pub fn moved(self, x: i32, y: i32) -> Self {
        let (x, y) = (self.x + x, self.y + y);
        Self { x, y, ..self }
    }
}

enum Shape {
    Filled(Area, RGBColor),
    Framed(Area, RGBColor),
    Line([(i32, i32); 2], RGBColor),
    Path(Vec<(i32, i32)>, u32, RGBColor),
    Text(String, (i32, i32), u32, Anchor, RGBColor),
}

/// A picture that is being made; it is as large as what is on it.
#[derive(Default)]
pub struct Canvas {
    shapes: Vec<Shape>,
    size: (i32, i32),
}

/// Around the whole picture.
const MARGIN: i32 = 12;

impl Canvas {
    fn covers(&mut self, x: i32, y: i32) {
        self.size = (self.size.0.max(x), self.size.1.max(y));
    }

    /// A filled rectangle.
    pub fn fill(&mut self, area: Area, colour: RGBColor) {
        self.covers(area.x + area.w, area.y + area.h);
        self.shapes.push(Shape::Filled(area, colour));
    }

    /// The frame of one.
    pub fn frame(&mut self, area: Area, colour: RGBColor) {
        self.covers(area.x + area.w, area.y + area.h);
        self.shapes.push(Shape::Framed(area, colour));
    }

    /// A line.
    pub fn line(&mut self, from: (i32, i32), to: (i32, i32), colour: RGBColor) {
        self.covers(from.0.max(to.0), from.1.max(to.1));
        self.shapes.push(Shape::Line([from, to], colour));
    }

    /// A line through points, of a width in pixels.
    pub fn path(&mut self, points: Vec<(i32, i32)>, width: u32, colour: RGBColor) {
        points.iter().for_each(|(x, y)| self.covers(*x, *y));
        self.shapes.push(Shape::Path(points, width, colour));
    }

    /// Lines across a rectangle: rising ones, or falling ones.
    pub fn hatch(&mut self, area: Area, rising: bool, colour: RGBColor) {
        const STEP: usize = 6;
        let Area { x, y, w, h } = area;
        for at in (STEP as i32..w + h).step_by(STEP) {
            // From the left edge or the lower one, to the upper edge or the right one.
            let (x0, y0) = if at < h { (0, at) } else { (at - h, h) };
            let (x1, y1) = if at < w { (at, 0) } else { (w, at - w) };
            let side = |dx: i32| if rising { x + dx } else { x + w - dx };
            self.line((side(x0), y + y0), (side(x1), y + y1), colour);
        }
    }

    /// Text of a size in pixels, in the middle of its line at `y`.
    pub fn text(&mut self, text: &str, at: (i32, i32), size: u32, anchor: Anchor, ink: RGBColor) {
        let text = printable(text).into_owned();
        let width = width(&text, size);
        match anchor {
            Anchor::Left => self.covers(at.0 + width, at.1 + size as i32 / 2),
            Anchor::Middle => self.covers(at.0 + width / 2, at.1 + size as i32 / 2),
            Anchor::Right | Anchor::Upwards => self.covers(at.0, at.1 + size as i32 / 2),
        }
        self.shapes.push(Shape::Text(text, at, size, anchor, ink));
    }

    /// The text cut to what fits into a rectangle, in its middle; nothing if it is too narrow for two letters.
    pub fn label(&mut self, text: &str, area: Area, size: u32) {
        let text = cut(&printable(text), area.w - 2, size);
        if !text.is_empty() {
            let middle = (area.x + area.w / 2, area.y + area.h / 2);
            self.text(&text, middle, size, Anchor::Middle, INK);
        }
    }

    /// The lowest line that is drawn on.
    pub fn bottom(&self) -> i32 {
        self.size.1
    }

    /// What is on another one, on top.
    pub fn append(&mut self, other: Canvas) {
        self.covers(other.size.0, other.size.1);
        self.shapes.extend(other.shapes);
    }

    /// Brings shapes of one kind and colour together. Only for those of which none lies over another.
    pub fn sort(&mut self) {
        self.shapes.sort_by_key(|shape| match shape {
            Shape::Filled(_, colour) => (0, rgb(*colour)),
            Shape::Line(_, colour) => (1, rgb(*colour)),
            Shape::Path(_, _, colour) => (2, rgb(*colour)),
            Shape::Framed(_, colour) => (3, rgb(*colour)),
            Shape::Text(_, _, size, _, _) => (4, (*size, 0, 0)),
        });
    }

    /// The picture as an SVG document.
    pub fn svg(&self) -> String {
        write::document(&self.shapes, self.size)
    }
}

fn rgb(RGBColor(red, green, blue): RGBColor) -> (u32, u32, u32) {
    (red.into(), green.into(), blue.into())
}

/// About how wide a text of a size is, in pixels: fonts differ.
pub fn width(text: &str, size: u32) -> i32 {
    (text.width() as f64 * f64::from(size) * 0.58).ceil() as i32
}

/// The text cut to a width in pixels; nothing where that is too narrow for two letters of it.
pub fn cut(text: &str, pixels: i32, size: u32) -> String {
    if width(text, size) <= pixels {
        return text.to_owned();
    }
    let room = (f64::from(pixels) / (f64::from(size) * 0.58)) as usize;
    if room < 2 {
        return String::new();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

/// Colours of names: the weightiest have one each, the others are grey.
#[derive(Debug, Default)]
pub struct Palette {
    /// By falling weight.
    names: Vec<String>,
}

impl Palette {
    /// For these names with their weights, such as CPU time.
    pub fn new(weights: &BTreeMap<String, u64>) -> Self {
        let mut names: Vec<(&String, u64)> = weights.iter().map(|(n, w)| (n, *w)).collect();
        names.sort_by_key(|(name, weight)| (std::cmp::Reverse(*weight), *name));
        let mut names: Vec<String> = names.into_iter().map(|(name, _)| name.clone()).collect();
        let few = names.len() <= COLOURS.len();
        names.truncate(COLOURS.len());
        if few {
            // The order in which people look for them; weights of runs that are alike hardly differ.
            names.sort();
        }
        Self { names }
    }

    /// The colour of a name.
    pub fn of(&self, name: &str) -> RGBColor {
        let at = self.names.iter().position(|known| known == name);
        at.map_or(OTHERS, |at| COLOURS[at])
    }

    /// Draws which colour is whose, in a row from a point on; `others` if some have none.
    pub fn legend(&self, canvas: &mut Canvas, (x, y): (i32, i32), others: bool) {
        let named = self.names.iter().map(|name| (name.as_str(), self.of(name)));
        let rest = others.then_some(("others", OTHERS));
        let mut x = x;
        for (name, colour) in named.chain(rest) {
            canvas.fill(Area::new(x, y, 12, 12), colour);
            let name = cut(&printable(name), 160, 11);
            canvas.text(&name, (x + 17, y + 6), 11, Anchor::Left, INK);
            x += 17 + width(&name, 11) + 18;
        }
    }

    /// Whether a name has a colour of its own.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// A thread's name without the number that each of several has: threads of one kind have one colour.
pub fn kind(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match bare.strip_suffix(['-', '_', '.', ':', '#', ' ', '/']) {
        _ if bare.is_empty() => name,
        Some(shorter) if !shorter.is_empty() => shorter,
        _ => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_names_without_numbers() {
        for (name, wanted) in [
            ("solver-12", "solver"),
            ("worker", "worker"),
            ("w3", "w"),
            ("cpi-1-4", "cpi-1"),
            ("42", "42"),
            ("-7", "-"),
        ] {
            assert_eq!(kind(name), wanted, "{name}");
        }
    }

    #[test]
    fn text_is_cut_and_escaped() {
        assert_eq!(cut("abcdef", 1000, 10), "abcdef");
        assert_eq!(cut("abcdefghij", 24, 10), "abc…");
        assert_eq!(cut("abcdef", 10, 10), "");
        let mut canvas = Canvas::default();
        canvas.text("<a & \"b\x07>", (0, 0), 10, Anchor::Left, INK);
        let svg = canvas.svg();
        assert!(svg.contains("&lt;a &amp; &quot;b\\x07&gt;"), "{svg}");
    }

    #[test]
    fn hatching_stays_inside() {
        for area in [Area::new(3, 5, 40, 16), Area::new(0, 0, 10, 50)] {
            for rising in [true, false] {
                let mut canvas = Canvas::default();
                canvas.hatch(area, rising, GREY);
                assert!(canvas.shapes.len() > 5);
                for shape in &canvas.shapes {
                    let Shape::Line(ends, _) = shape else {
                        panic!("a line was expected");
                    };
                    for (x, y) in ends {
                        assert!((area.x..=area.x + area.w).contains(x), "{x}");
                        assert!((area.y..=area.y + area.h).contains(y), "{y}");
                    }
                }
            }
        }
    }
}
