//! Which threads of one address space need lines from each other, from sampled addresses.
//!
//! Counted is, for a thread R that reads (or writes) and a thread W that writes: R's accesses to lines that W was seen
//! to write. In a buffer much larger than the samples are many hardly two samples meet in a line, so accesses to other
//! lines of pages that W wrote count too, if two things say that W's writes may well reach them:
//!
//! * in that page W was mostly seen at each line once (of a lock that it takes again and again, the rest of the page
//!   is not written): Good and Turing's share of what was not seen yet, `singles / all`;
//! * over all such pages as many lines are met as would be if both went anywhere: `(met + 1) / (expected + 1)`. Objects
//!   of two threads side by side in one page are never met: the more samples there are, the less they count, and the
//!   lower is the confidence in sharing at all.
//!
//! Pages that W writes and was not seen at are made up for in the same way. That gives the share `o` of R's accesses that
//! go to lines that W writes, and in the same way W's writes to lines that R uses. An access of R needs the line anew if
//! W wrote it since R's last one: for accesses at random that is `writes / (accesses + writes)` of them, counted in
//! time. Without counters the number of accesses a second is not known: a share `p` of accesses that need a line is
//! taken as `p / (3 ns + p · 50 ns)` lines for each second on a PU.
//!
//! Only pairs of which one was seen to write are reported: threads that only read a table transfer no lines.

use crate::accesses::Accesses;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Lines of a page, as a power of two.
const PAGE_BITS: u32 = 6;

/// Accesses that are examined in one address space, of all threads together.
const MOST: usize = 1 << 15;

/// Threads that are examined in one page: those that access it most.
const PAGE_THREADS: usize = 16;

/// Partners of a thread that are reported: those with the most transfers.
const PARTNERS: usize = 8;

/// Seconds per access to memory, and per transfer of a line from another core. Chosen, not from a source: an access
/// every ten cycles or so at 3 GHz, and the order of magnitude of a transfer within a package (`perch calibrate`
/// measures it). They scale the number of transfers; the confidence does not depend on them.
const ACCESS_TIME: f64 = 3e-9;
const TRANSFER_TIME: f64 = 50e-9;

// The constants from here on are chosen, not from a source; the tests of this module and docs/sharing.md show their
// effect.

/// Number of matches at which the confidence is 0.5. Chosen, not from a source: of a few matches, some may be
/// accidental.
const HALF_SURE: f64 = 4.0;

/// An access to a page counts as this fraction of a match, and raises the confidence to at most `PAGE_SURE`. Chosen,
/// not from a source: a page has 64 lines, and threads tend to use neighbouring ones.
const PAGE_WEIGHT: f64 = 0.125;
const PAGE_SURE: f64 = 0.5;

/// Of two threads with lines of their own, this fraction of the exact matches expected of sharing ones is seen all the
/// same; and the prior odds that lines are common rather than separate. Chosen, not from a source: with larger odds
/// sharing is reported sooner, and objects that only lie next to each other are mistaken for it more often.
const STRAY: f64 = 0.05;
const PRIOR_ODDS: f64 = 3.0;

/// Lowest coverage of a page for which unseen writes are extrapolated; below it the factor stays the same.
const LEAST_COVERAGE: f64 = 0.1;

/// Pairs with a lower confidence are not reported: a single match reaches it (1 / (1 + 4)), accidental neighbours in a
/// page do not.
const LEAST_CONFIDENCE: f64 = 0.2;

/// The sampled accesses of one thread of an address space.
#[derive(Debug, Clone, Copy)]
pub struct Toucher<'a> {
    /// Its sampled accesses to memory.
    pub accesses: &'a Accesses,
    /// Share of the time on a PU, 0 to 1.
    pub busy: f64,
}

/// Two threads that share memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Common {
    /// Indices of the two threads in the given list, the lower first.
    pub threads: (usize, usize),
    /// Estimated cache lines per second that one of them accesses after the other has written them.
    pub transfers: f64,
    /// Confidence that the two share memory at all, 0 to 1.
    pub confidence: f64,
}

/// What a thread did in a page.
#[derive(Debug, Default)]
struct PageUse {
    samples: f64,
    writes: f64,
    /// By rising line: accesses and those that write.
    lines: Vec<(u64, f64, f64)>,
}

