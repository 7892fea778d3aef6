//! # What `stat` was asked for, of one view

use super::view::View;
use super::{json, metrics, text};
use crate::args::{Stat, StatSection};
use crate::term::Paint;

/// Whether the process must write its texts for this.
pub fn is_asking(asked: &Stat) -> bool {
    let written = |section: &StatSection| text::shown(*section).is_some();
    let wanted = asked.json && asked.sections.is_empty() || asked.openmetrics || asked.sections.iter().any(written);
    wanted && !asked.no_ask
}

/// What was asked for, of one view.
pub fn rendered(view: &View, asked: &Stat, before: Option<&View>, paint: Paint) -> String {
    if asked.openmetrics {
        return metrics::exposition(view);
    }
    if asked.json {
        let object = json::object(view, &asked.sections);
        return if asked.watch.is_some() { format!("{object}\n") } else { format!("{object:#}\n") };
    }
    if asked.sections.is_empty() {
        let names: Vec<&str> = StatSection::ALL.iter().map(|section| section.name()).collect();
        return text::summary(view, paint) + &paint.faint(&format!("sections: {}\n", names.join(" ")));
    }
    let of = |&section| {
        let text = text::section(view, section, before);
        if asked.sections.len() == 1 { text } else { paint.bold(&format!("==> {} <==", section.name())) + "\n" + &text }
    };
    asked.sections.iter().map(of).collect::<Vec<_>>().join("\n")
}
