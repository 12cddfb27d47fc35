//! The result as a Markdown page and in the terminal.

use crate::command::Part;
use crate::estimate::Estimate;
use crate::machine::Machine;
use crate::score::{Asked, Class, Row, Summary};
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use std::fmt::Write as _;

/// The page's text around the tables.
const PAGE: &str = include_str!("../page.md");

const COLUMNS: [&str; 11] = [
    "program",
    "kind",
    "truth by",
    "truth FP %",
    "after 1 s",
    "at the end",
    "error after 1 s",
    "error at the end",
    "± (90 %)",
    "unprivileged",
    "class right",
];

/// The table of programs, floating-point ones first, by falling share; then what is missing.
pub fn programs(rows: &[Row]) -> String {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    let truth = |row: &Row| row.truth.as_ref().map_or(-1.0, |truth| truth.fp_percent);
    sorted.sort_by(|a, b| truth(b).total_cmp(&truth(a)));
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(COLUMNS);
    for row in sorted.into_iter().filter(|row| row.missing.is_none()) {
        table.add_row(cells(row));
    }
    for column in 3..COLUMNS.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = table.to_string();
    text.push('\n');
    for row in rows {
        if let Some(missing) = &row.missing {
            write!(text, "\nNot run: {} ({missing}).\n", row.program).expect("writing to a String");
        }
    }
    for row in rows {
        if let Some(truth) = row.truth.as_ref().filter(|truth| !truth.is_steady()) {
            let stretches: Vec<String> = truth
                .stretches
                .iter()
                .map(|share| format!("{share:.1}"))
                .collect();
            let judged = match Asked::ALL.iter().any(|&asked| row.judged(asked).is_some()) {
                true => "judged over its whole run only",
                false => "not judged",
            };
            write!(
                text,
                "\n{} changes its behaviour during the run ({} %), so it is {judged}.\n",
                row.program,
                stretches.join(", ")
            )
            .expect("writing to a String");
        }
    }
    for row in rows {
        if let Some(reason) = &row.uncounted {
            write!(
                text,
                "\nNo reference count for {}: {reason}.\n",
                row.program
            )
            .expect("writing to a String");
        }
    }
    text
}

fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let dash = || "–".to_string();
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let of = |estimate: &Option<Estimate>, pick: fn(&Estimate) -> f64| {
        estimate
            .as_ref()
            .map_or_else(dash, |estimate| percent(pick(estimate)))
    };
    let truth = row.truth.as_ref();
    let error = |first: Asked, second: Asked| {
        let Some((truth, shares)) = row.judged(first).or_else(|| row.judged(second)) else {
            return dash();
        };
        // Adding zero turns a rounded -0.0 into 0.0.
        let error = 100.0 * shares.fp - truth.fp_percent;
        format!("{:+.1}", (10.0 * error).round() / 10.0 + 0.0)
    };
    let right = match (row.class_is_right(), truth.map(|truth| truth.class)) {
        (Some(_), Some(Class::Between)) => "either".to_string(),
        (Some(true), _) => "yes".to_string(),
        (Some(false), _) => "**no**".to_string(),
        (None, _) => dash(),
    };
    [
        row.program.clone(),
        row.kind.clone(),
        truth.map_or_else(dash, |truth| truth.method.clone()),
        truth.map_or_else(dash, |truth| match truth.standard_error {
            0.0 => format!("{:.1}", truth.fp_percent),
            error => format!("{:.1} ± {error:.1}", truth.fp_percent),
        }),
        of(&row.privileged, |estimate| estimate.first_second.fp),
        of(&row.privileged, |estimate| estimate.whole.fp),
        error(Asked::PrivilegedFirstSecond, Asked::UnprivilegedFirstSecond),
        error(Asked::PrivilegedWhole, Asked::UnprivilegedWhole),
        row.privileged
            .as_ref()
            .or(row.unprivileged.as_ref())
            .map_or_else(dash, |estimate| {
                format!("{:.1}", estimate.first_second.half_width())
            }),
        of(&row.unprivileged, |estimate| estimate.first_second.fp),
        right,
    ]
}

