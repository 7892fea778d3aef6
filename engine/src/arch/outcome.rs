//! How a sequence ended: three results, a type.

/// How a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It committed.
    Done(T),
    /// It found that it must not: empty, full, another value, void set, wrong CPU.
    Refused,
    /// It was interrupted; nothing was committed.
    Aborted,
}

impl<T> Outcome<T> {
    /// Whether it committed.
    #[inline(always)]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}
