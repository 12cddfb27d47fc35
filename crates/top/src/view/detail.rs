//! More of a thread, a process or a part of the machine: numbers now and over time.

use super::{
    moves::{change, outcome},
    text::{count, fit, metric, number, percent, put, spark, thousands, time},
    theme::Theme,
};
use crate::{
    Frame,
    frame::Thread,
    model::{Model, Scope},
    units::loads,
};
use perch_core::ThreadId;
use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use std::sync::Arc;

/// How wide labels are.
const LABEL: usize = 18;

/// Above a table of the threads of a process or a unit: what it is as a whole. How many lines.
pub fn scope(
    model: &Model,
    frame: &Arc<Frame>,
    scope: &Scope,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) -> u16 {
    let width = usize::from(area.width);
    let room = width.saturating_sub(8);
    let frames = model.history.until(model.playback.position(), room);
    let (text, values) = match scope {
        Scope::All => return 0,
        Scope::Process(pid) => {
            let (threads, cpu, waiting) = frame.process(*pid);
            let name = frame.threads.iter().find(|thread| thread.pid == *pid);
            let name = name.map_or("(not there now)", |thread| &thread.process);
            let text = format!(
                "process {pid} {name}: {}, CPU {} %, waiting {} %",
                count(threads, "thread", "threads"),
                percent(cpu),
                percent(waiting)
            );
            let values = frames.map(|frame| Some(frame.process(*pid).1));
            (text, values.collect::<Vec<_>>())
        }
        Scope::Unit(level, unit) => {
            let layout = model.layout();
            let Some(units) = layout.levels.get(*level) else {
                return 0;
            };
            let Some(part) = units.units.get(*unit) else {
                return 0;
            };
            let load = &loads(frame, units)[*unit];
            let caches = match part.caches.is_empty() {
                true => String::new(),
                false => format!(", {}", part.caches),
            };
            // The label of a PU is its number.
            let pus = match part.pus.len() {
                1 => String::new(),
                _ => format!(" (PUs {})", part.pus),
            };
            let text = format!(
                "{}{caches}{pus}: {} % busy, {}, waiting {} %",
                part.label,
                percent(load.busy),
                count(load.running as usize, "thread runs", "threads run"),
                percent(load.waiting)
            );
            let same = Arc::clone(&frame.topology);
            let values = frames.map(|frame| {
                // Units of another machine are others.
                let same = Arc::ptr_eq(&frame.topology, &same);
                same.then(|| loads(frame, units)[*unit].busy)
            });
            (text, values.collect())
        }
    };
    put(
        buffer,
        area.x,
        area.y,
        width,
        &fit(&text, width, false),
        theme.notice(),
    );
    let most = values.iter().flatten().fold(1.0f32, |a, b| a.max(*b));
    put(buffer, area.x, area.y + 1, width, "CPU     ", theme.dim());
    let line = spark(&values, most, room);
    put(buffer, area.x + 8, area.y + 1, room, &line, theme.history());
    2
}

