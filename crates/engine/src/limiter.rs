//! Which remarks the user is shown: none twice within an hour, and no flood of one kind.

use perch_core::{Remark, Scope};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, VecDeque},
    mem,
};

const SECOND: u64 = 1_000_000_000;
/// Nanoseconds after which the same remark is shown again: in a session of days it may be news.
const AGAIN: u64 = 3600 * SECOND;
/// Remarks of one code that are shown at once.
const BURST: u32 = 5;
/// Nanoseconds after which one more of that code is shown.
const REFILL: u64 = 20 * SECOND;
/// Remarks that are remembered. The oldest are forgotten, and may be shown again.
const REMEMBERED: usize = 1000;

/// What makes two remarks the same: code, scope, and key or text.
type Identity = (Cow<'static, str>, Scope, String);

/// How many remarks of one code may be shown: a token bucket.
#[derive(Debug)]
struct Bucket {
    tokens: u32,
    filled: u64,
    /// Remarks that were not shown since the last count.
    suppressed: u64,
}

/// Limits remarks, by the session's clock.
#[derive(Debug, Default)]
pub struct Limiter {
    known: HashSet<Identity>,
    order: VecDeque<(u64, Identity)>,
    buckets: HashMap<Cow<'static, str>, Bucket>,
}

impl Limiter {
    /// Leaves of `remarks` those that are to be shown `now`, in nanoseconds since the machine was opened, and adds how many
    /// of a kind were not once the flood is over.
    pub fn limit(&mut self, now: u64, remarks: &mut Vec<Remark>) {
        while let Some((shown, _)) = self.order.front()
            && (self.order.len() > REMEMBERED || now >= shown + AGAIN)
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        remarks.retain(|remark| {
            let key = remark.key.as_ref().unwrap_or(&remark.text).clone();
            let identity = (remark.code.clone(), remark.scope, key);
            if self.known.contains(&identity) {
                return false;
            }
            let bucket = self.buckets.entry(remark.code.clone());
            let bucket = bucket.or_insert(Bucket {
                tokens: BURST,
                filled: now,
                suppressed: 0,
            });
            bucket.refill(now);
            if bucket.tokens == 0 {
                bucket.suppressed += 1;
                return false;
            }
            bucket.tokens -= 1;
            self.known.insert(identity.clone());
            self.order.push_back((now, identity));
            true
        });
        let mut over: Vec<_> = self.buckets.iter_mut().collect();
        over.sort_unstable_by(|a, b| a.0.cmp(b.0));
        for (code, bucket) in over {
            bucket.refill(now);
            if bucket.tokens == BURST && bucket.suppressed > 0 {
                let more = mem::take(&mut bucket.suppressed);
                remarks.push(Remark::note(
                    "suppressed",
                    format!("{more} more remarks of the kind `{code}` were not shown"),
                ));
            }
        }
        // A code whose bucket is full is as good as new.
        self.buckets
            .retain(|_, bucket| bucket.tokens < BURST || bucket.suppressed > 0);
    }
}

impl Bucket {
    fn refill(&mut self, now: u64) {
        let gained = now.saturating_sub(self.filled) / REFILL;
        self.filled += gained * REFILL;
        self.tokens = u32::try_from(gained)
            .unwrap_or(u32::MAX)
            .saturating_add(self.tokens)
            .min(BURST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(limiter: &mut Limiter, seconds: u64, remarks: &[Remark]) -> Vec<String> {
        let mut remarks = remarks.to_vec();
        limiter.limit(seconds * SECOND, &mut remarks);
        remarks.into_iter().map(|remark| remark.text).collect()
    }

    #[test]
    fn the_same_remark_is_shown_once_an_hour() {
        let mut limiter = Limiter::default();
        let same = Remark::note("same", "same");
        assert_eq!(
            shown(&mut limiter, 1, std::slice::from_ref(&same)),
            ["same"]
        );
        for second in 2..3600 {
            assert!(shown(&mut limiter, second, std::slice::from_ref(&same)).is_empty());
        }
        assert_eq!(shown(&mut limiter, 3602, &[same]), ["same"]);
    }

    #[test]
    fn numbers_make_no_new_remark_where_the_code_and_the_scope_are_enough() {
        let mut limiter = Limiter::default();
        let odd = |pu, value| {
            Remark::warning("odd", format!("PU {pu} has {value}"))
                .about(Scope::Pu(pu))
                .once()
        };
        let first = shown(&mut limiter, 1, &[odd(0, 7), odd(0, 8), odd(1, 9)]);
        assert_eq!(first, ["PU 0 has 7", "PU 1 has 9"]);
        assert!(shown(&mut limiter, 2, &[odd(0, 10), odd(1, 11)]).is_empty());
    }

    #[test]
    fn a_flood_is_cut_and_counted_and_other_remarks_get_through() {
        let mut limiter = Limiter::default();
        let flood = |from: u64| (from..from + 50).map(|n| Remark::note("flood", format!("n {n}")));
        for second in 0..10 {
            let mut remarks: Vec<Remark> = flood(second * 50).collect();
            let other = Remark::error("journal", format!("failed at {second}"));
            if second == 3 {
                remarks.push(other.clone());
            }
            let expected = match second {
                0 => (0..5).map(|n| format!("n {n}")).collect(),
                3 => vec![other.text],
                _ => Vec::new(),
            };
            assert_eq!(shown(&mut limiter, second, &remarks), expected);
        }
        assert!(shown(&mut limiter, 90, &[]).is_empty());
        assert_eq!(
            shown(&mut limiter, 101, &[]),
            ["495 more remarks of the kind `flood` were not shown"]
        );
        assert!(limiter.buckets.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut limiter = Limiter::default();
        for second in 0..20_000 {
            shown(
                &mut limiter,
                second * 20,
                &[Remark::note("new", format!("n {second}"))],
            );
        }
        assert!(limiter.known.len() <= REMEMBERED + 1);
        assert_eq!(limiter.known.len(), limiter.order.len());
    }
}
