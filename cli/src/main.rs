//! allotment
fn main() {}
