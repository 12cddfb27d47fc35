//! Lengths of time as the command line takes them.

use std::time::Duration;

/// The shortest period that makes sense: below it perch would cost more than it gives.
pub const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// Reads `1s`, `250ms`, `1m 30s`, or a plain number of seconds.
///
/// # Errors
/// A text that is no duration, or one that is too short.
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
        None => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write a time such as 1s, 250ms or 1m"))?,
    };
    if period < SHORTEST_PERIOD {
        return Err(format!(
            "shorter than {}",
            humantime::format_duration(SHORTEST_PERIOD)
        ));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods() {
        assert_eq!(parse_period("1s").unwrap(), Duration::from_secs(1));
        assert_eq!(parse_period("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_period("250ms").unwrap(), Duration::from_millis(250));
        for wrong in ["", "0", "-1", "1ns", "soon", "nan", "inf", "1e300"] {
            assert!(parse_period(wrong).is_err(), "{wrong}");
        }
    }
}
