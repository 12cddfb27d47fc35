//! Names of events that mean nothing here.

use perch_core::{MachineError, diagnostic::did_you_mean};
use perch_linux::perf::encode::Encoder;
use perch_stat::{Request, without_modifier};

/// The error; if it is about names that the user wrote and nobody knows, that is said instead, with the names that may have
/// been meant.
pub fn explain(
    error: MachineError,
    request: &Request,
    known: impl FnOnce() -> Vec<String>,
) -> anyhow::Error {
    let MachineError::UnknownEvents { aliases, .. } = &error else {
        return error.into();
    };
    let known = known();
    let events = request.events();
    let unknown = events
        .iter()
        .filter(|event| aliases.contains(&event.alias))
        .filter_map(|event| plain(&event.choices.first()?.spellings))
        .filter(|name| !known.contains(name));
    let mut is_new = false;
    let said: Vec<String> = unknown
        .map(|name| {
            let near = did_you_mean(&name, known.iter().map(String::as_str));
            is_new |= near.is_none();
            let near = near.map_or(String::new(), |near| format!("; {near}"));
            format!("no event is called `{name}`{near}")
        })
        .collect();
    if said.is_empty() {
        return error.into();
    }
    let more = match (is_new, Encoder::new().pfm()) {
        (false, _) => String::new(),
        (true, Ok(_)) => "; `perch events WORD` searches for events".to_owned(),
        (true, Err(why)) => format!(", unless in a manufacturer's manual: {why}"),
    };
    anyhow::anyhow!("{}{more}", said.join("; "))
}

/// The name that the user wrote, without its modifier; `None` for codes, tracepoints, and names of the profile.
fn plain(spellings: &[String]) -> Option<String> {
    let name = without_modifier(spellings.first()?);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    name.chars().all(is_name).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_profile::Library;
    use perch_stat::Space;

    fn told(error: MachineError) -> String {
        let mut library = Library::load(&[]).unwrap();
        let profile = library.choose("zen4").unwrap();
        let events = ["cycels:u,cycles,task-clock,sched:sched_switch,page-fautls".to_owned()];
        let request = Request::parse(&events, profile, Space::All).unwrap();
        let known = ["cycles", "page-faults"].map(str::to_owned).to_vec();
        explain(error, &request, || known).to_string()
    }

    fn unknown(aliases: &[&str]) -> MachineError {
        MachineError::UnknownEvents {
            aliases: aliases.iter().map(|alias| (*alias).into()).collect(),
            text: "nothing can be counted: why".into(),
        }
    }

    #[test]
    fn a_typo_is_said_first_and_alone() {
        assert_eq!(
            told(unknown(&["page_fautls"])),
            "no event is called `page-fautls`; did you mean `page-faults`?"
        );
        let two = told(unknown(&["cycels:u", "page_fautls"]));
        assert!(
            two.starts_with("no event is called `cycels`; did you mean `cycles`?; no event"),
            "{two}"
        );
    }

    #[test]
    fn other_errors_suggest_no_names() {
        assert_eq!(told(MachineError::Other("no room".into())), "no room");
        // The profile's own events, and tracepoints, whose error says what is missing.
        for alias in ["cycles", "sched:sched_switch"] {
            assert_eq!(told(unknown(&[alias])), "nothing can be counted: why");
        }
    }
}
