//! What is drawn, on terminals of several sizes, of machines from one PU to 4,096 and up to 20,000 threads.

use super::{draw, theme::Theme};
use crate::{
    Frame,
    check::tests::machine,
    frame::{Column, Moved, PuLoad, Thread},
    input::{Action, action},
    model::Model,
    source::Pace,
};
use perch_core::{Outcome, PuSet, ThreadId, Topology};
use proptest::prelude::*;
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{
        Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
    },
    style::Color,
};
use std::sync::Arc;

/// A moment of a machine with so many threads, on which a few are busy; the same each time.
fn frame(topology: &Arc<Topology>, threads: usize, number: u64) -> Frame {
    let pus = topology.pus.len();
    let thread = |at: usize| {
        let busy = at.is_multiple_of(3) && at < 24;
        let swing = ((at as u64 * 7 + number * 13) % 10) as f32 / 20.0;
        Thread {
            id: ThreadId {
                tid: 4700 + at as i32,
                start: 1,
            },
            pid: 4700 + (at - at % 8) as i32,
            name: match at % 8 {
                0 => "solver".into(),
                n => format!("worker-{n}").into(),
            },
            process: "solver".into(),
            cpu: if busy { 0.5 + swing } else { 0.0 },
            waiting: if busy { swing / 4.0 } else { 0.0 },
            pu: Some((at % pus) as u32),
            switches: Some(10.0 + at as f32),
            migrations: Some((at % 3) as f32),
            bound: (busy && at < 12).then(|| Arc::new(PuSet::single((at % pus) as u32))),
        }
    };
    let threads: Vec<Thread> = (0..threads).map(thread).collect();
    let metric = |name: &str, value: fn(usize) -> f32| Column {
        name: name.into(),
        values: threads
            .iter()
            .enumerate()
            .map(|(at, of)| if of.cpu > 0.0 { value(at) } else { f32::NAN })
            .collect(),
    };
    let metrics = vec![
        metric("fp_share", |at| (at % 10) as f32 / 12.0),
        metric("memory_intensity", |at| (at % 5) as f32 / 20.0),
        metric("ipc", |at| 0.5 + (at % 7) as f32 / 4.0),
    ];
    let load = |pu: &perch_core::topology::Pu| PuLoad {
        pu: pu.os,
        busy: ((u64::from(pu.os) * 31 + number * 7) % 101) as f32 / 100.0,
        interrupts: 0.0,
    };
    let moved = |at: usize| Moved {
        id: threads[at].id,
        name: Arc::clone(&threads[at].name),
        from: None,
        to: threads[at].bound.as_ref().map(|pus| PuSet::clone(pus)),
        reason: format!("FP rank {} of 8: own FPU of core {}", at / 3 + 1, at / 3),
        numbers: vec![("fp_share".into(), 0.42), ("activity".into(), 0.75)],
        outcome: Outcome::Applied,
    };
    Frame {
        at: number * 1_000_000_000,
        interval: 1_000_000_000,
        pus: topology.pus.iter().map(load).collect(),
        moves: match number == 3 && threads.len() > 12 {
            true => [0, 3, 6, 9].into_iter().map(moved).collect(),
            false => Vec::new(),
        },
        own: 0.004,
        metrics,
        threads,
        ..Frame::empty(Arc::clone(topology))
    }
}

/// A model with some history.
fn model(topology: &Arc<Topology>, threads: usize) -> Model {
    let mut model = Model::new("this machine", Pace::Live);
    for number in 1..=6 {
        model.push(frame(topology, threads, number));
    }
    model
}

fn screen(model: &mut Model, (width, height): (u16, u16), color: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let theme = Theme { color };
    terminal
        .draw(|frame| draw(model, theme, frame.buffer_mut()))
        .unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |y| (0..buffer.area.width).map(move |x| buffer[(x, y)].symbol());
    (0..buffer.area.height)
        .map(|y| row(y).collect::<String>().trim_end().to_owned())
        .collect()
}

fn text(model: &mut Model, size: (u16, u16)) -> String {
    lines(&screen(model, size, true)).join("\n")
}

fn smt() -> Arc<Topology> {
    machine(2, 4, 2)
}

#[test]
fn threads_at_80_columns() {
    let shown = text(&mut model(&smt(), 40), (80, 24));
    insta::assert_snapshot!(shown);
    // The page shows it.
    let page = include_str!("../../../../docs/top.md");
    let indented: Vec<String> = shown
        .lines()
        .map(|line| format!("    {line}").trim_end().to_owned())
        .collect();
    assert!(
        page.contains(&indented.join("\n")),
        "docs/top.md shows another screen than this:\n{}",
        indented.join("\n")
    );
}

#[test]
fn threads_at_120_columns_as_a_tree() {
    let mut model = model(&smt(), 40);
    model.apply(&Action::Tree);
    insta::assert_snapshot!(text(&mut model, (120, 40)));
}

#[test]
fn threads_at_60_columns() {
    insta::assert_snapshot!(text(&mut model(&smt(), 40), (60, 20)));
}

