use super::*;
use std::os::unix::process::CommandExt;

fn pus(text: &str) -> PuSet {
    text.parse().expect("a list")
}

fn held(result: Result<Lock, LockError>) -> String {
    match result {
        Err(LockError::Pus { pus, holders }) => {
            let own = std::process::id();
            assert!(
                holders.iter().any(|holder| holder.pid == own),
                "{holders:?}"
            );
            pus.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_or_nothing_and_freed_when_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let locks = LockFile::new(folder.path());
    let first = locks.pus(&pus("0-3,60000,65535")).expect("free");
    assert_eq!(
        held(locks.pus(&pus("2-5,59999-60001,65535"))),
        "2-3,60000,65535"
    );
    // What the refused one had taken meanwhile is free again.
    let beside = locks.pus(&pus("4-5,59999")).expect("free");
    assert_eq!(held(locks.pus(&pus("0-9"))), "0-5");
    drop(first);
    let again = locks.pus(&pus("0-3,60000-60003")).expect("free");
    drop((beside, again));
}

#[test]
fn interrupts_and_settings_are_no_pus() {
    let folder = tempfile::tempdir().expect("a folder");
    let locks = LockFile::new(folder.path());
    let _pus = locks.pus(&(0..10_000).collect()).expect("free");
    let irqs = locks.irqs().expect("free");
    assert!(matches!(locks.irqs(), Err(LockError::Irqs(by)) if by.len() == 1));
    let settings = locks.settings().expect("free");
    assert!(matches!(locks.settings(), Err(LockError::Settings(by)) if by.len() == 1));
    drop((irqs, settings));
    assert!(locks.irqs().is_ok() && locks.settings().is_ok());
}

#[test]
fn weights_are_given_by_one_whatever_pus_and_interrupts_others_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let locks = LockFile::new(folder.path());
    let _others = (
        locks.pus(&(0..10_000).collect()).expect("free"),
        locks.irqs().expect("free"),
    );
    let weights = locks.weights().expect("free");
    assert!(matches!(locks.weights(), Err(LockError::Weights(by)) if by.len() == 1));
    drop(weights);
    assert!(locks.weights().is_ok());
}

#[test]
fn a_file_of_another_user_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let locks = LockFile::new(folder.path());
    let gone = LockFile::new(&folder.path().join("not-there"));
    assert!(matches!(gone.irqs(), Err(LockError::Unusable { .. })));
    std::os::unix::fs::symlink("elsewhere", folder.path().join(NAME)).expect("a link");
    assert!(matches!(locks.irqs(), Err(LockError::Unusable { .. })));
    assert!(!folder.path().join("elsewhere").exists());
}

#[test]
fn lines_of_proc_locks_are_read() {
    let file = (0, 0x19, 1234);
    let range = |line| locked_range(line, file);
    assert_eq!(
        range("7: OFDLCK ADVISORY  WRITE -1 00:19:1234 3 63"),
        Some(3..64)
    );
    assert_eq!(
        range("7: OFDLCK ADVISORY  WRITE -1 00:19:1234 3 EOF"),
        Some(3..u64::MAX)
    );
    for other in [
        "7: OFDLCK ADVISORY  WRITE -1 00:19:1235 3 63",
        "7: OFDLCK ADVISORY  WRITE -1 00:1a:1234 3 63",
        "7: POSIX  ADVISORY  WRITE 77 00:19:1234 3 63",
        "7: -> OFDLCK ADVISORY  WRITE -1 00:19:1234 3 63",
        "7: OFDLCK ADVISORY  WRITE -1 00:19:1234",
        "",
    ] {
        assert_eq!(range(other), None, "{other}");
    }
}

/// What the test below starts: it takes PUs 1 to 3 as another process would, and prints the outcome.
#[test]
#[ignore = "the process of another test"]
fn takes_as_another() {
    let directory = std::env::var_os("PERCH_TEST_LOCKS").expect("the test's");
    let honoured = std::env::var_os("PERCH_TEST_HONOURED").expect("the test's");
    let locks = LockFile::new(Path::new(&directory)).honouring(Path::new(&honoured));
    println!("outcome: {:?}", locks.pus(&pus("1-3")).map(|_| "taken"));
    println!("weights: {:?}", locks.weights().map(|_| "taken"));
}

#[test]
fn root_is_honoured_and_cannot_be_hindered() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can play two users");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (of_root, of_user) = (folder.path().join("root"), folder.path().join("user"));
    let open = |path: &Path| {
        fs::create_dir_all(path).expect("a folder");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mode");
    };
    [folder.path(), &of_root, &of_user]
        .into_iter()
        .for_each(open);
    let program = folder.path().join("test");
    fs::copy(std::env::current_exe().expect("this test"), &program).expect("copied");
    std::os::unix::fs::chown(&of_user, Some(65534), Some(65534)).expect("given away");
    let as_user = |directory: &Path| {
        let output = std::process::Command::new(&program)
            .args(["--exact", "lock::tests::takes_as_another", "--ignored"])
            .arg("--nocapture")
            .env("PERCH_TEST_LOCKS", directory)
            .env("PERCH_TEST_HONOURED", &of_root)
            .current_dir("/")
            .uid(65534)
            .gid(65534)
            .output()
            .expect("another process");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let locks = LockFile::new(&of_root);
    // A user without write permission for root's file cannot lock anything there.
    let root = locks.pus(&pus("2-9")).expect("free");
    let told = as_user(&of_root);
    assert!(told.contains("outcome: Err(Unusable"), "{told}");
    let told = as_user(&of_user);
    assert!(
        told.contains("outcome: Err(Pus { pus: {2-3}, holders: [] })"),
        "{told}"
    );
    assert!(told.contains("weights: Ok(\"taken\")"), "{told}");
    drop(root);
    let _weights = locks.weights().expect("free");
    let told = as_user(&of_user);
    assert!(told.contains("outcome: Ok(\"taken\")"), "{told}");
    assert!(told.contains("weights: Err(Weights([]))"), "{told}");
}
