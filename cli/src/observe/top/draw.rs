//! # The picture
//!
//! A pure function of the [`State`] and the room there is. In 80 × 24:
//!
//! ```text
//!  title                                   row 0
//!  panes                                   row 1
//!  ┌ memory ─────────┐┌ rates ──────────┐
//!  └─────────────────┘└─────────────────┘   overview: numbers, two graphs, a bar for each CPU
//!  ┌ in use ─────────┐┌ resident ───────┐   others: a table each
//!  ┌ CPUs ──────────────────────────────┐
//!  message, prompt or keys                 last row
//! ```
//!
//! Without colour emphasis is bold and reversed; without UTF-8 lines, bars and graphs are of ASCII letters.

use super::state::{Pane, Sort, State};
use crate::observe::latency::time;
use crate::term::{bytes, count, nanoseconds};
use allotment_engine::stat::Event;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use std::collections::VecDeque;

/// The picture.
pub fn draw(frame: &mut Frame<'_>, state: &State) {
    let [title, panes, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(heading(state, title.width as usize), title);
    frame.render_widget(tabs(state), panes);
    match state.pane {
        Pane::Overview => overview(frame, state, body),
        Pane::Classes => classes(frame, state, body),
        Pane::Areas => areas(frame, state, body),
        Pane::Latency => latency(frame, state, body),
    }
    frame.render_widget(footer(state), foot);
    if state.help {
        help(frame, state, body);
    }
}

/// Cut to so many letters.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

fn heading(state: &State, width: usize) -> Paragraph<'static> {
    let view = &state.now.view;
    let right = format!("{}  up {} ", view.report.mode, nanoseconds(view.report.end.wall_ns));
    let room = width.saturating_sub(right.chars().count() + 1);
    let left = cut(&format!(" allotment top  {} {}", view.pid, view.program), room);
    let line = state.look.text(&format!("{left:<room$} {right}"));
    Paragraph::new(line).style(Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD))
}

fn tabs(state: &State) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, pane) in Pane::ALL.into_iter().enumerate() {
        let style = if pane == state.pane {
            state.look.paint(Color::Cyan).add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(format!("{} {}", at + 1, pane.name()), style));
    }
    spans.push(Span::raw(format!("   every {}", seconds(state.interval))));
    if state.paused {
        spans.push(Span::styled("  PAUSED", state.look.paint(Color::Yellow).add_modifier(Modifier::BOLD)));
    }
    Line::from(spans)
}

