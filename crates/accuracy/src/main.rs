//! The accuracy experiment's command.
use perch_accuracy::{catalogue::*, truth, workspace::Workspace};
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let c = Catalogue::read(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/programs.toml")))?;
    let w = Workspace::create()?;
    for b in &c.builds { w.build(b)?; }
    for p in &c.programs {
        if !args.is_empty() && !args.iter().any(|a| p.name.contains(a.as_str())) { continue; }
        if let Some(m) = p.missing() { println!("{:24} {m}", p.name); continue; }
        for m in [TruthMethod::Callgrind, TruthMethod::Stepper] {
            let t0 = std::time::Instant::now();
            if m == TruthMethod::Callgrind && p.truth == TruthMethod::Stepper { continue; }
            match truth::count(p, m, &w) {
                Ok(t) => println!("{:24} {:9} fp {:5.1} ±{:.1} unknown {:.2}% n={:.2e} {:.1}s", p.name, m.name(), 100.*t.mix.fp_share(), 100.*t.error, 100.*t.unknown, t.instructions, t0.elapsed().as_secs_f64()),
                Err(e) => println!("{:24} {:9} {e:#}", p.name, m.name()),
            }
        }
    }
    Ok(())
}
