//! A counter of microjoules in a file, which continues at 0 after its largest value.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// No file of these has more.
const LONGEST: u64 = 4096;

/// A file that holds the energy used since some moment, in microjoules.
#[derive(Debug)]
pub(super) struct Counter {
    pub path: PathBuf,
    /// The value after which it continues at 0; `None` if it does not, or nobody knows.
    range: Option<u64>,
    last: Option<u64>,
    /// Used since [`Counter::take`].
    used: u64,
    /// Something was lost since then: its value says too little.
    gap: bool,
}

impl Counter {
    /// Begins to measure now.
    ///
    /// # Errors
    /// A file that cannot be read or is no number, with its path.
    pub(super) fn open(path: PathBuf, range: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            last: Some(number_in(&path)?),
            path,
            range,
            used: 0,
            gap: false,
        })
    }

    /// How many microjoules it can count before it continues at 0.
    pub(super) fn range(&self) -> Option<u64> {
        self.range
    }

    /// Reads it once more; more often than it wraps around.
    ///
    /// # Errors
    /// As [`Counter::open`]; what was used until the next reading is lost then.
    pub(super) fn update(&mut self) -> io::Result<()> {
        let now = number_in(&self.path).inspect_err(|_| {
            self.last = None;
            self.gap = true;
        })?;
        match (self.last.replace(now), self.range) {
            (Some(last), _) if now >= last => self.used += now - last,
            (Some(last), Some(range)) => self.used += range.saturating_sub(last) + now,
            // A counter that was reset.
            (Some(_), None) => self.gap = true,
            (None, _) => {}
        }
        Ok(())
    }

    /// Microjoules used since the last call, up to the last [`Counter::update`]; `None` if that is not known.
    pub(super) fn take(&mut self) -> Option<u64> {
        let used = std::mem::take(&mut self.used);
        (!std::mem::take(&mut self.gap)).then_some(used)
    }
}

/// The text of a small file, without blanks around it.
pub(super) fn text_in(path: &Path) -> io::Result<String> {
    let wrong =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(wrong)?;
    Ok(text.trim().to_owned())
}

/// The number in a file.
pub(super) fn number_in(path: &Path) -> io::Result<u64> {
    let text = text_in(path)?;
    text.parse().map_err(|_| {
        let text = format!("{}: is not a number", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is used between two readings, less than the range, is found however often the counter wraps around.
        #[test]
        fn nothing_is_lost_at_the_range(steps in prop::collection::vec(0u64..1000, 1..30), start in 0u64..1000) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("energy_uj");
            let mut at = start;
            fs::write(&path, at.to_string()).unwrap();
            let mut counter = Counter::open(path.clone(), Some(1000)).unwrap();
            let mut sum = 0;
            for step in &steps {
                at = (at + step) % 1000;
                fs::write(&path, at.to_string()).unwrap();
                counter.update().unwrap();
                sum += counter.take().unwrap();
            }
            prop_assert_eq!(sum, steps.iter().sum::<u64>());
        }
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("energy1_input");
        fs::write(&path, "100").unwrap();
        let mut counter = Counter::open(path.clone(), None).unwrap();
        // It was reset.
        fs::write(&path, "10").unwrap();
        counter.update().unwrap();
        assert_eq!(counter.take(), None);
        fs::write(&path, "30").unwrap();
        counter.update().unwrap();
        assert_eq!(counter.take(), Some(20));
        // It was away.
        fs::remove_file(&path).unwrap();
        assert!(counter.update().is_err());
        fs::write(&path, "50").unwrap();
        counter.update().unwrap();
        assert_eq!(counter.take(), None);
        fs::write(&path, "51").unwrap();
        counter.update().unwrap();
        assert_eq!(counter.take(), Some(1));
    }
}
