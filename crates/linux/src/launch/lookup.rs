//! Finding the program as a shell does, and saying what is wrong as a shell does.

use perch_core::MachineError;
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// What `execvp(3)` searches where `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file to execute for a program name.
///
/// # Errors
/// [`MachineError::NotFound`] (127 in a shell) or [`MachineError::NotExecutable`] (126).
pub fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, MachineError> {
    let refused = |why: String| MachineError::NotExecutable {
        program: program.to_string_lossy().into_owned(),
        why,
    };
    if program.is_empty() {
        return Err(not_found(program, "; the command is empty".into()));
    }
    if program.as_bytes().contains(&b'/') {
        let file = Path::new(program);
        return match check(file) {
            Ok(()) => Ok(file.to_owned()),
            Err(Fault::Missing) => Err(not_found(program, String::new())),
            Err(Fault::Hidden(why) | Fault::Refused(why)) => Err(refused(why)),
        };
    }
    let mut first_refusal = None;
    for file in directories(path).map(|directory| directory.join(program)) {
        match check(&file) {
            Ok(()) => return Ok(file),
            Err(Fault::Missing | Fault::Hidden(_)) => {}
            // A directory in PATH is no program that was meant; a file without the x bit is.
            Err(Fault::Refused(_)) if file.is_dir() => {}
            Err(Fault::Refused(why)) => {
                first_refusal.get_or_insert(format!("{} ({why})", file.display()));
            }
        }
    }
    match first_refusal {
        Some(why) => Err(refused(why)),
        None => Err(not_found(program, hint(program, path))),
    }
}

fn not_found(program: &OsStr, hint: String) -> MachineError {
    MachineError::NotFound {
        program: program.to_string_lossy().into_owned(),
        hint,
    }
}

fn directories(path: Option<&OsStr>) -> impl Iterator<Item = PathBuf> + '_ {
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    std::env::split_paths(path).map(|directory| {
        // An empty entry stands for the current directory.
        if directory.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            directory
        }
    })
}

enum Fault {
    Missing,
    /// Unknown, such as in a directory that may not be searched; a shell then looks on in PATH.
    Hidden(String),
    /// There, but not executable.
    Refused(String),
}

fn check(file: &Path) -> Result<(), Fault> {
    match fs::metadata(file) {
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Err(Fault::Missing),
            _ => Err(Fault::Hidden(reason(&error))),
        },
        Ok(meta) if meta.is_dir() => Err(Fault::Refused("it is a directory".into())),
        // Opening a FIFO to look into it would wait for a writer.
        Ok(meta) if !meta.is_file() => Err(Fault::Refused("it is not a regular file".into())),
        Ok(_) => access(file, Access::EXEC_OK).map_err(|errno| {
            Fault::Refused(match errno {
                Errno::ACCESS => format!(
                    "no permission to execute it; see `chmod +x {}`",
                    file.display()
                ),
                other => reason(&other.into()),
            })
        }),
    }
}

/// The system's words without the number that Rust adds.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_lowercase().chain(letters).collect())
        .unwrap_or_default()
}

/// What might have been meant: the same name here, or the nearest name in `PATH`.
fn hint(program: &OsStr, path: Option<&OsStr>) -> String {
    if check(&Path::new(".").join(program)).is_ok() {
        return format!(" in PATH; did you mean `./{}`?", program.to_string_lossy());
    }
    let wanted = program.to_string_lossy();
    // Any short name is near to a short one.
    if wanted.chars().count() < 3 {
        return String::new();
    }
    let limit = if wanted.chars().count() < 5 { 1 } else { 2 };
    let nearest = directories(path)
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name.chars().count().abs_diff(wanted.chars().count()) <= limit)
        .map(|name| (strsim::damerau_levenshtein(&name, &wanted), name))
        .filter(|(distance, _)| *distance <= limit)
        .min();
    match nearest {
        Some((_, name)) => format!("; did you mean `{name}`?"),
        None => String::new(),
    }
}

/// Whether a file that the kernel cannot execute is a script without a `#!` line, which shells then run themselves
/// (POSIX, 2.9.1.4); decided as bash does, by a NUL byte in the first line.
pub fn is_plain_script(file: &Path) -> bool {
    let mut start = [0; 256];
    let Ok(length) = fs::File::open(file).and_then(|mut f| f.read(&mut start)) else {
        return false;
    };
    let line = start[..length].split(|b| *b == b'\n').next().unwrap_or(&[]);
    !line.contains(&0) && !start[..length].starts_with(b"\x7fELF")
}