fn seconds(interval: std::time::Duration) -> String {
    let text = format!("{:.2}", interval.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn footer(state: &State) -> Line<'static> {
    let look = state.look;
    if let Some(word) = &state.prompt {
        let style = look.paint(Color::Cyan).add_modifier(Modifier::BOLD);
        return Line::from(vec![Span::styled(" KEY=VALUE: ", style), Span::raw(format!("{word}_"))]);
    }
    match state.notice() {
        Some(line) => {
            let colour = if state.ended.is_some() { Color::Red } else { Color::Yellow };
            Line::styled(look.text(&format!(" {line}")), look.paint(colour).add_modifier(Modifier::BOLD))
        }
        None => Line::raw(" q quit  h help  tab pane  s sort  space pause +- pace  d drain  p purge  t tune"),
    }
}

/// Rates for eyes: `1.73 M/s`.
fn rate(per_second: f64) -> String {
    match per_second {
        ..1e3 => format!("{per_second:.0}/s"),
        1e3..1e6 => format!("{:.1} k/s", per_second / 1e3),
        _ => format!("{:.2} M/s", per_second / 1e6),
    }
}

/// A block of names and values.
fn numbers(frame: &mut Frame<'_>, state: &State, area: Rect, title: &str, rows: &[(&str, String, Color)]) {
    let look = state.look;
    let width = area.width.saturating_sub(2) as usize;
    let line = |(name, value, colour): &(&str, String, Color)| {
        let value = look.text(value);
        let room = width.saturating_sub(value.chars().count() + 2);
        let style = if *colour == Color::Reset { Style::new() } else { look.paint(*colour) };
        Line::from(vec![Span::raw(format!(" {:<room$}", cut(name, room))), Span::styled(value, style), Span::raw(" ")])
    };
    let lines: Vec<Line<'_>> = rows.iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(look.block(title)), area);
}

fn overview(frame: &mut Frame<'_>, state: &State, area: Rect) {
    // Numbers, graphs (taller where there is room), and the rest to CPUs.
    let graphs = (area.height / 5).clamp(4, 12);
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(9), Constraint::Length(graphs), Constraint::Min(0)]).areas(area);
    let halves = |area: Rect| Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    let [memory_area, rates_area]: [Rect; 2] = halves(top);
    let report = &state.now.view.report;
    let memory = &report.memory;
    let fragmentation = state.now.view.fragmentation();
    let warn = if fragmentation > 50.0 { Color::Yellow } else { Color::Reset };
    let peak = bytes(report.end.rss_peak);
    numbers(
        frame,
        state,
        memory_area,
        "memory",
        &[
            ("resident", format!("{} (peak {peak})", bytes(state.now.resident())), Color::Reset),
            ("in use", bytes(memory.in_use), Color::Green),
            (
                "  slabs / areas",
                format!("{} / {}", bytes(memory.in_use_slab_bytes), bytes(memory.in_use_area_bytes)),
                Color::Reset,
            ),
            ("cached for CPUs", bytes(memory.in_caches), Color::Reset),
            ("lazily freed", bytes(memory.lazy), Color::Reset),
            ("free, dirty", bytes(memory.free_dirty), Color::Reset),
            ("slab bytes not in use", format!("{fragmentation:.1} %"), warn),
        ],
    );
    let events = &state.now.view.snapshot;
    let fast = |all: u64, fast: u64| if all == 0 { 100.0 } else { fast as f64 * 100.0 / all as f64 };
    let operations = &report.operations;
    let slow = state.event(Event::SlowpathTicks) * state.now.view.tick.map_or(0.0, |tick| tick.0) / 1e7;
    numbers(
        frame,
        state,
        rates_area,
        "rates",
        &[
            ("allocations", rate(state.allocs()), Color::Green),
            ("frees", rate(state.frees()), Color::Green),
            ("areas made", rate(state.areas_made()), Color::Reset),
            (
                "fast (of all)",
                format!(
                    "{:.2} / {:.2} %",
                    fast(operations.allocs, operations.allocs_fast),
                    fast(operations.frees, operations.frees_fast)
                ),
                Color::Reset,
            ),
            ("slow paths", format!("{slow:.2} % of a CPU"), Color::Reset),
            (
                "purged",
                format!("{} in {}", bytes(events.event(Event::PurgeBytes)), count(events.event(Event::Purge))),
                Color::Reset,
            ),
            (
                "drained / fences",
                format!("{} / {}", count(events.event(Event::Drain)), count(events.event(Event::Fence))),
                Color::Reset,
            ),
        ],
    );
    let [left, right]: [Rect; 2] = halves(middle);
    graph(frame, state, left, "in use", &state.in_use, Color::Green);
    graph(frame, state, right, "resident", &state.resident, Color::Cyan);
    cpus(frame, state, bottom);
}

