//! # Results for eyes
//!
//! One block for each case and metric, one line for each contender: median,
//! spread, and the ratio to Allotment (above 1: more than Allotment). `*`
//! marks a winner, which chance would seldom make ([`noise::wins`]). What Allotment
//! loses is listed at the end, each by name.

use super::noise;
use super::rows::{OURS, Results, Row};
use crate::term::{Paint, plural};
use std::fmt::Write as _;

/// Rows that compete: same suite, case, threads and metric.
pub fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let key = |row: &Row| (row.suite.clone(), row.case.clone(), row.threads, row.metric.clone());
        match groups.iter_mut().find(|group| key(group[0]) == key(row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// Whether `a` beats `b`.
fn beats(a: &Row, b: &Row) -> bool {
    if a.higher_is_better { a.median > b.median } else { a.median < b.median }
}

/// Whether `a` beats `b`, and chance would seldom make it.
fn surely_beats(a: &Row, b: &Row) -> bool {
    beats(a, b) && noise::wins(&a.values, &b.values, a.higher_is_better)
}

/// The one of a group that surely beats each other, if there is one.
pub fn winner<'rows>(group: &[&'rows Row]) -> Option<&'rows Row> {
    let best = group.iter().copied().reduce(|best, row| if beats(row, best) { row } else { best })?;
    let others = || group.iter().filter(|row| row.name != best.name);
    (others().count() > 0 && others().all(|row| surely_beats(best, row))).then_some(best)
}

/// Why there are fewer winners than groups, and what would help; nothing if there are not.
pub fn doubts(results: &Results) -> Vec<String> {
    let groups: Vec<_> = groups(&results.rows).into_iter().filter(|group| group.len() > 1).collect();
    let open: Vec<_> = groups.iter().filter(|group| winner(group).is_none()).collect();
    let Some(runs) = open.iter().flat_map(|group| group.iter()).map(|row| row.runs).min() else { return Vec::new() };
    let mut lines = vec![if runs < noise::RUNS_MIN {
        format!(
            "no winner in {} of {}: {runs} runs are too few, chance alone orders them so; `--runs {}` at least",
            open.len(),
            groups.len(),
            noise::RUNS_MIN
        )
    } else {
        format!("no winner in {} of {}: the runs overlap so far that it may be chance", open.len(), groups.len())
    }];
    let most = results.others.iter().copied().fold(0.0, f64::max);
    if most >= noise::BUSY {
        let advice = if noise::is_realtime() {
            ""
        } else if noise::may_be_realtime() {
            "; stop it, or measure with `--realtime`"
        } else {
            "; stop it, or measure as root with `--realtime`"
        };
        lines.push(format!("other work took up to {} CPUs meanwhile{advice}", figure(most)));
    }
    lines
}

/// A number in at most four significant digits, or whole.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => crate::term::count(value.round() as u64),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Median to Allotment's median, if Allotment ran.
pub fn ratio(row: &Row, group: &[&Row]) -> Option<f64> {
    let ours = group.iter().find(|row| row.name == OURS)?.median;
    (ours > 0.0).then(|| row.median / ours)
}

/// What a group is called.
pub fn title(row: &Row) -> String {
    format!("{}/{} × {} thread{}", row.suite, row.case, row.threads, plural(row.threads as u64))
}

/// All blocks.
pub fn table(rows: &[Row], paint: Paint) -> String {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(9);
    let mut text = String::new();
    let mut before = String::new();
    for group in groups(rows) {
        let head = group[0];
        let title = title(head);
        if title != before {
            let _ = writeln!(text, "{}", paint.bold(&title));
            before = title;
        }
        let more = if head.higher_is_better { ", more is better" } else { "" };
        let _ = writeln!(text, "  {} {}{more}", head.metric, head.unit);
        let winner = winner(&group);
        for row in &group {
            let is_best = winner.is_some_and(|winner| winner.name == row.name);
            let mark = if is_best { '*' } else { ' ' };
            let spread = format!("{} .. {}", figure(row.min), figure(row.max));
            let ratio = ratio(row, &group).map_or_else(String::new, |ratio| format!("{ratio:.2}×"));
            let line = format!("  {mark} {:<width$} {:>10}  {spread:<22} {ratio:>8}", row.name, figure(row.median));
            let _ =
                writeln!(text, "{}", if is_best { paint.good(line.trim_end()) } else { line.trim_end().to_owned() });
        }
    }
    text
}

