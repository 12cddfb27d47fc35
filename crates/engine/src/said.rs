//! Remarks that the user has already seen.

use std::collections::{HashSet, VecDeque};

/// Remarks of which it is remembered that they were said. The oldest are forgotten, and may be said again.
const REMEMBERED: usize = 1000;
/// Remarks that one period may have; more are counted.
const AT_ONCE: usize = 20;

/// Each remark is said once.
#[derive(Debug, Default)]
pub(crate) struct Said {
    known: HashSet<String>,
    order: VecDeque<String>,
}

impl Said {
    /// Leaves those that are new, and no more than a person reads.
    pub fn only_new(&mut self, remarks: &mut Vec<String>) {
        remarks.retain(|remark| self.known.insert(remark.clone()));
        self.order.extend(remarks.iter().cloned());
        while self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let more = remarks.len().saturating_sub(AT_ONCE);
        if more > 0 {
            remarks.truncate(AT_ONCE);
            remarks.push(format!("and {more} remarks more in this period"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_new_ones_always() {
        let mut said = Said::default();
        for round in 0..900 {
            let new = format!("new {round}");
            let mut remarks = vec!["again".to_owned(), new.clone()];
            said.only_new(&mut remarks);
            let told = if round == 0 {
                vec!["again".to_owned(), new]
            } else {
                vec![new]
            };
            assert_eq!(remarks, told);
        }
        for round in 900..5000 {
            said.only_new(&mut vec![format!("new {round}")]);
        }
        let mut last = vec!["the journal cannot be written".to_owned()];
        said.only_new(&mut last);
        assert_eq!(last.len(), 1);
        assert!(said.known.len() <= REMEMBERED && said.order.len() == said.known.len());
    }

    #[test]
    fn a_flood_is_counted() {
        let mut remarks: Vec<String> = (0..100).map(|at| format!("remark {at}")).collect();
        Said::default().only_new(&mut remarks);
        assert_eq!(remarks.len(), AT_ONCE + 1);
        assert_eq!(remarks[AT_ONCE], "and 80 remarks more in this period");
    }
}
