//! Settings of captured and of live machines.

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
