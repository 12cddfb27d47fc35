//! Pictures in the papers' axes, as SVG.

use crate::{
    experiment::{Figure, Mark, Scale, Shape, Sweep},
    judge::evaluate,
    results::{Column, Curve, Drawing, Measured, Picture},
};
use plotters::{
    coord::{
        Shift,
        ranged1d::{DefaultFormatting, KeyPointHint},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::ops::Range;

/// Size of a picture, in pixels.
const SIZE: (u32, u32) = (720, 420);

/// Pixels around a chart, and below it for its labels.
const MARGIN: i32 = 12;
const BELOW: i32 = 44;

/// Okabe and Ito's colours, which also the colour-blind tell apart: of lines and bars.
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
];

impl Picture {
    /// A figure with numbers. `lines` has the height of each point of each line.
    ///
    /// # Errors
    /// In words: a bar without a value.
    pub(crate) fn new(
        figure: &Figure,
        measured: &[Measured],
        lines: Vec<Vec<f64>>,
        sweep: Option<&Sweep>,
    ) -> Result<Self, String> {
        let drawing = match &figure.shape {
            Shape::Bars(bars) => {
                let column = |bar: &crate::experiment::Bar| {
                    let range = match &bar.range {
                        None => None,
                        Some((low, high)) => {
                            Some((evaluate(low, measured)?, evaluate(high, measured)?))
                        }
                    };
                    Ok::<_, String>(Column {
                        group: bar.group.clone(),
                        series: bar.series.clone(),
                        value: evaluate(&bar.value, measured)?,
                        range,
                        published: match &bar.published {
                            Some(mark) => Some(height(mark, measured)?),
                            None => None,
                        },
                    })
                };
                Drawing::Bars(bars.iter().map(column).collect::<Result<_, _>>()?)
            }
            Shape::Lines {
                lines: wanted,
                marks,
                ..
            } => {
                let x = || {
                    sweep
                        .iter()
                        .flat_map(|sweep| sweep.values.iter().map(|value| *value as f64))
                };
                let curve = |(line, y): (&crate::experiment::Line, Vec<f64>)| Curve {
                    series: line.series.clone(),
                    points: x().zip(y).collect(),
                };
                let published = marks.iter().map(|(at, mark)| {
                    let x = x().nth(*at).unwrap_or(0.0);
                    Ok::<_, String>((x, height(mark, measured)?))
                });
                Drawing::Lines {
                    curves: wanted.iter().zip(lines).map(curve).collect(),
                    published: published.collect::<Result<_, _>>()?,
                }
            }
        };
        Ok(Self {
            title: figure.title.clone(),
            x: figure.x.clone(),
            y: figure.y.clone(),
            drawing,
        })
    }
}

/// A published value in the unit of the picture.
fn height(mark: &Mark, measured: &[Measured]) -> Result<f64, String> {
    Ok(match &mark.scale {
        Scale::None => mark.published,
        Scale::Times(scale) => evaluate(scale, measured)? * mark.published,
        Scale::Divides(scale) => evaluate(scale, measured)? / mark.published,
    })
}

/// The picture as an SVG document. Its fonts are the reader's.
///
/// # Errors
/// In words, if it cannot be drawn.
pub fn svg(picture: &Picture) -> Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        match &picture.drawing {
            Drawing::Bars(columns) => bars(&area, picture, columns),
            Drawing::Lines { curves, published } => lines(&area, picture, curves, published),
        }
        .map_err(|error| error.to_string())?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Different ones in the order in which they come.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found = Vec::new();
    names.for_each(|name| {
        if !found.contains(&name) {
            found.push(name);
        }
    });
    found
}

/// A little above the greatest.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN_POSITIVE, f64::max) * 1.1
}

fn bars(area: &Area<'_>, picture: &Picture, columns: &[Column]) -> Drawn {
    let groups = distinct(columns.iter().map(|column| column.group.as_str()));
    let series = distinct(columns.iter().map(|column| column.series.as_str()));
    let height = top(columns.iter().flat_map(|c| {
        let whisker = c.range.map_or(c.value, |range| range.1);
        [c.value, whisker, c.published.unwrap_or(0.0)]
    }));
    let published = columns.iter().any(|column| column.published.is_some());
    let named: &[&str] = match (series.len(), published) {
        (1, false) => &[],
        _ => &series,
    };
    let (area, upright) = below_head(area, picture, named, published)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(MARGIN)
        .x_label_area_size(BELOW)
        .y_label_area_size(56)
        .build_cartesian_2d(
            Slots {
                groups: groups.len(),
            },
            0f64..height,
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(&picture.x)
        .y_desc(upright)
        .x_labels(groups.len() + 1)
        .x_label_formatter(&|at| {
            groups
                .get(at.floor() as usize)
                .copied()
                .unwrap_or("")
                .to_owned()
        })
        .draw()?;
    let wide = 0.8 / series.len() as f64;
    for (number, name) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let place = |column: &Column| {
            let group = groups
                .iter()
                .position(|group| *group == column.group)
                .unwrap_or(0);
            group as f64 + 0.1 + wide * number as f64
        };
        let own: Vec<&Column> = columns
            .iter()
            .filter(|column| column.series == *name)
            .collect();
        let boxes = own.iter().map(|column| {
            let left = place(column);
            Rectangle::new(
                [(left, 0.0), (left + wide * 0.92, column.value)],
                colour.filled(),
            )
        });
        chart.draw_series(boxes)?;
        for column in own {
            let middle = place(column) + wide * 0.46;
            let published = column.published.map(|height| (middle, height));
            chart.draw_series(published.into_iter().flat_map(ring))?;
            let Some((low, high)) = column.range else {
                continue;
            };
            let cap = wide * 0.1;
            let whisker = [
                vec![(middle, low), (middle, high)],
                vec![(middle - cap, low), (middle + cap, low)],
                vec![(middle - cap, high), (middle + cap, high)],
            ];
            chart.draw_series(
                whisker
                    .into_iter()
                    .map(|line| PathElement::new(line, BLACK)),
            )?;
        }
    }
    Ok(())
}

