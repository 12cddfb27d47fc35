//! No text from outside makes a parser panic, and what parsers accept holds what they promise.

use perch_profile::{
    CpuIdentity, Library, Profile, Spelling, detect,
    formula::{Formula, is_name},
};
use proptest::prelude::*;

/// A shipped profile with a piece cut out, doubled, or replaced.
fn damaged() -> impl Strategy<Value = String> {
    let texts: Vec<String> = Library::embedded()
        .list()
        .iter()
        .map(|profile| profile.text.clone())
        .collect();
    (
        prop::sample::select(texts),
        any::<prop::sample::Index>(),
        0..80usize,
        "(?s).{0,12}",
        any::<bool>(),
    )
        .prop_map(|(text, at, length, new, double)| {
            let characters: Vec<char> = text.chars().collect();
            let start = at.index(characters.len());
            let end = (start + length).min(characters.len());
            let mut out: String = characters[..start].iter().collect();
            out += &new;
            if double {
                out.extend(&characters[start..end]);
            }
            out.extend(&characters[if double { start } else { end }..]);
            out
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn profiles_from_any_text(text in "(?s).{0,300}") {
        if let Err(error) = Profile::parse(&text, "any.toml") {
            prop_assert!(error.to_string().starts_with("any.toml:"));
        }
    }

    #[test]
    fn profiles_from_damaged_ones(text in damaged()) {
        match Profile::parse(&text, "damaged.toml") {
            Ok(profile) => {
                profile.event_plan();
            }
            Err(error) => {
                let lines = text.matches('\n').count() + 1;
                prop_assert!((1..=lines).contains(&error.line), "{error}");
                prop_assert!(error.column >= 1 && error.column <= error.text.chars().count() + 1, "{error}");
                prop_assert!(error.to_string().contains('^'));
            }
        }
    }

    #[test]
    fn formulas_from_any_text(text in "(?s).{0,120}") {
        let _ = Formula::parse(&text);
    }

    #[test]
    fn formulas_from_their_own_alphabet(text in "[a-c0-9 .,()+*/^-]{0,60}|(min|max|abs|sqrt|ln|[abc]|[-+*/^(), ]|[0-9.]){0,20}") {
        if let Ok(formula) = Formula::parse(&text) {
            let values = vec![1.5; formula.names().len()];
            if let Ok(value) = formula.evaluate(&values) {
                prop_assert!(value.is_finite());
            }
            prop_assert!(formula.names().iter().all(|name| is_name(name)));
        }
    }

    #[test]
    fn identities_from_any_text(text in "(?s)(vendor_id|cpu family|model|CPU part|CPU implementer|cpu|revision|flags|.{0,9})\t: .{0,30}(\n.{0,40}){0,5}") {
        let identity = CpuIdentity::from_cpuinfo(&text);
        let library = Library::embedded();
        prop_assert!(!detect(&library, &identity).why.is_empty());
    }

    #[test]
    fn spellings_from_any_text(text in "(?s).{0,40}|[a-z:/=,0-9x]{0,30}") {
        if let Ok(spelling) = Spelling::parse(&text) {
            let written = spelling.to_string();
            prop_assert_eq!(Spelling::parse(&written), Ok(spelling));
        }
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    for depth in [10, 100, 290, 5000] {
        let text = format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(Formula::parse(&text).is_ok(), depth < 300, "{depth}");
        let minus = format!("{}1", "-".repeat(depth));
        let _ = Formula::parse(&minus);
        let toml = format!("a = {}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Profile::parse(&toml, "deep.toml").is_err());
    }
}

#[test]
fn a_mistake_at_the_end_of_a_line_is_on_that_line_whatever_ends_it() {
    for end in ["\n", "\r\n"] {
        let error =
            Profile::parse(&format!("name = \"x{end}title = \"y\"{end}"), "x.toml").unwrap_err();
        assert_eq!(
            (error.line, error.column, &*error.text),
            (1, 10, "name = \"x"),
            "{end:?}"
        );
    }
}

#[test]
fn a_name_is_what_formulas_take_for_one() {
    for word in [
        "sin",
        "max",
        "e",
        "PI",
        "cycles",
        "log_reads",
        "minor_faults",
        "maximum",
        "atan2x",
        "exp2",
        "tank",
        "E5",
        "_",
        "x1",
    ] {
        let names = Formula::parse(word).map(|formula| formula.names() == [word]);
        assert_eq!(names.unwrap_or(false), is_name(word), "{word}");
    }
}

#[test]
fn formulas_compute() {
    let value = |text: &str, values: &[f64]| Formula::parse(text).unwrap().evaluate(values);
    assert_eq!(value("1 - b / a", &[4.0, 1.0]), Ok(0.75));
    assert_eq!(value("2 + 3 * 4 ^ 2", &[]), Ok(50.0));
    assert_eq!(value("max(a + b, 1)", &[0.0, 0.0]), Ok(1.0));
    assert_eq!(value("1000 * loads / log_reads", &[6.0, 2.0]), Ok(3000.0));
    assert_eq!(value("min(minor_faults, 7)/maximum", &[4.0, 6.0]), Ok(1.5));
    assert_eq!(
        value("a / b", &[1.0, 0.0]).unwrap_err().to_string(),
        "`a / b` has no value where b is 0"
    );
    assert!(value("a", &[]).is_err());
    assert!(!is_name("sin") && !is_name("e") && !is_name("2x") && is_name("energy"));
}
