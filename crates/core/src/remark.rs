//! What the user should know: text for people, with a code, a scope and a severity for programs.

use crate::ThreadId;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};

/// Severity of a remark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It explains what perch does, such as why nothing is bound.
    #[default]
    Note,
    /// Something is measured worse, or not placed, that the user may expect to be.
    Warning,
    /// Something failed that perch is there for.
    Error,
}

/// The object of a remark: the session, a process, a thread or a PU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole session.
    #[default]
    Session,
    /// A process, by its number.
    Process(i32),
    /// A thread.
    Thread(ThreadId),
    /// A PU, by the operating system's number.
    Pu(u32),
}

/// The code of remarks in recordings of versions that had none.
const UNCODED: &str = "remark";

/// One remark. `docs/remarks.md` lists the codes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form")]
pub struct Remark {
    /// What kind of remark it is; it never changes, unlike the text.
    pub code: Cow<'static, str>,
    /// The session, process, thread or PU that it is about.
    pub scope: Scope,
    /// Severity: note, warning or error.
    pub severity: Severity,
    /// One or two sentences.
    pub text: String,
    /// What tells it from others of its code and scope, if not its text: a text with a measured number in it differs each
    /// time and says nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// As it is recorded: recordings before this version hold only the text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Whole {
        code: String,
        scope: Scope,
        severity: Severity,
        text: String,
        #[serde(default)]
        key: Option<String>,
    },
}

impl From<Form> for Remark {
    fn from(form: Form) -> Self {
        match form {
            Form::Text(text) => Self::note(UNCODED, text),
            Form::Whole {
                code,
                scope,
                severity,
                text,
                key,
            } => Self {
                code: code.into(),
                scope,
                severity,
                text,
                key,
            },
        }
    }
}

impl Remark {
    fn new(code: &'static str, severity: Severity, text: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            scope: Scope::Session,
            severity,
            text: text.into(),
            key: None,
        }
    }

    /// One that explains what perch does.
    pub fn note(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(code, Severity::Note, text)
    }

    /// One about something that is worse than the user may expect.
    pub fn warning(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, text)
    }

    /// One about something that failed.
    pub fn error(code: &'static str, text: impl Into<String>) -> Self {
        Self::new(code, Severity::Error, text)
    }

    /// The same remark about a narrower scope.
    #[must_use]
    pub fn about(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The same remark, which says nothing new after another of its code, scope and key.
    #[must_use]
    pub fn keyed(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The same remark, which says nothing new after another of its code and scope.
    #[must_use]
    pub fn once(self) -> Self {
        self.keyed("")
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_back_and_so_does_the_bare_text_of_old_recordings() {
        let remark = Remark::warning("some-code", "PU 3 is odd")
            .about(Scope::Pu(3))
            .once();
        let line = serde_json::to_string(&remark).unwrap();
        assert_eq!(
            line,
            r#"{"code":"some-code","scope":{"pu":3},"severity":"warning","text":"PU 3 is odd","key":""}"#
        );
        assert_eq!(serde_json::from_str::<Remark>(&line).unwrap(), remark);
        let old: Remark = serde_json::from_str(r#""a text""#).unwrap();
        assert_eq!(old, Remark::note(UNCODED, "a text"));
    }
}