fn lines(area: &Area<'_>, picture: &Picture, curves: &[Curve], published: &[(f64, f64)]) -> Drawn {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let least = all().map(|(x, _)| *x).fold(f64::MAX, f64::min);
    let most = all().map(|(x, _)| *x).fold(f64::MIN_POSITIVE, f64::max);
    let height = top(all().chain(published).map(|(_, y)| *y));
    let series: Vec<&str> = curves.iter().map(|curve| curve.series.as_str()).collect();
    let (area, upright) = below_head(area, picture, &series, !published.is_empty())?;
    let mut chart = ChartBuilder::on(&area)
        .margin(MARGIN)
        .x_label_area_size(BELOW)
        .y_label_area_size(56)
        .build_cartesian_2d((least..most).log_scale().base(2.0), 0f64..height)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(&picture.x)
        .y_desc(upright)
        .x_labels(12)
        .x_label_formatter(&|bytes| size(*bytes))
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        chart.draw_series(LineSeries::new(
            curve.points.iter().copied(),
            colour.stroke_width(2),
        ))?;
        let dots = curve
            .points
            .iter()
            .map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    chart.draw_series(published.iter().copied().flat_map(ring))?;
    Ok(())
}

/// What marks a published value: it can be seen on a bar of any colour.
fn ring<C: Clone>(at: C) -> [Circle<C, i32>; 2] {
    [
        Circle::new(at.clone(), 5, WHITE.filled()),
        Circle::new(at, 5, BLACK.stroke_width(2)),
    ]
}

/// Draws the title and, below it, what the colours and rings are; returns the rest of the area. In a legend of its own
/// nothing of the chart is covered. A title of the y axis that is longer than the axis stands there too; else it is
/// returned, to be written upwards.
fn below_head<'a, 'p>(
    area: &Area<'a>,
    picture: &'p Picture,
    series: &[&str],
    published: bool,
) -> Result<(Area<'a>, &'p str), Box<dyn std::error::Error>> {
    /// Pixels from one row to the next.
    const ROW: i32 = 20;
    let width = SIZE.0 as i32;
    let middle =
        TextStyle::from(("sans-serif", 18).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&Text::new(picture.title.clone(), (width / 2, 10), middle))?;
    let (mut x, mut y) = (16, 38);
    // Fonts are the reader's: no width is known, so there is room for wide letters.
    let room = |name: &str| 34 + 8 * name.chars().count() as i32;
    let names = series
        .iter()
        .copied()
        .chain(published.then_some("published"));
    for (number, name) in names.enumerate() {
        if x > 16 && x + room(name) > width {
            (x, y) = (16, y + ROW);
        }
        match number < series.len() {
            true => {
                let colour = COLOURS[number % COLOURS.len()];
                area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], colour.filled()))?;
            }
            false => {
                for circle in ring((x + 6, y + 6)) {
                    area.draw(&circle)?;
                }
            }
        }
        area.draw(&Text::new(name.to_owned(), (x + 18, y), ("sans-serif", 13)))?;
        x += room(name);
    }
    let below = match series.is_empty() && !published {
        true => 30,
        false => y + ROW,
    };
    let axis = SIZE.1 as i32 - below - 2 * MARGIN - BELOW;
    let letters = picture.y.chars().count() as i32;
    if 7 * letters <= axis {
        return Ok((area.split_vertically(below).1, &picture.y));
    }
    let text = format!("y axis: {}", picture.y);
    area.draw(&Text::new(text, (16, below + 4), ("sans-serif", 13)))?;
    Ok((area.split_vertically(below + ROW).1, ""))
}

/// Bytes as people write them.
fn size(bytes: f64) -> String {
    for (unit, factor) in [("MiB", 1024.0 * 1024.0), ("KiB", 1024.0)] {
        if bytes >= factor {
            return format!("{} {unit}", bytes / factor);
        }
    }
    format!("{bytes} B")
}

/// An axis of groups, each labelled at its centre.
pub(crate) struct Slots {
    pub groups: usize,
}

impl Ranged for Slots {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = value / self.groups as f64;
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.groups).map(|group| group as f64 + 0.5).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.groups as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_that_is_longer_than_its_axis_does_not_stand_beside_it() {
        let drawn = |y: &str| {
            let column = |series: &str| Column {
                group: "g".to_owned(),
                series: series.to_owned(),
                value: 1.0,
                range: None,
                published: None,
            };
            svg(&Picture {
                title: "title".to_owned(),
                x: "x".to_owned(),
                y: y.to_owned(),
                drawing: Drawing::Bars(vec![column("one"), column("two")]),
            })
            .unwrap()
        };
        // Of each text its attributes, and what it says.
        let attributes = |svg: &str, wanted: &str| {
            let mut texts = svg.split("<text ").skip(1);
            let text = texts.find(|text| text.contains(wanted)).unwrap();
            text.split('>').next().unwrap().to_owned()
        };
        let short = "instructions / cycle";
        assert!(attributes(&drawn(short), short).contains("rotate"));
        let long = "aggregate throughput (instructions / cycle); published: times our own";
        let svg = drawn(long);
        let told = attributes(&svg, &format!("y axis: {long}"));
        assert!(
            !told.contains("rotate") && told.contains("x=\"16\""),
            "{told}"
        );
        assert_eq!(svg.matches(long).count(), 1);
    }
}
