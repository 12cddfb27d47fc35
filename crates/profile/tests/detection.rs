//! Which profile a processor gets.

use perch_profile::{CpuIdentity, Library, detect, user_dirs};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// The profile and the reason for a text of /proc/cpuinfo.
fn detected(cpuinfo: &str) -> (String, String) {
    let library = Library::embedded();
    let found = detect(&library, &CpuIdentity::from_cpuinfo(cpuinfo));
    (found.profile.name.clone(), found.why)
}

fn x86(vendor: &str, family: u32, model: u32) -> String {
    format!(
        "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: a CPU\n\
         stepping\t: 1\nflags\t\t: fpu vme hypervisor\n\nprocessor\t: 1\nvendor_id\t: {vendor}\n"
    )
}

fn arm(parts: &[u32]) -> String {
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        text += &format!(
            "processor\t: {at}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\
             CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: {part:#x}\nCPU revision\t: 1\n\n"
        );
    }
    text
}

fn power(cpu: &str, pvr: &str) -> String {
    format!(
        "processor\t: 0\ncpu\t\t: {cpu}\nclock\t\t: 3000.000000MHz\nrevision\t: 2.2 (pvr {pvr} 1202)\n\n\
         timebase\t: 512000000\nplatform\t: pSeries\nmodel\t\t: IBM,9009-42A\nmachine\t\t: CHRP IBM,9009-42A\n"
    )
}

#[test]
fn by_model() {
    for (vendor, family, model, name) in [
        ("AuthenticAMD", 21, 1, "bulldozer"),
        ("AuthenticAMD", 21, 0x65, "bulldozer"),
        ("AuthenticAMD", 23, 1, "zen1"),
        ("HygonGenuine", 24, 0, "zen1"),
        ("AuthenticAMD", 23, 0x31, "zen2"),
        ("AuthenticAMD", 23, 0x71, "zen2"),
        ("AuthenticAMD", 25, 1, "zen3"),
        ("AuthenticAMD", 25, 0x50, "zen3"),
        ("AuthenticAMD", 25, 0x11, "zen4"),
        ("AuthenticAMD", 25, 0xa0, "zen4"),
        ("AuthenticAMD", 26, 2, "zen5"),
        ("AuthenticAMD", 26, 0x44, "zen5"),
        ("GenuineIntel", 6, 85, "skylake-sp"),
        ("GenuineIntel", 6, 106, "ice-lake-sp"),
        ("GenuineIntel", 6, 143, "sapphire-rapids"),
        ("GenuineIntel", 6, 151, "alder-lake"),
        ("GenuineIntel", 6, 42, "generic"),
        ("AuthenticAMD", 16, 2, "generic"),
        ("GenuineIntel", 25, 1, "generic"),
    ] {
        assert_eq!(
            detected(&x86(vendor, family, model)).0,
            name,
            "{vendor} {family} {model}"
        );
    }
}

#[test]
fn by_part() {
    for (part, name) in [
        (0xd03, "cortex-a53"),
        (0xd07, "cortex-a57"),
        (0xd08, "cortex-a72"),
        (0xd0b, "cortex-a76"),
        (0xd0c, "neoverse-n1"),
        (0xd40, "neoverse-v1"),
        (0xd4f, "neoverse-v2"),
        (0xd49, "generic"),
    ] {
        assert_eq!(detected(&arm(&[part, part])).0, name, "{part:#x}");
    }
}

#[test]
fn by_version_register_or_name() {
    for (cpu, pvr, name) in [
        ("POWER7 (raw), altivec supported", "003f", "power7"),
        ("POWER8E (raw), altivec supported", "004b", "power8"),
        ("POWER9 (architected), altivec supported", "004e", "power9"),
        (
            "POWER10 (architected), altivec supported",
            "0080",
            "power10",
        ),
        ("POWER9, altivec supported", "9999", "power9"),
        ("POWER6, altivec supported", "003e", "generic"),
    ] {
        assert_eq!(detected(&power(cpu, pvr)).0, name, "{cpu}");
    }
}

#[test]
fn says_why() {
    insta::assert_snapshot!(detected(&x86("AuthenticAMD", 25, 0x11)).1, @"the processor is AuthenticAMD family 0x19 model 0x11 (a CPU); the profile is for AuthenticAMD family 0x19 models 0x10-0x1f, 0x60-0xaf");
    insta::assert_snapshot!(detected(&x86("GenuineIntel", 6, 42)).1, @"no profile is for this processor, GenuineIntel family 0x6 model 0x2a (a CPU); `--profile` chooses another, docs/profiles.md says how to write one");
    insta::assert_snapshot!(detected(&x86("AuthenticAMD", 21, 0x65)).1, @"the processor is AuthenticAMD family 0x15 model 0x65 (a CPU); the profile is for AuthenticAMD family 0x15");
    insta::assert_snapshot!(detected(&arm(&[0xd03, 0xd08])).1, @"the cores are of several kinds, implementer 0x41 part 0xd03 and implementer 0x41 part 0xd08, and no profile is for all of them; write one with a `[[kind]]` for each (docs/profiles.md)");
    insta::assert_snapshot!(detected(&power("POWER9 (architected), altivec supported", "004e")).1, @"the processor is POWER9 pvr 0x004e (POWER9 (architected), altivec supported); the profile is for pvr 0x004e or POWER9");
    insta::assert_snapshot!(detected("").1, @"the processor does not say what it is");
}

