//! What is wrong with a text that the expression library refuses, and where: its own messages show its inner state.

use super::{FUNCTIONS, all_words, begins_number};
use std::ops::Range;

/// Functions of two values, as in `min(a, b)`.
const OF_TWO: [&str; 3] = ["min", "max", "atan2"];

/// Names of numbers.
const CONSTANTS: [&str; 4] = ["e", "E", "PI", "TAU"];

/// The first mistake.
pub(super) fn first(text: &str) -> Option<(Range<usize>, String)> {
    let tokens = tokens(text);
    let said = |token: &Range<usize>| &text[token.clone()];
    // Open parentheses, with the number of values that are separated by commas in each, and of those that there must be.
    let mut open: Vec<(Range<usize>, usize, usize)> = Vec::new();
    let mut last: Option<&Range<usize>> = None;
    let mut wants_value = true;
    for token in &tokens {
        let word = said(token);
        let before = last.map(said);
        let wrong = |what: String| Some((token.clone(), what));
        let missing = || wrong(format!("a number or a name is missing before `{word}`"));
        let function = before.filter(|before| is_function(before));
        if let Some(function) = function
            && word != "("
            && OF_TWO.contains(&function)
        {
            return wrong(format!("`{function}` needs values, as in {function}(a, b)"));
        }
        match word {
            "(" if !wants_value => {
                return wrong("an operator is missing before `(`".to_owned());
            }
            "(" => {
                let of_two = function.is_some_and(|function| OF_TWO.contains(&function));
                open.push((token.clone(), 1, if of_two { 2 } else { 1 }));
            }
            ")" if open.is_empty() => return wrong("`)` without `(`".to_owned()),
            ")" if before == Some("(") => return wrong("nothing in the parentheses".to_owned()),
            ")" | "," if wants_value => return missing(),
            ")" => {
                let (from, values, needed) = open.pop()?;
                if values < needed {
                    return Some((
                        from.start..token.end,
                        "two values are needed here, as in min(a, b)".to_owned(),
                    ));
                }
            }
            "," => match open.last_mut() {
                Some((_, values, needed)) if *values < *needed => {
                    *values += 1;
                    wants_value = true;
                }
                Some((_, _, 2)) => return wrong("a third value where two belong".to_owned()),
                _ => {
                    return wrong(
                        "a comma belongs only between two values, as in min(a, b)".into(),
                    );
                }
            },
            "+" | "-" if wants_value => {}
            "+" | "-" | "*" | "/" | "^" if wants_value => return missing(),
            "+" | "-" | "*" | "/" | "^" => wants_value = true,
            word if !wants_value => {
                return wrong(format!("an operator is missing before `{word}`"));
            }
            word if begins_number(word) && word.parse::<f64>().is_err() => {
                return wrong(format!("`{word}` is no number"));
            }
            word => wants_value = is_function(word),
        }
        last = Some(token);
    }
    let last = last?;
    if wants_value {
        let what = format!(
            "a number or a name is missing after `{}`, at the end",
            said(last)
        );
        return Some((last.clone(), what));
    }
    let (from, ..) = open.pop()?;
    Some((from, "`(` without `)`".to_owned()))
}

fn is_function(word: &str) -> bool {
    let known = FUNCTIONS.iter().any(|function| function == word);
    known && word.starts_with(char::is_alphabetic) && !CONSTANTS.contains(&word)
}

/// Words and signs, in their order.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let words: Vec<_> = all_words(text).collect();
    let signs = text
        .char_indices()
        .filter(|(at, c)| !c.is_whitespace() && !words.iter().any(|word| word.contains(at)))
        .map(|(at, c)| at..at + c.len_utf8());
    let mut all: Vec<_> = words.iter().cloned().chain(signs).collect();
    all.sort_by_key(|token| token.start);
    all
}

#[cfg(test)]
mod tests {
    use crate::formula::Formula;

    #[test]
    fn each_mistake_is_told_at_its_place() {
        for (text, at, told) in [
            ("a / (b", "(", "`(` without `)`"),
            ("a / b)", ")", "`)` without `(`"),
            ("a +", "+", "missing after `+`, at the end"),
            ("a ** b", "*", "missing before `*`"),
            ("* b", "*", "missing before `*`"),
            ("a b", "b", "an operator is missing before `b`"),
            ("2 (b)", "(", "an operator is missing before `(`"),
            ("a / ()", ")", "nothing in the parentheses"),
            ("(a / )", ")", "missing before `)`"),
            ("a, b", ",", "a comma belongs only between"),
            ("sqrt(a, b)", ",", "a comma belongs only between"),
            ("min(a, b, c)", ",", "a third value"),
            ("min(a)", "(a)", "two values are needed"),
            ("1.2.3 * a", "1.2.3", "`1.2.3` is no number"),
            ("sqrt", "sqrt", "missing after `sqrt`"),
        ] {
            let error = Formula::parse(text).unwrap_err();
            assert_eq!(&text[error.at.clone()], at, "{text}: {error}");
            assert!(error.message.contains(told), "{text}: {error}");
        }
    }
}