impl PageUse {
    /// Share of its accesses, or of its writes, that were at a line at which no other was: what it does to lines at which
    /// it was not seen.
    fn unseen(&self, of: impl Fn(&(u64, f64, f64)) -> f64) -> f64 {
        let all: f64 = self.lines.iter().map(&of).sum();
        let singles = self.lines.iter().map(&of).filter(|count| *count == 1.0);
        singles.count() as f64 / all.max(1.0)
    }
}

/// What a thread did in all.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    samples: f64,
    writes: f64,
    /// Pages at which it was seen, and was seen to write, once.
    once: f64,
    wrote_once: f64,
}

impl Total {
    /// Adds a page.
    fn add(&mut self, samples: f64, writes: f64) {
        self.samples += samples;
        self.writes += writes;
        self.once += f64::from(u8::from(samples == 1.0));
        self.wrote_once += f64::from(u8::from(writes == 1.0));
    }

    /// The part of a thread's pages that were seen.
    fn coverage(once: f64, all: f64) -> f64 {
        (1.0 - once / all.max(1.0)).max(LEAST_COVERAGE)
    }
}

/// What was seen of one thread that needs lines, and one that writes them.
#[derive(Debug, Clone, Copy, Default)]
struct Evidence {
    /// Accesses to lines that the other wrote, and to further lines of such pages, as far as it may write these.
    hits: f64,
    near: f64,
    /// Writes to lines that the first touched, and to further lines of such pages.
    written: f64,
    written_near: f64,
    /// Lines at which both were seen, and at which they would be if they were anywhere in their common pages.
    met: f64,
    expected: f64,
}

