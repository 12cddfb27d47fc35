//! For how long the threads or PUs of a row were observed.

/// For how long a thread or PU was observed, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub time: u64,
    /// Whether it ended then.
    pub ended: bool,
}

/// For how long the members of a row were observed, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Time {
    /// The longest of those that are still there.
    living: u64,
    /// The sum of those that have ended: nothing tells which of them were there at the same time.
    ended: u64,
    longest: u64,
}

impl Time {
    /// Adds a member.
    pub fn add(&mut self, Seen { time, ended }: Seen) {
        match ended {
            true => self.ended = self.ended.saturating_add(time),
            false => self.living = self.living.max(time),
        }
        self.longest = self.longest.max(time);
    }

    /// Adds the members of another row.
    pub fn join(&mut self, other: &Self) {
        self.living = self.living.max(other.living);
        self.ended = self.ended.saturating_add(other.ended);
        self.longest = self.longest.max(other.longest);
    }

    /// The time in which any member was there: at most the whole interval.
    pub fn any(&self, interval: u64) -> u64 {
        let most = interval.max(self.longest);
        self.living.saturating_add(self.ended).min(most)
    }
}
