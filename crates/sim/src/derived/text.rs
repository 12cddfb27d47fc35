//! Writes mixes as a file from which workloads import them.

use crate::{
    model::Op,
    workload::{Depends, Mix, Pattern},
};
use std::fmt::Write;

/// Pairs of a distance and its share in a line.
const PAIRS: usize = 6;

/// A share of the dependencies that is not written.
const LEAST: f64 = 0.0005;

/// A file of mixes.
pub fn text(about: &str, sources: &[String], mixes: &[Mix]) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut file = format!("about = {}\nsources = [\n", quoted(about));
    for source in sources {
        line(&mut file, format_args!("    {},", quoted(source)));
    }
    file += "]\n";
    for mix in mixes {
        file += "\n";
        one(&mut file, mix);
    }
    file
}

fn one(file: &mut String, mix: &Mix) {
    let name = match mix
        .name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    {
        true => mix.name.clone(),
        false => toml::Value::String(mix.name.clone()).to_string(),
    };
    line(file, format_args!("[mixes.{name}]"));
    let shares = Op::ALL
        .into_iter()
        .filter(|op| mix.shares[*op as usize] > 0.0);
    let shares = shares.map(|op| format!("{} = {:.4}", op.name(), mix.shares[op as usize]));
    line(
        file,
        format_args!("shares = {{ {} }}", shares.collect::<Vec<_>>().join(", ")),
    );
    match &mix.depends {
        Depends::Always(distance) => line(file, format_args!("depends = {distance}")),
        Depends::Shares(shares) => {
            let some = (0..).zip(shares).filter(|(_, share)| **share >= LEAST);
            let pairs: Vec<String> = some
                .map(|(distance, share): (u16, _)| format!("[{distance}, {share:.4}]"))
                .collect();
            *file += "depends = [\n";
            for pairs in pairs.chunks(PAIRS) {
                line(file, format_args!("    {},", pairs.join(", ")));
            }
            *file += "]\n";
        }
    }
    line(file, format_args!("mispredicted = {:.5}", mix.mispredicted));
    line(file, format_args!("code = {}", size(mix.code_bytes)));
    if mix.working_sets.is_empty() {
        return;
    }
    *file += "working-sets = [\n";
    for set in &mix.working_sets {
        let pattern = match set.pattern {
            Pattern::Random => String::new(),
            Pattern::Stride => format!(", pattern = \"stride\", stride = {}", size(set.stride)),
        };
        line(
            file,
            format_args!(
                "    {{ size = {}, share = {:.6}{pattern} }},",
                size(set.bytes),
                set.share
            ),
        );
    }
    *file += "]\n";
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("\"{bytes} B\""),
        10_240..10_485_760 => format!("\"{} KiB\"", (bytes as f64 / 1024.0).round()),
        _ => format!("\"{} MiB\"", (bytes as f64 / 1_048_576.0).round()),
    }
}

fn line(file: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes whatever is written.
    let _ = writeln!(file, "{text}");
}
