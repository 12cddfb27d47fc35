//! A report of regions, and its table.
#![no_main]

use perch_regions::{merge, parse, table};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = parse(bytes) {
        let (merged, _) = merge([&report, &report]);
        let columns = table::Columns {
            events: report.events.clone(),
            metrics: Vec::new(),
        };
        let _ = table::table(&merged, &columns, &|_, _| Default::default());
    }
});
