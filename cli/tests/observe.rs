//! `stat`, `top`, `tune`, `drain`, `purge` against programs whose holdings are known (`c/watched.c`), against files that are
//! no boards, and against processes that cannot answer.

mod common;

#[path = "observe/boards.rs"]
mod boards;
#[path = "observe/metrics.rs"]
mod metrics;
#[path = "observe/sections.rs"]
mod sections;
#[path = "observe/steer.rs"]
mod steer;
#[path = "observe/top.rs"]
mod top;
#[path = "observe/watch.rs"]
mod watch;
#[path = "observe/watched.rs"]
mod watched;
#[path = "observe/who.rs"]
mod who;
