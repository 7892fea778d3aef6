//! # Rivals: how else blocks of pages can be had
//!
//! [`ours`] is Allotment as suites call it; [`buddy`] and [`lists`] are what the seeds rejected or replaced. Suites `pages`
//! and `drain` share them.

pub mod buddy;
pub mod lists;
pub mod ours;
