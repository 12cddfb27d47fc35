//! PU lists, masks, and rules of the policy `fixed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(set) = text.parse::<perch_core::PuSet>() {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
    let _ = perch_core::PuSet::from_mask(text);
    let _ = perch_policy::fixed::parse_rules(text, std::path::Path::new("rules"));
});
