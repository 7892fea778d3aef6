//! `stat`, `top`, `tune`, `drain`, `purge` against programs whose holdings are known (`c/watched.c`), against files that are
//! no boards, and against processes that cannot answer.

mod boards;
mod metrics;
mod sections;
mod steer;
mod top;
mod watch;
mod watched;
mod who;
