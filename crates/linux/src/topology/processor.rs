//! What processors say of themselves, for profile detection.

use super::sysfs;
use perch_core::PuSet;
use std::{collections::BTreeMap, fs};

/// PUs of one processor model and its own description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processor {
    /// The PUs.
    pub pus: PuSet,
    /// What is known. Keys: `architecture` (as `uname -m` tells it), `vendor`, `family`, `model`, `stepping` (x86),
    /// `implementer`, `variant`, `part`, `revision` (Arm, hexadecimal as in `/proc/cpuinfo`), `name` (the model's
    /// name), `platform` (POWER), `hypervisor` (`yes` in a virtual machine). Only those that are known.
    pub facts: BTreeMap<String, String>,
}

/// The names of facts in `/proc/cpuinfo`, per architecture, and here.
const CPUINFO: [(&str, &str); 13] = [
    ("vendor_id", "vendor"),
    ("cpu family", "family"),
    ("model", "model"),
    ("model name", "name"),
    ("stepping", "stepping"),
    ("CPU implementer", "implementer"),
    ("CPU variant", "variant"),
    ("CPU part", "part"),
    ("CPU revision", "revision"),
    // POWER says "POWER9, altivec supported".
    ("cpu", "name"),
    ("revision", "revision"),
    ("uarch", "uarch"),
    ("platform", "platform"),
];

/// The processors of `/proc/cpuinfo`, one for each set of facts.
pub fn from_cpuinfo(text: &str, architecture: Option<&str>) -> Vec<Processor> {
    let mut machine = BTreeMap::new();
    if let Some(architecture) = architecture {
        machine.insert("architecture".to_owned(), architecture.to_owned());
    }
    let mut processors: Vec<Processor> = Vec::new();
    let mut add = |pu: Option<u32>, facts: BTreeMap<String, String>| {
        let Some(pu) = pu else { return };
        match processors.iter_mut().find(|known| known.facts == facts) {
            Some(known) => {
                known.pus.insert(pu);
            }
            None => processors.push(Processor {
                pus: PuSet::single(pu),
                facts,
            }),
        }
    };
    let (mut pu, mut facts) = (None, BTreeMap::new());
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if key == "processor" {
            // A new block; POWER has machine-wide lines after the last one, Arm has no blank line to rely on.
            if let Some(next) = value
                .parse()
                .ok()
                .filter(|pu| *pu <= perch_core::pu_set::MAX_PU)
            {
                add(pu.replace(next), std::mem::take(&mut facts));
            }
        } else if key == "flags" && value.split(' ').any(|flag| flag == "hypervisor") {
            facts.insert("hypervisor".to_owned(), "yes".to_owned());
        } else if key == "platform" {
            machine.insert("platform".to_owned(), value.to_owned());
        } else if let Some((_, fact)) = CPUINFO.iter().find(|(name, _)| *name == key) {
            facts.insert((*fact).to_owned(), value.to_owned());
        }
    }
    add(pu, facts);
    for processor in &mut processors {
        processor.facts.extend(machine.clone());
    }
    processors
}

/// The processors of this machine (or captured tree).
pub fn native() -> Vec<Processor> {
    let path = sysfs::root().join("proc/cpuinfo");
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let uname = rustix::system::uname();
    let architecture = uname.machine().to_string_lossy();
    // A captured tree may come from another kind of machine.
    let here = sysfs::root() == std::path::Path::new("/");
    from_cpuinfo(&text.unwrap_or_default(), here.then_some(&*architecture))
}

/// The names that hwloc gives to facts, and ours.
pub const HWLOC: [(&str, &str); 12] = [
    ("Architecture", "architecture"),
    ("CPUVendor", "vendor"),
    ("CPUFamilyNumber", "family"),
    ("CPUModelNumber", "model"),
    ("CPUStepping", "stepping"),
    ("CPUModel", "name"),
    ("CPUImplementer", "implementer"),
    ("CPUVariant", "variant"),
    ("CPUPart", "part"),
    ("CPURevision", "revision"),
    ("PlatformName", "platform"),
    ("CPUArchitecture", "arm_architecture"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn x86() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n\
            model name\t: AMD EPYC 7763\nflags\t\t: fpu sse hypervisor\n\nprocessor\t: 1\n\
            vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763\n\
            flags\t\t: fpu sse hypervisor\n";
        let processors = from_cpuinfo(text, Some("x86_64"));
        assert_eq!(processors.len(), 1);
        assert_eq!(processors[0].pus.to_string(), "0-1");
        let facts = &processors[0].facts;
        assert_eq!(
            (&*facts["vendor"], &*facts["family"], &*facts["model"]),
            ("AuthenticAMD", "25", "1")
        );
        assert_eq!(
            (&*facts["architecture"], &*facts["hypervisor"]),
            ("x86_64", "yes")
        );
    }

    #[test]
    fn big_and_little_arm_cores_are_two_processors() {
        let block = |pu: u32, part: &str| {
            format!(
                "processor\t: {pu}\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: {part}\n\n"
            )
        };
        let text = block(0, "0xd03") + &block(1, "0xd03") + &block(2, "0xd08");
        let processors = from_cpuinfo(&text, Some("aarch64"));
        let seen: Vec<_> = processors
            .iter()
            .map(|p| (p.pus.to_string(), p.facts["part"].clone()))
            .collect();
        assert_eq!(
            seen,
            [
                ("0-1".to_owned(), "0xd03".to_owned()),
                ("2".to_owned(), "0xd08".to_owned())
            ]
        );
    }

    #[test]
    fn power() {
        let text = "processor\t: 0\ncpu\t\t: POWER7 (architected), altivec supported\nclock\t\t: 3550.0MHz\n\
            revision\t: 2.1 (pvr 003f 0201)\n\ntimebase\t: 512000000\nplatform\t: pSeries\nmodel\t\t: IBM,8233-E8B\n";
        let processors = from_cpuinfo(text, Some("ppc64"));
        assert_eq!(processors.len(), 1);
        assert!(processors[0].facts["name"].starts_with("POWER7"));
        assert_eq!(processors[0].facts["platform"], "pSeries");
    }

    proptest! {
        #[test]
        fn any_text_gives_disjoint_sets(text in "((processor|model|CPU part|flags)[\t :]{1,3}[0-9a-z]{0,4}\n?){0,20}") {
            let processors = from_cpuinfo(&text, None);
            for (at, one) in processors.iter().enumerate() {
                prop_assert!(!one.pus.is_empty());
                for other in &processors[at + 1..] {
                    prop_assert_ne!(&one.facts, &other.facts);
                }
            }
        }
    }
}
