//! What a perch on another machine prints: `perch top --json`, line by line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut lines = perch_top::wire::Lines::new(bytes);
    let mut model = perch_top::model::Model::new("fuzz", perch_top::source::Pace::Live);
    while let Ok(Some(frame)) = lines.read() {
        // What is read can be shown, and written again.
        let _ = perch_top::wire::line(&frame, true);
        model.push(frame);
        let area = ratatui::layout::Rect::new(0, 0, 80, 24);
        let mut buffer = ratatui::buffer::Buffer::empty(area);
        let theme = perch_top::view::theme::Theme { color: true };
        perch_top::view::draw(&mut model, theme, &mut buffer);
    }
});