/// The table of errors, and whether the limits are met.
pub fn summary(rows: &[Row], summary: &Summary) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header([
        "perch asked",
        "FP programs",
        "mean error",
        "largest",
        "at",
        "90 % interval ±",
        "covered %",
        "loads",
        "stores",
        "branches",
        "divides",
        "vector",
    ]);
    for error in &summary.errors {
        let other = |name: &str| {
            error
                .others
                .get(name)
                .map_or_else(|| "–".into(), |value| format!("{value:.1}"))
        };
        table.add_row([
            error.asked.name().to_string(),
            error.programs.to_string(),
            format!("{:.1}", error.mean),
            format!("{:.1}", error.largest),
            error.worst.clone(),
            format!("{:.1}", error.half_width),
            format!("{:.0}", error.covered),
            other("load_share"),
            other("store_share"),
            other("branch_share"),
            other("divide_share"),
            other("vector_share"),
        ]);
    }
    let mut text = format!("{table}\n\n");
    let worst = |class: Class, worse: fn(f64, f64) -> f64, start: f64| {
        rows.iter()
            .filter(|row| row.truth.as_ref().is_some_and(|truth| truth.class == class))
            .flat_map(|row| {
                [Asked::PrivilegedFirstSecond, Asked::UnprivilegedFirstSecond]
                    .map(|asked| row.judged(asked))
            })
            .flatten()
            .fold(start, |most, (_, shares)| worse(most, 100.0 * shares.fp))
    };
    write!(
        text,
        "{} programs were measured. After one second, the highest share of an integer program is {:.1} %, and the lowest \
         share of a floating-point-heavy program is {:.1} %.\n\n",
        summary.programs,
        worst(Class::Integer, f64::max, 0.0),
        worst(Class::Heavy, f64::min, 100.0),
    )
    .expect("writing to a String");
    if let Some((program, step)) = &summary.largest_step {
        write!(
            text,
            "Among the stationary programs, the share of {program} changes most between two seconds: by a factor of \
             {step:.2}.\n\n"
        )
        .expect("writing to a String");
    }
    if summary.violations.is_empty() {
        text.push_str("All limits are met.\n");
    } else {
        text.push_str("Limits that are not met:\n\n");
        for violation in &summary.violations {
            writeln!(text, "- {violation}").expect("writing to a String");
        }
    }
    text
}

/// The whole page.
pub fn page(machine: &Machine, development: &Part, held_out: &Part) -> String {
    let pus = if machine.pus == 1 { "PU" } else { "PUs" };
    let rights = match machine.as_root {
        true => "Privileged means root; unprivileged means the user nobody without any capability.",
        false => "This run had no root rights, so all numbers are those of an ordinary user.",
    };
    let place = format!(
        "{}, {} {pus}, kernel {}, {}; {}. {rights}",
        machine.processor,
        machine.pus,
        machine.kernel,
        machine.system,
        machine.versions.join("; ")
    );
    let parts = [("development", development), ("held out", held_out)];
    let text = PAGE.replace("{machine}", &place);
    parts.into_iter().fold(text, |text, (name, part)| {
        let (rows, result) = (&part.programs, &part.summary);
        text.replace(
            &format!("{{{name}: summary}}"),
            summary(rows, result).trim_end(),
        )
        .replace(&format!("{{{name}: programs}}"), programs(rows).trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::{judge, tests::row};

    #[test]
    fn the_page_shows_every_program_and_every_violation() {
        let mut rows = vec![
            row("adder", 31.0, 30.0, 29.96),
            row("sorter", 0.0, 0.0, 0.0),
            row("solver", 20.0, 4.0, 5.0),
        ];
        rows[1].unprivileged = row("", 0.0, 1.5, 0.0).privileged;
        let mut absent = row("absent", 0.0, 0.0, 0.0);
        (absent.truth, absent.privileged) = (None, None);
        absent.missing = Some("absent is missing: apt-get install absent".into());
        rows.push(absent);
        let mut blank = row("blank", 0.0, 3.0, 3.0);
        blank.truth = None;
        blank.uncounted = Some("it ended at once".into());
        rows.push(blank);
        let others = vec![row("caster", 12.0, 12.1, 12.3)];
        let machine = Machine {
            processor: "A Processor".into(),
            pus: 2,
            kernel: "6.0".into(),
            system: "A System".into(),
            versions: vec!["perch 1".into(), "valgrind-3".into()],
            as_root: true,
        };
        let [development, held_out] = [rows, others].map(|rows| Part {
            list: "list",
            summary: judge(&rows, true),
            programs: rows,
        });
        insta::assert_snapshot!(page(&machine, &development, &held_out));
    }
}
