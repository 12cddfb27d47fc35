//! Makes the tables and the pictures of the result pages again, from the results that are kept in `docs/results/`:
//!
//! ```text
//! perch lab run masa/table1 --json > docs/results/masa/table1.json
//! cargo run -p perch-lab --example pages
//! ```

use std::{fs, path::Path};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for name in ["cmt", "masa", "workover", "fidelity", "validation"] {
        let page = docs.join(format!("{name}.md"));
        let made = perch_lab::kept::page(&fs::read_to_string(&page)?, &docs.join("results"))?;
        fs::write(page, made)?;
    }
    for name in ["cmt", "masa", "workover"] {
        let picture = perch_lab::overview::svg(name, &docs.join("results"))?;
        fs::write(docs.join(format!("results/{name}.svg")), picture)?;
    }
    Ok(())
}
