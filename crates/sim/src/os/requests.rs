//! Requests of one process: they come, wait in a queue, and are served.
//!
//! Arrivals are drawn when a thread asks for them, in the order of time. So arrivals that no thread waits for are not
//! events of the simulation, and a server whose threads are all stuck is seen to be stuck.

use crate::{
    stream::Random,
    units::{NANOSECOND, Ps, SECOND},
    workload::{Arrivals, Gaps, RequestsModel},
};
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

/// A thread: an index of the system's threads.
type Index = usize;

/// A request that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// When it came.
    pub arrived: Ps,
    /// When a thread took it.
    pub begun: Ps,
    /// When that thread was done with it.
    pub done: Ps,
}

/// What became of the requests of one program, all its processes together. Times are seconds of the operating system.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestStats {
    /// The program.
    pub program: String,
    /// Requests that came.
    pub arrived: u64,
    /// Those that were served.
    pub served: u64,
    /// Those that were refused, the queue being full.
    pub dropped: u64,
    /// Those that wait or are in work now.
    pub unfinished: u64,
    /// Served in a second.
    pub rate: f64,
    /// From arrival to reply: the mean; 0 if none was served, as the following.
    pub mean: f64,
    /// The half of them took no longer.
    pub median: f64,
    /// 95 % took no longer.
    pub p95: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Mean time from arrival until a thread took it.
    pub waiting: f64,
    /// The part of the response times that was waiting.
    pub waiting_share: f64,
}

impl RequestStats {
    /// The statistics of these requests on a machine of this scale, with the time that they cover and the numbers that
    /// arrived, were dropped, and were not done at its end.
    #[allow(clippy::too_many_arguments, reason = "each is a plain count")]
    pub fn of(
        program: &str,
        served: &[Served],
        arrived: u64,
        dropped: u64,
        unfinished: u64,
        time: Ps,
        scale: f64,
    ) -> Self {
        let seconds = scale / SECOND as f64;
        let mut times: Vec<Ps> = served.iter().map(|one| one.done - one.arrived).collect();
        times.sort_unstable();
        // The least time that so large a part of them did not exceed.
        let at = |part: f64| {
            let rank = (part * times.len() as f64).ceil() as usize;
            let time = times.get(rank.saturating_sub(1)).copied().unwrap_or(0);
            time as f64 * seconds
        };
        let count = times.len() as u64;
        let total: f64 = times.iter().map(|time| *time as f64).sum();
        let waited: f64 = served
            .iter()
            .map(|one| (one.begun - one.arrived) as f64)
            .sum();
        let each = seconds / count.max(1) as f64;
        Self {
            program: program.to_owned(),
            arrived,
            served: count,
            dropped,
            unfinished,
            rate: count as f64 / (time.max(1) as f64 * seconds),
            mean: total * each,
            median: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
            waiting: waited * each,
            waiting_share: if total > 0.0 { waited / total } else { 0.0 },
        }
    }
}

/// A request in the queue or in work.
#[derive(Debug, Clone, Copy)]
struct Request {
    arrived: Ps,
    client: u32,
}

/// What a thread gets that wants a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// One.
    Request,
    /// None yet.
    Wait,
    /// None, now and ever.
    Over,
}

/// The requests of a process.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    model: RequestsModel,
    scale: f64,
    random: Random,
    /// When the next request of each client comes, the earliest first. An open system is one client that never waits
    /// for a reply.
    next: BinaryHeap<Reverse<(Ps, u32)>>,
    /// How many are still to be sent.
    left: u64,
    waiting: VecDeque<Request>,
    /// Threads that wait for a request, the longest-waiting first.
    idle: VecDeque<Index>,
    /// Which request each thread has in work, and since when.
    in_work: BTreeMap<Index, (Request, Ps)>,
    pub(crate) arrived: u64,
    pub(crate) dropped: u64,
    pub(crate) served: Vec<Served>,
}

