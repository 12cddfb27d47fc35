//! Settings of the machine, in `/sys` and `/proc`: read, and changed if no other process has changed them.
//!
//! A frequency that the kernel itself limits at the moment is not shown: its file has the kernel's value then, not that
//! of the last user who wrote it, so it could be neither compared nor put back.

use perch_core::{
    MaskError, Outcome, PuSet, Setting, SettingChange, SettingChoices, SettingSample, SettingValue,
};
use rustix::io::Errno;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";
const THERMAL: &str = "sys/class/thermal";
const WORK_QUEUES: &str = "sys/devices/virtual/workqueue";
const NEW_IRQS: &str = "proc/irq/default_smp_affinity";

/// A file of sysfs has at most one page, and a mask of 8,192 CPUs (the kernel's largest NR_CPUS) 2,304 bytes.
const LONGEST: u64 = 64 << 10;

/// More entries of a folder are not looked at.
const MOST: usize = 16_384;

/// The file that is written; `None` for a name that would lead elsewhere.
fn file(root: &Path, setting: &Setting) -> Option<PathBuf> {
    let path = match setting {
        Setting::MaxFrequency(policy) => format!("{CPUFREQ}/policy{policy}/scaling_max_freq"),
        Setting::EnergyPreference(policy) => {
            format!("{CPUFREQ}/policy{policy}/energy_performance_preference")
        }
        Setting::Throttling(device) => format!("{THERMAL}/cooling_device{device}/cur_state"),
        Setting::WorkQueues => format!("{WORK_QUEUES}/cpumask"),
        Setting::WorkQueue(name) => format!("{WORK_QUEUES}/{name}/cpumask"),
        Setting::NewIrqs => NEW_IRQS.to_owned(),
    };
    setting.is_plain().then(|| root.join(path))
}

/// The file that is read. Since Linux 6.6 the work queues' own mask lacks the PUs of isolated partitions; another file
/// tells what was asked for.
fn readable(root: &Path, setting: &Setting) -> Option<PathBuf> {
    let asked = root.join(WORK_QUEUES).join("cpumask_requested");
    match setting {
        Setting::WorkQueues if asked.exists() => Some(asked),
        _ => file(root, setting),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> MaskError {
    let why = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return MaskError::Gone,
        // A cpufreq policy without a PU that is online keeps its limits, and tells nothing.
        Some(Errno::BUSY) => "its PUs are offline: run `perch restore` when one is back".to_owned(),
        _ => error.to_string(),
    };
    MaskError::Other(format!("{}: {why}", path.display()))
}

/// The text of a file, without blanks around it.
fn text(path: &Path) -> Result<String, MaskError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map_err(|error| unreadable(path, &error))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    text(path).ok()?.parse().ok()
}

/// Numbers in a list with blanks between them (`affected_cpus`, `scaling_available_frequencies`).
fn numbers(path: &Path) -> Option<Vec<u64>> {
    let text = text(path).ok()?;
    text.split_ascii_whitespace()
        .map(|word| word.parse().ok())
        .collect()
}

/// What a setting is now.
pub(super) fn value(root: &Path, setting: &Setting) -> Result<SettingValue, MaskError> {
    match setting {
        Setting::MaxFrequency(_) => value_beside(root, setting, &at_work(root)),
        _ => value_beside(root, setting, &[]),
    }
}