#[test]
fn the_machine_as_a_tree() {
    let mut model = model(&smt(), 40);
    model.apply(&Action::Screen(1));
    model.apply(&Action::Step(0));
    insta::assert_snapshot!(text(&mut model, (80, 24)));
}

#[test]
fn a_unit_and_the_threads_there() {
    let mut model = model(&smt(), 40);
    for action in [
        Action::Screen(1),
        Action::Step(0),
        Action::Step(1),
        Action::Enter,
    ] {
        model.apply(&action);
    }
    insta::assert_snapshot!(text(&mut model, (80, 14)));
}

#[test]
fn the_moves_with_reasons() {
    let mut model = model(&smt(), 40);
    model.apply(&Action::Screen(2));
    insta::assert_snapshot!(text(&mut model, (80, 16)));
}

#[test]
fn a_thread_over_time() {
    let mut model = model(&smt(), 40);
    for action in [Action::SortKey('t'), Action::Step(0), Action::Enter] {
        model.apply(&action);
    }
    insta::assert_snapshot!(text(&mut model, (80, 18)));
}

/// Nothing of the help is cut off, however narrow the terminal is, and its end is one step from its last page.
#[test]
fn help_can_be_read_in_a_small_terminal() {
    let mut model = model(&smt(), 4);
    model.apply(&Action::Help);
    for size in [(40, 10), (20, 4), (80, 24)] {
        model.apply(&Action::Step(-1000));
        let mut seen = String::new();
        for _ in 0..120 {
            let shown = text(&mut model, size);
            seen += &shown;
            model.apply(&Action::Step(1));
        }
        let words = |text: &str| -> Vec<String> {
            let words = text.split_whitespace();
            words.map(str::to_owned).collect()
        };
        let seen = words(&seen);
        for (_, line) in crate::input::HELP {
            for word in words(line) {
                assert!(seen.contains(&word), "{word} is cut off at {size:?}");
            }
        }
        let last = text(&mut model, size);
        model.apply(&Action::Step(-1));
        assert_ne!(text(&mut model, size), last, "{size:?}");
    }
}

#[test]
fn what_is_too_small_is_said() {
    let mut model = model(&smt(), 40);
    assert_eq!(text(&mut model, (19, 4)), "20 columns x 4 rows\n\n\n");
    assert!(text(&mut model, (20, 4)).contains("40 threads"));
}