/// A line for each group where a peer is surely better, one for each where it may be, and a sum.
pub fn losses(rows: &[Row]) -> Vec<String> {
    let groups = groups(rows);
    let contested = groups.iter().filter(|group| group.len() > 1 && group.iter().any(|row| row.name == OURS)).count();
    let (mut lines, mut near): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for group in &groups {
        let Some(ours) = group.iter().find(|row| row.name == OURS) else { continue };
        let mut better: Vec<&&Row> = group.iter().filter(|row| beats(row, ours)).collect();
        better.sort_by(|a, b| a.median.total_cmp(&b.median));
        if ours.higher_is_better {
            better.reverse();
        }
        if !better.is_empty() {
            let names: Vec<String> = better.iter().map(|row| format!("{} {}", row.name, figure(row.median))).collect();
            let is_sure = better.iter().any(|row| surely_beats(row, ours));
            let (lines, verb) =
                if is_sure { (&mut lines, "loses") } else { (&mut near, "is behind, perhaps by chance") };
            lines.push(format!(
                "Allotment {verb}: {} {}: {} {}; {}",
                title(ours),
                ours.metric,
                figure(ours.median),
                ours.unit,
                names.join(", ")
            ));
        }
    }
    lines.append(&mut near);
    if contested > 0 {
        let won = groups.iter().filter(|group| winner(group).is_some_and(|row| row.name == OURS)).count();
        let first = contested - lines.len();
        lines.push(format!("Allotment has the best median in {first} of {contested}, surely in {won}."));
    }
    lines
}

/// What two contenders are to each other over many groups: geometric means of times and of memory, to Allotment's.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    /// Who.
    pub name: String,
    /// Time (or what is lost of a rate).
    pub time: Option<f64>,
    /// Memory.
    pub memory: Option<f64>,
}

/// Of everybody but Allotment, in the order in which they ran, over the groups in which both have a figure.
pub fn means(rows: &[Row]) -> Vec<Mean> {
    let groups = groups(rows);
    let mean = |name: &str, is_memory: bool| {
        let mut logs = Vec::new();
        for group in groups.iter().filter(|group| (group[0].unit == "MiB") == is_memory && group[0].metric != "faults")
        {
            let Some(row) = group.iter().find(|row| row.name == name) else { continue };
            let Some(ratio) = ratio(row, group).filter(|&ratio| ratio > 0.0) else { continue };
            logs.push(if row.higher_is_better { -ratio.ln() } else { ratio.ln() });
        }
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.name != OURS) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let of = |name: &str| Mean { name: name.to_owned(), time: mean(name, false), memory: mean(name, true) };
    names.into_iter().map(of).filter(|mean| mean.time.is_some() || mean.memory.is_some()).collect()
}

/// One line of them; nothing if there are none.
fn mean_line(rows: &[Row]) -> Option<String> {
    let said = |what: &str, of: Option<f64>| of.map_or_else(String::new, |of| format!(" {what} {of:.2}×"));
    let means: Vec<String> = means(rows)
        .iter()
        .map(|mean| format!("{}{}{}", mean.name, said("time", mean.time), said("memory", mean.memory)))
        .collect();
    (!means.is_empty()).then(|| format!("Geometric means, to Allotment's: {}.", means.join("; ")))
}

