//! Lengths of time as the command line takes them.

use std::{ffi::OsString, time::Duration};

/// The shortest period that makes sense: below it perch would cost more than it gives.
pub const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// The longest: clocks cannot be asked for moments very far away.
const LONGEST_PERIOD: Duration = Duration::from_secs(50 * 366 * 24 * 3600);

/// Reads `1s`, `250ms`, `1m 30s`, or a plain number of seconds.
///
/// # Errors
/// A text that is no duration, or one that is too short or too long.
pub fn parse_period(text: &str) -> Result<Duration, String> {
    if text.trim_start().starts_with('-') {
        return Err("a time cannot be negative; write one such as 1s, 250ms or 1m".to_owned());
    }
    let plain = text
        .trim()
        .parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let period = match plain {
        Some(period) => period,
        None => perch_lab::duration(text).map_err(|_| {
            let text = text.escape_debug();
            format!("`{text}` is not a time: write one such as 1s, 250ms or 1m")
        })?,
    };
    if period < SHORTEST_PERIOD {
        return Err(format!(
            "too short: the least is {}",
            humantime::format_duration(SHORTEST_PERIOD)
        ));
    }
    if period > LONGEST_PERIOD {
        return Err("too long: the most is 50 years".to_owned());
    }
    Ok(period)
}

/// Flags whose value is a length of time.
const TIMES: [&str; 5] = ["--period", "--interval", "--time", "-t", "--for"];

/// Units that may stand behind a number.
const UNITS: [&str; 15] = [
    "us", "ms", "msec", "s", "sec", "secs", "second", "seconds", "m", "min", "minute", "minutes",
    "h", "hour", "hours",
];

/// What is wrong with a command line in which a time is two words (`--period 10 s`), of which the second is taken for
/// something else.
pub fn split_time(given: &[OsString]) -> Option<String> {
    let own = given.iter().take_while(|word| *word != "--");
    let mut words: Vec<&str> = Vec::new();
    for word in own {
        // `--period=10` is `--period 10`.
        let word = word.to_str().unwrap_or("");
        match word
            .split_once('=')
            .filter(|(flag, _)| TIMES.contains(flag))
        {
            Some((flag, value)) => words.extend([flag, value]),
            None => words.push(word),
        }
    }
    words.windows(3).find_map(|three| {
        let [flag, number, unit] = three else {
            return None;
        };
        let is_split =
            TIMES.contains(flag) && number.parse::<f64>().is_ok() && UNITS.contains(unit);
        is_split.then(|| {
            format!("{flag} {number} {unit}: a time is one word: write {flag} {number}{unit}")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_two_words_is_noticed() {
        let said = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            split_time(&words)
        };
        let why = said("perch run --period 10 s -- true").unwrap();
        assert!(why.ends_with("write --period 10s"), "{why}");
        let why = said("perch sim -t=1.5 min").unwrap();
        assert!(why.ends_with("write -t 1.5min"), "{why}");
        for good in [
            "perch run --period 10s -- true",
            "perch run --period 10 -- s",
            "perch run --pus 10 s",
            "perch run --period 10 sleep 1",
        ] {
            assert_eq!(said(good), None, "{good}");
        }
    }

    #[test]
    fn periods() {
        assert_eq!(parse_period("1s").unwrap(), Duration::from_secs(1));
        assert_eq!(parse_period("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_period("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(parse_period("250 MS").unwrap(), Duration::from_millis(250));
        for wrong in [
            "", "0", "-1", "1ns", "soon", "nan", "inf", "1e300", "1e19", "51y",
        ] {
            assert!(parse_period(wrong).is_err(), "{wrong}");
        }
    }
}
