//! The engine.
#![no_std]
pub mod arch;
pub mod knob;
pub mod stat;
