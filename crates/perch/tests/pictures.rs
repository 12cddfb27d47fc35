//! Pictures: the committed ones are what perch draws, documents show files that exist, machines of all sizes can be read.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

fn perch(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
    // No settings of the user who runs the tests.
    let command = command.env_clear().env("HOME", "/nonexistent");
    let output = command.args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn drawings(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let svg = paths.filter(|path| path.extension().is_some_and(|extension| extension == "svg"));
    svg.map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    })
    .collect()
}

#[test]
fn the_committed_pictures_are_what_perch_draws() {
    let folder = tempfile::tempdir().unwrap();
    let images = root().join("docs/images");
    let status = Command::new("sh")
        .arg(images.join("draw.sh"))
        .arg(env!("CARGO_BIN_EXE_perch"))
        .arg(folder.path())
        .env("HOME", "/nonexistent")
        .env_remove("XDG_CONFIG_HOME")
        .status()
        .unwrap();
    assert!(status.success());
    let (drawn, kept) = (drawings(folder.path()), drawings(&images));
    let names = |of: &BTreeMap<String, String>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&drawn), names(&kept));
    for (name, svg) in &drawn {
        assert!(
            kept[name] == *svg,
            "docs/images/{name} is old: `make pictures` draws it again"
        );
    }
    let page = fs::read_to_string(root().join("docs/pictures.md")).unwrap();
    for name in kept.keys() {
        assert!(
            page.contains(&format!("](images/{name})")),
            "docs/pictures.md does not show {name}"
        );
    }
}

/// The targets of a page's links and pictures.
fn links(page: &str) -> Vec<&str> {
    let after = page.split("](").skip(1);
    let targets = after.filter_map(|rest| rest.split([')', ' ', '\n']).next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .collect()
}

#[test]
fn documents_refer_to_files_that_exist() {
    assert_eq!(
        links("[a](b.md#c) ![d](e/f.svg) [g](#h)"),
        ["b.md", "e/f.svg", ""]
    );
    let root = root();
    let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md"]
        .map(|name| root.join(name))
        .into();
    let docs = fs::read_dir(root.join("docs")).unwrap();
    pages.extend(docs.map(|entry| entry.unwrap().path()));
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    assert!(pages.len() > 10);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for target in links(&text) {
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let file = page.parent().unwrap().join(target);
            assert!(file.exists(), "{}: there is no {target}", page.display());
        }
    }
}

/// The texts of a picture with their font size.
fn texts(svg: &str) -> Vec<(f64, &str)> {
    let groups = svg.split("<g ").skip(1);
    groups
        .flat_map(|group| {
            let size = group.split("font-size=\"").nth(1).unwrap();
            let size: f64 = size.split('"').next().unwrap().parse().unwrap();
            group.split("<text ").skip(1).map(move |part| {
                let (_, rest) = part.split_once('>').unwrap();
                (size, rest.split_once("</text>").unwrap().0)
            })
        })
        .collect()
}

#[test]
fn every_pu_of_machines_of_all_sizes_has_a_number_that_can_be_read() {
    for (description, pus) in [
        ("pu:4", 4),
        ("core:2 pu:2", 4),
        ("package:1 l3:2 core:4 pu:2", 16),
        ("package:2 numanode:1 l3:8 core:4 pu:4", 256),
        ("package:4 numanode:2 l3:8 core:8 pu:2", 1024),
        ("core:64 pu:1", 64),
    ] {
        let svg = perch(&[
            "topology",
            "--topology",
            description,
            "--profile",
            "zen4",
            "--svg",
        ]);
        let texts = texts(&svg);
        for pu in 0..pus {
            let number = pu.to_string();
            let is = |(size, text): &(f64, &str)| *text == number && *size >= 8.5;
            assert!(texts.iter().any(is), "{description}: no PU {pu}");
        }
        let side = |name: &str| -> f64 {
            let value = svg.split(&format!("{name}=\"")).nth(1).unwrap();
            value.split('"').next().unwrap().parse().unwrap()
        };
        let (width, height) = (side("width"), side("height"));
        assert!(
            width < 3200.0 && height < 2400.0,
            "{description}: {width} x {height}"
        );
        let again = perch(&[
            "topology",
            "--topology",
            description,
            "--profile",
            "zen4",
            "--svg",
        ]);
        assert_eq!(svg, again);
    }
}

#[test]
fn a_picture_goes_to_a_file_or_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.svg");
    let machine = [
        "topology",
        "--topology",
        "core:2 pu:2",
        "--profile",
        "zen4",
        "--svg",
    ];
    let told = perch(&[&machine[..], &[file.to_str().unwrap()]].concat());
    assert_eq!(told, "");
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(written, perch(&machine));
    assert!(written.starts_with("<svg ") && written.ends_with("</svg>\n"));
    // The background is its own, whatever the page's is.
    let background = written.lines().nth(1).unwrap();
    assert!(
        background.starts_with("<rect ") && background.contains("#FFFFFF"),
        "{background}"
    );
    assert!(texts(&written).iter().any(|(_, text)| *text == "FP"));
    // Of two cores of one PU each nothing is shared.
    let alone = perch(&[
        "topology",
        "--topology",
        "core:2 pu:1",
        "--profile",
        "zen4",
        "--svg",
    ]);
    assert!(!texts(&alone).iter().any(|(_, text)| *text == "FP"));
}

/// A picture of a large machine can be sent and opened: it was 2.4 MB when each box had all its attributes.
#[test]
fn thousands_of_pus_take_little_room() {
    let svg = perch(&[
        "topology",
        "--topology",
        "package:8 numanode:1 l3:8 core:32 pu:2",
        "--profile",
        "zen4",
        "--svg",
    ]);
    assert_eq!(
        texts(&svg)
            .iter()
            .filter(|(_, text)| *text == "4095")
            .count(),
        1
    );
    assert!(svg.len() < 700_000, "{}", svg.len());
}

#[test]
fn a_calibration_is_shown_again_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (kept, first, second) = (file("c.toml"), file("1.svg"), file("2.svg"));
    let measured = perch(&[
        "calibrate",
        "-m",
        "intel-xeon-ht",
        "--quick",
        "-o",
        &kept,
        "--svg",
        &first,
    ]);
    let shown = perch(&["calibrate", "--show", &kept, "--svg", &second]);
    assert!(
        measured.starts_with(&shown.trim_end()[..200]),
        "{measured}\n{shown}"
    );
    let (first, second) = (
        fs::read_to_string(first).unwrap(),
        fs::read_to_string(second).unwrap(),
    );
    assert_eq!(first, second);
    assert!(first.contains("on PUs that share"));
}
