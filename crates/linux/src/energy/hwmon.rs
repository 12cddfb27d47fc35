//! Energy and power sensors below `/sys/class/hwmon` (`Documentation/hwmon/sysfs-interface.rst`): those of Arm boards
//! (SCMI, Versatile Express), of regulators and of some AMD processors.

use super::counter::{Counter, number_in, text_in};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the sensors are, below `/sys`.
pub(super) const HWMON: &str = "class/hwmon";

/// More sensors of a chip are not looked at.
const MOST: u32 = 64;

/// A sensor.
#[derive(Debug)]
pub(super) struct Sensor {
    /// The chip's name and the sensor's label, or its number.
    pub name: String,
    pub value: Value,
}

/// What a sensor tells.
#[derive(Debug)]
pub(super) enum Value {
    Energy(Counter),
    /// A file of microwatts.
    Power(PathBuf),
}

/// All energy and power sensors, by chip and number.
pub(super) fn sensors(hwmon: &Path) -> Vec<Sensor> {
    let entries = fs::read_dir(hwmon).into_iter().flatten().flatten();
    let mut chips: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    chips.sort();
    let mut sensors = Vec::new();
    for chip in chips {
        let Ok(name) = text_in(&chip.join("name")) else {
            continue;
        };
        for number in 1..=MOST {
            let labelled = |kind: &str| {
                let label = text_in(&chip.join(format!("{kind}{number}_label")));
                format!("{name}_{}", label.unwrap_or_else(|_| number.to_string()))
            };
            let file = chip.join(format!("energy{number}_input"));
            if let Ok(counter) = Counter::open(file, None) {
                sensors.push(Sensor {
                    name: labelled("energy"),
                    value: Value::Energy(counter),
                });
            }
            // Some chips have a mean only.
            let files = ["input", "average"].map(|what| chip.join(format!("power{number}_{what}")));
            if let Some(file) = files.into_iter().find(|file| number_in(file).is_ok()) {
                sensors.push(Sensor {
                    name: labelled("power"),
                    value: Value::Power(file),
                });
            }
        }
    }
    sensors
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A board with the sensors of Arm's Juno: energy and power of two clusters.
    pub fn juno(hwmon: &Path) {
        let chip = hwmon.join("hwmon0");
        fs::create_dir_all(&chip).unwrap();
        for (file, text) in [
            ("name", "scmi_sensors"),
            ("power1_label", "pvlt-big"),
            ("power1_input", "2500000"),
            ("energy1_label", "pvlt-big"),
            ("energy1_input", "9000000"),
            ("energy2_input", "100"),
            ("temp1_input", "45000"),
        ] {
            fs::write(chip.join(file), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn sensors_have_the_names_of_chip_and_label() {
        let folder = tempfile::tempdir().unwrap();
        juno(folder.path());
        fs::create_dir(folder.path().join("hwmon1")).unwrap();
        let found = sensors(folder.path());
        let found: Vec<(&str, bool)> = found
            .iter()
            .map(|sensor| {
                (
                    sensor.name.as_str(),
                    matches!(sensor.value, Value::Power(_)),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("scmi_sensors_pvlt-big", false),
                ("scmi_sensors_pvlt-big", true),
                ("scmi_sensors_2", false),
            ]
        );
    }
}
