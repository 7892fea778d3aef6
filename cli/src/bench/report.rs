//! # `--report`: one page for a browser
//!
//! ```text
//!   rows ──► means
//!        ──► for each suite: time against memory (a dot for each contender), bars with spread, the table
//!        ──► losses in words
//! ```
//! `report.html` has everything inside: no script, no font, no other file. Drawings are SVG by plotters. In each line of bars
//! the longest is the worst, a whisker goes from the smallest to the largest run.

use super::rows::{OURS, Results, Row};
use super::table;
use crate::file::{self, Reserved};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

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

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;font-size:13px;margin:1em 0}td,th{border-bottom:1px solid #ddd;padding:3px 9px;text-align:right;white-space:nowrap}\
    td:first-child,th:first-child{text-align:left}td small{color:#777}.win{font-weight:700;background:#e9f4e9}\
    pre,code{background:#f4f4f4;padding:2px 5px;white-space:pre-wrap}svg{max-width:100%;height:auto}\
    .scroll{overflow-x:auto}li.loses{color:#a02020}.key span{display:inline-block;margin-right:1.2em}.key i{display:inline-block;width:11px;height:11px;border-radius:6px;margin-right:5px}";

/// The page in a directory, which is made if there is none.
///
/// # Errors
/// One line.
pub fn reserved(directory: &Path) -> Result<Reserved, String> {
    fs::create_dir_all(directory).map_err(|error| file::unwritten(directory, &error))?;
    Reserved::at(&directory.join("report.html"))
}

/// Writes the page. `command` is what was typed.
///
/// # Errors
/// One line.
pub fn report(path: &Path, command: &str, machine: &str, results: &Results) -> Result<(), String> {
    let page = page(command, machine, results).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    file::write(Some(path), page.as_bytes())
}

fn page(command: &str, machine: &str, results: &Results) -> Result<String, Fault> {
    let mut suites: Vec<&str> = results.rows.iter().map(|row| row.suite.as_str()).collect();
    suites.dedup();
    let all = names(&results.rows);
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>Allotment beside its peers</title><style>{STYLE}</style>\n<h1>Allotment beside its peers</h1>\n\
         <p>{}</p>\n<pre>{}</pre>\n<p class=key>",
        escaped(machine),
        escaped(command)
    );
    for name in &all {
        let RGBColor(red, green, blue) = color(&all, name);
        write!(page, "<span><i style='background:rgb({red},{green},{blue})'></i>{}</span>", escaped(name))?;
    }
    page.push_str("</p>\n");
    means(&mut page, &results.rows)?;
    for suite in suites {
        let rows: Vec<Row> = results.rows.iter().filter(|row| row.suite == suite).cloned().collect();
        writeln!(page, "<h2 id='{0}'>{0}</h2>", escaped(suite))?;
        if let Some(drawing) = scatter(&rows, &all)? {
            page.push_str(&drawing);
        }
        page.push_str(&bars(&rows, &all)?);
        cells(&mut page, &rows)?;
    }
    page.push_str("<h2>What it loses, and how sure that is</h2>\n<ul>\n");
    let said = table::losses(&results.rows).into_iter().chain(table::doubts(results));
    for line in said.chain(results.skipped.iter().chain(&results.failures).cloned()) {
        let class = if line.contains(" loses: ") { " class=loses" } else { "" };
        writeln!(page, "<li{class}>{}</li>", escaped(&line))?;
    }
    page.push_str("</ul>\n");
    page.push_str("</html>\n");
    Ok(page)
}

/// Text that is no markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
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

fn color(names: &[&str], name: &str) -> RGBColor {
    names.iter().position(|other| *other == name).map_or(BLACK_RGB, |at| COLORS[at % COLORS.len()])
}

const BLACK_RGB: RGBColor = RGBColor(0, 0, 0);

/// Geometric means over all suites.
fn means(page: &mut String, rows: &[Row]) -> Result<(), Fault> {
    let means = table::means(rows);
    if means.is_empty() {
        return Ok(());
    }
    page.push_str("<h2>Geometric means, to Allotment's</h2>\n<table><tr><th><th>time<th>memory</tr>");
    let figure = |of: Option<f64>| of.map_or_else(|| "–".to_owned(), |of| format!("{of:.2}×"));
    for mean in means {
        write!(page, "<tr><td>{}<td>{}<td>{}</tr>", escaped(&mean.name), figure(mean.time), figure(mean.memory))?;
    }
    page.push_str("</table>\n");
    Ok(())
}

fn cells(page: &mut String, rows: &[Row]) -> Result<(), Fault> {
    let names = names(rows);
    write!(
        page,
        "<details><summary>Median (smallest .. largest), × Allotment</summary><div class=scroll><table><tr><th>case<th>threads<th>"
    )?;
    for name in &names {
        write!(page, "<th>{}", escaped(name))?;
    }
    page.push_str("</tr>\n");
    for group in table::groups(rows) {
        let (winner, head) = (table::winner(&group), group[0]);
        write!(
            page,
            "<tr><td>{}<td>{}<td>{} {}",
            escaped(&head.case),
            head.threads,
            escaped(&head.metric),
            escaped(&head.unit)
        )?;
        for name in &names {
            let Some(row) = group.iter().find(|row| row.name == *name) else {
                page.push_str("<td>–");
                continue;
            };
            let class = if winner.is_some_and(|winner| winner.name == row.name) { " class=win" } else { "" };
            let ratio = table::ratio(row, &group).filter(|_| row.name != OURS);
            let ratio = ratio.map_or_else(String::new, |ratio| format!(" {ratio:.2}×"));
            let [median, min, max] = [row.median, row.min, row.max].map(table::figure);
            write!(page, "<td{class}>{median}{ratio}<br><small>{min} .. {max}</small>")?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div></details>\n");
    Ok(())
}

type Fault = Box<dyn std::error::Error>;

/// A drawing's text: SVG, without the head of a file.
fn drawing(size: (i32, i32), draw: impl FnOnce(&Area<'_>) -> Result<(), Fault>) -> Result<String, Fault> {
    let mut text = String::new();
    {
        let area =
            SVGBackend::with_string(&mut text, (u32::try_from(size.0)?, u32::try_from(size.1)?)).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    Ok(text.find("<svg").map_or_else(String::new, |at| text[at..].to_owned()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn text(area: &Area<'_>, words: &str, x: i32, y: i32) -> Result<(), Fault> {
    area.draw(&Text::new(words.to_owned(), (x, y), ("sans-serif", 12).into_font()))?;
    Ok(())
}

/// Time against memory: a dot for each contender, Allotment at (1, 1); lower and further left is better.
fn scatter(rows: &[Row], all: &[&str]) -> Result<Option<String>, Fault> {
    let dots: Vec<(String, f64, f64)> =
        table::means(rows).into_iter().filter_map(|mean| Some((mean.name, mean.time?, mean.memory?))).collect();
    if dots.is_empty() {
        return Ok(None);
    }
    const SIDE: i32 = 300;
    const LEFT: i32 = 60;
    // A power of two that holds all of them, on both axes.
    let most = dots.iter().flat_map(|dot| [dot.1, 1.0 / dot.1, dot.2, 1.0 / dot.2]).fold(2.0, f64::max);
    let power = most.min(64.0).log2().ceil();
    let place = |ratio: f64| ((ratio.log2() / power).clamp(-1.0, 1.0) + 1.0) / 2.0 * f64::from(SIDE);
    drawing((LEFT + SIDE + 220, SIDE + 70), |area| {
        let at = |time: f64, memory: f64| (LEFT + place(time) as i32, 20 + SIDE - place(memory) as i32);
        for step in -(power as i32)..=power as i32 {
            let ratio = 2_f64.powi(step);
            let shade = if step == 0 { RGBColor(110, 110, 110) } else { RGBColor(222, 222, 222) };
            let end = 2_f64.powf(power);
            area.draw(&PathElement::new(vec![at(ratio, 1.0 / end), at(ratio, end)], shade))?;
            area.draw(&PathElement::new(vec![at(1.0 / end, ratio), at(end, ratio)], shade))?;
            let label = if step < 0 { format!("1/{}", 1 << -step) } else { format!("{}×", 1 << step) };
            let (x, y) = at(ratio, ratio);
            text(area, &label, x - 8, SIDE + 26)?;
            text(area, &label, 24, y - 6)?;
        }
        text(area, "time (left is faster)", LEFT + SIDE / 2 - 60, SIDE + 46)?;
        text(area, "memory (low is less)", 4, 4)?;
        let ours = (OURS.to_owned(), 1.0, 1.0);
        for (name, time, memory) in dots.iter().chain([&ours]) {
            let (x, y) = at(*time, *memory);
            area.draw(&Circle::new((x, y), 6, color(all, name).filled()))?;
            text(area, name, x + 10, y - 6)?;
        }
        Ok(())
    })
    .map(Some)
}

/// A bar for each contender of each group, as long as its part of the worst, with a whisker for the spread.
fn bars(rows: &[Row], all: &[&str]) -> Result<String, Fault> {
    const LINE: i32 = 13;
    const LEFT: i32 = 300;
    const WIDE: i32 = 560;
    let is_shown = |group: &Vec<&Row>| group.iter().any(|row| row.max > 0.0);
    let groups: Vec<_> = table::groups(rows).into_iter().filter(is_shown).collect();
    let high: i32 = groups.iter().map(|group| i32::try_from(group.len()).unwrap_or(0) * LINE + 9).sum();
    drawing((LEFT + WIDE + 180, high + 10), |area| {
        let mut y = 6;
        for group in &groups {
            let head = group[0];
            let more = if head.higher_is_better { " (more is better)" } else { "" };
            text(area, &format!("{} × {}, {} {}{more}", head.case, head.threads, head.metric, head.unit), 4, y)?;
            let most = group.iter().map(|row| row.max).fold(f64::MIN_POSITIVE, f64::max);
            let place = |value: f64| LEFT + ((value / most).clamp(0.0, 1.0) * f64::from(WIDE)) as i32;
            for row in group {
                let color = color(all, &row.name);
                area.draw(&Rectangle::new([(LEFT, y), (place(row.median), y + LINE - 4)], color.filled()))?;
                let middle = y + (LINE - 4) / 2;
                area.draw(&PathElement::new(vec![(place(row.min), middle), (place(row.max), middle)], BLACK_RGB))?;
                text(area, &format!("{} {}", row.name, table::figure(row.median)), LEFT + WIDE + 8, y - 2)?;
                y += LINE;
            }
            y += 9;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::row;
    use super::*;

    #[test]
    fn a_report_is_one_page_with_everything_inside() {
        let directory = std::env::temp_dir().join(format!("allotment-report-{}", std::process::id()));
        let memory = |name: &str, median| Row { unit: "MiB".into(), ..row("a", name, "rss", median) };
        let rows = vec![
            row("a", OURS, "op", 2.0),
            row("a", "glibc", "op", 5.0),
            row("a", "<odd>", "op", 0.0),
            memory(OURS, 10.0),
            memory("glibc", 12.0),
        ];
        let results = Results { rows, ..Results::default() };
        let page = reserved(&directory).expect("made");
        report(page.path(), "allotment bench a & b", "a machine", &results).expect("written");
        let page = fs::read_to_string(directory.join("report.html")).expect("there");
        assert!(page.contains("5.00 2.50×<br><small>4.50 .. 5.50"), "{page}");
        assert!(page.contains("allotment bench a &amp; b") && page.contains("&lt;odd&gt;") && !page.contains("<odd>"));
        assert!(page.contains("<tr><td>glibc<td>2.50×<td>1.20×</tr>"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2, "time against memory, and bars");
        assert!(!page.contains("src=") && !page.contains("href="), "it needs nothing else");
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1);
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn odd_figures_are_drawn_all_the_same() {
        let rows = [row("a", OURS, "op", 0.0), row("a", "x", "op", f64::NAN), row("b", "x", "op", f64::INFINITY)];
        assert!(bars(&rows, &names(&rows)).expect("drawn").starts_with("<svg"));
        assert!(scatter(&rows, &names(&rows)).expect("nothing to draw").is_none());
    }
}
