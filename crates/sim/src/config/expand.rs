//! A workload with the mixes that it imports in place: what is to be changed must be in one text.

use super::import::{Opened, Place};
use std::{io, path::Path};
use toml::{Table, Value};

/// The text of a workload in which imported mixes are its own. `None` if it imports none, or not all can be found: then a
/// reader of the workload reports why.
pub fn expanded(
    text: &str,
    path: &Path,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Option<String> {
    let mut whole: Table = text.parse().ok()?;
    let mixes = whole.get_mut("mixes")?.as_table_mut()?;
    let path = path.to_string_lossy();
    let place = Place::first(&path, read);
    let folder = Path::new(&*path).parent()?;
    let mut any = false;
    for (name, mix) in mixes.iter_mut() {
        any |= mix.get("from").is_some();
        *mix = inlined(name, mix, &place, folder)?;
    }
    any.then(|| toml::to_string(&whole).ok()).flatten()
}

/// What a mix of the file at `place` is, with paths that begin at `folder`.
fn inlined(name: &str, mix: &Value, place: &Place<'_>, folder: &Path) -> Option<Value> {
    let mut mix = mix.clone();
    let Some(from) = mix.get("from") else {
        let table = mix.as_table_mut()?;
        if let Some(trace) = table.get_mut("trace") {
            let path = place.beside(trace.as_str()?);
            let path = path.strip_prefix(folder).unwrap_or(&path);
            *trace = Value::String(path.to_str()?.to_owned());
        }
        return Some(mix);
    };
    let wanted = match mix.get("mix") {
        Some(wanted) => wanted.as_str()?,
        None => name,
    };
    let Opened { path, text, read } = place.open(from.as_str()?).ok()?;
    let path = path.to_string_lossy();
    if place.awaits(&path, wanted) {
        return None;
    }
    let file: Table = text.parse().ok()?;
    let there = place.importing(wanted, &path, read);
    inlined(wanted, file.get("mixes")?.get(wanted)?, &there, folder)
}
