//! Finds mixes in other files: `from = "FILE"`.

use super::{
    error::Diagnostic,
    shipped::{self, straight},
    table::{Checked, Item, Source, Table},
};
use perch_core::diagnostic::did_you_mean;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Reads the text of a file that another one names.
pub(super) type Read<'a> = dyn Fn(&Path) -> io::Result<String> + 'a;

/// A file with mixes that is being read, and what it is read for.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The file.
    pub path: &'a str,
    /// How the files are read that it names.
    pub read: &'a Read<'a>,
    /// The mix of it that is read, if another file wants one, and that file.
    wanted: Option<(&'a str, &'a Place<'a>)>,
}

impl<'a> Place<'a> {
    /// The file that a user names.
    pub(super) fn first(path: &'a str, read: &'a Read<'a>) -> Self {
        Self {
            path,
            read,
            wanted: None,
        }
    }

    /// A file that this one names: paths begin where the file itself is.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        let folder = Path::new(self.path).parent().unwrap_or(Path::new(""));
        folder.join(name)
    }

    /// The file of mixes of this name: a path if there is a slash in it or it ends in `.toml`, else a shipped one.
    pub(super) fn open(&self, name: &str) -> Result<Opened<'a>, String> {
        if !name.contains('/') && !shipped::is_toml(Path::new(name)) {
            let file = shipped::find(shipped::shipped_mixes(), "file of mixes", name);
            let file = file.map_err(|error| error.to_string())?;
            return Ok(Opened {
                path: shipped::mixes_path(file.name),
                text: file.text.to_owned(),
                read: &shipped::read,
            });
        }
        let path = self.beside(name);
        match (self.read)(&path) {
            Ok(text) => Ok(Opened {
                path,
                text,
                read: self.read,
            }),
            Err(error) => Err(format!("{}: cannot be read: {error}", path.display())),
        }
    }

    /// Another file, of which this one wants a mix.
    pub(super) fn importing<'b>(
        &'b self,
        wanted: &'b str,
        path: &'b str,
        read: &'b Read<'b>,
    ) -> Place<'b> {
        Place {
            path,
            read,
            wanted: Some((wanted, self)),
        }
    }

    /// Whether this mix of this file is being read already.
    pub(super) fn awaits(&self, path: &str, mix: &str) -> bool {
        self.wanted.is_some_and(|(name, importer)| {
            let same = straight(Path::new(self.path)) == straight(Path::new(path));
            name == mix && same || importer.awaits(path, mix)
        })
    }
}

/// A file that is imported from.
pub(super) struct Opened<'a> {
    pub path: PathBuf,
    pub text: String,
    /// How the files are read that it names.
    pub read: &'a Read<'a>,
}

/// The mix `name` of the file that `table` has as `from`, read by `mix`; and the sources of that file.
pub(super) fn read<T>(
    name: &str,
    table: &Table<'_>,
    from: Item<'_>,
    place: &Place<'_>,
    mix: impl FnOnce(Item<'_>, &Place<'_>) -> Checked<T>,
) -> Checked<(T, Vec<String>)> {
    if let Some(other) = table.beside(&["from", "mix"]) {
        return Err(other.wrong_hint(
            "a mix with `from` is what that file says, nothing else",
            Some("copy the mix to change it".to_owned()),
        ));
    }
    let wanted = table.get("mix").map_or(Ok(name), Item::text)?;
    let Opened { path, text, read } = place.open(from.text()?).map_err(|why| {
        let hint = "paths are relative to this file; a name alone is a shipped file of mixes";
        from.wrong_hint(why, Some(hint.to_owned()))
    })?;
    let path = path.to_string_lossy();
    if place.awaits(&path, wanted) {
        let message = format!("the mix `{wanted}` of `{path}` is imported from itself");
        return Err(from.wrong(message));
    }
    let there = place.importing(wanted, &path, read);
    let source = Source {
        path: &path,
        text: &text,
    };
    let found = |mistake: Box<Diagnostic>| imported(mistake, from);
    let root = source.parse().map_err(found)?;
    let file = Table::new(
        source,
        root.get_ref(),
        0..0,
        "a file of mixes",
        &["about", "sources", "mixes"],
    )
    .map_err(found)?;
    let content = || {
        file.need("about")?.text()?;
        let own = super::machine::texts(file.get("sources"))?;
        let mixes = file.need("mixes")?.named()?;
        Ok((own, mixes))
    };
    let (own, mixes) = content().map_err(found)?;
    let Some((_, item)) = mixes.iter().find(|(name, _)| *name == wanted) else {
        let names = mixes.iter().map(|(name, _)| *name);
        return Err(table.get("mix").unwrap_or(from).wrong_hint(
            format!("`{path}` has no mix `{wanted}`"),
            did_you_mean(wanted, names),
        ));
    };
    let mix = mix(*item, &there).map_err(found)?;
    Ok((mix, own))
}

/// A mistake in an imported file, and where that is imported.
fn imported(mut mistake: Box<Diagnostic>, from: Item<'_>) -> Box<Diagnostic> {
    let by = format!("imported by {}", from.place());
    mistake.hint = Some(match mistake.hint.take() {
        Some(hint) => format!("{hint}\n  {by}"),
        None => by,
    });
    mistake
}
