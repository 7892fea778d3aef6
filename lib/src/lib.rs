//! Allotment.
#![no_std]
