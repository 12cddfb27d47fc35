//! What of a directory of journals is read.

use crate::common::{Kernel, Knob};
use perch_engine::{Recovery, StateDir, recover_all};
use std::{
    fs::File,
    sync::{Arc, RwLock},
};

/// A file that claims to be long costs nothing; less so if it is another user's.
#[test]
fn a_journal_that_is_too_long_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    StateDir::open(dir.path()).unwrap();
    let user = rustix::process::geteuid().as_raw();
    let whose = [
        (StateDir::open(dir.path()).unwrap(), 1 << 30),
        (
            StateDir::of_other(dir.path().to_owned(), user).unwrap(),
            32 << 20,
        ),
    ];
    for (whose, longest) in whose {
        let told = |length: u64| {
            let path = dir.path().join("1-2-3.journal");
            File::create(&path).unwrap().set_len(length).unwrap();
            let kernel = Arc::new(RwLock::new(Kernel::new(2)));
            let found = recover_all(&whose, &mut Knob(kernel)).unwrap();
            match &found[..] {
                [(_, Recovery::Unreadable { why })] => why.clone(),
                other => panic!("{other:?}"),
            }
        };
        let why = told(longest + 1);
        assert!(
            why.contains(&format!("more than the {longest} that are read")),
            "{why}"
        );
        // Read, and no journal.
        let why = told(1 << 20);
        assert!(why.contains("no header"), "{why}");
    }
}
