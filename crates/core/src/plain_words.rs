//! What a deserializer complains of, in the words that perch uses for the same mistakes elsewhere.

use crate::suggest::{did_you_mean, did_you_mean_one_of, one_of, plain};

/// The message of a deserializer (serde's words) as a message and a hint for those who wrote the file.
///
/// `forms` say how a table is written, by the type that is expected there: `("struct Time", "time = { … }")`. A message
/// that is of another sort is kept, on one line.
pub fn from_deserializer(message: &str, forms: &[(&str, &str)]) -> (String, Option<String>) {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = unknown(&message)
        .or_else(|| wrong_type(&message, forms))
        .or_else(|| out_of_range(&message));
    if let Some(told) = told {
        return told;
    }
    let of_keys = message
        .strip_prefix("missing field ")
        .map(|key| format!("missing key {key}"))
        .or_else(|| {
            Some(format!(
                "a second key {}",
                message.strip_prefix("duplicate field ")?
            ))
        });
    (of_keys.unwrap_or(message), None)
}

/// Keys and words that are none of those expected.
fn unknown(message: &str) -> Option<(String, Option<String>)> {
    let (rest, is_key) = match message.strip_prefix("unknown field `") {
        Some(rest) => (rest, true),
        None => (message.strip_prefix("unknown variant `")?, false),
    };
    let (wrong, list) = rest
        .split_once("`, expected ")
        .or_else(|| Some((rest.split_once("`, there are no ")?.0, "")))?;
    let mut known: Vec<&str> = Vec::new();
    for name in list.split('`').skip(1).step_by(2) {
        // Other spellings of one key are one key.
        if known.iter().all(|other| plain(other) != plain(name)) {
            known.push(name);
        }
    }
    let wrong = wrong.escape_debug().to_string();
    Some(match (is_key, known.is_empty()) {
        (true, true) => (format!("unknown key `{wrong}`"), None),
        (true, false) => (
            format!("unknown key `{wrong}`"),
            Some(did_you_mean_one_of(&wrong, known)),
        ),
        (false, _) => (
            format!("unknown value `{wrong}`, {}", one_of(&known)),
            did_you_mean(&wrong, known),
        ),
    })
}

/// A value of another type.
fn wrong_type(message: &str, forms: &[(&str, &str)]) -> Option<(String, Option<String>)> {
    let rest = message.strip_prefix("invalid type: ")?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let form = forms.iter().find(|(name, _)| *name == expected);
    let hint = match form {
        Some((_, form)) => Some(format!("write {form}")),
        None => how_to_write(found, expected),
    };
    let (expected, found) = (type_expected(expected), type_found(found));
    Some((format!("expected {expected}, found {found}"), hint))
}

/// A number beyond its type, a list of another length.
fn out_of_range(message: &str) -> Option<(String, Option<String>)> {
    if let Some(rest) = message.strip_prefix("invalid length ") {
        let (found, expected) = rest.split_once(", expected ")?;
        let expected = type_expected(expected);
        return Some((format!("expected {expected}, found {found}"), None));
    }
    let rest = message.strip_prefix("invalid value: ")?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let number = found.strip_prefix("integer `")?.strip_suffix('`')?;
    let range = match expected {
        "u8" => "from 0 to 255",
        "u16" => "from 0 to 65535",
        "u32" => "from 0 to 4294967295",
        "u64" | "usize" => "of 0 or more",
        _ => return None,
    };
    let message = format!("`{number}` is out of range, expected a whole number {range}");
    Some((message, None))
}

fn is_whole(expected: &str) -> bool {
    let whole = [
        "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize",
    ];
    whole.contains(&expected)
}

fn is_number(expected: &str) -> bool {
    is_whole(expected) || matches!(expected, "f64" | "f32")
}

fn type_expected(expected: &str) -> String {
    match expected {
        whole if is_whole(whole) => "a whole number".to_owned(),
        "f64" | "f32" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a map" => "a table".to_owned(),
        "a sequence" => "a list".to_owned(),
        "string or map" => "a string or a table".to_owned(),
        table if table.starts_with("struct ") => "a table".to_owned(),
        other => match other.strip_prefix("an array of length ") {
            Some(length) => format!("a list of {length}"),
            None => other.to_owned(),
        },
    }
}

