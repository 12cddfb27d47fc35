//! How often each interrupt came, and where it may go.

use crate::irq::{Interrupts, between, read};
use perch_core::{Affinity, IrqSample, MachineError, Remark};
use std::time::Instant;

/// Watches the interrupts, if the policy asks for it.
#[derive(Default)]
pub(super) struct IrqWatch {
    /// What came up to the last look; `None` if they are not watched.
    last: Option<(Instant, Interrupts)>,
    remark: Option<Remark>,
}

impl IrqWatch {
    /// Whether interrupts are watched from now on.
    pub(super) fn watch(&mut self, wanted: bool) -> Result<(), MachineError> {
        self.last = match wanted {
            true => Some((Instant::now(), read()?)),
            false => None,
        };
        Ok(())
    }

    /// What came since the last call; nothing if the policy does not ask for it.
    pub(super) fn observe(&mut self, affinity: &mut dyn Affinity) -> Vec<IrqSample> {
        let Some((then, before)) = &mut self.last else {
            return Vec::new();
        };
        let (now, after) = (Instant::now(), read());
        let after = match after {
            Ok(after) => after,
            Err(error) => {
                let text = format!("{error}; interrupts stay where they are");
                self.remark = Some(Remark::warning("interrupts-unreadable", text));
                return Vec::new();
            }
        };
        let interval = now.duration_since(*then).as_nanos() as u64;
        let samples = between(before, &after).into_iter().map(|(line, counts)| {
            let irqs = affinity.irqs();
            let state = line.irq().zip(irqs).map(|(irq, irqs)| irqs.irq(irq));
            IrqSample {
                label: line.label,
                what: line.what,
                interval,
                counts: counts.into_iter().filter(|(_, count)| *count > 0).collect(),
                state: state.and_then(Result::ok),
            }
        });
        let samples = samples.collect();
        (*then, *before) = (now, after);
        samples
    }

    pub(super) fn take_remark(&mut self) -> Option<Remark> {
        self.remark.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinuxAffinity;

    #[test]
    fn this_machines_interrupts_are_seen_once_they_are_watched() {
        let mut watch = IrqWatch::default();
        let mut affinity = LinuxAffinity::new();
        assert_eq!(watch.observe(&mut affinity), []);
        watch.watch(true).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let samples = watch.observe(&mut affinity);
        // Timers tick on a PU that runs this test.
        assert!(
            samples.iter().any(|sample| !sample.counts.is_empty()),
            "{samples:?}"
        );
        for sample in &samples {
            assert!(sample.interval >= 100_000_000);
            assert!(
                sample.state.is_none() || sample.irq().is_some(),
                "{sample:?}"
            );
        }
        watch.watch(false).unwrap();
        assert_eq!(watch.observe(&mut affinity), []);
    }
}
