//! Another machine: perch there prints snapshots, and the user's own ssh brings them here.

use super::told;
use crate::args::{Counters, TopArgs};
use anyhow::{Result, bail};
use perch_top::source::stream::CommandSource;
use std::process::Command;

/// Connects.
///
/// # Errors
/// A name that is none, no ssh here.
pub fn connect(args: &TopArgs, host: &str) -> Result<CommandSource> {
    if host.is_empty() || host.starts_with('-') {
        bail!("--host {host}: not a host; write one such as user@node");
    }
    let mut ssh = Command::new("ssh");
    // No terminal there: lines would be changed on their way.
    ssh.args(["-T", "--", host, &remote_command(args)]);
    CommandSource::start(ssh, host).map_err(told)
}

/// The command line there, for the user's shell.
fn remote_command(args: &TopArgs) -> String {
    let mut words = vec![quoted(&args.remote_perch)];
    words.extend(["top", "--json", "--interval"].map(str::to_owned));
    words.push(format!("{}ms", args.interval.as_millis()));
    if !args.pids.is_empty() {
        let pids: Vec<String> = args.pids.iter().map(ToString::to_string).collect();
        words.extend(["--pid".to_owned(), pids.join(",")]);
    }
    if let Some(counters) = args.counters {
        let name = match counters {
            Counters::Auto => "auto",
            Counters::Pmu => "pmu",
            Counters::Sampling => "sampling",
        };
        words.extend(["--counters", name].map(str::to_owned));
    }
    if let Some(profile) = &args.profile {
        words.extend(["--profile".to_owned(), quoted(profile)]);
    }
    words.join(" ")
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_shell_there_sees_words_as_they_are() {
        let line = "perch top --host n -i 500ms -p 3,4 --counters auto --remote-perch";
        let words = line.split(' ').chain(["/opt/it's/perch; rm -rf"]);
        let args = crate::args::Args::try_parse_from(words).unwrap();
        let crate::args::Command::Top(args) = args.command else {
            panic!("another command");
        };
        assert_eq!(
            remote_command(&args),
            r"'/opt/it'\''s/perch; rm -rf' top --json --interval 500ms --pid 3,4 --counters auto"
        );
        assert!(connect(&args, "-oProxyCommand=x").is_err());
    }
}