fn type_found(found: &str) -> &str {
    match found.split(' ').next().unwrap_or("") {
        "string" => "a string",
        "integer" => "a whole number",
        "floating" => "a number with a fraction",
        "boolean" => "`true` or `false`",
        "map" => "a table",
        "sequence" => "a list",
        _ => found,
    }
}

/// The same value as it should be written, where that can be told, or an example.
fn how_to_write(found: &str, expected: &str) -> Option<String> {
    let quoted = found.strip_prefix("string \"");
    let text = quoted.and_then(|rest| rest.strip_suffix('"'));
    if is_number(expected) {
        let text = text?.trim();
        let whole = is_whole(expected);
        let percent = text.strip_suffix('%').map(str::trim_end);
        if let Some(share) = percent.and_then(|number| number.parse::<f64>().ok())
            && !whole
        {
            return Some(format!("write {} for {share} %", share / 100.0));
        }
        let digits = text.trim_start_matches("0x");
        let reads = match whole {
            true => !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_hexdigit()),
            false => text.parse::<f64>().is_ok(),
        };
        // Letters make no number unless `0x` says so.
        let reads = reads && (text != digits || text.parse::<f64>().is_ok());
        return Some(match (reads, whole) {
            (true, _) => format!("write {text}, without quotes"),
            (false, true) => "write a number without quotes, such as 25 or 0x19".to_owned(),
            (false, false) => "write a number without quotes, such as 0.05".to_owned(),
        });
    }
    let value = found.split('`').nth(1);
    match (expected, value, text) {
        ("a string", Some(value), _) => Some(format!("write it in quotes: \"{value}\"")),
        ("a boolean", _, Some(_)) => Some("write true or false, without quotes".to_owned()),
        ("a sequence", _, Some(text)) => Some(format!("write a list: [\"{text}\"]")),
        ("a sequence", Some(value), _) => Some(format!("write a list: [{value}]")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(message: &str) -> String {
        let forms = [("struct Time", "time = { length = \"3 s\" }")];
        match from_deserializer(message, &forms) {
            (message, Some(hint)) => format!("{message}\n  {hint}"),
            (message, None) => message,
        }
    }

    #[test]
    fn types_are_named_as_users_know_them() {
        for (from, to) in [
            (
                "invalid type: string \"1s\", expected struct Time",
                "expected a table, found a string\n  write time = { length = \"3 s\" }",
            ),
            (
                "invalid type: string \"Zen 4\", expected u32",
                "expected a whole number, found a string\n  write a number without quotes, such as 25 or 0x19",
            ),
            (
                "invalid type: string \"0x19\", expected u32",
                "expected a whole number, found a string\n  write 0x19, without quotes",
            ),
            (
                "invalid type: string \"5%\", expected f64",
                "expected a number, found a string\n  write 0.05 for 5 %",
            ),
            (
                "invalid type: string \"much\", expected f64",
                "expected a number, found a string\n  write a number without quotes, such as 0.05",
            ),
            (
                "invalid type: integer `1`, expected a string",
                "expected a string, found a whole number\n  write it in quotes: \"1\"",
            ),
            (
                "invalid type: string \"a, expected b\", expected a sequence",
                "expected a list, found a string\n  write a list: [\"a, expected b\"]",
            ),
            (
                "invalid type: map, expected a string",
                "expected a string, found a table",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "`-1` is out of range, expected a whole number from 0 to 4294967295",
            ),
            (
                "invalid length 1, expected an array of length 2",
                "expected a list of 2, found 1",
            ),
        ] {
            assert_eq!(told(from), to);
        }
    }

    #[test]
    fn keys_and_words_have_hints() {
        for (from, to) in [
            (
                "unknown field `lenght`, expected `warm-up` or `length`",
                "unknown key `lenght`\n  did you mean `length`?",
            ),
            (
                "unknown field `zzz`, expected one of `on_demand`, `on-demand`, `name`",
                "unknown key `zzz`\n  expected one of `on_demand`, `name`",
            ),
            ("unknown field `x`, there are no fields", "unknown key `x`"),
            (
                "unknown variant `peper`, expected `paper` or `perch`",
                "unknown value `peper`, expected one of `paper`, `perch`\n  did you mean `paper`?",
            ),
            ("missing field `name`", "missing key `name`"),
            ("duplicate field `name`", "a second key `name`"),
            (
                "unclosed array,\nexpected `]`",
                "unclosed array, expected `]`",
            ),
        ] {
            assert_eq!(told(from), to);
        }
    }
}
