//! `--plot FILE`: the series as a picture, an SVG file or a page with it.

use super::{
    drawn::{columns, extension, kind, name, values},
    wanted::Wanted,
};
use crate::{
    args::StatArgs,
    command::place::Output,
    render::{
        stat::{Heading, whole},
        svg::{
            Canvas,
            series::{Labels, series},
        },
    },
};
use anyhow::{Context, Result, bail};
use perch_core::{MetricName, MetricScope, text::printable};
use perch_lab::page::escape;
use perch_stat::{
    Row,
    series::{Line, Series},
};
use std::collections::BTreeMap;

/// The picture, drawn at the end.
pub struct Plot {
    output: Option<Output>,
    page: bool,
    series: Series,
    /// Whether some counts are lower bounds.
    partial: bool,
    /// Metrics that are about more than their rows.
    wider: BTreeMap<MetricName, MetricScope>,
}

impl Plot {
    /// Opens the file of `--plot`, if there is one; `rows` says whether there will be any.
    ///
    /// # Errors
    /// A name that ends in neither `.svg` nor `.html`, a file that cannot be written, nothing to draw.
    pub fn new(args: &StatArgs, rows: bool) -> Result<Option<Self>> {
        let Some(path) = &args.plot else {
            return Ok(None);
        };
        let page = match extension(path).as_deref() {
            Some("svg") => false,
            Some("html" | "htm") => true,
            _ => bail!(
                "--plot {}: end the name in .svg for a picture, or in .html for a page with it",
                path.display()
            ),
        };
        super::needs_rows(rows, "--plot")?;
        Ok(Some(Self {
            output: Some(Output::open(path).context("--plot")?),
            page,
            series: Series::default(),
            partial: false,
            wider: BTreeMap::new(),
        }))
    }

    /// Adds an interval's rows.
    pub fn rows(&mut self, wanted: &Wanted, rows: &[Row]) {
        for row in rows {
            self.series.add(row, &values(wanted, row));
            self.partial |= row.amounts.is_partial() && !row.amounts.values.is_empty();
            for (name, scope) in &row.metrics.wider {
                self.wider.insert(MetricName::clone(name), *scope);
            }
        }
    }

    /// Draws it; a second time, nothing.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(&mut self, wanted: &Wanted, heading: &Heading) -> Result<()> {
        let Some(output) = self.output.take() else {
            return Ok(());
        };
        let mut notes: Vec<String> = Vec::new();
        if self.partial {
            notes.push("some counts are lower bounds: threads ran before perch found them".into());
        }
        let wider = self.wider.iter();
        notes.extend(wider.map(|(name, scope)| format!("{name}: of {}", whole(*scope))));
        let charts = columns(wanted).into_iter().map(|column| column.title());
        let charts: Vec<String> = charts.collect();
        let mut canvas = Canvas::default();
        let labels = Labels {
            title: &heading.title,
            counting: &heading.counting,
            columns: &charts,
            kind: kind(wanted.by),
            turns: wanted.request.sets.len(),
            name: &|line: &Line| name(&line.entity, &line.name),
            notes: &notes,
        };
        series(&mut canvas, &mut self.series, &labels);
        let svg = canvas.svg();
        let text = match self.page {
            true => page(&heading.title, &svg),
            false => svg,
        };
        output.write(&text).context("--plot")
    }
}

/// A page that is the picture, and needs nothing else.
fn page(title: &str, svg: &str) -> String {
    let title = escape(&printable(title));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\nbody {{ \
         margin: 1em; background: #fff; }}\nsvg {{ max-width: 100%; height: auto; }}\n</style>\n</head>\n<body>\n\
         {svg}</body>\n</html>\n"
    )
}