#[test]
fn without_colours_there_are_none_and_with_them_there_are() {
    let has_colours = |color: bool| {
        let buffer = screen(&mut model(&smt(), 40), (80, 24), color);
        let cells = buffer.content().iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert_eq!(has_colours(false), 0);
    assert!(has_colours(true) > 20);
    // The text is the same.
    let with = lines(&screen(&mut model(&smt(), 40), (80, 24), true));
    let without = lines(&screen(&mut model(&smt(), 40), (80, 24), false));
    assert_eq!(with, without);
}

/// The number that stands before a word, with its thousands.
fn number_before(line: &str, word: &str) -> Option<usize> {
    let before = line
        .split(word)
        .next()
        .filter(|before| before.len() < line.len())?;
    let number = before.trim_end().rsplit(' ').next()?;
    number.replace(',', "").parse().ok()
}

#[test]
fn what_is_left_out_is_counted() {
    let machines = [(1, 1, 1), (1, 2, 1), (2, 4, 2), (4, 64, 1), (8, 256, 2)];
    for (packages, cores, pus) in machines {
        let topology = machine(packages, cores, pus);
        for threads in [0, 1, 25, 20_000] {
            let mut model = model(&topology, threads);
            for size in [(80, 24), (120, 40), (60, 20)] {
                let lines = lines(&screen(&mut model, size, true));
                let what = format!("{} PUs, {threads} threads, {size:?}", topology.pus.len());
                let head = number_before(&lines[1], "thread");
                assert_eq!(head, Some(threads), "{what}: {}", lines[1]);
                // Rows of threads, and what the line above them says.
                let titles = lines.iter().position(|line| line.contains("NAME")).unwrap();
                let rows = lines[titles + 1..lines.len() - 1].iter();
                let rows = rows.filter(|line| line.contains("solver") || line.contains("worker"));
                let (rows, said) = (rows.count(), &lines[titles - 1]);
                match threads {
                    0 => assert!(said.starts_with("none"), "{what}: {said}"),
                    _ => {
                        assert!(said.starts_with(&format!("1-{rows} of ")), "{what}: {said}");
                        let all = number_before(said, "row");
                        assert_eq!(all, Some(threads), "{what}: {said}");
                    }
                }
                // Units, at each level.
                for level in 0..model.layout().levels.len() {
                    model.level = Some(level);
                    let lines = self::lines(&screen(&mut model, size, true));
                    let whole = lines.join("\n");
                    let shown = whole.matches('▕').count();
                    let more = lines.iter().find_map(|line| {
                        let (_, more) = line.split_once("… ")?;
                        number_before(more, "more")
                    });
                    let all = model.layout().levels[level].units.len();
                    assert_eq!(shown + more.unwrap_or(0), all, "{what}: {whole}");
                    assert!(more != Some(0), "{what}");
                }
                model.level = None;
            }
        }
    }
}

#[test]
fn filters_say_how_many_they_leave_out() {
    let mut model = model(&smt(), 40);
    model.apply(&Action::Filter);
    for c in "WORKER-1".chars() {
        model.apply(&Action::Type(c));
    }
    let shown = text(&mut model, (80, 24));
    assert!(
        shown.contains("1-5 of 5 rows · filter \"WORKER-1\": 35 left out"),
        "{shown}"
    );
    assert!(shown.ends_with("filter: WORKER-1_"), "{shown}");
    model.apply(&Action::Confirm);
    model.apply(&Action::Running);
    let shown = text(&mut model, (80, 24));
    assert!(
        shown.contains("1-1 of 1 row · filter \"WORKER-1\", running: 39 left out"),
        "{shown}"
    );
    model.apply(&Action::Back);
    model.apply(&Action::Running);
    assert!(text(&mut model, (80, 24)).contains("of 40 rows"));
}

#[test]
fn the_selection_stays_with_its_thread() {
    let topology = smt();
    let mut model = model(&topology, 40);
    let selected = |model: &mut Model| {
        let buffer = screen(model, (80, 24), false);
        let bold = ratatui::style::Modifier::BOLD | ratatui::style::Modifier::REVERSED;
        let y = (8..23).find(|y| buffer[(0, *y)].modifier == bold)?;
        Some(lines(&buffer)[usize::from(y)].trim_start()[..4].to_owned())
    };
    text(&mut model, (80, 24));
    assert_eq!(selected(&mut model), None);
    model.apply(&Action::Step(1));
    let first = selected(&mut model).unwrap();
    for number in 7..20 {
        model.push(frame(&topology, 40, number));
        assert_eq!(selected(&mut model), Some(first.clone()));
    }
    // One that has ended makes room for the next one.
    model.push(frame(&topology, 0, 20));
    assert_eq!(selected(&mut model), None);
}

/// What may happen to the view.
#[derive(Debug, Clone)]
enum Happens {
    Key(KeyCode, bool),
    Mouse(u16, u16, bool),
    Resize(u16, u16),
    Frame {
        machine: usize,
        threads: usize,
        gap: u64,
    },
    Passes(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let key = prop_oneof![
        8 => (0x20u8..0x7f).prop_map(|byte| KeyCode::Char(byte.into())),
        6 => prop::sample::select(vec![
            KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Right, KeyCode::Enter, KeyCode::Esc, KeyCode::Tab,
            KeyCode::PageUp, KeyCode::PageDown, KeyCode::Home, KeyCode::End, KeyCode::Backspace,
        ]),
        1 => any::<char>().prop_map(KeyCode::Char),
    ];
    prop_oneof![
        10 => (key, any::<bool>()).prop_map(|(key, shift)| Happens::Key(key, shift)),
        3 => (0u16..130, 0u16..50, any::<bool>()).prop_map(|(x, y, left)| Happens::Mouse(x, y, left)),
        2 => (0u16..130, 0u16..50).prop_map(|(x, y)| Happens::Resize(x, y)),
        3 => (0usize..4, 0usize..60, 0u64..3).prop_map(|(machine, threads, gap)| Happens::Frame { machine, threads, gap }),
        1 => (0u64..5000).prop_map(Happens::Passes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn nothing_that_happens_makes_it_fail(
        recorded: bool,
        happened in proptest::collection::vec(happens(), 0..80),
    ) {
        let machines = [machine(1, 1, 1), machine(2, 4, 2), machine(4, 16, 1), machine(1, 3, 4)];
        let pace = if recorded { Pace::Recorded } else { Pace::Live };
        let mut model = Model::new("a test", pace);
        model.history = crate::model::History::keeping(500);
        let (mut size, mut number) = ((80, 24), 0);
        for one in happened {
            let event = match one {
                Happens::Key(key, shift) => {
                    let modifiers = if shift { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
                    Event::Key(KeyEvent::new(key, modifiers))
                }
                Happens::Mouse(column, row, left) => Event::Mouse(MouseEvent {
                    kind: match left {
                        true => MouseEventKind::Down(MouseButton::Left),
                        false => MouseEventKind::ScrollDown,
                    },
                    column,
                    row,
                    modifiers: KeyModifiers::NONE,
                }),
                Happens::Resize(width, height) => {
                    size = (width, height);
                    Event::Resize(width, height)
                }
                Happens::Frame { machine, threads, gap } => {
                    number += gap;
                    model.push(frame(&machines[machine], threads, number));
                    Event::FocusGained
                }
                Happens::Passes(milliseconds) => {
                    model.advance(std::time::Duration::from_millis(milliseconds));
                    Event::FocusLost
                }
            };
            if let Some(action) = action(&event, model.writing.is_some()) {
                model.apply(&action);
            }
            let _ = (model.due(), model.wants_more());
            let buffer = screen(&mut model, size, false);
            for cell in buffer.content() {
                prop_assert!(!cell.symbol().contains(perch_core::text::acts));
            }
        }
    }
}