#[test]
fn virtual_machines_are_noticed() {
    assert!(CpuIdentity::from_cpuinfo(&x86("AuthenticAMD", 26, 2)).virtual_machine);
    assert!(!CpuIdentity::from_cpuinfo(&arm(&[0xd0c])).virtual_machine);
}

#[test]
fn a_saved_topology_names_its_processor_too() {
    let library = Library::embedded();
    let amd = CpuIdentity::from_hwloc([
        ("CPUVendor", "AuthenticAMD"),
        ("CPUFamilyNumber", "25"),
        ("CPUModelNumber", "17"),
        ("CPUModel", "EPYC"),
        ("CPUStepping", "1"),
    ]);
    assert_eq!(detect(&library, &amd).profile.name, "zen4");
    let arm = CpuIdentity::from_hwloc([
        ("CPUImplementer", "0x41"),
        ("CPUArchitecture", "8"),
        ("CPUPart", "0xd40"),
        ("CPURevision", "1"),
    ]);
    assert_eq!(detect(&library, &arm).profile.name, "neoverse-v1");
    let power = CpuIdentity::from_hwloc([
        ("CPUModel", "POWER8 (raw), altivec supported"),
        ("CPURevision", "2.0"),
    ]);
    assert_eq!(detect(&library, &power).profile.name, "power8");
    assert_eq!(
        detect(&library, &CpuIdentity::from_hwloc([])).profile.name,
        "generic"
    );
}

fn write(directory: &std::path::Path, file: &str, text: &str) {
    fs::write(directory.join(file), text).unwrap();
}

#[test]
fn a_users_profile_takes_the_shipped_ones_place() {
    let directory = tempfile::tempdir().unwrap();
    let shipped = Library::embedded().find("zen4").unwrap().text.clone();
    write(
        directory.path(),
        "zen4.toml",
        &shipped.replace("title = \"AMD", "title = \"My AMD"),
    );
    write(
        directory.path(),
        "mine.toml",
        &shipped.replace("name = \"zen4\"", "name = \"mine\""),
    );
    write(directory.path(), "README", "no profile");
    let library = Library::load(&[directory.path().to_owned()]).unwrap();
    assert!(library.find("zen4").unwrap().title.starts_with("My AMD"));
    assert_eq!(library.list().len(), Library::embedded().list().len() + 1);
    // Both fit equally well; the user's come last and win.
    let identity = CpuIdentity::from_cpuinfo(&x86("AuthenticAMD", 25, 0x11));
    assert!(
        detect(&library, &identity)
            .profile
            .path
            .starts_with(directory.path().to_str().unwrap())
    );
}

#[test]
fn a_broken_or_doubled_profile_of_the_user_is_an_error_with_its_path() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "broken.toml", "name = 1");
    let error = Library::load(&[directory.path().to_owned()])
        .unwrap_err()
        .to_string();
    assert!(error.contains("broken.toml:1:8"), "{error}");
    let shipped = Library::embedded().find("zen4").unwrap().text.clone();
    write(directory.path(), "broken.toml", &shipped);
    write(directory.path(), "again.toml", &shipped);
    let error = Library::load(&[directory.path().to_owned()])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("again.toml") && error.contains("broken.toml"),
        "{error}"
    );
    let error = Library::load(&[directory.path().join("elsewhere")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("elsewhere: cannot be read"), "{error}");
}

#[test]
fn a_path_chooses_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut library = Library::embedded();
    let shipped = library.find("power9").unwrap().text.clone();
    write(
        directory.path(),
        "mine.toml",
        &shipped.replace("name = \"power9\"", "name = \"mine\""),
    );
    let path = directory.path().join("mine.toml");
    assert_eq!(library.choose(path.to_str().unwrap()).unwrap().name, "mine");
    assert_eq!(library.choose("mine").unwrap().name, "mine");
    assert!(library.choose("/nonexistent.toml").is_err());
    assert!(
        library
            .choose("mime")
            .unwrap_err()
            .to_string()
            .contains("did you mean `mine`?")
    );
}

#[test]
fn where_profiles_are_looked_for() {
    let dirs = |asked: &str, settings: Option<&str>| {
        let asked = (!asked.is_empty()).then(|| OsStr::new(asked));
        user_dirs(asked, settings.map(Path::new))
    };
    let both = [PathBuf::from("/a"), PathBuf::from("/b")];
    assert_eq!(dirs("/a:/b", Some("/c/perch")), both);
    assert_eq!(
        dirs("", Some("/c/perch")),
        [PathBuf::from("/c/perch/profiles")]
    );
    assert!(dirs("", None).is_empty());
}