/// Who shares lines with whom, of the threads of one address space: each thread's strongest partners, by rising places.
pub fn common(touchers: &[Toucher<'_>]) -> Vec<Common> {
    let each = (MOST / touchers.len().max(1)).max(1);
    let mut seen: Vec<(u64, usize, bool)> = Vec::new();
    for (thread, toucher) in touchers.iter().enumerate() {
        let latest = toucher.accesses.latest(each);
        seen.extend(latest.map(|(line, write)| (line, thread, write)));
    }
    seen.sort_unstable();
    let mut totals = vec![Total::default(); touchers.len()];
    let mut pairs: FxHashMap<(usize, usize), Evidence> = FxHashMap::default();
    for page in seen.chunk_by(|a, b| a.0 >> PAGE_BITS == b.0 >> PAGE_BITS) {
        let (_, first, _) = page[0];
        if page.iter().all(|(_, thread, _)| *thread == first) {
            let writes = page.iter().filter(|(.., write)| *write).count();
            totals[first].add(page.len() as f64, writes as f64);
            continue;
        }
        let uses = uses(page);
        for (thread, of) in &uses {
            totals[*thread].add(of.samples, of.writes);
        }
        if uses.iter().any(|(_, of)| of.writes > 0.0) {
            compare(&uses, &mut pairs);
        }
    }
    let mut all: BTreeMap<(usize, usize), Common> = BTreeMap::new();
    for ((reader, writer), evidence) in &pairs {
        let threads = (*reader.min(writer), *reader.max(writer));
        let of = |thread: usize| (totals[thread], touchers[thread].busy);
        let (transfers, confidence) = evidence.judge(of(*reader), of(*writer));
        let common = all.entry(threads).or_insert(Common {
            threads,
            transfers: 0.0,
            confidence: 0.0,
        });
        common.transfers += transfers;
        common.confidence = common.confidence.max(confidence);
    }
    strongest(all.into_values())
}

/// What each thread did in a page, whose accesses are sorted.
fn uses(page: &[(u64, usize, bool)]) -> Vec<(usize, PageUse)> {
    let mut uses: FxHashMap<usize, PageUse> = FxHashMap::default();
    for (line, thread, write) in page {
        let of = uses.entry(*thread).or_default();
        let write = f64::from(u8::from(*write));
        match of.lines.last_mut().filter(|(last, ..)| last == line) {
            Some((_, samples, writes)) => (*samples, *writes) = (*samples + 1.0, *writes + write),
            None => of.lines.push((*line, 1.0, write)),
        }
        (of.samples, of.writes) = (of.samples + 1.0, of.writes + write);
    }
    let mut uses: Vec<_> = uses.into_iter().collect();
    uses.sort_unstable_by(|a, b| b.1.samples.total_cmp(&a.1.samples).then(a.0.cmp(&b.0)));
    uses
}

/// Adds what a page says of every two threads.
fn compare(uses: &[(usize, PageUse)], pairs: &mut FxHashMap<(usize, usize), Evidence>) {
    let uses = &uses[..uses.len().min(PAGE_THREADS)];
    for (writer, its) in uses.iter().filter(|(_, of)| of.writes > 0.0) {
        let lines = its.lines.iter().filter(|(.., writes)| *writes > 0.0);
        let wrote: Vec<(u64, f64)> = lines.map(|(line, _, writes)| (*line, *writes)).collect();
        let may_write = its.unseen(|(.., writes)| *writes);
        for (reader, own) in uses.iter().filter(|(reader, _)| reader != writer) {
            let (mut hits, mut written, mut met) = (0.0, 0.0, 0.0);
            let mut touched = own.lines.iter().peekable();
            for (line, writes) in &wrote {
                while touched.next_if(|(at, ..)| at < line).is_some() {}
                if let Some((_, samples, _)) = touched.next_if(|(at, ..)| at == line) {
                    hits += samples;
                    written += writes;
                    met += 1.0;
                }
            }
            let may_touch = own.unseen(|(_, samples, _)| *samples);
            let evidence = pairs.entry((*reader, *writer)).or_default();
            evidence.hits += hits;
            evidence.near += may_write * (own.samples - hits);
            evidence.written += written;
            evidence.written_near += may_touch * (its.writes - written);
            evidence.met += met;
            evidence.expected += (own.lines.len() * wrote.len()) as f64 / f64::from(1 << PAGE_BITS);
        }
    }
}

impl Evidence {
    /// The chance that both use the same lines of their common pages, rather than lines of their own side by side: as
    /// many are met as expected, or hardly any, both with chance's spread (Poisson), and before anything was seen the
    /// first is the likelier.
    fn mixed(&self) -> f64 {
        let odds =
            PRIOR_ODDS * (self.met * (1.0 / STRAY).ln() - self.expected * (1.0 - STRAY)).exp();
        // Infinite odds are a certainty.
        1.0 - 1.0 / (1.0 + odds)
    }

    /// Transfers a second from the writer to the reader, and how sure it is that there are any. Of both: what they did
    /// in all, and their part of the time on a PU.
    fn judge(&self, reader: (Total, f64), writer: (Total, f64)) -> (f64, f64) {
        let ((reader, busy), (writer, writer_busy)) = (reader, writer);
        let meet = ((self.met + 1.0) / (self.expected + 1.0)).min(1.0);
        let coverage = Total::coverage(writer.wrote_once, writer.writes);
        let accesses = ((self.hits + meet * self.near / coverage) / reader.samples).min(1.0);
        let coverage = Total::coverage(reader.once, reader.samples);
        let writes = self.written + meet * self.written_near / coverage;
        let writes = writes.min(writer.writes) / writer.samples;
        let (accesses_rate, writes_rate) = (accesses * busy, writes * writer_busy);
        let anew = writes_rate / (accesses_rate + writes_rate).max(f64::MIN_POSITIVE);
        let needs = accesses * anew;
        let transfers = busy * needs / (ACCESS_TIME + needs * TRANSFER_TIME);
        let sure = |matches: f64| matches / (matches + HALF_SURE);
        let exact = sure(self.hits.min(self.written));
        let near = sure(PAGE_WEIGHT * meet * self.near.min(self.written_near));
        let near = PAGE_SURE * self.mixed() * near;
        (transfers, 1.0 - (1.0 - exact) * (1.0 - near))
    }
}

/// Those that are sure enough, of each thread the partners with most transfers.
fn strongest(all: impl Iterator<Item = Common>) -> Vec<Common> {
    let sure = |common: &Common| common.confidence >= LEAST_CONFIDENCE && common.transfers > 0.0;
    let mut all: Vec<Common> = all.filter(sure).collect();
    all.sort_by(|a, b| b.transfers.total_cmp(&a.transfers));
    let mut partners: FxHashMap<usize, usize> = FxHashMap::default();
    let mut kept: FxHashSet<(usize, usize)> = FxHashSet::default();
    for common in &all {
        let (a, b) = common.threads;
        for thread in [a, b] {
            let count = partners.entry(thread).or_default();
            *count += 1;
            if *count <= PARTNERS {
                kept.insert((a, b));
            }
        }
    }
    all.retain(|common| kept.contains(&common.threads));
    all.sort_unstable_by_key(|common| common.threads);
    all
}

#[cfg(test)]
mod tests;