/// The error of an `execve(2)` that failed for a file that [`find`] found.
pub fn exec_error(program: &OsStr, file: &Path, error: &std::io::Error) -> MachineError {
    let why = match Errno::from_io_error(error) {
        Some(Errno::NOEXEC) => "not a format that this machine executes".to_owned(),
        Some(Errno::NOENT) => match interpreter(file) {
            Some(interpreter) => format!("its interpreter {interpreter} does not exist"),
            None => "its loader (the dynamic linker that it names) does not exist".to_owned(),
        },
        Some(Errno::TOOBIG) => {
            "too many or too long arguments and environment variables".to_owned()
        }
        Some(Errno::TXTBSY) => "the file is being written".to_owned(),
        _ => reason(error),
    };
    MachineError::NotExecutable {
        program: program.to_string_lossy().into_owned(),
        why,
    }
}

/// The interpreter of a `#!` line.
fn interpreter(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    let line = bytes.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let text = String::from_utf8_lossy(line);
    text.split_whitespace().next().map(str::to_owned)
}

/// The error for a program that `std::process::Command` failed to start.
pub fn spawn_error(program: &str, error: &std::io::Error) -> MachineError {
    let name = OsString::from(program);
    match find(&name, std::env::var_os("PATH").as_deref()) {
        Err(found) => found,
        Ok(file) => exec_error(&name, &file, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, name: &str, mode: u32, text: &[u8]) -> PathBuf {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn path_is_searched_in_order_and_what_cannot_run_is_passed_over() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(a.path(), "tool", 0o644, b"");
        fs::create_dir(a.path().join("other")).unwrap();
        let good = file(b.path(), "tool", 0o755, b"");
        let path = std::env::join_paths([a.path(), b.path()]).unwrap();
        assert_eq!(find(OsStr::new("tool"), Some(&path)).unwrap(), good);
        let only_a = find(OsStr::new("tool"), Some(a.path().as_os_str())).unwrap_err();
        assert!(
            matches!(&only_a, MachineError::NotExecutable { why, .. } if why.contains("chmod +x")),
            "{only_a}"
        );
        // A directory of that name is not a program.
        let directory = find(OsStr::new("other"), Some(&path)).unwrap_err();
        assert!(matches!(directory, MachineError::NotFound { .. }));
        // Named with a slash it is what was meant.
        let named = find(a.path().join("other").as_os_str(), Some(&path)).unwrap_err();
        assert!(
            matches!(&named, MachineError::NotExecutable { why, .. } if why == "it is a directory"),
            "{named}"
        );
    }

    #[test]
    fn a_mistyped_name_gets_a_suggestion() {
        let a = tempfile::tempdir().unwrap();
        file(a.path(), "gnuplot", 0o755, b"");
        let error = find(OsStr::new("gnulpot"), Some(a.path().as_os_str())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "gnulpot: program not found; did you mean `gnuplot`?"
        );
        let error = find(OsStr::new("zzzzzzzzzz"), Some(a.path().as_os_str())).unwrap_err();
        assert_eq!(error.to_string(), "zzzzzzzzzz: program not found");
    }

    #[test]
    fn empty_names_and_files_as_directories() {
        assert!(matches!(
            find(OsStr::new(""), None),
            Err(MachineError::NotFound { .. })
        ));
        let a = tempfile::tempdir().unwrap();
        let below = file(a.path(), "f", 0o755, b"").join("x");
        assert!(matches!(
            find(below.as_os_str(), None),
            Err(MachineError::NotFound { .. })
        ));
    }

    #[test]
    fn scripts_and_binaries_are_told_apart() {
        let a = tempfile::tempdir().unwrap();
        assert!(is_plain_script(&file(
            a.path(),
            "s",
            0o755,
            b"echo hello\n"
        )));
        assert!(!is_plain_script(&file(
            a.path(),
            "b",
            0o755,
            b"\x01\x02\0\x03"
        )));
        let no_interpreter = file(a.path(), "i", 0o755, b"#!/no/such/thing -x\n");
        let error = exec_error(
            no_interpreter.as_os_str(),
            &no_interpreter,
            &std::io::Error::from_raw_os_error(2),
        );
        assert!(
            error
                .to_string()
                .contains("interpreter /no/such/thing does not exist")
        );
    }
}