/// The last values as columns: the lowest is the bottom of the scale, the highest its top.
fn graph(frame: &mut Frame<'_>, state: &State, area: Rect, name: &str, values: &VecDeque<u64>, colour: Color) {
    let look = state.look;
    let (width, height) = (area.width.saturating_sub(2) as usize, area.height.saturating_sub(2) as usize);
    let seen: Vec<u64> = values.iter().skip(values.len().saturating_sub(width)).copied().collect();
    let (low, high) = (seen.iter().min().copied().unwrap_or(0), seen.iter().max().copied().unwrap_or(0));
    let title = format!("{name} {} - {}", bytes(low), bytes(high));
    if height == 0 {
        return;
    }
    let levels: Vec<usize> = seen
        .iter()
        .map(|&value| {
            // A flat line stands in the middle.
            let eighths = u128::from(value - low) * (height as u128 * 8 - 1);
            eighths.checked_div(u128::from(high - low)).map_or(height * 4, |eighths| eighths as usize + 1)
        })
        .collect();
    let rows = (0..height).map(|row| {
        let base = (height - 1 - row) * 8;
        let letter = |&level: &usize| {
            let eighths = level.saturating_sub(base).min(8);
            if look.unicode {
                [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][eighths]
            } else {
                b"  ..::##*"[eighths] as char
            }
        };
        let text: String = levels.iter().map(letter).collect();
        Line::styled(format!("{text:>width$}"), look.paint(colour))
    });
    frame.render_widget(Paragraph::new(rows.collect::<Vec<_>>()).block(look.block(&title)), area);
}

fn cpus(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let look = state.look;
    let block = look.block("cached by CPU index");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let (rows, width) = (inner.height as usize, inner.width as usize);
    if rows == 0 || width < 30 {
        return;
    }
    let sets = &state.now.sets;
    if sets.is_empty() {
        frame.render_widget(Paragraph::new(" (it has not said yet)"), inner);
        return;
    }
    let columns = sets.len().div_ceil(rows).clamp(1, (width / 46).max(1));
    let column_width = width / columns;
    let most = sets.iter().map(|set| set.bytes).max().unwrap_or(0);
    let shown = if sets.len() > rows * columns { rows * columns - 1 } else { sets.len() };
    let mut lines = vec![Vec::new(); rows];
    for (at, set) in sets.iter().take(shown).enumerate() {
        let cpu = set.cpu.map_or_else(|| "-".into(), |cpu| cpu.to_string());
        let tail = if set.parked { "parked".to_owned() } else { format!("{} obj", count(set.objects)) };
        let (head, tail) = (format!(" {:>3} cpu {cpu:<4}", set.index), format!(" {:>10}{tail:>12} ", bytes(set.bytes)));
        let room = column_width.saturating_sub(head.chars().count() + tail.chars().count());
        lines[at % rows].push(Span::raw(head));
        lines[at % rows].push(Span::styled(look.bar(set.bytes, most, room), look.paint(Color::Blue)));
        lines[at % rows].push(Span::raw(tail));
    }
    if shown < sets.len() {
        lines[rows - 1].push(Span::raw(format!("   and {} more", sets.len() - shown)));
    }
    frame.render_widget(Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>()), inner);
}

