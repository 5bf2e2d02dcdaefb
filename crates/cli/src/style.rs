//! How text is shown: colours, signs, and nothing in it that a terminal would obey.

use crate::config::Color;
use crate::environment::Environment;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What the place that text goes to can show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Style {
    /// Colours are understood and wanted.
    pub(crate) color: bool,
    /// More than ASCII can be shown.
    pub(crate) unicode: bool,
}

/// How a piece of text is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tone {
    /// All is well.
    Good,
    /// Worth knowing.
    Note,
    /// Something is wrong.
    Bad,
    /// By the way.
    Dim,
}

impl Style {
    /// Neither colours nor signs.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { color: false, unicode: false };

    /// The style for a place that is a terminal or not.
    pub(crate) fn new(color: Color, terminal: bool, environment: &Environment) -> Self {
        let dumb = environment.text("TERM") == Some("dumb");
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !dumb && environment.get("NO_COLOR").is_none(),
        };
        Self { color, unicode: environment.speaks_unicode() }
    }

    /// The text in the colour of the tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Note => "33",
            Tone::Bad => "31",
            Tone::Dim => "2",
        };
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// What stands where something was cut out.
    pub(crate) fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }
}

/// The text without anything that a terminal would obey or that would reorder what is read: control
/// characters and the marks that turn the direction of text become `?`. Names and reasons may come
/// from a server.
pub(crate) fn harmless(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    text.chars().map(|c| if c.is_control() || turns(c) { '?' } else { c }).collect()
}

/// How many columns the text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The text in at most `width` columns, its middle cut out if it must be: the end of a name tells as
/// much as its beginning.
pub(crate) fn fit(text: &str, width: usize, style: Style) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let ellipsis = style.ellipsis();
    let Some(room) = width.checked_sub(columns(ellipsis)).filter(|room| *room > 1) else {
        return prefix(text.chars(), width).collect();
    };
    let tail_room = room / 2;
    let head: String = prefix(text.chars(), room - tail_room).collect();
    let tail: Vec<char> = prefix(text.chars().rev(), tail_room).collect();
    format!("{head}{ellipsis}{}", tail.into_iter().rev().collect::<String>())
}

/// The text in at most `width` columns, cut off at its end if it must be.
pub(crate) fn cut(text: &str, width: usize, style: Style) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let ellipsis = style.ellipsis();
    match width.checked_sub(columns(ellipsis)) {
        Some(room) => prefix(text.chars(), room).chain(ellipsis.chars()).collect(),
        None => prefix(text.chars(), width).collect(),
    }
}

/// The text in lines of at most `width` columns, broken between words; all but the first begin with
/// as many blanks as the text does, or `indent` if that is more. A word that is wider than a line keeps one to itself, so that a
/// link or a path can still be copied whole.
pub(crate) fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    if columns(text) <= width {
        return vec![text.to_owned()];
    }
    let lead = text.len() - text.trim_start_matches(' ').len();
    let indent = lead.max(indent).min(width / 2);
    let mut lines = vec![" ".repeat(lead.min(width / 2))];
    let mut used = lines[0].len();
    let mut empty = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let wide = columns(word);
        if !empty && used + 1 + wide > width {
            lines.push(" ".repeat(indent));
            (used, empty) = (indent, true);
        }
        if let Some(line) = lines.last_mut() {
            if !empty {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
        }
        used += wide;
        empty = false;
    }
    lines
}

fn prefix(chars: impl Iterator<Item = char>, width: usize) -> impl Iterator<Item = char> {
    let mut used = 0;
    chars.take_while(move |c| {
        used += c.width().unwrap_or(0);
        used <= width
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNICODE: Style = Style { color: false, unicode: true };

    #[test]
    fn the_end_of_a_long_name_stays_in_sight() {
        assert_eq!(fit("ubuntu-24.04-desktop-amd64.iso", 16, UNICODE), "ubuntu-2…d64.iso");
        assert_eq!(fit("short", 16, UNICODE), "short");
        assert_eq!(fit("ubuntu-24.04.iso", 10, Style::PLAIN), "ubun...iso");
        assert_eq!(cut("a long sentence", 8, UNICODE), "a long …");
    }

    #[test]
    fn what_a_terminal_would_obey_is_taken_out() {
        assert_eq!(harmless("a\x1b[2Jb\u{9b}c\r\n\u{202e}gpj.exe"), "a?[2Jb?c???gpj.exe");
        assert_eq!(harmless("Übung 日本.iso"), "Übung 日本.iso");
    }

    #[test]
    fn colours_need_a_terminal_that_wants_them() {
        let color = |choice, terminal, variables: &[(&str, &str)]| {
            Style::new(choice, terminal, &Environment::of(variables.iter().copied())).color
        };
        assert!(color(Color::Auto, true, &[]));
        assert!(color(Color::Auto, true, &[("NO_COLOR", "")]));
        assert!(!color(Color::Auto, true, &[("NO_COLOR", "1")]));
        assert!(!color(Color::Auto, true, &[("TERM", "dumb")]));
        assert!(!color(Color::Auto, false, &[]));
        assert!(color(Color::Always, false, &[("NO_COLOR", "1")]));
        assert!(!color(Color::Never, true, &[]));
    }

    #[test]
    fn a_sentence_is_broken_between_words_and_nothing_of_it_is_lost() {
        assert_eq!(wrap("a.iso: done, 3.0 MiB", 80, 2), ["a.iso: done, 3.0 MiB"]);
        assert_eq!(wrap("a.iso: done, 3.0 MiB in 2s", 14, 2), ["a.iso: done,", "  3.0 MiB in", "  2s"]);
        assert_eq!(wrap("  Check the link.", 12, 0), ["  Check the", "  link."]);
        let link = "http://example.org/a/very/long/path";
        assert_eq!(wrap(&format!("from {link} it came"), 20, 2), ["from", &format!("  {link}"), "  it came"]);
    }

    proptest! {
        #[test]
        fn what_is_broken_into_lines_keeps_every_word(text in "[a-z ü日]{0,60}", width in 1usize..40, indent in 0usize..4) {
            let lines = wrap(&text, width, indent);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&lines.join(" ")), words(&text));
            let alone = |line: &String| line.split_whitespace().count() < 2;
            prop_assert!(lines.iter().all(|line| columns(line) <= width || alone(line)), "{:?}", lines);
        }

        #[test]
        fn what_was_fitted_never_takes_more_than_its_room(text in "\\PC{0,40}", width in 0usize..30) {
            for style in [UNICODE, Style::PLAIN] {
                prop_assert!(columns(&fit(&text, width, style)) <= width);
                prop_assert!(columns(&cut(&text, width, style)) <= width);
            }
        }
    }
}
