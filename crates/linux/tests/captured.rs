//! Topologies as other machines' kernels tell them: small trees of `/sys` and `/proc` below hwloc's `HWLOC_FSROOT`.

use perch_core::{Topology, topology::PuState};
use perch_linux::topology::{Loaded, Source, load};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// Not a test by itself: prints the topology of the tree that the environment names.
#[test]
fn print_captured() {
    let Some(file) = std::env::var_os("PERCH_TEST_PRINT") else {
        return;
    };
    let Loaded { topology, infos } = load(&Source::Native).unwrap();
    fs::write(file, serde_json::to_string(&(topology, infos)).unwrap()).unwrap();
}

type Infos = Vec<(String, String)>;

/// The tree's topology, read by another process, since the environment is the whole process' own.
fn read(tree: &Path) -> (Topology, Infos) {
    let out = tempfile::NamedTempFile::new().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["print_captured", "--exact", "--quiet"])
        .env("PERCH_TEST_PRINT", out.path())
        .env("HWLOC_FSROOT", tree)
        // hwloc would ask the real processor where the tree says little.
        .env("HWLOC_COMPONENTS", "linux,stop")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    serde_json::from_str(&fs::read_to_string(out.path()).unwrap()).unwrap()
}

/// A tree in the making.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(present: &str, online: &str) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.file("proc/mounts", "");
        tree.file("proc/cpuinfo", "");
        for (name, text) in [
            ("present", present),
            ("possible", present),
            ("online", online),
        ] {
            tree.file(&format!("sys/devices/system/cpu/{name}"), text);
        }
        tree
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// A PU with the masks of its siblings and of its package.
    fn pu(&self, pu: u32, core: u32, package: u32, siblings: &str, in_package: &str) {
        let base = format!("sys/devices/system/cpu/cpu{pu}");
        self.file(&format!("{base}/online"), "1");
        for (name, text) in [
            ("core_id", core.to_string().as_str()),
            ("physical_package_id", package.to_string().as_str()),
            ("core_cpus", siblings),
            ("thread_siblings", siblings),
            ("package_cpus", in_package),
            ("core_siblings", in_package),
        ] {
            self.file(&format!("{base}/topology/{name}"), text);
        }
    }
}

#[test]
fn an_smt_machine_with_a_pu_offline() {
    let tree = Tree::new("0-3", "0-2");
    tree.pu(0, 0, 0, "5", "7");
    tree.pu(1, 1, 0, "2", "7");
    tree.pu(2, 0, 0, "5", "7");
    tree.file("sys/devices/system/cpu/cpu3/online", "0");
    tree.file(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\n\
         processor\t: 1\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\n\
         processor\t: 2\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\n",
    );
    // What `hwloc-gather-topology` writes besides.
    tree.file(
        "proc/hwloc-nofile-info",
        "OSName: Linux\nArchitecture: x86_64",
    );
    let (topology, infos) = read(tree.0.path());
    assert!(topology.source.as_str().starts_with("captured tree"));
    let cores: Vec<String> = topology.cores.iter().map(|c| c.pus.to_string()).collect();
    assert_eq!(cores, ["0,2", "1", "3"]);
    assert_eq!(topology.pu(3).unwrap().state, PuState::Offline);
    assert_eq!(topology.usable().to_string(), "0-2");
    assert_eq!(topology.packages[0].pus.to_string(), "0-3");
    let model = ("CPUModelNumber".to_owned(), "85".to_owned());
    assert!(infos.contains(&model), "{infos:?}");
}

#[test]
fn a_hybrid_machine_names_its_kinds() {
    let tree = Tree::new("0-3", "0-3");
    tree.pu(0, 0, 0, "3", "f");
    tree.pu(1, 0, 0, "3", "f");
    tree.pu(2, 8, 0, "4", "f");
    tree.pu(3, 9, 0, "8", "f");
    tree.file("sys/devices/cpu_core/cpus", "0-1");
    tree.file("sys/devices/cpu_atom/cpus", "2-3");
    let (topology, _) = read(tree.0.path());
    let kinds: Vec<_> = topology
        .kinds
        .iter()
        .map(|kind| format!("{} {}", kind.name, kind.pus))
        .collect();
    assert_eq!(kinds, ["efficiency 2-3", "performance 0-1"]);
    let of: Vec<usize> = topology.cores.iter().map(|core| core.kind).collect();
    assert_eq!(of, [1, 0, 0]);
}

#[test]
fn big_and_little_arm_cores_are_told_apart_by_capacity() {
    let tree = Tree::new("0-3", "0-3");
    for (pu, package, mask, capacity) in [
        (0, 0, "3", 267),
        (1, 0, "3", 267),
        (2, 1, "c", 1024),
        (3, 1, "c", 1024),
    ] {
        tree.pu(pu, pu, package, &format!("{:x}", 1 << pu), mask);
        tree.file(
            &format!("sys/devices/system/cpu/cpu{pu}/cpu_capacity"),
            &capacity.to_string(),
        );
    }
    let (topology, _) = read(tree.0.path());
    let kinds: Vec<_> = topology
        .kinds
        .iter()
        .map(|kind| format!("{} {}", kind.name, kind.pus))
        .collect();
    assert_eq!(kinds, ["efficiency 0-1", "performance 2-3"]);
}
