//! Time of the operating system and of the machine.

use perch_sim::{config, model::MachineModel};
use proptest::prelude::*;

fn machine(scale: f64) -> MachineModel {
    MachineModel {
        scale,
        scheduler: Default::default(),
        os: Default::default(),
        ..config::find_machine("cmt-4x4").unwrap()
    }
}

/// A day.
const LONGEST: u64 = 86_400_000_000_000;

proptest! {
    #[test]
    fn time_comes_back_as_it_was(ns in 0..LONGEST, scale in 1.0..999.999f64) {
        let machine = machine(scale);
        prop_assert_eq!(machine.os_time(machine.machine_time(ns)), ns);
    }

    #[test]
    fn at_any_scale_no_more_is_lost_than_half_a_picosecond(ns in 0..LONGEST, scale in 1.0..1e6f64) {
        let machine = machine(scale);
        let back = machine.os_time(machine.machine_time(ns));
        prop_assert!(back.abs_diff(ns) as f64 <= 0.5 + scale / 2_000.0, "{ns} {back}");
    }

    #[test]
    fn later_stays_later(a in 0..LONGEST, b in 0..LONGEST, scale in 1.0..1e6f64) {
        let machine = machine(scale);
        let (a, b) = (a.min(b), a.max(b));
        prop_assert!(machine.machine_time(a) <= machine.machine_time(b));
        prop_assert!(machine.os_time(a) <= machine.os_time(b));
    }
}

#[test]
fn a_second_at_a_scale_of_a_thousand_is_a_millisecond() {
    let machine = machine(1_000.0);
    assert_eq!(machine.machine_time(1_000_000_000), 1_000_000_000);
    assert_eq!(machine.os_time(1_000_000_000), 1_000_000_000);
    assert_eq!(machine.machine_time(1), 1);
}

/// By way of floating point it came back as 74503981702916.
#[test]
fn a_time_that_floating_point_would_change() {
    let (machine, ns) = (machine(969.8726607944526), 74_503_981_702_915);
    assert_eq!(machine.os_time(machine.machine_time(ns)), ns);
}

#[test]
fn what_has_no_room_is_the_longest_time() {
    assert_eq!(machine(1.0).machine_time(u64::MAX), u64::MAX);
    assert_eq!(machine(1e6).os_time(u64::MAX), u64::MAX);
}
