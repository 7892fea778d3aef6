//! # Again and again
//!
//! Prints what was asked for every so many seconds, until a signal, the count's end, the program's, or a print that nobody
//! reads: all four end with exit code 0.

use super::find::Target;
use super::render::{is_asking, rendered};
use super::view::View;
use super::{sys, text};
use crate::args::Stat;
use crate::term::{Paint, is_read, nanoseconds, say};
use std::io;
use std::time::{Duration, Instant};

/// Watches.
///
/// # Errors
/// One line: what failed before the first look.
pub fn watch(target: &Target, asked: &Stat, seconds: f64) -> Result<(), String> {
    if !target.live {
        return Err("a copy of a board does not change: --watch wants a process".into());
    }
    sys::stop_on_signals();
    let paint = Paint::of(&io::stdout());
    let interval = Duration::from_secs_f64(seconds);
    let mut before: Option<View> = None;
    let mut said = None;
    let mut due = Instant::now();
    let mut left = asked.count.unwrap_or(u64::MAX);
    while left > 0 {
        let view = match View::take(target, is_asking(asked)) {
            Ok(view) if target.is_alive() => view,
            Err(line) if before.is_none() => return Err(line),
            _ => {
                if !sys::is_stopped() {
                    say(&format!("process {} has ended", target.pid));
                }
                return Ok(());
            }
        };
        let caveat = text::caveat(&view).filter(|_| is_asking(asked));
        if caveat.is_some() && view.silence != said {
            caveat.iter().for_each(|line| say(line));
        }
        said.clone_from(&view.silence);
        let mut out = String::new();
        if !asked.json {
            let age = view.now_ns.saturating_sub(view.snapshot.start_ns);
            out += &paint.bold(&format!("--- process {} at {}", view.pid, nanoseconds(age)));
            out.push('\n');
        }
        out += &rendered(&view, asked, before.as_ref(), paint);
        if !is_read(&out)? {
            return Ok(());
        }
        before = Some(view);
        left -= 1;
        due += interval;
        if left > 0 {
            sys::sleep(due.saturating_duration_since(Instant::now()));
        }
        if sys::is_stopped() {
            return Ok(());
        }
    }
    Ok(())
}
