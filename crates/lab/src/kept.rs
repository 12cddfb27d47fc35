//! Pages about experiments, made from results that are kept: `docs/cmt.md` and others have tables between comments,
//! and `docs/results/cmt/figure3.json` is what `perch lab run cmt/figure3 --json` printed.
//!
//! ```text
//! <!-- results cmt/figure3 -->   the claims of this experiment
//! <!-- counts cmt -->            how many hold, of all experiments below this name
//! <!-- fidelity fidelity -->     how far the interval level is off, of fidelity.json
//! <!-- validation smt2-zen -->   a machine beside measurements of the real one, of validation.json
//! <!-- end -->                   ends either
//! ```

use crate::{
    experiment::{Claim, Experiment},
    fidelity::Measured,
    judge, load, names,
    results::{Row, Value, Varied, short},
    tally::Tally,
    validate::Validation,
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{collections::BTreeMap, fmt::Write, path::Path};

/// What is read of a row: the rest is the claim's own.
#[derive(Debug, Deserialize)]
struct Kept {
    name: String,
    published: Value,
    ours: Value,
    holds: bool,
    varied: Option<Varied>,
}

/// The rows that are kept of an experiment; `json` is what `perch lab run NAME --json` printed.
///
/// # Errors
/// In words: no such JSON, or results of claims that have been changed since.
pub fn rows(experiment: &Experiment, json: &str) -> Result<Vec<Row>, String> {
    let again = |why: String| {
        let name = &experiment.name;
        format!("the results kept of {name} are stale, run it again: {why}")
    };
    let kept: Vec<Kept> = serde_json::from_str(json).map_err(|error| again(error.to_string()))?;
    let (ours, theirs) = (experiment.claims.len(), kept.len());
    if ours != theirs {
        return Err(again(format!("{theirs} claims instead of {ours}")));
    }
    let row = |(claim, kept): (&Claim, Kept)| {
        let changed = |what: &str| again(format!("`{}` has another {what}", claim.name));
        if kept.name != claim.name {
            return Err(changed("name"));
        }
        let row = judge::again(claim, kept.ours, kept.holds, kept.varied);
        if row.published != kept.published {
            return Err(changed("published value"));
        }
        match row.holds == kept.holds {
            true => Ok(row),
            false => Err(changed("tolerance")),
        }
    };
    experiment.claims.iter().zip(kept).map(row).collect()
}

/// The page with its tables made again, from the results in this folder.
///
/// # Errors
/// In words: a comment that means nothing, results that are not there or stale.
pub fn page(text: &str, folder: &Path) -> Result<String, String> {
    let mut made = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        made.push_str(line);
        made.push('\n');
        let Some(wanted) = line
            .strip_prefix("<!-- ")
            .and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        made.push_str(&match wanted.split_once(' ') {
            Some(("results", name)) => table(&read(name, folder)?),
            Some(("counts", group)) => counts(group, folder)?,
            Some(("fidelity", name)) => fidelity(name, folder)?.table(),
            Some(("validation", machine)) => {
                let all = validation(folder)?.machines;
                let one = all.iter().find(|one| one.machine == machine);
                one.ok_or_else(|| format!("validation.json has nothing of `{machine}`"))?
                    .markdown()
            }
            _ => return Err(format!("`{line}` asks for nothing that is known")),
        });
        if !lines.any(|line| line == "<!-- end -->") {
            return Err(format!("no `<!-- end -->` after `{line}`"));
        }
        made.push_str("<!-- end -->\n");
    }
    Ok(made)
}

fn read(name: &str, folder: &Path) -> Result<Vec<Row>, String> {
    let experiment = load(name).map_err(|error| error.to_string())?;
    let path = folder.join(format!("{name}.json"));
    let json = perch_files::read_to_string(&path);
    rows(
        &experiment,
        &json.map_err(|error| format!("{}: cannot be read: {error}", path.display()))?,
    )
}

/// What is kept of `perch lab fidelity --json` in this folder.
///
/// # Errors
/// In words: no such file, or none of that command.
pub fn fidelity(name: &str, folder: &Path) -> Result<Measured, String> {
    printed(name, folder)
}

/// What is kept of `perch lab validate --json` in this folder.
///
/// # Errors
/// In words: no such file, or none of that command.
pub fn validation(folder: &Path) -> Result<Validation, String> {
    printed("validation", folder)
}

/// The state of simulator and policies with which the results of each experiment in this folder were made, by its name:
/// what [`State::of`](crate::fingerprint::State::of) gives of [`of_tournament`](crate::fingerprint::of_tournament)'s.
///
/// # Errors
/// In words: no such file, or another content.
pub fn fingerprints(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    printed("fingerprints", folder)
}

fn printed<T: DeserializeOwned>(name: &str, folder: &Path) -> Result<T, String> {
    let path = folder.join(format!("{name}.json"));
    let wrong = |error: String| format!("{}: cannot be read: {error}", path.display());
    let json = perch_files::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&json).map_err(|error| wrong(error.to_string()))
}

/// The claims as a table of Markdown.
pub fn table(rows: &[Row]) -> String {
    let ranges = rows.iter().any(|row| row.varied.is_some());
    let only_ranges = |text: &str| {
        if ranges {
            text.to_owned()
        } else {
            String::new()
        }
    };
    let mut text = format!(
        "| claim | class | published | ours |{} difference | allowed | | null |\n\
         | --- | --- | --: | --: |{} --: | --- | --- | --- |\n",
        only_ranges(" range |"),
        only_ranges(" --- |")
    );
    let word = |holds| if holds { "holds" } else { "**misses**" };
    for row in rows {
        let unit = match row.unit.as_str() {
            "" => String::new(),
            unit => format!(" ({unit})"),
        };
        let range = row
            .range()
            .map(|(least, most)| format!("{least} to {most}"));
        let of = row.varied.as_ref();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {}{unit} | {} | {} | {} |{} {} | {} | {}{} | {} |",
            row.name.replace('|', "\\|"),
            row.class.name(),
            row.published,
            row.ours,
            only_ranges(&format!(" {} |", range.unwrap_or_default())),
            row.difference().map(short).unwrap_or_default(),
            row.allowed(),
            word(row.holds),
            of.map_or(String::new(), |v| format!(", {} of {}", v.holds, v.of)),
            row.null_holds
                .map_or("", |holds| if holds { "holds" } else { "misses" }),
        );
    }
    text
}

/// The experiments below a name, and what is kept of each in this folder.
pub(crate) fn below(group: &str, folder: &Path) -> Result<Vec<(String, Vec<Row>)>, String> {
    let below = format!("{group}/");
    let mut all = Vec::new();
    for name in names().into_iter().filter(|name| name.starts_with(&below)) {
        let rows = read(&name, folder)?;
        all.push((name, rows));
    }
    match all.is_empty() {
        true => Err(format!("no experiment is below `{group}`")),
        false => Ok(all),
    }
}

fn counts(group: &str, folder: &Path) -> Result<String, String> {
    let below = below(group, folder)?;
    let all: Vec<Row> = below.into_iter().flat_map(|(_, rows)| rows).collect();
    let mut text = "| class | claims | hold | would hold even if nothing made a difference |\n\
                    | --- | --: | --: | --: |\n"
        .to_owned();
    for (name, count) in Tally::of(&all).counts() {
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} |",
            count.claims, count.hold, count.hold_anyway
        );
    }
    Ok(text)
}
