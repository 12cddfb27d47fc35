//! The shipped profiles as a whole.

use perch_profile::Library;

#[test]
fn every_shipped_profile_is_read() {
    let library = Library::embedded();
    assert!(
        library
            .list()
            .iter()
            .any(|profile| profile.name == "generic")
    );
    for profile in library.list() {
        assert!(!profile.event_plan().sets.is_empty(), "{}", profile.name);
    }
}