impl Queue {
    pub(crate) fn new(model: &RequestsModel, scale: f64, random: Random, now: Ps) -> Self {
        let mut queue = Self {
            model: *model,
            scale,
            random,
            next: BinaryHeap::new(),
            left: model.count,
            waiting: VecDeque::new(),
            idle: VecDeque::new(),
            in_work: BTreeMap::new(),
            arrived: 0,
            dropped: 0,
            served: Vec::new(),
        };
        let clients = match model.arrivals {
            Arrivals::Open { .. } => 1,
            Arrivals::Closed { clients, .. } => clients,
        };
        for client in 0..clients {
            queue.send(client, now);
        }
        queue
    }

    /// A client sends its next request some time after `from`.
    fn send(&mut self, client: u32, from: Ps) {
        let (mean, gaps) = match self.model.arrivals {
            Arrivals::Open { gap, gaps } => (gap, gaps),
            Arrivals::Closed { think, gaps, .. } => (think, gaps),
        };
        let factor = match gaps {
            Gaps::Constant => 1.0,
            // 1 - u is above 0, so the logarithm is finite.
            Gaps::Poisson => -(1.0 - self.random.unit()).ln(),
        };
        if self.left == 0 {
            return;
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
        let gap = mean * factor * NANOSECOND as f64 / self.scale;
        // Time goes on, however dense they come.
        let gap = (gap.round() as Ps).max(1);
        self.next.push(Reverse((from.saturating_add(gap), client)));
    }

    /// Lets everything come that comes up to now.
    pub(crate) fn advance(&mut self, now: Ps) {
        while let Some(Reverse((at, client))) = self.next.peek().copied()
            && at <= now
        {
            self.next.pop();
            self.arrived += 1;
            let request = Request {
                arrived: at,
                client,
            };
            // A thread that waits takes it at once.
            let room = self.waiting.len() < self.idle.len()
                || ((self.waiting.len() - self.idle.len()) as u64) < self.model.queue;
            match room {
                true => self.waiting.push_back(request),
                false => self.dropped += 1,
            }
            if matches!(self.model.arrivals, Arrivals::Open { .. }) || !room {
                self.send(client, at);
            }
        }
    }

    /// A thread wants the next one.
    pub(crate) fn take(&mut self, thread: Index, now: Ps) -> Taken {
        self.advance(now);
        if let Some(request) = self.waiting.pop_front() {
            let begun = now.max(request.arrived);
            self.in_work.insert(thread, (request, begun));
            return Taken::Request;
        }
        if self.is_over() {
            return Taken::Over;
        }
        self.idle.push_back(thread);
        Taken::Wait
    }

    /// Whether no request waits and none will come, except of those in work.
    fn is_over(&self) -> bool {
        let more = self.model.count != u64::MAX && self.left == 0;
        more && self.waiting.is_empty() && self.next.is_empty()
    }

    /// Whose turn it is now of those that wait: threads with their requests, then, when nothing will come any more, all
    /// others.
    pub(crate) fn wake(&mut self, now: Ps) -> Option<(Index, Taken)> {
        if self.idle.is_empty() {
            return None;
        }
        self.advance(now);
        if let Some(request) = self.waiting.pop_front() {
            let thread = self.idle.pop_front()?;
            self.in_work.insert(thread, (request, now));
            return Some((thread, Taken::Request));
        }
        match self.is_over() {
            true => self.idle.pop_front().map(|thread| (thread, Taken::Over)),
            false => None,
        }
    }

    /// When a waiting thread must be woken.
    pub(crate) fn next_wake(&self) -> Option<Ps> {
        if self.idle.is_empty() {
            return None;
        }
        if self.is_over() {
            return Some(0);
        }
        self.next.peek().map(|Reverse((at, _))| *at)
    }

    /// A thread is done with its request.
    pub(crate) fn reply(&mut self, thread: Index, now: Ps) {
        let Some((request, begun)) = self.in_work.remove(&thread) else {
            return;
        };
        let done = now.max(begun);
        self.served.push(Served {
            arrived: request.arrived,
            begun,
            done,
        });
        if matches!(self.model.arrivals, Arrivals::Closed { .. }) {
            self.send(request.client, done);
        }
    }

    /// Requests that wait or are in work.
    pub(crate) fn present(&self) -> usize {
        self.waiting.len() + self.in_work.len()
    }
}
