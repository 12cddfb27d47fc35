//! What distorts a calibration: clocks that change, other load.

use crate::command::compare::conditions::{CPUS, frequency_remarks};
use procfs::{Current, LoadAverage};
use std::path::Path;

/// The machine counts as busy from this many runnable threads per PU, on average over a minute.
const BUSY: f64 = 0.25;

/// What a reader of the numbers should know of the machine while they were measured.
pub fn conditions(pus: usize) -> Vec<String> {
    let mut notes = frequency_remarks(Path::new(CPUS));
    if notes.is_empty() && !Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists() {
        notes.push(
            "turbo and frequency scaling: the kernel reports neither here, as in most virtual machines"
                .to_owned(),
        );
    }
    let average = LoadAverage::current().ok();
    notes.extend(average.and_then(|average| load(&average, pus)));
    notes
}

/// What the load average from before the first kernel says.
fn load(average: &LoadAverage, pus: usize) -> Option<String> {
    let load = average.one;
    (f64::from(load) > BUSY * pus as f64).then(|| {
        format!(
            "the machine was not idle: the load average was {load:.2} on {pus} PUs before the first kernel ran; measure again when \
             the machine is idle"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead;

    #[test]
    fn a_load_is_told_if_it_is_one() {
        let load = |text: &str| {
            let average = LoadAverage::from_read(text.as_bytes()).unwrap();
            load(&average, 2)
        };
        assert_eq!(load("0.30 0.10 0.05 1/100 4711\n"), None);
        let told = load("1.75 0.10 0.05 1/100 4711\n").unwrap();
        assert!(told.contains("1.75 on 2 PUs"), "{told}");
    }
}
