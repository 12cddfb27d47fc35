//! qemu and the plugin: where they are, whether the program can be recorded, and how it is started.

use super::Options;
use crate::TraceError;
use object::{
    Endianness,
    elf::{self, FileHeader64},
    read::elf::FileHeader,
};
use std::{
    ffi::{OsStr, OsString},
    io::Read,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
};

/// The emulator.
const QEMU: &str = "qemu-x86_64";

/// The package that has it, on Debian and its descendants.
pub const PACKAGE: &str = "qemu-user";

/// The plugin's file.
pub const PLUGIN: &str = "libperch_trace_plugin.so";

/// What recording needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// The emulator.
    pub qemu: PathBuf,
    /// The plugin.
    pub plugin: PathBuf,
}

impl Tools {
    /// Looks for them: qemu in the search path; the plugin where it was named, else beside perch's executable or in
    /// `../lib/perch` from there.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn find(plugin: Option<&Path>) -> Result<Self, TraceError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let qemu = std::env::split_paths(&path)
            .map(|folder| folder.join(QEMU))
            .find(|file| file.is_file())
            .ok_or_else(|| {
                TraceError::Record(format!(
                    "{QEMU} is not in PATH: recording runs the program under it; install the package {PACKAGE} (`apt-get install {PACKAGE}`)"
                ))
            })?;
        let executable = std::env::current_exe().and_then(|file| file.canonicalize());
        let folder = executable
            .ok()
            .and_then(|file| Some(file.parent()?.to_owned()));
        let places: Vec<PathBuf> = match (plugin, folder) {
            (Some(plugin), _) => vec![plugin.to_owned()],
            (None, Some(folder)) => {
                vec![
                    folder.join(PLUGIN),
                    folder.join("../lib/perch").join(PLUGIN),
                ]
            }
            (None, None) => Vec::new(),
        };
        match places.iter().find(|place| place.is_file()) {
            // qemu would look for one without a slash where libraries are.
            Some(plugin) => Ok(Self {
                qemu,
                plugin: std::path::absolute(plugin).unwrap_or_else(|_| plugin.clone()),
            }),
            None => {
                let list: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
                Err(TraceError::Record(format!(
                    "perch's plugin for qemu is not there; looked at: {}. `make install` installs it, `cargo build -p perch-trace-plugin` builds it, --plugin or PERCH_TRACE_PLUGIN names it",
                    list.join(", ")
                )))
            }
        }
    }

    /// Starts the program under qemu with the plugin, which finds its end of the socket under that number.
    pub(super) fn start(&self, options: &Options, socket: i32) -> Result<Child, TraceError> {
        // qemu splits at commas; a doubled one stands for itself.
        let mut plugin = Vec::new();
        for byte in self.plugin.as_os_str().as_bytes() {
            plugin.push(*byte);
            if *byte == b',' {
                plugin.push(*byte);
            }
        }
        let (instructions, skip) = (options.instructions, options.skip);
        plugin.extend_from_slice(
            format!(",socket={socket},instructions={instructions},skip={skip}").as_bytes(),
        );
        let mut command = Command::new(&self.qemu);
        // All that qemu can do, such as AVX2: programs choose by it, as they would on a machine of today.
        command.args(["-cpu", "max", "-plugin"]);
        command.arg(OsString::from_vec(plugin));
        if let Some(name) = options.command.first() {
            command.arg("-0").arg(name);
        }
        command.arg(&options.program);
        command.args(options.command.iter().skip(1));
        command.spawn().map_err(|error| {
            TraceError::Record(format!(
                "{} cannot be started: {error}",
                self.qemu.display()
            ))
        })
    }

    /// qemu ended before the plugin said a word.
    pub(super) fn refused(&self, status: ExitStatus) -> TraceError {
        TraceError::Record(format!(
            "{} ended ({status}) without taking the plugin {}: see what it said; it must be version 6.2 or later, and built with plugins, as Debian's is",
            self.qemu.display(),
            self.plugin.display()
        ))
    }
}

/// Whether a program can be recorded: one for 64-bit x86 Linux, linked statically or dynamically.
///
/// # Errors
/// What it is instead, and what to do.
pub fn check_program(program: &Path) -> Result<(), TraceError> {
    let name = program.display();
    let wrong = |why: String| Err(TraceError::Record(format!("{name}: {why}")));
    let mut head = Vec::new();
    let read = std::fs::File::open(program).and_then(|file| {
        file.take(size_of::<FileHeader64<Endianness>>() as u64)
            .read_to_end(&mut head)
    });
    if let Err(error) = read {
        return wrong(format!("cannot be read: {error}"));
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
        let interpreter = OsStr::from_bytes(line.trim_ascii()).to_string_lossy();
        return wrong(format!(
            "a script: record its interpreter, `-- {interpreter} {name} …`"
        ));
    }
    if !head.starts_with(&elf::ELFMAG) {
        return wrong("neither an ELF program nor a script: nothing that could be recorded".into());
    }
    if head.get(4) == Some(&elf::ELFCLASS32) {
        return wrong("a 32-bit program: only 64-bit x86 (x86-64) ones can be recorded".into());
    }
    let machine = FileHeader64::<Endianness>::parse(&*head).and_then(|header| {
        let endian = header.endian()?;
        Ok(header.e_machine(endian))
    });
    match machine {
        Ok(elf::EM_X86_64) => Ok(()),
        Ok(machine) => wrong(format!(
            "a program for {}: only 64-bit x86 (x86-64) ones can be recorded",
            machine_name(machine)
        )),
        Err(error) => wrong(format!("a damaged ELF program: {error}")),
    }
}

fn machine_name(machine: u16) -> String {
    let known = [
        (elf::EM_AARCH64, "64-bit Arm (aarch64)"),
        (elf::EM_RISCV, "RISC-V"),
        (elf::EM_PPC64, "64-bit POWER"),
        (elf::EM_S390, "IBM Z (s390)"),
        (elf::EM_MIPS, "MIPS"),
        (elf::EM_LOONGARCH, "LoongArch"),
        (elf::EM_SPARCV9, "SPARC V9"),
        (elf::EM_IA_64, "Itanium"),
    ];
    match known.iter().find(|(number, _)| *number == machine) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("another processor (ELF machine {machine})"),
    }
}
