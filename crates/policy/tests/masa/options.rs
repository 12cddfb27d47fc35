//! Options: what is refused, and how errors are reported.

use super::world::*;
use perch_policy::{
    Inputs, Masa, MasaConfig, Share,
    masa::{BUILT_IN, GivenLimit, Variant},
};

fn given(metric: &str, limit: f64) -> GivenLimit {
    GivenLimit {
        metric: metric.to_owned(),
        share: Share::Package,
        limit,
    }
}

#[test]
fn a_calibration_is_asked_for_and_options_have_their_ranges() {
    let refused = |config: MasaConfig| Masa::new(config).unwrap_err().to_string();
    let limited = |limits| MasaConfig {
        limits,
        ..MasaConfig::default()
    };
    let missing = toml::from_str("calibration = '/nowhere/c.toml'").unwrap();
    insta::assert_snapshot!(
        [
            refused(MasaConfig::default()),
            refused(MasaConfig {
                variant: Variant::Paper,
                ..learned()
            }),
            refused(MasaConfig {
                imbalance: 1.5,
                ..learned()
            }),
            refused(MasaConfig {
                outstanding: 0.0,
                ..learned()
            }),
            refused(MasaConfig {
                headroom: 0.5,
                ..learned()
            }),
            Inputs::read("masa", &missing).unwrap_err().to_string(),
            refused(limited(vec![given("l2_load", 0.0)])),
            refused(MasaConfig {
                calibration: BUILT_IN.to_owned(),
                ..limited(vec![given("l2_load", 1.0)])
            }),
        ]
        .join("\n")
    );
}

#[test]
fn limits_among_the_options_are_as_good_as_a_file() {
    for variant in [Variant::Paper, Variant::Perch] {
        let config = MasaConfig {
            variant,
            limits: vec![given("l2_load", 9385179.8), given("fp_load", 21397063.2)],
            ..MasaConfig::default()
        };
        let mut world_given = world(2, 2, &[INT_A, INT_B, FP_A, FP_B]);
        let mut world_file = world_given.clone();
        let (mut given, mut file) = (Masa::new(config).unwrap(), paper(variant));
        for _ in 0..3 {
            step(&mut world_given, &mut given);
            step(&mut world_file, &mut file);
        }
        assert_eq!(pus(&world_given), pus(&world_file));
        assert_eq!(given.swaps(), (1, 0));
    }
}
