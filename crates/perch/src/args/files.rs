//! No file that perch writes may be one that it reads, the program that it starts, or another file that it writes. One
//! check serves all commands: a list of flag names says which files are written.

use clap::{Arg, ArgMatches, Command, ValueHint};
use perch_core::MachineError;
use perch_linux::launch;
use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Flags whose files are written.
pub const WRITTEN: &[&str] = &[
    "champsim",
    "html",
    "log",
    "mix",
    "output",
    "perch",
    "pins",
    "placement",
    "plot",
    "svg",
    "timeline",
];

/// The argument that holds a program and its own arguments.
const PROGRAM: &str = "program";

/// A file on the command line.
struct File {
    /// The flag or the argument.
    named: String,
    path: PathBuf,
    written: bool,
    program: bool,
}

/// Whether all files can be what the command line says, before any of them is opened.
///
/// # Errors
/// Which flag names a file that is something else too; a program that cannot be started, for which a file would be emptied.
pub fn check(command: &Command, matches: &ArgMatches) -> anyhow::Result<()> {
    let (files, program) = files(command, matches);
    if files.iter().any(|file| file.written) {
        program?;
    }
    for (at, file) in files.iter().enumerate().filter(|(_, file)| file.written) {
        let clash = files.iter().enumerate().find(|(other, of)| {
            *other != at && (!of.written || *other < at) && same(&file.path, &of.path)
        });
        let Some((_, other)) = clash else { continue };
        let (named, path) = (&file.named, file.path.display());
        let why = match (other.program, other.written) {
            (true, _) => "that is the program".to_owned(),
            (_, true) => format!("{} writes to that file", other.named),
            (_, false) => format!("that is what is read ({})", other.named),
        };
        anyhow::bail!("{named} {path}: {why}; give another file");
    }
    Ok(())
}

/// All files that the arguments of a command and of its subcommand name; and whether its program, if it has one, can be
/// started.
fn files(command: &Command, matches: &ArgMatches) -> (Vec<File>, Result<(), MachineError>) {
    let (mut files, mut startable) = (Vec::new(), Ok(()));
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let Ok(Some(values)) = matches.try_get_raw(id) else {
            continue;
        };
        let values: Vec<&OsStr> = values.collect();
        if id == PROGRAM {
            let search = std::env::var_os("PATH");
            let found = values.first();
            match found.map(|word| launch::find(word, search.as_deref())) {
                Some(Ok(path)) => files.push(File {
                    named: named(arg),
                    path,
                    written: false,
                    program: true,
                }),
                Some(Err(error)) => startable = Err(error),
                None => {}
            }
            continue;
        }
        let written = WRITTEN.contains(&id);
        for path in values.into_iter().flat_map(|value| paths(arg, value)) {
            files.push(File {
                named: named(arg),
                path,
                written,
                program: false,
            });
        }
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        let (more, program) = self::files(command, matches);
        files.extend(more);
        startable = startable.and(program);
    }
    (files, startable)
}

fn named(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => arg.get_id().as_str().to_uppercase(),
    }
}

/// What a value may name: itself, or what is behind the sign in `OPTION=FILE`. Where names that are no files are usual,
/// only what looks like a file.
fn paths(arg: &Arg, value: &OsStr) -> Vec<PathBuf> {
    let is_file = arg.get_value_hint() == ValueHint::FilePath;
    let Some(text) = value.to_str() else {
        return vec![value.into()];
    };
    let behind = text.split_once('=').map(|(_, behind)| behind);
    let looks = |text: &&str| is_file || text.contains(['/', '.']);
    let all = [Some(text), behind].into_iter().flatten();
    all.filter(looks).map(PathBuf::from).collect()
}

/// Whether two names lead to one regular file, or would. Pipes and devices may be named twice.
pub fn same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (Err(_), Err(_)) => match (place(one), place(other)) {
            (Some(a), Some(b)) => a == b,
            _ => one == other,
        },
        _ => false,
    }
}

/// Where a file would be that is not there.
fn place(path: &Path) -> Option<PathBuf> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;
    use std::os::unix::fs::PermissionsExt;

    fn told(words: &[&str]) -> Result<(), String> {
        let words = std::iter::once("perch").chain(words.iter().copied());
        let mut command = Args::command();
        let matches = command.try_get_matches_from_mut(words).unwrap();
        check(&command, &matches).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_read_or_started_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (a, b, link, new) = (name("a.toml"), name("b.toml"), name("link"), name("new"));
        for file in [&a, &b] {
            fs::write(file, "x").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(&a, &link).unwrap();
        let set = format!("calibration={a}");
        for (words, wanted) in [
            (
                vec!["sim", "-m", &a, "-w", "mixed", "--log", &a],
                "--machine",
            ),
            (
                vec!["sim", "-m", "zen", "-w", &a, "--pins", &link],
                "--workload",
            ),
            (
                vec!["run", "--config", &a, "-o", &a, "--", "true"],
                "--config",
            ),
            (vec!["run", "--set", &set, "-o", &a, "--", "true"], "--set"),
            (vec!["run", "--log", &a, "--", &a], "the program"),
            (
                vec!["run", "--log", &new, "-o", &new, "--", "true"],
                "writes to",
            ),
            (
                vec!["run", "--log", &a, "--timeline", &link, "--", "true"],
                "writes to",
            ),
            (vec!["replay", &a, "--log", &link], "FILE"),
            (vec!["trace", &a, "--champsim", &a], "FILE"),
            (vec!["trace", &a, "--perch", &a], "FILE"),
            (vec!["calibrate", "--show", &a, "--svg", &a], "--show"),
            (vec!["lab", "report", &a, "-o", &a], "EXPERIMENTS"),
            (
                vec!["stat", "--sim", "zen", "-w", &a, "-o", &a],
                "--workload",
            ),
        ] {
            let error = told(&words).unwrap_err();
            assert!(
                error.contains(wanted) && error.contains("give another file"),
                "{words:?}: {error}"
            );
        }
        let error = told(&["run", "--log", &a, "--", "/no/such/program"]).unwrap_err();
        assert!(error.contains("not found"), "{error}");
        for words in [
            vec!["run", "--", "/no/such/program"],
            vec!["sim", "-m", &a, "-w", &b, "--log", &new],
            vec!["run", "--log", &a, "-o", &b, "--", "cat", &a],
            vec!["run", "--log", "/dev/null", "-o", "/dev/null", "--", "true"],
            vec!["sim", "-m", "zen", "-w", "mixed", "--log", "mixed"],
        ] {
            assert_eq!(told(&words), Ok(()), "{words:?}");
        }
    }

    /// A new flag for a file is put into one of two lists.
    #[test]
    fn every_flag_for_a_file_is_known_as_read_or_written() {
        const READ: &[&str] = &[
            "config", "file", "files", "from", "pin_file", "plugin", "show", "path", "paths",
        ];
        fn walk(command: &Command) {
            for arg in command.get_arguments() {
                let id = arg.get_id().as_str();
                if arg.get_value_hint() == ValueHint::FilePath {
                    assert!(
                        READ.contains(&id) != WRITTEN.contains(&id),
                        "{} {id}: read or written?",
                        command.get_name()
                    );
                }
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Args::command());
    }
}