/// The same where it is known which cooling devices are at work.
fn value_beside(
    root: &Path,
    setting: &Setting,
    at_work: &[(u32, String)],
) -> Result<SettingValue, MaskError> {
    let path = readable(root, setting).ok_or(MaskError::Gone)?;
    let text = text(&path)?;
    let value = match setting {
        Setting::MaxFrequency(_) | Setting::Throttling(_) => {
            text.parse().ok().map(SettingValue::Number)
        }
        Setting::EnergyPreference(_) => {
            Some(SettingValue::Name(text.clone())).filter(SettingValue::is_plain)
        }
        Setting::WorkQueues | Setting::WorkQueue(_) | Setting::NewIrqs => {
            PuSet::from_mask(&text).ok().map(SettingValue::Pus)
        }
    };
    let value = value.ok_or_else(|| {
        let text: String = text.chars().take(80).collect();
        let text = perch_core::text::printable(&text).into_owned();
        MaskError::Other(format!("{}: no value of it: {text}", path.display()))
    })?;
    match (setting, &value) {
        (Setting::MaxFrequency(policy), SettingValue::Number(limit))
            if is_limited(root, *policy, *limit, at_work) =>
        {
            let path = path.display();
            Err(MaskError::Other(format!(
                "{path}: the kernel limits this clock now, as heat or the firmware demands: try again later"
            )))
        }
        _ => Ok(value),
    }
}

/// Compare and set.
pub(super) fn change(root: &Path, change: &SettingChange) -> Outcome {
    match value(root, &change.setting) {
        Err(MaskError::Gone) => return Outcome::Gone,
        Err(MaskError::Hidden) => return Outcome::NotPermitted,
        Err(MaskError::Other(_)) => return Outcome::Failed,
        Ok(found) if found != change.expect => return Outcome::ChangedByOthers,
        Ok(_) => {}
    }
    let Some(path) = file(root, &change.setting).filter(|_| change.set.is_plain()) else {
        return Outcome::Gone;
    };
    let text = match &change.set {
        SettingValue::Pus(pus) => format!("{}\n", pus.to_mask()),
        other => format!("{other}\n"),
    };
    let written = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    let Err(error) = written else {
        return Outcome::Applied;
    };
    let holds_pus = matches!(change.set, SettingValue::Pus(_));
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NODEV) => Outcome::Gone,
        // None of them is online, or there can be none of that number.
        Some(Errno::INVAL | Errno::OVERFLOW) if holds_pus => Outcome::NoUsablePu,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Outcome::NotPermitted,
        // EBUSY: its PUs are offline, or the governor `performance` sets the preference itself.
        _ => Outcome::Failed,
    }
}

/// All settings that there are, in order. What cannot be read, or makes no sense, is left out.
pub(super) fn all(root: &Path, online: &PuSet) -> Vec<SettingSample> {
    let mut samples = Vec::new();
    let at_work = at_work(root);
    for policy in numbered(&root.join(CPUFREQ), "policy") {
        samples.extend(max_frequency(root, policy, &at_work));
        samples.extend(energy_preference(root, policy));
    }
    for device in numbered(&root.join(THERMAL), "cooling_device") {
        samples.extend(throttling(root, device));
    }
    let queues = names(&root.join(WORK_QUEUES)).into_iter();
    let queues = queues.map(Setting::WorkQueue);
    let queues = queues.filter(|queue| file(root, queue).is_some_and(|path| path.exists()));
    let of_pus = [Setting::WorkQueues, Setting::NewIrqs].into_iter();
    samples.extend(of_pus.chain(queues).filter_map(|setting| {
        Some(SettingSample {
            value: value(root, &setting).ok()?,
            setting,
            governs: online.clone(),
            choices: SettingChoices::Pus,
        })
    }));
    samples.sort_by(|one, other| one.setting.cmp(&other.setting));
    samples
}

fn max_frequency(root: &Path, policy: u32, at_work: &[(u32, String)]) -> Option<SettingSample> {
    let setting = Setting::MaxFrequency(policy);
    let folder = root.join(CPUFREQ).join(format!("policy{policy}"));
    let of = |name: &str| number(&folder.join(name));
    let value = value_beside(root, &setting, at_work).ok()?;
    // Below its lower limit the upper one is refused.
    let least = of("scaling_min_freq")?.max(of("cpuinfo_min_freq")?);
    let most = of("cpuinfo_max_freq")?;
    let steps = numbers(&folder.join("scaling_available_frequencies")).unwrap_or_default();
    let steps: BTreeMap<u64, ()> = steps.into_iter().map(|step| (step, ())).collect();
    let steps: Vec<u64> = steps.range(least..).map(|(step, ())| *step).collect();
    let choices = match steps.is_empty() {
        false => SettingChoices::Numbers(steps),
        true if least <= most => SettingChoices::Range(least, most),
        true => return None,
    };
    Some(SettingSample {
        governs: governs(&folder)?,
        setting,
        value,
        choices,
    })
}

