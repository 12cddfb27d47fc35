//! perch's own limit of open files: raised for itself, never for the program that it starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// Descriptors that stay free for files, sockets, and the reading of `/proc`.
const RESERVED: u64 = 256;

/// The limit of open files as it was before perch raised it.
static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard one; the first call also notes what perch inherited.
pub fn raise_open_files() {
    let inherited = INHERITED.get_or_init(|| getrlimit(Resource::Nofile));
    if inherited.current != inherited.maximum {
        // Refused only where a sandbox forbids it: then the old limit is respected.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: inherited.maximum,
                maximum: inherited.maximum,
            },
        );
    }
}

/// The limit that a started program must have: perch's own as it was inherited.
pub fn inherited_open_files() -> Rlimit {
    *INHERITED.get_or_init(|| getrlimit(Resource::Nofile))
}

/// How many descriptors may be kept open on files of `/proc`: half of what there is, since counters need the others.
pub fn proc_budget() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    (limit.saturating_sub(RESERVED.min(limit / 2)) / 2) as usize
}

/// What a user does about too few descriptors.
pub const REMEDY: &str = "raise the limit of open files: `ulimit -n 65536`, `nofile` in /etc/security/limits.conf, or \
                          `LimitNOFILE=` in a systemd unit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_remembers_what_was_inherited() {
        let before = getrlimit(Resource::Nofile);
        raise_open_files();
        let inherited = inherited_open_files();
        assert_eq!(inherited.maximum, before.maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        assert!(proc_budget() > 0);
    }
}
