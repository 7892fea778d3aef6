//! arch
pub mod atomic;