fn energy_preference(root: &Path, policy: u32) -> Option<SettingSample> {
    let setting = Setting::EnergyPreference(policy);
    let folder = root.join(CPUFREQ).join(format!("policy{policy}"));
    let value = value(root, &setting).ok()?;
    let names = text(&folder.join("energy_performance_available_preferences")).ok()?;
    // A process that writes `default` reads another name.
    let names = names
        .split_ascii_whitespace()
        .filter(|name| *name != "default");
    let names: Vec<String> = names.map(str::to_owned).collect();
    (!names.is_empty()).then_some(())?;
    Some(SettingSample {
        governs: governs(&folder)?,
        setting,
        value,
        choices: SettingChoices::Names(names),
    })
}

/// The PUs of a cpufreq policy that are online.
fn governs(folder: &Path) -> Option<PuSet> {
    let files = ["affected_cpus", "related_cpus"];
    files.into_iter().find_map(|name| {
        let numbers = numbers(&folder.join(name))?.into_iter();
        let pus: Vec<u32> = numbers.map(pu).collect::<Option<_>>()?;
        (!pus.is_empty()).then(|| pus.into_iter().collect())
    })
}

fn pu(number: u64) -> Option<u32> {
    let number = u32::try_from(number).ok()?;
    (number <= perch_core::pu_set::MAX_PU).then_some(number)
}

/// The folder of a cooling device that belongs to a processor (`drivers/acpi/processor_thermal.c`).
fn cooling(root: &Path, device: u32) -> Option<PathBuf> {
    let folder = root.join(THERMAL).join(format!("cooling_device{device}"));
    let kind = text(&folder.join("type")).ok()?;
    (kind == "Processor").then_some(folder)
}

/// The PU to which such a device belongs.
fn cooled(folder: &Path) -> Option<u32> {
    let node = fs::canonicalize(folder.join("device/physical_node")).ok()?;
    let name = node.file_name()?.to_str()?.strip_prefix("cpu")?;
    pu(name.parse().ok()?)
}

fn throttling(root: &Path, device: u32) -> Option<SettingSample> {
    let folder = cooling(root, device)?;
    let setting = Setting::Throttling(device);
    let most = number(&folder.join("max_state"))?;
    (most > 0).then_some(())?;
    Some(SettingSample {
        governs: PuSet::single(cooled(&folder)?),
        value: value(root, &setting).ok()?,
        setting,
        choices: SettingChoices::Range(0, most),
    })
}

/// The cooling devices of processors that are at work, with their kinds.
fn at_work(root: &Path) -> Vec<(u32, String)> {
    let thermal = root.join(THERMAL);
    let devices = numbered(&thermal, "cooling_device").into_iter();
    let active = devices.filter_map(|device| {
        let folder = thermal.join(format!("cooling_device{device}"));
        let kind = text(&folder.join("type")).ok()?;
        // Others may be slow to tell what they do.
        let of_processor = kind == "Processor" || kind.contains("cpufreq-");
        let works = of_processor && number(&folder.join("cur_state"))? > 0;
        works.then_some((device, kind))
    });
    active.collect()
}

