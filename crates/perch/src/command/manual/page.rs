//! One manual page, with the sections of man-pages(7).
//!
//! Name, synopsis, description and options are clap_mangen's; it puts all the rest of `--help` into a section "EXTRA".

use clap::Command;
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, italic, roman},
};
use std::{collections::BTreeMap, io, iter};

/// Variables that are read besides those of the options.
const VARIABLES: [(&str, &str); 6] = [
    (
        "PERCH_PROFILES",
        "Directories with processor profiles of your own, separated by colons, instead of ~/.config/perch/profiles.",
    ),
    (
        "PERCH_STATE_DIR",
        "Where journals are kept: an absolute path to a directory that is yours.",
    ),
    (
        "XDG_CONFIG_HOME",
        "Where the directory perch with your files is, instead of ~/.config.",
    ),
    (
        "XDG_RUNTIME_DIR",
        "Where journals and locks of users are kept, in a directory perch.",
    ),
    (
        "PERCH_SESSION",
        "Set by perch for the programs that it starts, so that their descendants are found.",
    ),
    (
        "PERCH_REGIONS",
        "Set by perch stat for the program that it starts: where instrumented programs leave reports of their regions.",
    ),
];

/// Files that commands read and write.
const FILES: [(&str, &str); 4] = [
    (
        "~/.config/perch/config.toml",
        "Settings; perch config --defaults prints one with all of them.",
    ),
    (
        "~/.config/perch/calibration.toml, /etc/perch/calibration.toml",
        "What perch calibrate measured on this machine; the second as root.",
    ),
    (
        "~/.config/perch/profiles/*.toml",
        "Processor profiles of your own.",
    ),
    (
        "/run/perch, $XDG_RUNTIME_DIR/perch, /run/user/UID/perch, /tmp/perch-UID",
        "Journals of changed masks, and the locks of PUs: the first for root, else the first of the others that there is.",
    ),
];

/// Exit codes of commands whose help does not tell its own.
const EXIT_CODES: [(&str, &str); 5] = [
    ("0", "Success."),
    (
        "1",
        "A mask could not be restored (perch restore, perch irq --apply), or a claim misses (perch lab run --strict); the \
         output names it.",
    ),
    ("2", "The command line cannot be read."),
    ("125", "perch itself failed, or a setting is wrong."),
    ("128+N", "Stopped by signal N before the work was done."),
];

/// Pages of other programs.
const OTHERS: [&str; 6] = [
    "lstopo(1)",
    "taskset(1)",
    "perf(1)",
    "sched_setaffinity(2)",
    "perf_event_open(2)",
    "cpuset(7)",
];

/// The page's name, such as `perch-run`.
pub fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// The page of a command of `perch`, both built, in the language of man(7).
///
/// # Errors
/// Never in practice: only memory is written to.
pub fn page(perch: &Command, command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone())
        // An empty one would let the source take its place.
        .date(" ")
        .source(format!("perch {}", env!("CARGO_PKG_VERSION")))
        .manual("perch manual");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    let mut options = Vec::new();
    man.render_options_section(&mut options)?;
    text.extend(below_one_heading(command, &String::from_utf8_lossy(&options)).into_bytes());
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        let mut commands = Vec::new();
        man.render_subcommands_section(&mut commands)?;
        let commands = String::from_utf8_lossy(&commands);
        text.extend(commands.replace(".SH SUBCOMMANDS", ".SH COMMANDS").bytes());
    }
    let help = command.get_after_long_help().or(command.get_after_help());
    let told = Told::new(&help.map(ToString::to_string).unwrap_or_default());
    let mut rest = Roff::new();
    rest.control("SH", ["EXIT STATUS"]);
    match told.exit_status.as_slice() {
        [] => definitions(&mut rest, EXIT_CODES.map(|(code, what)| (bold(code), what))),
        own => paragraphs(&mut rest, own),
    }
    rest.control("SH", ["ENVIRONMENT"]);
    let variables = variables(perch);
    let variables = variables.iter().map(|(name, what)| (bold(*name), &**what));
    definitions(&mut rest, variables);
    rest.control("SH", ["FILES"]);
    definitions(&mut rest, FILES.map(|(file, what)| (italic(file), what)));
    if !told.notes.is_empty() {
        rest.control("SH", ["NOTES"]);
        paragraphs(&mut rest, &told.notes);
    }
    if !told.examples.is_empty() {
        rest.control("SH", ["EXAMPLES"]);
        paragraphs(&mut rest, &told.examples);
    }
    rest.control("SH", ["SEE ALSO"]);
    rest.text([roman(see_also(perch, command).join(", "))]);
    rest.to_writer(&mut text)?;
    // Each part brings the definitions that apostrophes need.
    let preamble = Roff::new().render();
    let parts = String::from_utf8_lossy(&text).replace(&preamble, "");
    Ok(preamble + &parts)
}

