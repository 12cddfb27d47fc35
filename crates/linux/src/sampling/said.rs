//! When something that is still true was last remarked.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Recordings hold every remark, so not each interval repeats it; far less than the hour after which it is shown again.
const AGAIN: Duration = Duration::from_secs(60);

/// By the remark's code.
#[derive(Debug, Default)]
pub(super) struct Said(HashMap<&'static str, Instant>);

impl Said {
    /// Whether a remark is to be made now; then it counts as made.
    pub(super) fn is_time(&mut self, code: &'static str, now: Instant) -> bool {
        let recently = |at: &Instant| now.saturating_duration_since(*at) < AGAIN;
        if self.0.get(code).is_some_and(recently) {
            return false;
        }
        self.0.insert(code, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_still_true_is_said_again_but_not_all_the_time() {
        let mut said = Said::default();
        let start = Instant::now();
        let mut times = |code, seconds| {
            (0..seconds)
                .filter(|second| said.is_time(code, start + Duration::from_secs(*second)))
                .count()
        };
        assert_eq!(times("samples-lost", 3_600), 60);
        assert_eq!(times("sampling-refused", 10), 1);
    }
}