/// A table: a heading, and rows from where it is scrolled to.
fn table(frame: &mut Frame<'_>, state: &State, area: Rect, title: &str, heading: String, rows: Vec<String>) {
    let look = state.look;
    let block = look.block(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let room = inner.height.saturating_sub(1) as usize;
    let first = state.scroll.min(rows.len().saturating_sub(room));
    let mut lines = vec![Line::styled(look.text(&heading), Style::new().add_modifier(Modifier::BOLD))];
    lines.extend(rows[first..].iter().take(room).map(|row| Line::raw(look.text(row))));
    frame.render_widget(Paragraph::new(lines), inner);
}

fn classes(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let heading = format!(
        "{:>7}{:>12}{:>11}{:>11}{:>8}{:>8}{:>10}{:>10}",
        "size", "in use", "bytes", "cached", "slabs", "free %", "allocs", "frees"
    );
    let rows = state.classes();
    let total = rows.len();
    let rows = rows
        .into_iter()
        .map(|(slab, allocs, frees)| {
            let room = slab.num_objs.max(1);
            let free = slab.num_objs.saturating_sub(slab.active_objs) as f64 * 100.0 / room as f64;
            format!(
                "{:>7}{:>12}{:>11}{:>11}{:>8}{:>8.1}{:>10}{:>10}",
                slab.objsize,
                count(slab.active_objs),
                bytes(slab.active_objs.saturating_mul(slab.objsize)),
                count(slab.sharedavail),
                count(slab.num_slabs),
                free,
                rate(allocs),
                rate(frees)
            )
        })
        .collect();
    let marks = [Sort::Bytes, Sort::Objects, Sort::Rate]
        .map(|sort| if sort == state.sort { format!("[{}]", sort.name()) } else { sort.name().to_owned() });
    table(frame, state, area, &format!("{total} size classes, by {}", marks.join(" ")), heading, rows);
}

fn areas(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let all = &state.now.areas;
    let mut sorted: Vec<_> = all.areas.iter().collect();
    if !state.by_address {
        sorted.sort_by_key(|area| std::cmp::Reverse(area.bytes));
    }
    let heading = format!("{:<20}{:>12}{:>16}{:>10}  {:<6}{}", " address", "size", "bytes", "pages", "state", "flags");
    let rows = sorted
        .iter()
        .map(|area| {
            let state = if area.lazy { "lazy" } else { "busy" };
            format!(
                " {:<19}{:>12}{:>16}{:>10}  {state:<6}{}",
                area.start,
                bytes(area.bytes),
                count(area.bytes),
                count(area.pages),
                area.flags.join(" ")
            )
        })
        .collect();
    let lazy = all.areas.iter().filter(|area| area.lazy).count();
    let more = if all.more > 0 { format!(", {} more not listed", count(all.more)) } else { String::new() };
    let order = if state.by_address { "address" } else { "size" };
    let title =
        format!("{} areas, {} of them lazy{more}, by {order}", count(all.areas.len() as u64), count(lazy as u64));
    table(frame, state, area, &title, heading, rows);
}

fn latency(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let look = state.look;
    let latencies = &state.now.latencies;
    let [top, rest] =
        Layout::vertical([Constraint::Length(latencies.len() as u16 + 3), Constraint::Min(0)]).areas(area);
    let heading = format!(
        "{:<12}{:>12}{:>12}{:>12}{:>14}{:>14}",
        " what", "count", "mean", "half below", "99 % below", "all below"
    );
    let rows = latencies
        .iter()
        .map(|latency| {
            let name = format!(" {}", latency.name);
            if latency.count == 0 {
                return format!("{name:<12}{:>12}", 0);
            }
            let [mean, half, most, all] =
                [Some(latency.mean_ns), latency.p50_below_ns, latency.p99_below_ns, latency.max_below_ns].map(time);
            format!("{name:<12}{:>12}{mean:>12}{half:>12}{most:>14}{all:>14}", count(latency.count))
        })
        .collect();
    table(frame, state, top, "how long things took", heading, rows);
    // Buckets side by side, all on one scale of time.
    let is_used = |at: usize| latencies.iter().any(|latency| latency.buckets[at].count > 0);
    let buckets = latencies.first().map_or(0, |latency| latency.buckets.len());
    let used: Vec<usize> = (0..buckets).filter(|&at| is_used(at)).collect();
    let block = look.block("times by power of two");
    let inner = block.inner(rest);
    frame.render_widget(block, rest);
    let (Some(&first), Some(&last)) = (used.first(), used.last()) else { return };
    let room = (inner.height as usize).saturating_sub(1);
    let last = last.min(first + room.saturating_sub(1));
    let width = (inner.width as usize).saturating_sub(12) / latencies.len().max(1);
    let mut heading = format!("{:>11} ", "below");
    latencies.iter().for_each(|latency| heading += &format!("{:<width$}", latency.name));
    let mut lines = vec![Line::styled(heading, Style::new().add_modifier(Modifier::BOLD))];
    for at in first..=last {
        let end = latencies.first().and_then(|latency| latency.buckets[at].below_ns);
        let end = end.map_or_else(|| "more".into(), |ns| time(Some(ns)));
        let mut spans = vec![Span::raw(look.text(&format!("{end:>11} ")))];
        for latency in latencies {
            let most = latency.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
            let bar = look.bar(latency.buckets[at].count, most, width.saturating_sub(2));
            spans.push(Span::styled(bar + "  ", look.paint(Color::Magenta)));
        }
        lines.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn help(frame: &mut Frame<'_>, state: &State, area: Rect) {
    const KEYS: [(&str, &str); 12] = [
        ("q", "quit"),
        ("h ?", "this help; any key closes it"),
        ("1 2 3 4", "overview, classes, areas, latency"),
        ("tab", "next pane"),
        ("arrows", "panes; rows of a table, with page up, page down, home"),
        ("s", "sort: classes by bytes, objects, rate; areas by size, address"),
        ("space", "pause and go on"),
        ("+ -", "longer and shorter intervals"),
        ("d", "drain every CPU's caches"),
        ("p", "purge: drain, and give all free memory back"),
        ("t", "tune: type KEY=VALUE, enter; escape forgets it"),
        ("esc", "clear the message"),
    ];
    let (width, height) = (74.min(area.width), (KEYS.len() as u16 + 2).min(area.height));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, what)| {
            Line::from(vec![
                Span::styled(format!(" {key:<9}"), state.look.paint(Color::Cyan).add_modifier(Modifier::BOLD)),
                Span::raw(*what),
            ])
        })
        .collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(state.look.block("keys")), place);
}

