//! What goes wrong when a policy is named or configured.

/// A policy that cannot be built; the text says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No policy of that name.
    #[error("no policy '{name}'{hint}; there are: {known}")]
    UnknownPolicy {
        /// The name as the user gave it.
        name: String,
        /// A suggestion that starts with a separator, or nothing.
        hint: String,
        /// The names that there are, separated by commas.
        known: String,
    },
    /// The policy has no such option.
    #[error("policy {policy} has no option '{option}'{hint}; it has: {known}")]
    UnknownOption {
        /// The policy's name.
        policy: &'static str,
        /// The option as the user gave it.
        option: String,
        /// A suggestion that starts with a separator, or nothing.
        hint: String,
        /// The options that there are, separated by commas.
        known: String,
    },
    /// An option with a value of the wrong type or out of range.
    #[error("policy {policy}: {message}")]
    BadOption {
        /// The policy's name.
        policy: &'static str,
        /// Description of the error, and the valid values.
        message: String,
    },
    /// Rules of manual binding that cannot be read; one message a rule.
    #[error("{0}")]
    Rules(String),
}

/// `; did you mean 'x'?` for the candidate that is nearest to `given`, or nothing if none is near.
pub(crate) fn suggestion<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    perch_core::diagnostic::nearest(given, candidates)
        .map(|candidate| format!("; did you mean '{candidate}'?"))
        .unwrap_or_default()
}

/// A calibration that the options name and that was not handed over with them.
pub(crate) fn not_read(policy: &'static str, file: &str) -> PolicyError {
    PolicyError::BadOption {
        policy,
        message: format!("calibration = \"{file}\": this file was not read"),
    }
}

/// Whether options that are shares lie between 0 and 1.
pub(crate) fn check_shares(options: &[(&str, f64)]) -> Result<(), String> {
    for (name, value) in options {
        if !(0.0..=1.0).contains(value) {
            return Err(format!("{name} = {value}: give a share from 0 to 1"));
        }
    }
    Ok(())
}