/// Everything, as the terminal shows it.
pub fn whole(machine: &str, results: &Results, paint: Paint) -> String {
    let mut text = format!("{machine}\n\n{}", table(&results.rows, paint));
    if !text.ends_with("\n\n") {
        text.push('\n');
    }
    for line in losses(&results.rows) {
        let _ = writeln!(text, "{}", if line.contains("loses") { paint.notice(&line) } else { line });
    }
    if let Some(line) = mean_line(&results.rows) {
        let _ = writeln!(text, "{line}");
    }
    for line in doubts(results) {
        let _ = writeln!(text, "{}", paint.notice(&line));
    }
    for line in &results.skipped {
        let _ = writeln!(text, "skipped: {line}");
    }
    for line in &results.failures {
        let _ = writeln!(text, "{}", paint.notice(&format!("failed: {line}")));
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A row with a spread of ±10 %.
    pub fn row(case: &str, name: &str, metric: &str, median: f64) -> Row {
        Row {
            suite: "s".into(),
            case: case.into(),
            name: name.into(),
            threads: 1,
            metric: metric.into(),
            unit: if metric == "rate" { "1/s" } else { "ns/op" }.into(),
            median,
            min: median * 0.9,
            max: median * 1.1,
            runs: 5,
            higher_is_better: metric == "rate",
            values: (0..5).map(|run| median * (0.9 + 0.05 * f64::from(run))).collect(),
        }
    }

    #[test]
    fn the_best_is_marked_and_ratios_are_to_ours() {
        let rows = [row("a", OURS, "op", 2.0), row("a", "glibc", "op", 5.0), row("a", "other", "op", 1.0)];
        let text = table(&rows, Paint::none());
        let line = |name: &str| text.lines().find(|line| line.contains(name)).expect("there").to_owned();
        assert!(line("other").starts_with("  * ") && line("other").ends_with("0.50×"), "{text}");
        assert!(line("glibc").starts_with("    ") && line("glibc").ends_with("2.50×"), "{text}");
        assert_eq!(text.matches('*').count(), 1);
    }

    #[test]
    fn losses_are_named_by_row() {
        let rows = [
            row("a", OURS, "op", 2.0),
            row("a", "x", "op", 1.0),
            row("a", OURS, "rate", 2.0),
            row("a", "x", "rate", 1.0),
            row("b", "x", "op", 1.0),
        ];
        let lines = losses(&rows);
        assert_eq!(lines[0], "Allotment loses: s/a × 1 thread op: 2.00 ns/op; x 1.00");
        assert_eq!(lines[1], "Allotment has the best median in 1 of 2, surely in 1.");
        assert_eq!(lines.len(), 2);
        let near = losses(&[row("a", OURS, "op", 2.0), row("a", "x", "op", 1.95)]);
        assert!(near[0].starts_with("Allotment is behind, perhaps by chance: s/a"), "{near:?}");
        assert_eq!(near[1], "Allotment has the best median in 0 of 1, surely in 0.");
    }

    #[test]
    fn no_star_for_what_may_be_chance() {
        let rows = |ratio: f64, runs: usize| {
            let mut rows = vec![row("a", OURS, "op", 2.0), row("a", "x", "op", 2.0 * ratio), row("a", "y", "op", 9.0)];
            for row in &mut rows {
                row.values.truncate(runs);
                row.runs = runs;
            }
            rows
        };
        let said =
            |rows: Vec<Row>, others: f64| doubts(&Results { rows, others: vec![0.0, others], ..Results::default() });
        assert!(table(&rows(2.0, 5), Paint::none()).contains("  * allotment"));
        assert!(said(rows(2.0, 5), 9.0).is_empty());
        // Too near, or too few.
        for (ratio, runs, part) in [(1.05, 5, "overlap"), (2.0, 4, "4 runs are too few")] {
            assert!(!table(&rows(ratio, runs), Paint::none()).contains('*'));
            let lines = said(rows(ratio, runs), 0.0);
            assert!(lines.len() == 1 && lines[0].contains(part) && lines[0].contains("1 of 1"), "{lines:?}");
            let lines = said(rows(ratio, runs), 1.25);
            assert!(lines[1].starts_with("other work took up to 1.25 CPUs"), "{lines:?}");
        }
        // Nobody to win against.
        assert!(!table(&[row("a", OURS, "op", 2.0)], Paint::none()).contains('*'));
    }

    #[test]
    fn means_are_geometric_and_apart_for_memory() {
        let mut rows = vec![row("a", OURS, "op", 2.0), row("a", "x", "op", 4.0), row("b", OURS, "op", 2.0)];
        rows.extend([row("b", "x", "op", 16.0), row("a", OURS, "rate", 1.0), row("a", "x", "rate", 0.25)]);
        let memory = |name: &str, median| Row { unit: "MiB".into(), ..row("a", name, "rss", median) };
        rows.extend([memory(OURS, 10.0), memory("x", 5.0), row("c", "y", "op", 1.0)]);
        let means = means(&rows);
        // 2, 8 and 4 (of a rate that is a quarter): 4. What Allotment did not run says nothing.
        assert!(means.len() == 1 && means[0].name == "x", "{means:?}");
        assert!((means[0].time.expect("there") - 4.0).abs() < 1e-9 && means[0].memory == Some(0.5), "{means:?}");
        assert_eq!(mean_line(&rows).expect("there"), "Geometric means, to Allotment's: x time 4.00× memory 0.50×.");
    }

    #[test]
    fn figures_have_four_digits_or_are_whole() {
        assert_eq!(figure(0.1234), "0.123");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(123_456.7), "123,457");
    }
}