#[cfg(test)]
mod tests {
    use super::super::look::Look;
    use super::super::state::Sample;
    use super::super::state::tests::state;
    use super::*;
    use crate::observe::show::Set;
    use crate::observe::view::tests::view;
    use crate::report::snapshot::tests::Fabric;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    fn picture(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("made");
        terminal.draw(|frame| draw(frame, state)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        (0..height).map(|y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect()).collect()
    }

    #[track_caller]
    fn has(picture: &[String], words: &[&str]) {
        let found = picture.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "no line with {words:?} in\n{}", picture.join("\n"));
    }

    #[test]
    fn the_overview_fits_into_80_by_24() {
        for look in [Look::plain(), Look::rich()] {
            let mut state = state();
            state.look = look;
            let seen = picture(&state, 80, 24);
            has(&seen, &["allotment top  77 server", "sequences", "up 2.00 s"]);
            has(&seen, &["1 overview", "4 latency", "every 1 s"]);
            has(&seen, &["resident", "50.0 MiB (peak 60.0 MiB)", "allocations", "2.0 k/s"]);
            has(&seen, &["in use", "frees", "1.0 k/s"]);
            has(&seen, &["cached for CPUs"]);
            has(&seen, &["lazily freed", "3.0 MiB"]);
            has(&seen, &["free, dirty", "1.0 MiB"]);
            has(&seen, &["slab bytes not in use", " %"]);
            has(&seen, &["0 cpu 1", "4.5 KiB", "123 obj"]);
            has(&seen, &["1 cpu -", "parked"]);
            has(&seen[23..], &["q quit", "t tune"]);
            let ascii = seen.iter().all(|line| line.is_ascii());
            assert_eq!(ascii, look == Look::plain(), "{}", seen.join("\n"));
        }
    }

    #[test]
    fn every_pane_fits_any_size() {
        for (width, height) in [(80, 24), (200, 60), (40, 10), (20, 5), (1, 1), (132, 43)] {
            for key in "1234".chars() {
                for look in [Look::plain(), Look::rich()] {
                    let mut state = state();
                    state.look = look;
                    state.key(KeyCode::Char(key).into());
                    assert_eq!(picture(&state, width, height).len(), height as usize);
                    state.help = true;
                    picture(&state, width, height);
                }
            }
        }
    }

