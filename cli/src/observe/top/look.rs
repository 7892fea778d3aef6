//! # What a terminal can show
//!
//! Colours and letters; without colour emphasis is bold and reversed, without UTF-8 lines and bars are of ASCII letters.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use ratatui::text::Span;
use ratatui::widgets::{Block, Borders};

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    colour: bool,
    /// Whether letters beyond ASCII are shown.
    pub unicode: bool,
}

impl Look {
    /// By the environment: `NO_COLOR`, `TERM`, and the locale's character set.
    pub fn of_terminal() -> Self {
        let word = |name: &str| std::env::var(name).ok().filter(|word| !word.is_empty());
        let term = word("TERM").unwrap_or_else(|| "dumb".into());
        let plain = ["dumb", "vt100", "vt102", "vt220"].contains(&term.as_str()) || term.ends_with("-m");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(word).unwrap_or_default().to_uppercase();
        Self {
            colour: !plain && word("NO_COLOR").is_none(),
            unicode: locale.contains("UTF-8") || locale.contains("UTF8"),
        }
    }
    /// Neither.
    #[cfg(test)]
    pub const fn plain() -> Self {
        Self { colour: false, unicode: false }
    }
    /// Both.
    #[cfg(test)]
    pub const fn rich() -> Self {
        Self { colour: true, unicode: true }
    }
    /// A colour, where there are any.
    pub fn paint(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
    /// A heading.
    pub const fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
    /// A frame with a title.
    pub fn block(self, title: &str) -> Block<'static> {
        const ASCII: border::Set<'static> = border::Set {
            top_left: "+",
            top_right: "+",
            bottom_left: "+",
            bottom_right: "+",
            vertical_left: "|",
            vertical_right: "|",
            horizontal_top: "-",
            horizontal_bottom: "-",
        };
        let set = if self.unicode { border::PLAIN } else { ASCII };
        let frame = if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new() };
        let title = Span::styled(format!(" {} ", self.text(title)), self.title());
        Block::new().borders(Borders::ALL).border_set(set).border_style(frame).title(title)
    }
    /// A text as this terminal shows it.
    pub fn text(self, text: &str) -> String {
        if self.unicode {
            return text.to_owned();
        }
        let ascii = |letter: char| match letter {
            'µ' => 'u',
            '…' => '.',
            '±' | '→' | '×' | '·' => '-',
            letter if letter.is_ascii() => letter,
            _ => '?',
        };
        text.replace(" → ", " to ").chars().map(ascii).collect()
    }
    /// A bar of `width` letters, `part` of `whole` of them full.
    pub fn bar(self, part: u64, whole: u64, width: usize) -> String {
        let eighths =
            if whole == 0 { 0 } else { (u128::from(part.min(whole)) * width as u128 * 8 / u128::from(whole)) as usize };
        let (full, rest) = (eighths / 8, eighths % 8);
        let mut bar = (if self.unicode { "█" } else { "#" }).repeat(full);
        if full < width {
            match rest {
                0 => {}
                // (What is not zero is seen.)
                _ if self.unicode => bar.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][rest - 1]),
                _ => bar.push('-'),
            }
        }
        if part > 0 && bar.is_empty() && width > 0 {
            bar.push(if self.unicode { '▏' } else { '-' });
        }
        let filled = bar.chars().count();
        bar + &" ".repeat(width - filled)
    }
}
