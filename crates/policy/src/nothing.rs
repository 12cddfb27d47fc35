//! The remark of a policy that places nothing.

use perch_core::Remark;

/// Why there is nothing to place. The same reason with other numbers is no news: it is shown once an hour.
pub(crate) fn nothing_to_place(why: impl Into<String>) -> Remark {
    let why = why.into();
    let key: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
    Remark::note("nothing-to-place", why).keyed(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_are_no_other_reason() {
        let key = |why: &str| nothing_to_place(why).key;
        let light = |share: &str| {
            key(&format!(
                "the 2 busy threads are FP-light (0.00 to {share})"
            ))
        };
        assert_eq!(light("0.04"), light("0.05"));
        assert_ne!(light("0.04"), key("no thread is busy"));
    }
}