/// One thread.
pub fn thread(
    model: &Model,
    frame: &Arc<Frame>,
    id: ThreadId,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    let width = usize::from(area.width);
    let mut y = area.y;
    let mut line = |buffer: &mut Buffer, text: &str, style: Style| {
        if y < area.bottom() {
            put(buffer, area.x, y, width, &fit(text, width, false), style);
        }
        y += 1;
    };
    let now = frame.find(id);
    match now {
        Some(at) => {
            for text in present(frame, &frame.threads[at]) {
                line(buffer, &text, Style::new());
            }
        }
        None => line(
            buffer,
            &format!("thread {id}: not there at this moment; it has ended, or not begun"),
            theme.notice(),
        ),
    }
    line(buffer, "", Style::new());
    let room = width.saturating_sub(LABEL + 8);
    let position = model.playback.position();
    let mut row =
        |buffer: &mut Buffer, label: &str, values: &[Option<f32>], most: f32, text: &str| {
            if y < area.bottom() {
                put(
                    buffer,
                    area.x,
                    y,
                    LABEL,
                    &fit(label, LABEL - 1, false),
                    theme.dim(),
                );
                let x = area.x + LABEL as u16;
                let line = spark(values, most, room);
                let x = put(buffer, x, y, room, &line, theme.history());
                put(buffer, x + 1, y, 7, &fit(text, 7, true), Style::new());
            }
            y += 1;
        };
    let of = |number: &dyn Fn(&Frame, usize) -> Option<f32>| {
        model.history.of_thread(position, room, id, number)
    };
    let last = |values: &[Option<f32>]| values.last().copied().flatten();
    let cpu = of(&|frame, at| Some(frame.threads[at].cpu));
    row(
        buffer,
        "CPU%",
        &cpu,
        1.0,
        &last(&cpu).map_or_else(|| "-".into(), percent),
    );
    let waiting = of(&|frame, at| Some(frame.threads[at].waiting));
    row(
        buffer,
        "waiting%",
        &waiting,
        1.0,
        &last(&waiting).map_or_else(|| "-".into(), percent),
    );
    for column in &frame.metrics {
        let values = of(&|frame, at| frame.metric(&column.name, at));
        let most = values.iter().flatten().fold(0.0f32, |a, b| a.max(*b));
        let most = match crate::frame::unit(&column.name) {
            crate::frame::Unit::Share => 1.0,
            _ => most,
        };
        let text = last(&values).map_or_else(|| "-".into(), |value| metric(&column.name, value));
        row(buffer, &column.name, &values, most, &text);
    }
    let pus = of(&|frame, at| frame.threads[at].pu.map(|pu| pu as f32));
    let most = frame.topology.pus.last().map_or(1, |pu| pu.os.max(1));
    row(
        buffer,
        "PU",
        &pus,
        most as f32,
        &last(&pus).map_or_else(|| "-".into(), |pu| format!("{pu:.0}")),
    );
    let moves = model.moves_of(id, usize::MAX);
    if moves.is_empty() || y + 2 > area.bottom() {
        return;
    }
    y += 1;
    let room = usize::from(area.bottom() - y);
    // One line is needed to say what is left out.
    let shown = if moves.len() > room {
        room.saturating_sub(1)
    } else {
        moves.len()
    };
    for (moment, made) in &moves[..shown] {
        let text = format!(
            "{}  {}: {}{}",
            time(*moment, frame.interval),
            change(made),
            outcome(made.outcome),
            made.reason
        );
        put(
            buffer,
            area.x,
            y,
            width,
            &fit(&text, width, false),
            Style::new(),
        );
        y += 1;
    }
    if shown < moves.len() {
        let text = format!("… {} earlier moves", thousands(moves.len() - shown));
        put(buffer, area.x, y, width, &text, theme.dim());
    }
}

/// What a thread is and does now.
fn present(frame: &Frame, thread: &Thread) -> [String; 2] {
    let pu = thread.pu.map_or_else(
        || "on no PU yet".to_owned(),
        |pu| match frame.topology.pu(pu) {
            Some(known) => format!("PU {pu}, {}", frame.topology.core_label(known.core)),
            None => format!("PU {pu}"),
        },
    );
    let bound = match &thread.bound {
        Some(pus) => format!("; bound to PUs {pus}"),
        None => String::new(),
    };
    let rates = [
        (thread.switches, "context switches"),
        (thread.migrations, "migrations"),
    ];
    // Migrations are not read in each interval.
    let rates = rates.into_iter();
    let rates = rates.filter_map(|(rate, of)| Some(format!("{} {of}", number(rate?))));
    let rates: Vec<String> = rates.collect();
    let rates = match rates.is_empty() {
        true => String::new(),
        false => format!("; {} a second", rates.join(" and ")),
    };
    [
        format!(
            "thread {} {} of process {} {}: {pu}{bound}",
            thread.id, thread.name, thread.pid, thread.process
        ),
        format!(
            "CPU {} %, waiting {} %{rates}",
            percent(thread.cpu),
            percent(thread.waiting)
        ),
    ]
}
