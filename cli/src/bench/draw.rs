//! # `--report`: a page and one drawing for each suite
//!
//! The drawing has one line for each case and metric and one dot for each
//! contender: how much better (right) or worse (left) than Allotment, on a
//! logarithmic scale. No font is read: the viewer has its own.

use super::rows::{OURS, Results, Row};
use super::table;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const LINE: i32 = 22;
const LEFT: i32 = 330;
const WIDE: i32 = 560;
const TOP: i32 = 64;
/// Ratios beyond this sit at the edge.
const MOST: f64 = 16.0;
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 100, 180),
    RGBColor(220, 90, 20),
    RGBColor(30, 140, 60),
    RGBColor(160, 60, 160),
    RGBColor(120, 120, 0),
    RGBColor(200, 30, 70),
    RGBColor(0, 140, 140),
    RGBColor(90, 90, 90),
];

/// Writes everything into a directory.
///
/// # Errors
/// One line.
pub fn report(directory: &Path, machine: &str, results: &Results) -> Result<(), String> {
    let fail = |path: &Path, error: &dyn std::fmt::Display| format!("cannot write {}: {error}", path.display());
    fs::create_dir_all(directory).map_err(|error| fail(directory, &error))?;
    let mut suites: Vec<&str> = results.rows.iter().map(|row| row.suite.as_str()).collect();
    suites.dedup();
    let mut page = format!(
        "# Allotment beside its peers\n\n{machine}\n\nMedian (smallest .. largest); × is to Allotment; **bold** is a winner (by more than chance).\n"
    );
    for suite in suites {
        let rows: Vec<Row> = results.rows.iter().filter(|row| row.suite == suite).cloned().collect();
        let path = directory.join(format!("{suite}.svg"));
        draw(&path, suite, &rows).map_err(|error| fail(&path, &error))?;
        let _ = write!(page, "\n## {suite}\n\n![{suite}]({suite}.svg)\n\n");
        markdown(&mut page, &rows);
    }
    page.push('\n');
    for line in table::losses(&results.rows)
        .iter()
        .chain(&table::doubts(results))
        .chain(&results.skipped)
        .chain(&results.failures)
    {
        let _ = writeln!(page, "- {line}");
    }
    let path = directory.join("report.md");
    fs::write(&path, page).map_err(|error| fail(&path, &error))
}

/// Contenders in the order in which they ran.
fn names(rows: &[Row]) -> Vec<&str> {
    let mut names = Vec::new();
    for row in rows {
        if !names.contains(&row.name.as_str()) {
            names.push(row.name.as_str());
        }
    }
    names
}

fn markdown(page: &mut String, rows: &[Row]) {
    let names = names(rows);
    let _ = writeln!(page, "| case | threads | | {} |", names.join(" | "));
    let _ = writeln!(page, "|---|---|---|{}", "---|".repeat(names.len()));
    for group in table::groups(rows) {
        let winner = table::winner(&group);
        let cells: Vec<String> = names
            .iter()
            .map(|name| {
                let Some(row) = group.iter().find(|row| row.name == *name) else { return "–".into() };
                let bold = if winner.is_some_and(|winner| winner.name == row.name) { "**" } else { "" };
                let ratio = table::ratio(row, &group).filter(|_| row.name != OURS);
                let ratio = ratio.map_or_else(String::new, |ratio| format!(" {ratio:.2}×"));
                let [median, min, max] = [row.median, row.min, row.max].map(table::figure);
                format!("{bold}{median}{bold} ({min} .. {max}){ratio}")
            })
            .collect();
        let head = group[0];
        let _ = writeln!(
            page,
            "| {} | {} | {} {} | {} |",
            head.case,
            head.threads,
            head.metric,
            head.unit,
            cells.join(" | ")
        );
    }
}

type Fault = Box<dyn std::error::Error>;

fn draw(path: &Path, suite: &str, rows: &[Row]) -> Result<(), Fault> {
    let groups = table::groups(rows);
    let names = names(rows);
    let lines = i32::try_from(groups.len())?;
    let size = (u32::try_from(LEFT + WIDE + 30)?, u32::try_from(TOP + lines * LINE + 40)?);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    text(&area, &format!("{suite}: how much better than Allotment (right) or worse (left)"), 12, 10)?;
    let mut at = 12;
    for (name, color) in names.iter().zip(COLORS.iter().cycle()) {
        area.draw(&Circle::new((at + 6, 42), 5, color.filled()))?;
        text(&area, name, at + 16, 35)?;
        at += 36 + i32::try_from(name.len())? * 8;
    }
    let bottom = TOP + lines * LINE;
    for power in -4..=4_i32 {
        let x = place(2_f64.powi(power));
        let color = if power == 0 { RGBColor(90, 90, 90) } else { RGBColor(215, 215, 215) };
        area.draw(&PathElement::new(vec![(x, TOP), (x, bottom)], color))?;
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{}×", 1 << power) };
        text(&area, &label, x - 10, bottom + 8)?;
    }
    for (line, group) in groups.iter().enumerate() {
        let y = TOP + i32::try_from(line)? * LINE + LINE / 2;
        let head = group[0];
        text(&area, &format!("{} × {}, {} {}", head.case, head.threads, head.metric, head.unit), 12, y - 7)?;
        for row in group {
            let Some(ratio) = table::ratio(row, group) else { continue };
            let better = if row.higher_is_better { ratio } else { 1.0 / ratio };
            let color = names.iter().position(|name| *name == row.name).map_or(BLACK, |at| COLORS[at % COLORS.len()]);
            area.draw(&Circle::new((place(better), y), 5, color.filled()))?;
        }
    }
    area.present()?;
    Ok(())
}

fn text(area: &DrawingArea<SVGBackend<'_>, Shift>, words: &str, x: i32, y: i32) -> Result<(), Fault> {
    area.draw(&Text::new(words.to_owned(), (x, y), ("sans-serif", 13).into_font()))?;
    Ok(())
}

/// A ratio's place on the logarithmic scale.
fn place(ratio: f64) -> i32 {
    let cut = if ratio.is_finite() { ratio.clamp(1.0 / MOST, MOST) } else { MOST };
    let share = (cut.log2() / MOST.log2() + 1.0) / 2.0;
    LEFT + (share * f64::from(WIDE)).round() as i32
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::row;
    use super::*;

    #[test]
    fn a_report_has_its_page_and_drawing() {
        let directory = std::env::temp_dir().join(format!("allotment-report-{}", std::process::id()));
        let rows = vec![row("a", OURS, "op", 2.0), row("a", "glibc", "op", 5.0), row("a", "odd", "op", 0.0)];
        let results = Results { rows, ..Results::default() };
        report(&directory, "a machine", &results).expect("written");
        let page = fs::read_to_string(directory.join("report.md")).expect("there");
        assert!(page.contains("5.00 (4.50 .. 5.50) 2.50×"), "{page}");
        let drawing = fs::read_to_string(directory.join("s.svg")).expect("there");
        assert!(drawing.starts_with("<svg") && drawing.contains("glibc"));
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn places_are_inside() {
        assert_eq!(place(1.0), LEFT + WIDE / 2);
        for ratio in [0.0, f64::INFINITY, f64::NAN, 1e9] {
            assert!((LEFT..=LEFT + WIDE).contains(&place(ratio)));
        }
    }
}