/// The options under one heading, those of each group of `--help` below a heading of their own.
fn below_one_heading(command: &Command, options: &str) -> String {
    let mut titles = BTreeMap::new();
    for title in command.get_arguments().filter_map(|a| a.get_help_heading()) {
        titles.insert(title.to_uppercase(), title);
    }
    let line = |line: &str| {
        let heading = line.strip_prefix(".SH ").map(|text| text.trim_matches('"'));
        match heading.and_then(|heading| titles.get(heading)) {
            Some(title) => format!(".SS \"{title}\"\n"),
            None => format!("{line}\n"),
        }
    };
    options.lines().map(line).collect()
}

/// What stands below the options in `--help`: paragraphs, each with its lines.
#[derive(Debug, Default, PartialEq)]
struct Told {
    examples: Vec<String>,
    exit_status: Vec<String>,
    notes: Vec<String>,
}

impl Told {
    fn new(help: &str) -> Self {
        let mut told = Self::default();
        for paragraph in help.split("\n\n").filter(|text| !text.trim().is_empty()) {
            let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
            match first.trim_end() {
                "Example:" | "Examples:" => told.examples.push(rest.to_owned()),
                first if first.starts_with("The exit code ") => {
                    told.exit_status.push(paragraph.to_owned());
                }
                _ => told.notes.push(paragraph.to_owned()),
            }
        }
        told
    }
}

/// Paragraphs: indented lines stay as they are, others are filled.
fn paragraphs(roff: &mut Roff, paragraphs: &[String]) {
    for paragraph in paragraphs {
        roff.control("PP", []);
        let mut literal = false;
        for line in paragraph.lines() {
            let indented = line.starts_with(' ');
            if indented != literal {
                roff.control(if indented { "nf" } else { "fi" }, []);
                literal = indented;
            }
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        if literal {
            roff.control("fi", []);
        }
    }
}

/// Names, each with what it means.
fn definitions<'a>(roff: &mut Roff, list: impl IntoIterator<Item = (Inline, &'a str)>) {
    for (name, what) in list {
        roff.control("TP", []);
        roff.text([name]);
        roff.text([roman(what)]);
    }
}

/// The variables of all commands by name: those of options, and [`VARIABLES`].
fn variables(perch: &Command) -> BTreeMap<&str, String> {
    let mut found: BTreeMap<&str, String> =
        VARIABLES.map(|(name, what)| (name, what.to_owned())).into();
    for argument in everything(perch).flat_map(Command::get_arguments) {
        if let (Some(name), Some(long)) = (
            argument.get_env().and_then(|name| name.to_str()),
            argument.get_long(),
        ) {
            let what = format!("The same as --{long}, which takes precedence.");
            found.entry(name).or_insert(what);
        }
    }
    found
}

/// A command and all below it that are shown.
fn everything(command: &Command) -> Box<dyn Iterator<Item = &Command> + '_> {
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
    Box::new(iter::once(command).chain(shown.flat_map(everything)))
}

/// The other pages of perch that are next to this one, and those of other programs.
fn see_also(perch: &Command, command: &Command) -> Vec<String> {
    let own = name(command);
    let next = match own == name(perch) {
        // They are listed under COMMANDS.
        true => Vec::new(),
        false => perch
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .chain(iter::once(perch))
            .map(name)
            .filter(|other| *other != own)
            .collect(),
    };
    let next = next.into_iter().map(|page| format!("{page}(1)"));
    let mut pages: Vec<String> = next.collect();
    pages.sort();
    pages.extend(OTHERS.map(str::to_owned));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_told_apart_by_paragraphs() {
        let told = Told::new("Examples:\n  perch a\n  perch b\n\nThe exit code is 3.\n\nMore.");
        assert_eq!(told.examples, ["  perch a\n  perch b"]);
        assert_eq!(told.exit_status, ["The exit code is 3."]);
        assert_eq!(told.notes, ["More."]);
        assert_eq!(Told::new(""), Told::default());
    }

    #[test]
    fn indented_lines_are_literal_and_others_filled() {
        let mut roff = Roff::new();
        paragraphs(&mut roff, &["The table:\n  a  b\n.x".to_owned()]);
        let text = roff.to_roff();
        assert!(text.contains("The table:\n.nf\na  b\n.fi\n\\&.x"), "{text}");
    }
}
