//! The instructions that both simulators execute.

use perch_sim::{
    model::Op,
    stream::{MixStream, Random},
    workload::{Mix, Pattern, WorkingSet},
};

/// A sort of stream.
pub struct Kind {
    pub name: &'static str,
    shares: &'static [(Op, f64)],
    bytes: u64,
    depends: u16,
    /// Instructions that ChampSim executes in a run: some seconds.
    pub theirs: u64,
    /// Instructions that ours executes in a run.
    pub ours: u64,
}

/// Shares of the mixed stream: 25 % loads, 10 % stores, 15 % branches.
pub const MIXED: &[(Op, f64)] = &[
    (Op::Alu, 0.4),
    (Op::Fp, 0.1),
    (Op::Load, 0.25),
    (Op::Store, 0.1),
    (Op::Branch, 0.15),
];

/// From the easiest to the hardest: ChampSim plays idle cycles too.
pub const STREAMS: [Kind; 3] = [
    Kind {
        name: "arithmetic only",
        shares: &[(Op::Alu, 1.0)],
        bytes: 64,
        depends: 1,
        theirs: 400_000,
        ours: 10_000_000,
    },
    Kind {
        name: "mixed, 256 KB",
        shares: MIXED,
        bytes: 256 << 10,
        depends: 1,
        theirs: 200_000,
        ours: 5_000_000,
    },
    Kind {
        name: "dependent random loads over 64 MB",
        shares: &[(Op::Load, 1.0)],
        bytes: 64 << 20,
        depends: 1,
        theirs: 2_000,
        ours: 2_000_000,
    },
];

/// A mix of these shares over `bytes` bytes of data.
pub fn mix(shares: &[(Op, f64)], bytes: u64, depends: u16) -> Mix {
    let mut all = [0.0; Op::COUNT];
    for (op, share) in shares {
        all[*op as usize] = *share;
    }
    Mix {
        name: "mix".into(),
        shares: all,
        depends: depends.into(),
        code_bytes: 16 << 10,
        working_sets: vec![WorkingSet {
            bytes,
            share: 1.0,
            pattern: Pattern::Random,
            stride: 64,
            region: None,
        }],
        ..Mix::default()
    }
}

impl Kind {
    /// The stream from its beginning.
    pub fn stream(&self) -> MixStream {
        let mix = mix(self.shares, self.bytes, self.depends);
        MixStream::new(&mix, 1 << 22, &[1 << 32], Random::new(1))
    }
}
