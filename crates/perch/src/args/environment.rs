//! Arguments whose values come from environment variables. An error about one of them names the variable: nobody looks for
//! it among the flags that were not given.

use clap::{
    Arg, ArgMatches, Command,
    builder::Resettable,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use std::ffi::{OsStr, OsString};

/// An argument that a variable has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    id: String,
    flag: String,
    variable: String,
    value: String,
}

/// The command without its variables that are set to nothing: as elsewhere, that is as good as not set.
pub fn without_empty(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let arg = |arg: Arg| match arg.get_env().is_some_and(is_empty) {
        true => arg.env(Resettable::Reset),
        false => arg,
    };
    command.mut_args(arg).mut_subcommands(without_empty)
}

/// All arguments of the command and its subcommand that the environment has set.
pub fn set(command: &Command, matches: &ArgMatches) -> Vec<Set> {
    let mut all = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let (Some(variable), Some(long)) = (arg.get_env(), arg.get_long()) else {
            continue;
        };
        if matches.try_contains_id(id).is_err()
            || matches.value_source(id) != Some(ValueSource::EnvVariable)
        {
            continue;
        }
        all.push(Set {
            id: id.to_owned(),
            flag: format!("--{long}"),
            variable: variable.to_string_lossy().into_owned(),
            value: std::env::var_os(variable)
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        });
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        all.extend(set(command, matches));
    }
    all
}

/// The error with the variables in front that it is about.
pub fn named(set: &[Set], error: anyhow::Error) -> anyhow::Error {
    let text = crate::exit::describe(&error);
    let about = set.iter().filter(|set| set.is_in(&text));
    let about = about.map(|set| format!("{}={}", set.variable, set.value));
    match about.collect::<Vec<_>>() {
        about if about.is_empty() => error,
        about => error.context(about.join(", ")),
    }
}

impl Set {
    /// Whether a message is about this argument: it names the flag, or the value as what it is.
    fn is_in(&self, text: &str) -> bool {
        let as_a_name = |what: &str| {
            let forms = ["{what} {}", "{what} `{}`", "{what} is {}"];
            forms.iter().any(|form| {
                let form = form.replace("{what}", what).replace("{}", &self.value);
                has_word(text, &form)
            })
        };
        has_word(text, &self.flag)
            || match self.id.as_str() {
                "policy" | "profile" => as_a_name(&self.id),
                "config" | "plugin" => false,
                _ => return false,
            }
            || (self.value.contains(['/', '.']) && has_word(text, &self.value))
    }
}

/// Whether `wanted` stands in the text, and is not part of a longer name.
fn has_word(text: &str, wanted: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "-_".contains(c);
    text.match_indices(wanted).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + wanted.len()..].chars().next();
        !before.is_some_and(inside) && !behind.is_some_and(inside)
    })
}

/// clap's error with the variable in place of a flag that was not `given`.
pub fn instead_of_flag(
    mut error: clap::Error,
    command: &Command,
    given: &[OsString],
) -> clap::Error {
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let flag = named.split([' ', '=']).next().unwrap_or_default();
    let is_given = given
        .iter()
        .take_while(|word| *word != "--")
        .filter_map(|word| word.to_str())
        .any(|word| word.split('=').next() == Some(flag));
    let variable = flag
        .strip_prefix("--")
        .filter(|_| !is_given)
        .and_then(|long| variable(command, long));
    if let Some(variable) = variable {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    error
}

/// The variable, if it is set, that stands for a flag.
fn variable(command: &Command, long: &str) -> Option<String> {
    let own = command
        .get_arguments()
        .filter(|arg| arg.get_long() == Some(long))
        .find_map(|arg| arg.get_env());
    let below = || {
        command
            .get_subcommands()
            .find_map(|command| variable(command, long))
    };
    own.filter(|name| std::env::var_os(name).is_some())
        .map(|name| name.to_string_lossy().into_owned())
        .or_else(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(id: &str, value: &str) -> Set {
        Set {
            id: id.to_owned(),
            flag: format!("--{id}"),
            variable: format!("PERCH_{}", id.to_uppercase()),
            value: value.to_owned(),
        }
    }

    #[test]
    fn only_errors_about_a_variable_name_it() {
        let told = |set: Set, text: &'static str| {
            let error = named(&[set], anyhow::Error::msg(text));
            crate::exit::describe(&error)
        };
        for (id, value, text) in [
            ("policy", "cpy", "no policy `cpy`; did you mean `cpi`?"),
            ("policy", "fixed", "policy fixed: no rules"),
            ("profile", "/x.toml", "/x.toml:3:1: no name"),
            ("config", "c.toml", "c.toml: cannot be read"),
            ("pus", "9", "--pus 9: no PU 9 here"),
        ] {
            let name = format!("PERCH_{}={value}: ", id.to_uppercase());
            assert_eq!(told(set(id, value), text), name + text);
        }
        for (id, value, text) in [
            ("policy", "fixed", "policy fixed-2: no rules"),
            ("policy", "cpi", "cpi: not found"),
            ("pus", "9", "--pus-file 9: no PU 9 here"),
            ("period", "1s", "1s is over"),
        ] {
            assert_eq!(told(set(id, value), text), text);
        }
    }
}
