//! Runs experiments by name and prints their tables: `cargo run -p perch-lab --example run -- cmt/figure3`.
//! Writes the page to the path after `--page`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut results = Vec::new();
    let mut page = None;
    while let Some(argument) = arguments.next() {
        if argument == "--page" {
            page = arguments.next();
            continue;
        }
        let experiment = perch_lab::load(&argument)?;
        let begun = std::time::Instant::now();
        let result = perch_lab::run(&experiment, &mut ())?;
        println!(
            "{}{} simulations in {:.1?}\n",
            perch_lab::table::text(&result),
            result.simulations,
            begun.elapsed()
        );
        for measured in &result.measured {
            println!(
                "  {} = {:.4} {} ({})",
                measured.name, measured.value, measured.unit, measured.what
            );
        }
        results.push(result);
    }
    if let Some(page) = page {
        std::fs::write(page, perch_lab::report(&results)?)?;
    }
    Ok(())
}
