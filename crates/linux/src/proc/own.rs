//! Whether the numbers in `/proc` are those by which system calls know processes.

use std::{fs, io, path::Path};

const REMEDY: &str =
    "mount that of this namespace (`mount -t proc proc /proc`, `unshare --mount-proc`)";

/// Whether `/proc` is that of this process's PID namespace: else its numbers are, to system calls, those of other
/// processes.
///
/// # Errors
/// What is wrong, in words for the user.
pub fn check_numbers() -> Result<(), String> {
    check(Path::new("/proc"), std::process::id())
}

fn check(proc: &Path, own: u32) -> Result<(), String> {
    let unreadable = |error: io::Error| {
        format!(
            "/proc/self cannot be read ({error}): perch needs the /proc of its PID namespace; {REMEDY}"
        )
    };
    let link = fs::read_link(proc.join("self")).map_err(unreadable)?;
    // Two numbers may be the same at random. NSpid lists all numbers of a process in a nested namespace.
    let status = fs::read_to_string(proc.join("self/status")).map_err(unreadable)?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let below = numbers.is_some_and(|numbers| numbers.split_whitespace().count() > 1);
    if below || link.as_os_str() != own.to_string().as_str() {
        return Err(format!(
            "/proc is that of another PID namespace: perch would take other processes for those that it shows; {REMEDY}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_another_namespace_are_refused() {
        assert_eq!(check_numbers(), Ok(()));
        let proc = tempfile::tempdir().unwrap();
        let lacks = check(proc.path(), 7).unwrap_err();
        assert!(lacks.contains("cannot be read"), "{lacks}");
        fs::create_dir(proc.path().join("7")).unwrap();
        std::os::unix::fs::symlink("7", proc.path().join("self")).unwrap();
        let status = proc.path().join("7/status");
        // Kernels before 4.1 tell no numbers.
        for (numbers, own, fits) in [
            ("NSpid:\t7\n", 7, true),
            ("", 7, true),
            ("", 2, false),
            ("NSpid:\t7\t2\n", 2, false),
            ("NSpid:\t7\t7\n", 7, false),
        ] {
            fs::write(&status, format!("Name:\tx\n{numbers}Threads:\t1\n")).unwrap();
            let told = check(proc.path(), own);
            assert_eq!(told.is_ok(), fits, "{numbers}: {told:?}");
        }
    }
}
