//! # What was found: value, meaning, verdict, advice

use serde::Serialize;

/// How good what was found is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As Allotment likes it, or of no consequence.
    Good,
    /// It works, with something less.
    Notice,
    /// The best mode cannot be had.
    Bad,
}

/// What there is, what it means, and what to change.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// What there is.
    pub value: String,
    /// What that means.
    pub means: &'static str,
    /// How good it is.
    pub verdict: Verdict,
    /// What to change.
    pub advice: Option<String>,
}

impl Finding {
    /// One as Allotment likes it.
    pub fn new(name: &'static str, value: impl Into<String>, means: &'static str) -> Self {
        Self { name, value: value.into(), means, verdict: Verdict::Good, advice: None }
    }
    /// Something less than the best.
    pub fn notice_if(self, worse: bool, advice: impl Into<String>) -> Self {
        self.judged(worse, Verdict::Notice, advice)
    }
    /// The best mode is out of reach.
    pub fn bad_if(self, bad: bool, advice: impl Into<String>) -> Self {
        self.judged(bad, Verdict::Bad, advice)
    }
    fn judged(mut self, applies: bool, verdict: Verdict, advice: impl Into<String>) -> Self {
        if applies {
            self.verdict = verdict;
            self.advice = Some(advice.into());
        }
        self
    }
}
