//! # Looking into a running process, and steering it
//!
//! ```text
//!   who ───── PID or name ─► a process                find ── a process or FILE ─► a board that is believed; sweeping
//!   view ──── board, texts, /proc ─► what there is at one moment
//!     show ─── texts of the process ─► numbers        latency ── histograms in ticks ─► times
//!   text, json, metrics ─ views ─► sections as in /proc, JSON, OpenMetrics        fleet ── the metrics of all processes
//!   ask ───── the mailbox: one request, one answer       steer ──── tune, drain, purge
//!   render, watch ─ what `stat` was asked for; again and again         top ─ the live view
//!   sys ────── mapping, futex, flock
//! ```
//!
//! Nothing of another process is trusted further than that its numbers are numbers. A board is read by `pread`; only the
//! mailbox is mapped.

mod ask;
pub mod find;
mod fleet;
mod json;
mod latency;
mod metrics;
mod render;
mod show;
mod steer;
mod sys;
mod text;
mod top;
mod view;
mod watch;
pub mod who;

pub use find::sweep;
pub use json::object;
pub use show::Texts;
pub use steer::{drain, purge, tune};
pub use top::top;
pub use view::View;

use crate::args::Stat;
use crate::code::Failure;
use crate::file;
use crate::term::{Paint, finish, print, say};
use find::Target;
use render::{is_asking, rendered};
use std::io;
use std::process::ExitCode;

/// `allotment stat`.
pub fn stat(asked: &Stat) -> ExitCode {
    sweep();
    finish(match &asked.target {
        None if asked.all => file::write(asked.output.as_deref(), fleet::exposition().as_bytes()),
        None if asked.openmetrics || asked.watch.is_some() => {
            let line = if asked.openmetrics {
                "whose? Name a process (`allotment stat` lists them); --all is for metrics of all"
            } else {
                "whose? --watch wants a process (`allotment stat` lists them)"
            };
            return finish(Err(Failure::usage(line)));
        }
        None => list(asked),
        Some(word) => who::target_or_copy(word).and_then(|target| match asked.watch {
            Some(seconds) => watch::watch(&target, asked, seconds),
            None => once(&target, asked),
        }),
    })
}

/// The processes that publish.
fn list(asked: &Stat) -> Result<(), String> {
    let views: Vec<View> = find::all().filter_map(|target| View::take(&target, false).ok()).collect();
    if asked.json {
        let of = |view: &View| {
            serde_json::json!({
                "pid": view.pid,
                "program": view.program,
                "in_use": view.report.memory.in_use,
                "resident": view.report.end.running.and_then(|running| running.resident),
                "in_caches": view.report.memory.in_caches,
                "mode": view.report.mode,
            })
        };
        return print(format!("{:#}\n", serde_json::Value::Array(views.iter().map(of).collect())));
    }
    if views.is_empty() {
        say(who::NOBODY);
        return Ok(());
    }
    let paint = Paint::of(&io::stdout());
    let mut text = paint.bold(text::LIST_HEADING) + "\n";
    views.iter().for_each(|view| text += &(text::listed(view) + "\n"));
    print(&text)
}

/// One look.
fn once(target: &Target, asked: &Stat) -> Result<(), String> {
    let view = View::take(target, is_asking(asked))?;
    let text = rendered(&view, asked, None, Paint::of(&io::stdout()));
    text::missing(&view).iter().for_each(|line| say(line));
    // (Of the process's texts: who asked for none of them need not know.)
    if let Some(caveat) = text::caveat(&view).filter(|_| is_asking(asked)) {
        say(&caveat);
    }
    // (Without a file it is standard output.)
    file::write(asked.output.as_deref(), text.as_bytes())
}
