//! `perch policies`: what can decide, and what each needs.

use crate::{
    args::JsonArgs,
    render::table::{Align, table},
};
use anyhow::Result;
use perch_policy::registry;
use serde::Serialize;
use std::process::ExitCode;

/// A policy as `--json` tells it.
#[derive(Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    needs: &'static str,
}

/// Lists the policies.
///
/// # Errors
/// Trouble with standard output.
pub fn policies(args: JsonArgs) -> Result<ExitCode> {
    let entries: Vec<Entry> = registry::names()
        .map(|name| {
            Ok(Entry {
                name,
                summary: registry::summary(name)?,
                needs: registry::needs(name)?,
            })
        })
        .collect::<Result<_>>()?;
    if args.json {
        super::print_json(&entries)?;
    } else {
        let columns = [
            ("policy", Align::Left),
            ("what it does", Align::Left),
            ("needs", Align::Left),
        ];
        let rows = entries.into_iter().map(|entry| {
            vec![
                entry.name.to_owned(),
                entry.summary.to_owned(),
                entry.needs.to_owned(),
            ]
        });
        super::print(&table(&columns, rows))?;
    }
    Ok(ExitCode::SUCCESS)
}