    #[test]
    fn panes_show_what_they_are_for() {
        let mut state = state();
        state.key(KeyCode::Char('2').into());
        let seen = picture(&state, 80, 24);
        has(&seen, &["by [bytes] objects rate"]);
        has(&seen, &["     64", "52,000", "3.2 MiB", "2.0 k/s", "1.0 k/s"]);
        state.key(KeyCode::Char('s').into());
        has(&picture(&state, 80, 24), &["bytes [objects] rate"]);
        state.key(KeyCode::Char('3').into());
        let seen = picture(&state, 80, 24);
        has(&seen, &["2 areas, 1 of them lazy, 3 more not listed"]);
        let rows: Vec<&String> = seen.iter().filter(|line| line.contains("0x0000")).collect();
        assert!(rows[0].contains("32.0 MiB") && rows[0].contains("huge moved") && rows[1].contains("busy"), "{rows:?}");
        state.key(KeyCode::Char('4').into());
        let seen = picture(&state, 80, 24);
        has(&seen, &["refill", "700"]);
        has(&seen, &["below", "purge", "large_free"]);
        has(&seen, &["1.0 us", "######"]);
    }

    #[test]
    fn a_large_window_shows_more() {
        let mut state = state();
        state.now.sets = (0..448)
            .map(|index| Set { index, cpu: Some(index), bytes: index * 1000, objects: index, ..Set::default() })
            .collect();
        let seen = picture(&state, 200, 60);
        has(&seen, &["cpu 0", "cpu 35", "cpu 70"]);
        has(&seen, &["more"]);
        assert!(picture(&state, 80, 24).iter().any(|line| line.contains("more")));
    }

    #[test]
    fn the_last_row_says_what_matters_most() {
        let mut state = state();
        state.said("drained 1.0 MiB".into());
        has(&picture(&state, 80, 24)[23..], &["drained 1.0 MiB"]);
        state.key(KeyCode::Char('t').into());
        state.key(KeyCode::Char('x').into());
        has(&picture(&state, 80, 24)[23..], &["KEY=VALUE: x_"]);
        state.key(KeyCode::Esc.into());
        state.ended = Some("process 77 has ended".into());
        has(&picture(&state, 80, 24)[23..], &["process 77 has ended", "q quits"]);
        state.key(KeyCode::Char('h').into());
        has(&picture(&state, 80, 24), &["drain every CPU's caches"]);
        state.paused = true;
        has(&picture(&state, 80, 24), &["PAUSED"]);
    }

    #[test]
    fn bars_and_graphs_are_as_long_as_they_should_be() {
        assert_eq!(Look::plain().bar(5, 10, 10), "#####     ");
        assert_eq!(Look::rich().bar(1, 1000, 4), "▏   ");
        assert_eq!(Look::plain().bar(7, 7, 3), "###");
        assert_eq!(Look::plain().bar(0, 0, 3), "   ");
        assert_eq!(Look::plain().bar(u64::MAX, u64::MAX, 2), "##");
        assert_eq!(
            (rate(999.0), rate(1500.0), rate(2_500_000.0)),
            ("999/s".into(), "1.5 k/s".into(), "2.50 M/s".into())
        );
    }

    /// Any numbers: a picture.
    #[test]
    fn garbage_is_drawn() {
        let mut fabric = Fabric::new();
        fabric.0.iter_mut().skip(12).for_each(|byte| *byte = 0xff);
        let mut state = state();
        state.take(Sample::of(view(&fabric)));
        for key in "1234".chars() {
            state.key(KeyCode::Char(key).into());
            picture(&state, 80, 24);
        }
    }

    #[test]
    fn colour_is_only_where_it_is_wanted() {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("made");
        let mut state = state();
        for look in [Look::plain(), Look::rich()] {
            state.look = look;
            terminal.draw(|frame| draw(frame, &state)).expect("drawn");
            let coloured = terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset);
            assert_eq!(coloured, look == Look::rich());
        }
    }
}
