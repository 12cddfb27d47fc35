//! Masks of interrupts: `/proc/irq/N` (`Documentation/core-api/irq/irq-affinity.rst` of the kernel).

use perch_core::{IrqChange, IrqState, MaskError, Outcome};
use rustix::io::Errno;
use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

fn file(root: &Path, irq: u32) -> PathBuf {
    root.join(format!("proc/irq/{irq}/smp_affinity_list"))
}

/// The devices of an interrupt (`/sys/kernel/irq/N/actions`); empty where the kernel does not tell.
fn devices(root: &Path, irq: u32) -> String {
    let path = root.join(format!("sys/kernel/irq/{irq}/actions"));
    fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// Whose interrupt it is and where it may be delivered.
pub(super) fn state(root: &Path, irq: u32) -> Result<IrqState, MaskError> {
    let path = file(root, irq);
    let wrong = |error: io::Error| match error.raw_os_error() {
        Some(code) if code == Errno::NOENT.raw_os_error() => MaskError::Gone,
        _ => MaskError::Other(format!("{}: {error}", path.display())),
    };
    let text = fs::read_to_string(&path).map_err(wrong)?;
    let mode = fs::metadata(&path).map_err(wrong)?.permissions().mode();
    let mask = text.trim().parse().map_err(|_| {
        MaskError::Other(format!(
            "{}: no list of PUs: {}",
            path.display(),
            text.trim()
        ))
    })?;
    Ok(IrqState {
        device: devices(root, irq),
        mask,
        // Where the kernel refuses every write, no user has write permission.
        movable: mode & 0o200 != 0,
    })
}

/// Compare and set.
pub(super) fn change(root: &Path, change: &IrqChange) -> Outcome {
    match state(root, change.irq) {
        Err(MaskError::Gone) => return Outcome::Gone,
        Err(MaskError::Hidden) => return Outcome::NotPermitted,
        Err(MaskError::Other(_)) => return Outcome::Failed,
        Ok(found) if !found.may_be_of(&change.device) => return Outcome::Gone,
        Ok(found) if found.mask != change.expect => return Outcome::ChangedByOthers,
        Ok(_) => {}
    }
    let text = format!("{}\n", change.set);
    let written = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(file(root, change.irq))
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    let Err(error) = written else {
        return Outcome::Applied;
    };
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => Outcome::Gone,
        // None of them is online, or none has room for another interrupt.
        Some(Errno::INVAL | Errno::NOSPC | Errno::OVERFLOW) => Outcome::NoUsablePu,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Outcome::NotPermitted,
        // EIO: a driver manages it.
        _ => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::PuSet;

    fn set(text: &str) -> PuSet {
        text.parse().unwrap()
    }

    /// A machine with interrupt 24 in a folder.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/irq/24/smp_affinity_list", "0-3\n"),
            ("sys/kernel/irq/24/actions", "virtio0-input\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn to(device: &str, expect: &str, to: &str) -> IrqChange {
        IrqChange {
            irq: 24,
            device: device.to_owned(),
            expect: set(expect),
            set: set(to),
        }
    }

    #[test]
    fn a_mask_is_changed_if_device_and_mask_are_as_they_were() {
        let root = machine();
        let root = root.path();
        let device = "virtio0-input";
        assert_eq!(
            change(root, &to(device, "0-2", "1")),
            Outcome::ChangedByOthers
        );
        assert_eq!(change(root, &to("eth0", "0-3", "1")), Outcome::Gone);
        assert_eq!(state(root, 24).unwrap().mask, set("0-3"));
        assert_eq!(change(root, &to(device, "0-3", "2")), Outcome::Applied);
        let now = state(root, 24).unwrap();
        assert_eq!((now.mask, now.movable), (set("2"), true));
        assert_eq!(now.device, device);
        let other = IrqChange {
            irq: 25,
            ..to(device, "2", "1")
        };
        assert_eq!(change(root, &other), Outcome::Gone);
        assert_eq!(state(root, 25), Err(MaskError::Gone));
    }

    #[test]
    fn an_interrupt_without_write_permission_cannot_be_moved() {
        let root = machine();
        let path = file(root.path(), 24);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        assert!(!state(root.path(), 24).unwrap().movable);
    }

    #[test]
    fn what_is_no_mask_is_said() {
        let root = machine();
        fs::write(file(root.path(), 24), "none of it").unwrap();
        let error = state(root.path(), 24).unwrap_err().to_string();
        assert!(
            error.contains("smp_affinity_list") && error.contains("none of it"),
            "{error}"
        );
    }
}
