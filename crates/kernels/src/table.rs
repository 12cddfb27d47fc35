//! The kernels by name.

use crate::{Bench, loops, memory::LINE, memory::Wanted};

/// Sizes of caches, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest first level.
    pub l1: usize,
    /// The smallest second level.
    pub l2: usize,
    /// The last level, the second if there is none beyond.
    pub llc: usize,
    /// The last level / the cores that share it.
    pub share: usize,
    /// Whether the last level is beyond the second.
    pub beyond: bool,
    /// No kernel takes more memory.
    pub most: usize,
}

/// A small program.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Whether it stands for one resource.
    pub pure: bool,
    /// Whether only PUs of one core can slow it down.
    pub core: bool,
    /// Whether it needs a last level beyond the second.
    pub needs_llc: bool,
    pub(crate) room: fn(&Sizes) -> Wanted,
    pub(crate) round: fn(&mut Bench),
}

fn none(_: &Sizes) -> Wanted {
    of(LINE)
}

fn of(bytes: usize) -> Wanted {
    Wanted {
        bytes: (bytes / LINE).max(1) * LINE,
        small_pages: false,
    }
}

/// A power of two, for those who walk by a mask of bytes.
fn power(bytes: usize) -> Wanted {
    of(1 << bytes.max(LINE).ilog2())
}

fn much(sizes: &Sizes) -> Wanted {
    of((8 * sizes.llc).min(sizes.most))
}

/// A line in each of as many pages as the second level holds half of.
fn pages(sizes: &Sizes) -> Wanted {
    let lines = (sizes.l2 / 2 / LINE).max(64);
    let stride = rustix::param::page_size() + LINE;
    Wanted {
        bytes: (lines * stride).min(sizes.most.max(64 * stride)),
        small_pages: true,
    }
}

const fn kernel(
    name: &'static str,
    about: &'static str,
    room: fn(&Sizes) -> Wanted,
    round: fn(&mut Bench),
) -> Kernel {
    Kernel {
        name,
        about,
        pure: false,
        core: false,
        needs_llc: false,
        room,
        round,
    }
}

impl Kernel {
    /// Bytes of memory that it goes through on a machine with these caches.
    pub fn bytes(&self, sizes: &Sizes) -> usize {
        (self.room)(sizes).bytes
    }

    const fn pure(self) -> Self {
        Self { pure: true, ..self }
    }

    const fn core(self) -> Self {
        Self { core: true, ..self }
    }

    const fn beyond(self) -> Self {
        Self {
            needs_llc: true,
            ..self
        }
    }
}

/// All kernels, from what only a core's PUs share to what all do.
pub const KERNELS: [Kernel; 21] = [
    kernel(
        "fp",
        "floating-point operations that do not wait for each other",
        none,
        loops::fp,
    )
    .pure()
    .core(),
    kernel(
        "fp-half",
        "as much integer as floating-point work, some loads",
        |sizes| power(sizes.l1 / 4),
        loops::fp_half,
    )
    .core(),
    kernel(
        "fp-chain",
        "floating-point operations that each wait for the one before",
        none,
        loops::fp_chain,
    )
    .core(),
    kernel(
        "integer",
        "integer operations that do not wait for each other",
        none,
        loops::integer,
    )
    .pure()
    .core(),
    kernel(
        "integer-half",
        "integer operations in two chains, some loads and stores",
        |sizes| power(sizes.l1 / 4),
        loops::integer_half,
    )
    .core(),
    kernel(
        "integer-chain",
        "integer operations that each wait for the one before",
        none,
        loops::integer_chain,
    )
    .core(),
    kernel(
        "divide",
        "divisions among other operations",
        none,
        loops::divide,
    )
    .core(),
    kernel(
        "branch",
        "branches that nobody can predict",
        none,
        loops::branch,
    )
    .pure()
    .core(),
    kernel(
        "l1",
        "loads and stores that hit the first level",
        |sizes| of(sizes.l1 / 2),
        loops::words,
    )
    .pure()
    .core(),
    kernel(
        "l2-small",
        "lines by chance out of a few times the first level",
        |sizes| power((4 * sizes.l1).min(sizes.l2 / 2)),
        loops::random,
    ),
    kernel(
        "l2",
        "lines by chance out of half of the second level",
        |sizes| power(sizes.l2 / 2),
        loops::random,
    )
    .pure(),
    kernel(
        "l2-chain",
        "lines by chance out of as much, each waits for the one before",
        |sizes| power(sizes.l2 / 2),
        loops::chase,
    ),
    kernel(
        "l2-large",
        "lines by chance out of twice the second level, some floating-point work",
        |sizes| power(2 * sizes.l2),
        loops::random_fp,
    )
    .beyond(),
    kernel(
        "llc-share",
        "lines by chance out of a core's share of the last level",
        |sizes| power(sizes.share.min(sizes.most)),
        loops::random,
    )
    .beyond(),
    kernel(
        "llc",
        "lines by chance out of half of the last level",
        |sizes| power((sizes.llc / 2).min(sizes.most)),
        loops::random,
    )
    .pure()
    .beyond(),
    kernel(
        "llc-chain",
        "lines by chance out of a core's share of it, each waits for the one before",
        |sizes| power(sizes.share.min(sizes.most)),
        loops::chase,
    )
    .beyond(),
    kernel(
        "memory",
        "one line after the other of far more than the caches hold",
        much,
        loops::stream,
    )
    .pure(),
    kernel(
        "memory-half",
        "one word after the other of as much, with floating-point work",
        much,
        loops::stream_words,
    ),
    kernel(
        "memory-store",
        "reads and writes one line after the other of as much",
        much,
        loops::stream_store,
    ),
    kernel(
        "memory-random",
        "lines by chance of as much, each waits for the one before",
        much,
        loops::chase,
    ),
    kernel(
        "tlb",
        "one line in each of many pages, lines that the second level holds",
        pages,
        loops::pages,
    )
    .pure(),
];

/// The kernel of that name.
pub fn find(name: &str) -> Option<&'static Kernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}
