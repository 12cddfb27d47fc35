//! `docs/notebook.md`: its commands and its Python code run, and draw the picture.

use crate::{
    extending::{blocks, follow, place},
    read,
};
use std::{fs, process::Command};

#[test]
fn the_notebook_s_code_runs_and_draws_phases_and_dropped_rounds() {
    let page = read("docs/notebook.md");
    let folder = place();
    follow(folder.path(), &page);
    let mut code = blocks(&page, "python").concat();
    assert!(code.len() > 2000, "{code}");
    code += r#"
assert len(table) == len(rows) > 50
assert abs(instructions - sum(count(row, "instructions") or 0 for row in rows)) < 1e-6 * instructions
print(json.dumps([len(changes), len(dropped), len(rounds), len(series)]))
"#;
    fs::write(folder.path().join("notebook.py"), code).unwrap();
    let python = Command::new("python3")
        .arg("notebook.py")
        .current_dir(folder.path())
        .output();
    let Ok(output) = python else {
        return perch_skip::skip!(Tool, "there is no python3");
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let last = printed.lines().last().unwrap();
    let [changes, dropped, rounds, rows]: [usize; 4] = serde_json::from_str(last).unwrap();
    assert!(
        changes >= 3 && dropped >= 1 && rounds > 3 * dropped,
        "{printed}"
    );
    // perch says the same number of rounds.
    let told = fs::read_to_string(folder.path().join("rows.jsonl")).unwrap();
    let totals: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(totals["broken_rounds"], dropped);
    let svg = fs::read_to_string(folder.path().join("ipc.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("stroke-dasharray").count(), changes);
    assert_eq!(svg.matches("stroke=\"white\"").count(), 2 * rows);
}