/// Whether the kernel limits a policy's clock itself: because of heat, or because the firmware tells it to (`bios_limit`,
/// ACPI's _PPC).
fn is_limited(root: &Path, policy: u32, limit: u64, at_work: &[(u32, String)]) -> bool {
    let folder = root.join(CPUFREQ).join(format!("policy{policy}"));
    let of = |name: &str| number(&folder.join(name));
    let by_firmware = of("bios_limit").is_some_and(|bios| {
        // A boost that the clock may reach is none of the steps.
        let steps = numbers(&folder.join("scaling_available_frequencies"));
        let top = steps.and_then(|steps| steps.into_iter().max());
        bios == limit && Some(bios) < top.or_else(|| of("cpuinfo_max_freq"))
    });
    let mut devices = at_work.iter();
    by_firmware
        || devices.any(|(device, kind)| {
            if kind == "Processor" {
                let cooling = root.join(THERMAL).join(format!("cooling_device{device}"));
                let of_policy = cooled(&cooling).zip(governs(&folder));
                return of_policy.is_none_or(|(pu, pus)| pus.contains(pu));
            }
            // `drivers/thermal/cpufreq_cooling.c`; up to Linux 5.11 it numbered the devices from 0.
            let first = kind.strip_prefix("cpufreq-cpu");
            first.is_none_or(|first| first.parse() == Ok(policy))
        })
}

