//! # `allotment top`: a running heap, live
//!
//! ```text
//!   worker thread                                this thread
//!   looks at the process every interval ──News──►  state ──► draw ──► terminal
//!   does what is asked at the mailbox   ◄─Request──  ▲
//!   thread of keys                      ──News───────┘
//! ```
//!
//! [`state`] is what there is and what the keys do to it, [`draw`] makes a picture of it; neither touches a terminal.
//! A look or a purge may take seconds: the worker waits, the picture does not. Keys have a thread of their own because whoever reads them
//! from a terminal that is gone never comes back: it is not waited for at the end. The terminal is put back at the end, at a
//! signal and at a panic.

mod draw;
mod look;
mod state;

use super::find::{self, Target};
use super::view::View;
use super::{steer, sys, who};
use crate::args::Top;
use crate::term::{finish, print, say};
use allotment_engine::stat::board::EVERY_CPU;
use look::Look;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use state::{Action, Sample, State};
use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a signal, or the terminal's end, may wait.
const TICK: Duration = Duration::from_millis(50);

/// What the worker is asked for.
enum Request {
    Interval(Duration),
    Do(Action),
}

/// What it tells.
enum News {
    Event(Event),
    Gone(io::Error),
    Sample(Box<Sample>),
    Said(String),
    Ended(String),
}

/// `allotment top`.
pub fn top(asked: &Top) -> ExitCode {
    find::sweep();
    finish(choose(asked).and_then(|target| target.map_or(Ok(()), |target| watch(target, asked.interval))))
}

/// The process: the one asked for, the only one, or the one that is chosen from a list. `None`: none was.
fn choose(asked: &Top) -> Result<Option<Target>, String> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err("top wants a terminal; `allotment stat PID --watch 1` does without".into());
    }
    if let Some(word) = &asked.target {
        return who::target(word).map(Some);
    }
    let mut all: Vec<Target> = find::all().collect();
    match all.len() {
        0 => Err(who::NOBODY.into()),
        1 => Ok(all.pop()),
        _ => {
            print(who::list(&all) + "which PID? ")?;
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map_err(|error| crate::term::plain(&error))?;
            let word = line.trim();
            if word.is_empty() {
                return Ok(None);
            }
            who::target(word).map(Some)
        }
    }
}

/// The live view of one process.
fn watch(target: Target, interval: f64) -> Result<(), String> {
    let interval = Duration::from_secs_f64(interval);
    let first = Sample::of(View::take(&target, true)?);
    let mut state = State::new(first, interval, Look::of_terminal());
    sys::stop_on_every_signal();
    let (requests, asked) = channel();
    let (tell, news) = channel();
    let keys = tell.clone();
    std::thread::spawn(move || work(&target, interval, &asked, &tell));
    let failed = |error| format!("the terminal: {}", crate::term::plain(&error));
    check_size().map_err(failed)?;
    // (Puts the terminal back at a panic, too.)
    let mut terminal = ratatui::try_init().map_err(failed)?;
    std::thread::spawn(move || listen(&keys));
    let done = follow(&mut terminal, &mut state, &requests, &news);
    let _ = ratatui::try_restore();
    if let Some(line) = &state.ended {
        say(line);
    }
    done.map_err(failed)
}

/// That a picture of the terminal's size is a matter of some hundred MiB at most.
fn check_size() -> io::Result<()> {
    const CELLS: u32 = 1 << 22;
    let (width, height) = ratatui::crossterm::terminal::size()?;
    if u32::from(width) * u32::from(height) <= CELLS {
        return Ok(());
    }
    Err(io::Error::other(format!("it says that it is {width} × {height} (`stty cols 80 rows 24` tells it otherwise)")))
}

/// Tells every event of the terminal.
fn listen(tell: &Sender<News>) {
    loop {
        let news = match event::read() {
            Ok(event) => News::Event(event),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => News::Gone(error),
        };
        let is_over = matches!(news, News::Gone(_));
        if tell.send(news).is_err() || is_over {
            return;
        }
    }
}

/// News, keys and pictures, until somebody quits.
fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    state: &mut State,
    requests: &Sender<Request>,
    news: &Receiver<News>,
) -> io::Result<()> {
    loop {
        check_size()?;
        terminal.draw(|frame| draw::draw(frame, state))?;
        // All that is there at once, before the next picture.
        let first = news.recv_timeout(TICK).ok();
        for news in first.into_iter().chain(news.try_iter()) {
            match news {
                News::Sample(sample) => state.take(*sample),
                News::Said(line) => state.said(line),
                News::Ended(line) => state.ended = Some(line),
                News::Gone(error) => return Err(error),
                News::Event(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    let before = state.interval;
                    match state.key(key) {
                        Some(Action::Quit) => return Ok(()),
                        // (The worker is gone when the process is.)
                        Some(action) => drop(requests.send(Request::Do(action))),
                        None if state.interval != before => drop(requests.send(Request::Interval(state.interval))),
                        None => {}
                    }
                }
                News::Event(_) => {}
            }
        }
        if sys::is_stopped() {
            return Ok(());
        }
        if sys::is_hung_up() {
            return Err(io::Error::other("it is gone"));
        }
    }
}

/// Looks and does what is asked, until the process or the command ends.
fn work(target: &Target, mut interval: Duration, asked: &Receiver<Request>, tell: &Sender<News>) {
    let mut due = Instant::now() + interval;
    loop {
        let order = match asked.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Disconnected) => return,
            order => order.ok(),
        };
        let said = match order {
            Some(Request::Interval(new)) => {
                interval = new;
                None
            }
            Some(Request::Do(action)) => Some(act(target, &action).unwrap_or_else(|line| line)),
            None => None,
        };
        if let Some(line) = said
            && tell.send(News::Said(line)).is_err()
        {
            return;
        }
        let news = match View::take(target, true) {
            Ok(view) if target.is_alive() => News::Sample(Box::new(Sample::of(view))),
            _ => News::Ended(format!("process {} has ended", target.pid)),
        };
        let is_over = matches!(news, News::Ended(_));
        if tell.send(news).is_err() || is_over {
            return;
        }
        due = Instant::now() + interval;
    }
}

/// Does one thing at the mailbox: a line that says what was done.
fn act(target: &Target, action: &Action) -> Result<String, String> {
    match action {
        Action::Quit => Ok(String::new()),
        Action::Drain => steer::drain_now(target, EVERY_CPU, 0).map(|drained| format!("drained {}", drained.line())),
        Action::Purge => steer::purge_now(target).map(|purged| format!("purged: {}", purged.line())),
        Action::Tune(word) => steer::tune_word(target, word),
    }
}
