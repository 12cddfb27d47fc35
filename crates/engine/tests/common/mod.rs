//! What the tests of sessions share: a kernel in memory, a machine on it, and the parts of a session.
#![allow(dead_code, unused_imports)]

mod devices;
pub mod giving;
mod kernel;
mod killer;
mod knob;
mod niced;
mod parts;
mod recorded;
mod script;
mod session;
mod settable;

pub use devices::{Devices, Interrupted, IrqOp, IrqStep};
pub use kernel::{Kernel, Seen, Task, masks, now, shows};
pub use killer::{Kill, Killer};
pub use knob::Knob;
pub use niced::{NiceMachine, NiceOp, NiceStep, Niced};
pub use parts::{Decide, Heard, TestProcessor};
pub use recorded::{recorded, replay};
pub use script::{Op, Scripted, Step};
pub use session::{Shared, bind, bindings, kernel, live, options, run, session, steps};
pub use settable::{Settable, SettingOp, SettingStep, Values};

use perch_core::{
    PuSet, Topology,
    topology::{Core, CoreKind, NumaNode, Package, Pu, PuState},
};

pub fn set(text: &str) -> PuSet {
    text.parse().unwrap()
}

/// Cores of two PUs each: 0 and 1, 2 and 3, …
pub fn topology(cores: u32, usable: &PuSet) -> Topology {
    let pair = |core: u32| [2 * core, 2 * core + 1].into_iter().collect::<PuSet>();
    let all: PuSet = (0..2 * cores).collect();
    let state = |os| match usable.contains(os) {
        true => PuState::Usable,
        false => PuState::Disallowed,
    };
    Topology {
        source: "a test".into(),
        packages: vec![Package {
            os: 0,
            pus: all.clone(),
            model: String::new(),
        }],
        numa_nodes: vec![NumaNode {
            os: 0,
            pus: all.clone(),
            ..NumaNode::default()
        }],
        caches: Vec::new(),
        cores: (0..cores)
            .map(|core| Core {
                pus: pair(core),
                package: 0,
                numa_node: 0,
                kind: 0,
            })
            .collect(),
        kinds: vec![CoreKind {
            name: "core".to_owned(),
            pus: all.clone(),
        }],
        pus: all
            .iter()
            .map(|os| Pu {
                os,
                core: os as usize / 2,
                state: state(os),
            })
            .collect(),
    }
}
