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
    thread,
    time::{Duration, Instant},
};

const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";
const THERMAL: &str = "sys/class/thermal";
const WORK_QUEUES: &str = "sys/devices/virtual/workqueue";
const NEW_IRQS: &str = "proc/irq/default_smp_affinity";

/// A file of sysfs has at most one page, and a mask of 8,192 CPUs (the kernel's largest NR_CPUS) 2,304 bytes.
const LONGEST: u64 = 64 << 10;

/// How long perch waits until the kernel has changed a clock's limit.
const LATEST_CLOCK: Duration = Duration::from_secs(1);

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
    let write = |text: String| {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).truncate(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
    };
    let Err(error) = write(text) else {
        if takes_effect(root, change) {
            return Outcome::Applied;
        }
        // The kernel still has the request, and would carry it out after perch has forgotten it.
        let _ = write(format!("{}\n", change.expect));
        return Outcome::Failed;
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

/// Whether the value that was written is one that can be read. The kernel changes a clock's limit in a work queue
/// (`cpufreq_notifier_max` in `drivers/cpufreq/cpufreq.c`), which may take its time on a busy machine.
fn takes_effect(root: &Path, change: &SettingChange) -> bool {
    if !matches!(change.setting, Setting::MaxFrequency(_)) || change.set == change.expect {
        return true;
    }
    let mut pause = Duration::from_millis(1);
    let deadline = Instant::now() + LATEST_CLOCK;
    // What cannot be read now is no old value.
    while value(root, &change.setting).as_ref() == Ok(&change.expect) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    }
    true
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
mod tests;
