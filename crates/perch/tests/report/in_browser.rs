//! What pages show and do in a browser.

use super::{
    Folder,
    browser::{self, Browser},
    crafted::hostile,
};
use perch_skip::skip;
use serde_json::{Value, json};
use std::{fs, path::Path};

/// The browser; a test ends where there is none.
macro_rules! browser {
    () => {
        match browser::installed() {
            Some(program) => Browser::start(&program),
            None => return skip!(Tool, "no browser: the Debian package chromium"),
        }
    };
}

/// A page must not have done anything that it may not.
fn quiet(browser: &Browser, page: &Path) {
    assert_eq!(browser.trouble, Vec::<Value>::new());
    let own = format!("file://{}", page.display());
    let others = browser.loaded.iter().filter(|of| !of.starts_with(&own));
    let others: Vec<&String> = others.filter(|of| *of != "about:blank").collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn the_page_of_a_real_run_works_in_a_browser() {
    let mut browser = browser!();
    let folder = Folder::new();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let pu = allowed.trim().split(['-', ',']).next().unwrap();
    let program = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
    let pin = format!("sh=pu:{pu}");
    let run = [
        "run",
        "-q",
        "--pin",
        &pin,
        "--period",
        "100ms",
        "--log",
        "run.jsonl",
    ];
    folder.succeeds(&[&run[..], &["--", "sh", "-c", program]].concat());
    let (page, data) = folder.page("run.jsonl");
    browser.window((1000, 900), "light");
    browser.open(&page, "");
    let head = browser.text("document.getElementById('head').textContent");
    assert!(head.contains("while [ $i -lt 1000000 ]"), "{head}");
    assert!(
        head.contains("the program ended, with exit code 0"),
        "{head}"
    );
    let threads = data["threads"].as_array().unwrap().len();
    assert_eq!(browser.column("threads", "name").len(), threads);
    let moves = data["moves"].as_array().unwrap();
    assert!(!moves.is_empty());
    assert_eq!(browser.column("moves", "reason").len(), moves.len());
    assert!(browser.column("moves", "to").contains(&format!("PU {pu}")));
    assert!(
        browser
            .value("document.querySelectorAll('#placement path.share').length")
            .as_u64()
            > Some(0)
    );
    assert!(
        browser
            .value("document.querySelectorAll('#series path.line').length")
            .as_u64()
            > Some(0)
    );
    assert!(
        browser
            .value("document.querySelectorAll('#placement path.move').length")
            .as_u64()
            > Some(0)
    );
    quiet(&browser, &page);
}

#[test]
fn the_page_answers_mouse_keys_and_address() {
    let mut browser = browser!();
    let folder = Folder::new();
    let recording = folder.simulated();
    let (page, data) = folder.page(recording);
    browser.window((1000, 900), "light");
    browser.open(&page, "");
    let range = "document.getElementById('range').textContent";
    let hash = "location.hash";
    let whole = browser.text(range);
    assert!(whole.ends_with("the whole recording"), "{whole}");

    // Tables sort by pressing a heading, the largest first; once more turns that around.
    let number = |text: &String| -> f64 { text.split(' ').next().unwrap().parse().unwrap() };
    browser.click("#threads th[data-key='cpu-time'] button");
    let rising: Vec<f64> = browser
        .column("threads", "cpu-time")
        .iter()
        .map(number)
        .collect();
    assert!(rising.len() >= 8 && rising.is_sorted(), "{rising:?}");
    browser.click("#threads th[data-key='cpu-time'] button");
    let falling: Vec<f64> = browser
        .column("threads", "cpu-time")
        .iter()
        .map(number)
        .collect();
    assert!(falling.is_sorted_by(|a, b| a >= b), "{falling:?}");
    browser.click("#moves th[data-key='tid'] button");
    let tids: Vec<f64> = browser.column("moves", "tid").iter().map(number).collect();
    assert!(tids.is_sorted_by(|a, b| a >= b), "{tids:?}");
    assert_eq!(
        browser.text("document.querySelector('#moves th[data-key=tid]').ariaSort"),
        "descending"
    );
    assert_eq!(
        browser.text(hash),
        "#sort=threads:cpu-time:down,moves:tid:down"
    );

    // Dragging zooms both charts, the wheel out again, keys too.
    let edges = "JSON.stringify([...document.querySelectorAll('svg.chart')].map(of => [...of.querySelectorAll('text.dim')].map(of => of.textContent).filter(of => of.endsWith(' s'))))";
    let [x, y, width] = browser.place("#placement svg.chart");
    let at = |share: f64| [x + share * width, y];
    browser.mouse("mousePressed", at(0.0), 0);
    browser.mouse("mouseMoved", at(0.1), 0);
    browser.mouse("mouseMoved", at(0.2), 0);
    browser.mouse("mouseReleased", at(0.2), 0);
    browser.drawn();
    let zoomed = browser.text(range);
    assert_ne!(zoomed, whole);
    let axes: Vec<Vec<String>> = serde_json::from_str(&browser.text(edges)).unwrap();
    assert_eq!(axes[0], axes[1]);
    let length = |hash: &str| {
        let value = |name: &str| -> f64 {
            let (_, after) = hash.split_once(&format!("{name}=")).unwrap();
            after.split('&').next().unwrap().parse().unwrap()
        };
        value("to") - value("from")
    };
    let drawn = length(&browser.text(hash));
    browser.wheel(at(0.1), 100.0, 2);
    let wider = length(&browser.text(hash));
    assert!(wider > drawn, "{wider} {drawn}");
    browser.key("+", 0);
    let closer = length(&browser.text(hash));
    assert!(closer < wider, "{closer} {wider}");
    let before = browser.text(range);
    browser.key("ArrowRight", 8);
    assert_ne!(browser.text(range), before);
    browser.key("0", 0);
    assert_eq!(browser.text(range), whole);

    // The mark tells values, by mouse and by keys.
    browser.mouse("mouseMoved", at(0.05), 0);
    browser.drawn();
    let told = "document.querySelector('#placement .readout').textContent";
    let pointed = browser.text(told);
    assert!(
        pointed.contains("PU ") && pointed.contains(" s to "),
        "{pointed}"
    );
    browser.key("ArrowRight", 0);
    assert_ne!(browser.text(told), pointed);
    browser.key("ArrowDown", 0);
    let below = browser.text(told);
    assert!(below.contains("PU "), "{below}");

    // A line can be switched off, another quantity and other groups chosen.
    let lines = "document.querySelectorAll('#series path.line').length";
    let count = browser.value(lines).as_u64().unwrap();
    browser.click("#series .legend li:nth-child(1) button");
    assert_eq!(browser.value(lines).as_u64().unwrap(), count - 1);
    let metrics = data["quantities"].as_array().unwrap();
    assert!(
        metrics.iter().any(|of| of["key"] == "fp-share"),
        "{metrics:?}"
    );
    browser.value(
        "location.hash = '#metric=fp-share&by=process&from=2&to=6.5&sort=units:cpu-time:down'",
    );
    browser.drawn();
    browser.until("document.getElementById('metric').value === 'fp-share'");
    browser.drawn();
    assert_eq!(
        browser.text("document.getElementById('by').value"),
        "process"
    );
    let shown = browser.text(range);
    assert!(shown.starts_with("2.00 s to 6.50 s"), "{shown}");
    let shares: Vec<f64> = browser
        .column("units", "cpu-time")
        .iter()
        .map(number)
        .collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");

    // The same from the address at once, and with what makes no sense in it.
    browser.open(
        &page,
        "metric=fp-share&from=2&to=6.5&find-threads=no-such-name",
    );
    assert!(browser.text(range).starts_with("2.00 s to 6.50 s"));
    assert!(browser.column("threads", "name").is_empty());
    browser.open(
        &page,
        "metric=constructor&by=x&from=NaN&to=-4&show=9999,a&sort=threads:x:y,a",
    );
    assert_eq!(browser.text(range), whole);
    quiet(&browser, &page);
}

#[test]
fn hostile_names_are_shown_and_do_nothing() {
    let mut browser = browser!();
    let folder = Folder::new();
    let recording = hostile();
    fs::write(folder.file("hostile.jsonl"), recording.text()).unwrap();
    let (page, _) = folder.page("hostile.jsonl");
    for (size, scheme) in [((1000, 900), "light"), ((400, 800), "dark")] {
        browser.window(size, scheme);
        browser.open(&page, "");
        let mut shown = browser.column("threads", "name");
        shown.sort();
        let mut wanted: Vec<String> = recording
            .names
            .iter()
            .map(|name| perch_core::text::printable(name).into_owned())
            .collect();
        wanted.sort();
        assert_eq!(shown, wanted);
        let reasons = browser.column("moves", "reason").join("\n");
        assert!(
            reasons.contains("<img src=x onerror=alert(1)>"),
            "{reasons}"
        );
        assert_eq!(browser.value("document.scripts.length"), json!(2));
        assert_eq!(
            browser.value(
                "document.images.length + document.querySelectorAll('b:not(#remarks b)').length"
            ),
            json!(0)
        );
        // Nothing is wider than the window: tables scroll within themselves.
        assert_eq!(
            browser.value("document.documentElement.scrollWidth <= innerWidth"),
            json!(true)
        );
        let text = "getComputedStyle(document.body).color";
        let expected = if scheme == "dark" {
            "rgb(230, 232, 234)"
        } else {
            "rgb(29, 33, 38)"
        };
        assert_eq!(browser.text(text), expected);
        // In the dark lane: what was not measured, and what was not observed.
        assert_eq!(
            browser.value("document.querySelectorAll('#placement rect.gap').length"),
            json!(1)
        );
        assert!(
            browser
                .text("document.querySelector('#placement path.unmeasured').getAttribute('d')")
                .starts_with('M')
        );
    }
    quiet(&browser, &page);
}
