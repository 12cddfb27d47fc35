//! Which row of a list is selected, and which part of the list is seen.

/// A place in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The selected row; only if `active`.
    pub index: usize,
    /// Whether a row is selected.
    pub active: bool,
    /// The first row that is seen.
    pub top: usize,
}

impl Cursor {
    /// Fits it into a list of so many rows, of which `page` are seen.
    pub fn fit(&mut self, rows: usize, page: usize) {
        self.index = self.index.min(rows.saturating_sub(1));
        self.active &= rows > 0;
        if self.active && page > 0 {
            self.top = self
                .top
                .clamp((self.index + 1).saturating_sub(page), self.index);
        }
        self.top = self.top.min(rows.saturating_sub(page.max(1)));
    }

    /// Moves the selection, or selects the first row that is seen.
    pub fn step(&mut self, by: isize, rows: usize, page: usize) {
        match self.active {
            true => self.index = self.index.saturating_add_signed(by),
            false => (self.active, self.index) = (true, self.top),
        }
        self.fit(rows, page);
    }

    /// Scrolls without a selection; with one, moves it along.
    pub fn scroll(&mut self, by: isize, rows: usize, page: usize) {
        match self.active {
            true => self.step(by, rows, page),
            false => {
                self.top = self.top.saturating_add_signed(by);
                self.fit(rows, page);
            }
        }
    }

    /// Selects a row.
    pub fn select(&mut self, index: usize, rows: usize, page: usize) {
        (self.active, self.index) = (true, index);
        self.fit(rows, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_selected_is_seen(
            steps in proptest::collection::vec((-30isize..30, 0usize..50, 0usize..20, any::<bool>()), 0..40),
        ) {
            let mut cursor = Cursor::default();
            for (by, rows, page, scroll) in steps {
                match scroll {
                    true => cursor.scroll(by, rows, page),
                    false => cursor.step(by, rows, page),
                }
                prop_assert!(cursor.top + page.max(1) <= rows.max(page.max(1)));
                if cursor.active {
                    prop_assert!(cursor.index < rows);
                    prop_assert!(page == 0 || (cursor.top..cursor.top + page).contains(&cursor.index));
                }
            }
        }
    }
}
