//! # `counter`: numbers that many CPUs change and somebody reads
//!
//! | family | an update | a read |
//! |---|---|---|
//! | event ([`Units::add`](crate::percpu::Units::add)) | one sequence, one `add` to this index's word | the sum of all words |
//! | level ([`Level`]) | one sequence on this index's byte; every 1.5 thresholds a spill into the shared total | the total (one load, with a bound), or the sum |
//! | quota ([`Quota`]) | one sequence on this index's stock; every batch a charge of the shared total | the total (an upper bound), or the sum |
//!
//! All live in per-CPU memory that is handed in ([`Handle`](crate::percpu::Handle)s); an index that is not used
//! any more keeps its copy and counts for ever.

pub mod level;
pub mod quota;

pub use level::{Comparison, Level};
pub use quota::Quota;
