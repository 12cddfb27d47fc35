//! How far a long computation is, in one line of a terminal.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use perch_lab::scene::Progress;
use std::{fmt, time::Duration};

/// From one drawing to the next.
const TICK: Duration = Duration::from_millis(200);

/// A line on standard error that says what runs, which share of it is done and how long the rest will take. Nothing
/// where standard error is no terminal. It goes away when it is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A line for `steps` steps, unless it is not `wanted`.
    pub fn new(wanted: bool, steps: u64) -> Self {
        let target = match wanted {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(steps.max(1)), target);
        let style = ProgressStyle::with_template("{msg} {bar:24} {percent:>3} %, {left}");
        if let Ok(style) = style {
            let left = |state: &ProgressState, text: &mut dyn fmt::Write| {
                let steps = state.len().unwrap_or(0);
                let _ = match left(state.elapsed(), state.pos(), steps) {
                    None => write!(text, "time left not known yet"),
                    Some(left) => write!(text, "{} left", HumanDuration(left)),
                };
            };
            bar.set_style(style.with_key("left", left).progress_chars("━╌╌"));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self(bar)
    }

    /// Whether anybody sees it.
    pub fn is_drawn(&self) -> bool {
        !self.0.is_hidden()
    }

    /// There are so many steps.
    pub fn has(&self, steps: u64) {
        self.0.set_length(steps.max(1));
    }

    /// What runs now. What ran before the first step is not counted as time that steps take.
    pub fn says(&self, what: &str) {
        let what = perch_core::text::printable(what);
        if self.0.position() == 0 && self.0.message() != *what {
            self.0.reset_elapsed();
        }
        self.0.set_message(what.into_owned());
    }

    /// `steps` more steps are done.
    pub fn adds(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// `steps` steps are done.
    pub fn is_at(&self, steps: u64) {
        self.0.set_position(steps);
    }
}

/// The time that the steps that are left take if they take as long as those before on average; unknown before the first.
/// The library's estimate goes by the last steps: after a step that takes minutes, it promises years.
fn left(elapsed: Duration, done: u64, steps: u64) -> Option<Duration> {
    let rest = steps.saturating_sub(done);
    (done > 0).then(|| elapsed.mul_f64(rest as f64 / done as f64))
}

/// Characters that the names of policies may take.
const NAMES: usize = 28;

impl Progress for Bar {
    fn begins(&self, steps: u64) {
        self.has(steps);
    }

    fn says(&self, what: &str) {
        Self::says(self, crate::render::fit(what, NAMES).trim_end());
    }

    fn adds(&self, steps: u64) {
        Self::adds(self, steps);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_is_done() {
        let second = Duration::from_secs(1);
        assert_eq!(left(second, 0, 10), None);
        assert_eq!(left(second * 60, 1, 4), Some(second * 180));
        assert_eq!(left(second, 4, 4), Some(Duration::ZERO));
        assert_eq!(left(second, 5, 4), Some(Duration::ZERO));
    }
}
