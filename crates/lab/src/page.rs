//! Results as one HTML page that needs nothing else: styles and pictures are in it.

use crate::{
    error::LabError,
    figure,
    results::{Results, short},
    table,
    tally::Tally,
};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// The page of these results, in their order.
///
/// # Errors
/// A picture that cannot be drawn.
pub fn page(all: &[Results]) -> Result<String, LabError> {
    let tally = words(Tally::of(all.iter().flat_map(|results| &results.rows)));
    let mut contents = String::new();
    let mut body = String::new();
    for results in all {
        let id = escape(&results.name);
        let tally = words(Tally::of(&results.rows));
        add(
            &mut contents,
            format_args!(
                "<li><a href=\"#{id}\">{id}</a>: {} ({tally})</li>\n",
                escape(&results.title)
            ),
        );
        section(&mut body, results)?;
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>perch lab</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<h1>perch lab: the papers' claims on the simulated machine</h1>\n\
         <p>{tally}. What misses is shown as it is: tolerances are written down before the run. An input that comes out \
         again is no prediction.</p>\n<ul>\n{contents}</ul>\n{body}</body>\n</html>\n"
    ))
}

/// The counts on one line.
fn words(tally: Tally) -> String {
    tally.to_string().replace('\n', "; ")
}

fn section(body: &mut String, results: &Results) -> Result<(), LabError> {
    let id = escape(&results.name);
    add(
        body,
        format_args!(
            "<section id=\"{id}\">\n<h2>{id}: {}</h2>\n",
            escape(&results.title)
        ),
    );
    if !results.about.is_empty() {
        add(body, format_args!("<p>{}</p>\n", escape(&results.about)));
    }
    if let Some(picture) = &results.picture {
        let svg = figure::svg(picture).map_err(|why| LabError::Figure {
            experiment: results.name.clone(),
            why,
        })?;
        add(body, format_args!("<figure>\n{}\n</figure>\n", svg.trim()));
    }
    body.push_str(
        "<table>\n<tr><th>claim</th><th>published</th><th>ours</th><th>difference</th><th>allowed</th>\
         <th>unit</th><th>place</th><th>class</th><th></th><th>if nothing made a difference</th></tr>\n",
    );
    for row in &results.rows {
        let class = if row.holds { "holds" } else { "misses" };
        let difference = row.difference().map(short).unwrap_or_default();
        add(
            body,
            format_args!(
                "<tr class=\"{class}\"><td>{}</td><td>{}</td><td>{}</td><td>{difference}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escape(&row.name),
                escape(&row.published.to_string()),
                escape(&match row.range() {
                    Some((least, greatest)) => format!("{} ({least} to {greatest})", row.ours),
                    None => row.ours.to_string(),
                }),
                escape(&row.allowed()),
                escape(&row.unit),
                escape(&row.place),
                row.class.name(),
                match &row.varied {
                    Some(varied) => format!(
                        "{}, {} of {}",
                        table::verdict(row.holds),
                        varied.holds,
                        varied.of
                    ),
                    None => table::verdict(row.holds).to_owned(),
                },
                row.null_holds.map_or("", table::verdict),
            ),
        );
    }
    body.push_str("</table>\n<details><summary>numbers behind it</summary>\n<table>\n<tr><th>name</th><th>what</th><th>value</th><th>unit</th></tr>\n");
    for measured in &results.measured {
        add(
            body,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escape(&measured.name),
                escape(&measured.what),
                short(measured.value),
                measured.unit,
            ),
        );
    }
    add(
        body,
        format_args!(
            "</table>\n<p>{} simulations.</p>\n</details>\n",
            results.simulations
        ),
    );
    for note in &results.notes {
        add(
            body,
            format_args!("<p class=\"note\">{}</p>\n", escape(note)),
        );
    }
    body.push_str("</section>\n");
    Ok(())
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(more);
}

/// Text as it stands in HTML, in attributes too.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c => safe.push(c),
        }
    }
    safe
}
