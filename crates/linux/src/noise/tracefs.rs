//! Where the kernel's tracepoints and tracers are described (tracefs), and how a tracepoint's record is laid out.

use perch_core::MachineError;
use rustix::{
    fd::{AsRawFd, OwnedFd},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Where it is mounted usually, and where older systems have it.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// No file of tracefs that is read here is longer, in bytes.
const LONGEST: u64 = 1 << 20;

/// The tree of tracefs.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// A mount of perch's own, which is in no directory: the kernel removes it with the last descriptor.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// The tree where it is mounted; else, for root, in a mount that only this process sees.
    ///
    /// # Errors
    /// A user who may not, a kernel without it.
    pub fn open() -> Result<Self, MachineError> {
        for place in PLACES.map(PathBuf::from) {
            match fs::read_dir(place.join("events")) {
                Ok(_) => {
                    return Ok(Self {
                        root: place,
                        _mount: None,
                    });
                }
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    return Err(denied());
                }
                Err(_) => {}
            }
        }
        let mount = detached().map_err(|error| match error {
            rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => denied(),
            rustix::io::Errno::NODEV => MachineError::Other(
                "the kernel has no tracefs (CONFIG_TRACING): what interrupted is not known"
                    .to_owned(),
            ),
            error => MachineError::Io {
                what: "mounting tracefs (`mount -t tracefs nodev /sys/kernel/tracing` does it by hand)"
                    .to_owned(),
                error: error.into(),
            },
        })?;
        Ok(Self {
            root: PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())),
            _mount: Some(mount),
        })
    }

    /// A tree at this path.
    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            _mount: None,
        }
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A file of it as text; `None` if there is none.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        read(&self.root.join(path))
    }

    /// The names of the tracepoints of a subsystem, sorted.
    pub(super) fn events(&self, subsystem: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("events").join(subsystem));
        let folders = entries.into_iter().flatten().flatten();
        let folders = folders.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> = folders
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The layout of a tracepoint; `None` if the kernel has none of that name.
    pub(super) fn format(&self, subsystem: &str, event: &str) -> Option<Format> {
        Format::parse(&self.read(&format!("events/{subsystem}/{event}/format"))?)
    }

    /// The tracers that the kernel has.
    pub fn tracers(&self) -> Vec<String> {
        let text = self.read("available_tracers").unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }
}

/// A file's text, up to [`LONGEST`].
pub(super) fn read(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn denied() -> MachineError {
    MachineError::NotPermitted {
        what: "reading tracepoints (tracefs)".to_owned(),
        remedy: "run as root: the files of /sys/kernel/tracing are root's".to_owned(),
    }
}

fn detached() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Where a field of a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    offset: usize,
    size: usize,
    /// The field holds where the text is: its offset, and in the upper half its length.
    elsewhere: bool,
}

/// The layout of a tracepoint's record (`Documentation/trace/events.rst`, "Event formats").
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    /// Its number, with which each record begins.
    pub id: u16,
    fields: BTreeMap<String, Field>,
}

impl Format {
    fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?;
        let fields = text.lines().filter_map(field).collect();
        Some(Self {
            id: id.trim().parse().ok()?,
            fields,
        })
    }

    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }
}

/// ` field:char next_comm[16]; offset:40; size:16; signed:0;`
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    let number =
        |part: Option<&str>, key: &str| -> Option<usize> { part?.strip_prefix(key)?.parse().ok() };
    let offset = number(parts.next(), "offset:")?;
    let size = number(parts.next(), "size:")?;
    let elsewhere = declared.starts_with("__data_loc");
    let name = declared.rsplit(' ').next()?;
    let name = name.split('[').next()?.trim_start_matches('*');
    let field = Field {
        offset,
        size,
        elsewhere,
    };
    Some((name.to_owned(), field))
}

impl Field {
    /// The number in a record; `None` if the record is too short.
    pub fn number(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match self.size {
            1 => u64::from(bytes[0]),
            2 => u64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
            4 => u64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
            8 => u64::from_ne_bytes(bytes.try_into().ok()?),
            _ => return None,
        })
    }

    /// The text in a record, without what follows its NUL.
    pub fn text(self, record: &[u8]) -> Option<&[u8]> {
        let bytes = match self.elsewhere {
            true => {
                let place = self.number(record)? as usize;
                let (offset, length) = (place & 0xffff, place >> 16 & 0xffff);
                record.get(offset..offset + length)?
            }
            false => record.get(self.offset..self.offset.checked_add(self.size)?)?,
        };
        let end = bytes.iter().position(|byte| *byte == 0);
        Some(&bytes[..end.unwrap_or(bytes.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IRQ: &str = "name: irq_handler_entry\nID: 225\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:16;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"irq=%d name=%s\", REC->irq, __get_str(name)\n";

    #[test]
    fn fields_are_found_in_a_record() {
        let format = Format::parse(IRQ).unwrap();
        assert_eq!(format.id, 225);
        let mut record = vec![0; 8];
        record.extend(19i32.to_ne_bytes());
        record.extend((32u32 | 5 << 16).to_ne_bytes());
        record.extend(*b"perch\0\0\0\0\0\0\0\0\0\0\0");
        record.extend(*b"eth0\0");
        let field = |name: &str| format.field(name).unwrap();
        assert_eq!(field("irq").number(&record), Some(19));
        assert_eq!(field("name").text(&record), Some(&b"eth0"[..]));
        assert_eq!(field("comm").text(&record), Some(&b"perch"[..]));
        assert_eq!(field("name").text(&record[..34]), None);
        assert_eq!(format.field("gone"), None);
        assert_eq!(Format::parse("name: x\n"), None);
    }

    #[test]
    fn a_tree_tells_its_tracers_and_tracepoints() {
        let folder = tempfile::tempdir().unwrap();
        let event = folder.path().join("events/irq/irq_handler_entry");
        fs::create_dir_all(&event).unwrap();
        fs::write(event.join("format"), IRQ).unwrap();
        fs::write(folder.path().join("events/irq/enable"), "0\n").unwrap();
        fs::write(folder.path().join("available_tracers"), "osnoise nop\n").unwrap();
        let tree = Tracefs::at(folder.path());
        assert_eq!(tree.tracers(), ["osnoise", "nop"]);
        assert_eq!(tree.events("irq"), ["irq_handler_entry"]);
        assert!(tree.format("irq", "irq_handler_entry").is_some());
        assert!(tree.format("irq", "gone").is_none());
    }

    proptest! {
        #[test]
        fn any_format_and_record_are_survived(
            text in "(ID: [0-9]{1,6}\n)?(\tfield:[a-z_ ]{0,20}(\\[[0-9]*\\])?;\toffset:[0-9]{0,20};\tsize:[0-9]{0,4};\tsigned:0;\n){0,4}",
            record in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let Some(format) = Format::parse(&text) else { return Ok(()) };
            for field in format.fields.values() {
                let _ = (field.number(&record), field.text(&record));
            }
        }
    }
}