/// The names in a folder, as far as they are text.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MOST);
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// The numbers of what is called `prefix` and a number, rising.
fn numbered(folder: &Path, prefix: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = names(folder)
        .iter()
        .filter_map(|name| {
            let digits = name.strip_prefix(prefix)?;
            let number: u32 = digits.parse().ok()?;
            // Not `+1` or `01`: the kernel's name is made of the number.
            (number.to_string() == digits).then_some(number)
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;

    fn set(text: &str) -> PuSet {
        text.parse().unwrap()
    }

    fn put(root: &Path, path: &str, text: impl AsRef<[u8]>) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Two policies, one with steps and one without; a throttle; work queues.
    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (policy, pus) in [(0, "0 1\n"), (2, "2 3\n")] {
            let file = |name: &str| format!("{CPUFREQ}/policy{policy}/{name}");
            put(root, &file("affected_cpus"), pus);
            put(root, &file("scaling_max_freq"), "3000000\n");
            put(root, &file("scaling_min_freq"), "1500000\n");
            put(root, &file("cpuinfo_min_freq"), "1000000\n");
            put(root, &file("cpuinfo_max_freq"), "3000000\n");
        }
        let steps = format!("{CPUFREQ}/policy0/scaling_available_frequencies");
        put(root, &steps, "3000000 2000000 1500000 1000000 \n");
        let preference = |name: &str| format!("{CPUFREQ}/policy2/energy_performance_{name}");
        put(root, &preference("preference"), "balance_performance\n");
        let names = "default performance balance_performance balance_power power \n";
        put(root, &preference("available_preferences"), names);
        let node = "sys/devices/system/cpu/cpu3/x";
        put(root, node, "");
        let acpi = "sys/devices/LNXSYSTM:00/LNXCPU:03";
        fs::create_dir_all(root.join(acpi)).unwrap();
        let link = root.join(acpi).join("physical_node");
        symlink("../../system/cpu/cpu3", link).unwrap();
        for (device, kind) in [(1, "Processor"), (2, "Fan")] {
            let file = |name: &str| format!("{THERMAL}/cooling_device{device}/{name}");
            put(root, &file("type"), format!("{kind}\n"));
            put(root, &file("cur_state"), "0\n");
            put(root, &file("max_state"), "7\n");
            let link = root.join(file("device"));
            symlink("../../../devices/LNXSYSTM:00/LNXCPU:03", link).unwrap();
        }
        put(root, &format!("{WORK_QUEUES}/cpumask"), "7\n");
        put(root, &format!("{WORK_QUEUES}/cpumask_requested"), "f\n");
        put(
            root,
            &format!("{WORK_QUEUES}/writeback/cpumask"),
            "00000001,0000000f\n",
        );
        put(root, &format!("{WORK_QUEUES}/power/control"), "auto\n");
        put(root, NEW_IRQS, "ff\n");
        dir
    }

    fn shown(root: &Path) -> Vec<String> {
        let samples = all(root, &set("0-3")).into_iter();
        let shown = samples.map(|sample| {
            let SettingSample {
                setting,
                governs,
                value,
                choices,
            } = sample;
            let choices = match choices {
                SettingChoices::Pus => String::new(),
                other => format!(" of {other:?}"),
            };
            format!("{setting} of {governs}: {value}{choices}")
        });
        shown.collect()
    }

    #[test]
    fn all_settings_are_shown_with_their_choices() {
        let dir = machine();
        let expected = [
            "cpufreq/policy0/scaling_max_freq of 0-1: 3000000 of Numbers([1500000, 2000000, 3000000])",
            "cpufreq/policy2/scaling_max_freq of 2-3: 3000000 of Range(1500000, 3000000)",
            "cpufreq/policy2/energy_performance_preference of 2-3: balance_performance of Names([\"performance\", \
             \"balance_performance\", \"balance_power\", \"power\"])",
            "thermal/cooling_device1/cur_state of 3: 0 of Range(0, 7)",
            "workqueue/cpumask of 0-3: 0-3",
            "workqueue/writeback/cpumask of 0-3: 0-3,32",
            "irq/default_smp_affinity of 0-3: 0-7",
        ];
        assert_eq!(shown(dir.path()), expected);
    }

    #[test]
    fn a_value_is_changed_if_it_is_still_the_one_that_is_known() {
        let dir = machine();
        let root = dir.path();
        let max = Setting::MaxFrequency(0);
        let number = SettingValue::Number;
        let to = |setting: &Setting, expect: SettingValue, set: SettingValue| {
            let setting = setting.clone();
            change(
                root,
                &SettingChange {
                    setting,
                    expect,
                    set,
                },
            )
        };
        let (high, low) = (number(3_000_000), number(1_500_000));
        assert_eq!(to(&max, low.clone(), number(2)), Outcome::ChangedByOthers);
        assert_eq!(to(&max, high.clone(), low.clone()), Outcome::Applied);
        assert_eq!(value(root, &max), Ok(low.clone()));
        let none = Setting::MaxFrequency(7);
        assert_eq!(to(&none, low.clone(), high), Outcome::Gone);
        assert_eq!(value(root, &none), Err(MaskError::Gone));
        let (all, one) = (
            SettingValue::Pus(set("0-3,32")),
            SettingValue::Pus(set("33")),
        );
        let queue = Setting::WorkQueue("writeback".to_owned());
        assert_eq!(to(&queue, all, one), Outcome::Applied);
        let written = fs::read_to_string(file(root, &queue).unwrap()).unwrap();
        assert_eq!(written, "2,00000000\n");
        // What was asked for is compared, what is in force may be less.
        let (asked, less) = (SettingValue::Pus(set("0-3")), SettingValue::Pus(set("1")));
        assert_eq!(to(&Setting::WorkQueues, asked, less), Outcome::Applied);
        let written = fs::read_to_string(root.join(WORK_QUEUES).join("cpumask")).unwrap();
        assert_eq!(written, "2\n");
        let preference = Setting::EnergyPreference(2);
        let name = |name: &str| SettingValue::Name(name.to_owned());
        let odd = to(&preference, name("balance_performance"), name("power\nx"));
        assert_eq!(odd, Outcome::Gone);
        assert_eq!(value(root, &preference), Ok(name("balance_performance")));
    }

    /// A journal may be another's doing: it must not be able to name a path.
    #[test]
    fn no_name_leads_out_of_the_folder_of_work_queues() {
        let dir = machine();
        let root = dir.path();
        put(root, "sys/devices/x/cpumask", "f\n");
        let out = Setting::WorkQueue("../../x".to_owned());
        assert_eq!(value(root, &out), Err(MaskError::Gone));
        let (all, one) = (SettingValue::Pus(set("0-3")), SettingValue::Pus(set("1")));
        let made = SettingChange {
            setting: out,
            expect: all,
            set: one,
        };
        assert_eq!(change(root, &made), Outcome::Gone);
        let kept = fs::read_to_string(root.join("sys/devices/x/cpumask")).unwrap();
        assert_eq!(kept, "f\n");
    }

    #[test]
    fn a_clock_that_the_kernel_limits_is_not_shown() {
        let clocks = |root: &Path| {
            let shown = shown(root).into_iter();
            shown
                .filter(|line| line.contains("scaling_max_freq"))
                .count()
        };
        let dir = machine();
        let root = dir.path();
        assert_eq!(clocks(root), 2);
        // The firmware, on battery.
        put(root, &format!("{CPUFREQ}/policy0/bios_limit"), "3000000\n");
        assert_eq!(clocks(root), 2, "no limit below the highest step");
        put(root, &format!("{CPUFREQ}/policy0/bios_limit"), "2000000\n");
        assert_eq!(clocks(root), 2, "perch's own limit may be lower");
        put(
            root,
            &format!("{CPUFREQ}/policy0/scaling_max_freq"),
            "2000000\n",
        );
        assert_eq!(clocks(root), 1);
        // Heat: of PU 3, in policy 2.
        put(root, &format!("{THERMAL}/cooling_device2/cur_state"), "3\n");
        assert_eq!(clocks(root), 1, "a fan lowers no clock");
        put(root, &format!("{THERMAL}/cooling_device1/cur_state"), "1\n");
        assert_eq!(clocks(root), 0);
        let why = value(root, &Setting::MaxFrequency(2))
            .unwrap_err()
            .to_string();
        assert!(why.contains("kernel limits"), "{why}");
    }

    #[test]
    fn this_machines_settings_can_be_read_one_by_one() {
        let root = Path::new("/");
        let samples = all(root, &crate::topology::online_pus());
        let new_irqs = samples.iter().any(|of| of.setting == Setting::NewIrqs);
        assert_eq!(new_irqs, root.join(NEW_IRQS).exists(), "{samples:?}");
        for SettingSample {
            setting,
            value: seen,
            ..
        } in samples
        {
            assert_eq!(value(root, &setting), Ok(seen), "{setting}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        for (path, text) in [
            ("scaling_max_freq", &b"<unsupported>\n"[..]),
            ("scaling_min_freq", b""),
            ("affected_cpus", b"0 4000000000\n"),
            ("cpuinfo_max_freq", b"\xff\xfe"),
        ] {
            let dir = machine();
            put(dir.path(), &format!("{CPUFREQ}/policy2/{path}"), text);
            let shown = shown(dir.path());
            let of_policy = |line: &&String| line.contains("policy2/scaling_max_freq");
            assert_eq!(shown.iter().filter(of_policy).count(), 0, "{path}");
        }
        let dir = machine();
        let long = vec![b'f'; 1 << 20];
        put(dir.path(), NEW_IRQS, long);
        assert!(
            !shown(dir.path())
                .iter()
                .any(|line| line.starts_with("irq/"))
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0usize..8) {
            let dir = machine();
            let policy = format!("{CPUFREQ}/policy0");
            let files = [
                format!("{policy}/scaling_max_freq"),
                format!("{policy}/scaling_available_frequencies"),
                format!("{policy}/affected_cpus"),
                format!("{CPUFREQ}/policy2/energy_performance_preference"),
                format!("{CPUFREQ}/policy2/energy_performance_available_preferences"),
                format!("{THERMAL}/cooling_device1/max_state"),
                format!("{WORK_QUEUES}/cpumask_requested"),
                NEW_IRQS.to_owned(),
            ];
            put(dir.path(), &files[at], &bytes);
            for sample in all(dir.path(), &set("0-3")) {
                prop_assert!(sample.value.is_plain() && !sample.governs.is_empty());
            }
        }
    }
}
