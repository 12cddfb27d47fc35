//! What on this machine may spoil a comparison.

use std::path::Path;

/// Where the kernel tells of clocks.
pub const CPUS: &str = "/sys/devices/system/cpu";

/// Turbo and frequency scaling, where the kernel tells.
pub fn frequency_remarks(cpus: &Path) -> Vec<String> {
    let read = |name: &str| {
        std::fs::read_to_string(cpus.join(name))
            .map(|text| text.trim().to_owned())
            .ok()
    };
    let mut remarks = Vec::new();
    let turbo = read("cpufreq/boost").as_deref() == Some("1")
        || read("intel_pstate/no_turbo").as_deref() == Some("0");
    if turbo {
        remarks.push(
            "turbo is on: clocks depend on how many cores are busy, which blurs comparisons"
                .to_owned(),
        );
    }
    if let Some(governor) =
        read("cpu0/cpufreq/scaling_governor").filter(|governor| governor != "performance")
    {
        remarks.push(format!(
            "the frequency governor is {governor}: set it to performance for steadier times"
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turbo_and_governor_are_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("cpufreq")).unwrap();
        std::fs::create_dir_all(folder.path().join("cpu0/cpufreq")).unwrap();
        std::fs::write(folder.path().join("cpufreq/boost"), "1\n").unwrap();
        std::fs::write(
            folder.path().join("cpu0/cpufreq/scaling_governor"),
            "powersave\n",
        )
        .unwrap();
        assert_eq!(frequency_remarks(folder.path()).len(), 2);
        assert!(frequency_remarks(Path::new("/nonexistent")).is_empty());
    }
}
