//! Draws a picture on a terminal, over the one before.
//!
//! Lines that stay (what was done, what went wrong) scroll up above the picture. The picture is moved
//! over only by going up as many lines as were drawn, which is right as long as none of them was broken
//! into two. Where the terminal has become too narrow for that, the next picture begins below: a trace
//! of the old one stays, but nothing that a person may want to read is wiped out.

use crate::style::columns;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

/// Ten pictures a second are enough for any eye.
const EVERY: Duration = Duration::from_millis(100);

/// A place to draw on.
#[derive(Debug)]
pub(crate) struct Terminal<W> {
    out: W,
    /// The widths of the lines of the picture that stands, in columns.
    drawn: Vec<usize>,
    last: Option<Duration>,
}

impl<W: Write> Terminal<W> {
    /// Draws on `out`.
    pub(crate) fn new(out: W) -> Self {
        Self { out, drawn: Vec::new(), last: None }
    }

    /// Whether the next picture is due at `now` (the time since the start of the run).
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.last.is_none_or(|last| now >= last + EVERY)
    }

    /// Puts `kept` above the picture to stay, and draws `picture`. No line of the picture is wider than
    /// `width`, the terminal's width now.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(crate) fn draw(
        &mut self,
        kept: &[String],
        picture: &[String],
        width: usize,
        now: Duration,
    ) -> io::Result<()> {
        self.last = Some(now);
        let mut text = String::new();
        if self.drawn.iter().all(|line| *line <= width) {
            // What was typed meanwhile, a ^C for example, stands where the cursor was left.
            text.push('\r');
            if !self.drawn.is_empty() {
                // Writing to a String does not fail.
                let _ = write!(text, "\x1b[{}A", self.drawn.len());
            }
            if !kept.is_empty() {
                // A line that stays may be wider than the terminal, and goes on over the next.
                text += "\x1b[J";
            }
            // Every line is cleared before it is written, and what is left below at the end, so that
            // the picture does not flicker.
            for line in kept.iter().chain(picture) {
                let _ = write!(text, "\x1b[2K{line}\r\n");
            }
            text += "\x1b[J";
        } else {
            for line in kept.iter().chain(picture) {
                let _ = write!(text, "{line}\r\n");
            }
        }
        self.drawn = picture.iter().map(|line| columns(line)).collect();
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As much of a terminal as is drawn on: it knows going up, clearing a line, clearing what is below.
    fn screen(bytes: &[u8]) -> Vec<String> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut lines: Vec<Vec<char>> = vec![Vec::new()];
        let (mut at, mut column) = (0usize, 0usize);
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\x1b' => {
                    let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                    match (&rest[1..end], &rest[end..=end]) {
                        (count, "A") => at = at.checked_sub(count.parse().unwrap()).unwrap(),
                        ("2", "K") => lines[at].clear(),
                        ("", "J") => {
                            lines.truncate(at + 1);
                            lines[at].truncate(column);
                        }
                        other => panic!("{other:?}"),
                    }
                    rest = &rest[end + 1..];
                }
                '\n' => {
                    at += 1;
                    if lines.len() == at {
                        lines.push(Vec::new());
                    }
                }
                '\r' => column = 0,
                c => {
                    let line = &mut lines[at];
                    line.resize(line.len().max(column + 1), ' ');
                    line[column] = c;
                    column += 1;
                }
            }
        }
        assert_eq!(lines.pop(), Some(Vec::new()), "the cursor stands on a line of its own");
        lines.into_iter().map(String::from_iter).collect()
    }

    fn draw(steps: &[(&[&str], &[&str], usize)]) -> Vec<String> {
        let mut terminal = Terminal::new(Vec::new());
        let owned = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        for (kept, picture, width) in steps {
            terminal.draw(&owned(kept), &owned(picture), *width, Duration::ZERO).unwrap();
        }
        screen(&terminal.out)
    }

    #[test]
    fn a_picture_takes_the_place_of_the_one_before() {
        assert_eq!(draw(&[(&[], &["a 1", "b 1"], 80), (&[], &["a 2", "b 2"], 80)]), ["a 2", "b 2"]);
        assert_eq!(draw(&[(&[], &["a", "b", "c"], 80), (&[], &["d"], 80)]), ["d"]);
    }

    #[test]
    fn lines_that_stay_are_above_the_picture() {
        let steps: [(&[&str], &[&str], usize); 3] =
            [(&[], &["a 1", "b 1"], 80), (&["a done"], &["b 2"], 80), (&["b done"], &[], 80)];
        assert_eq!(draw(&steps), ["a done", "b done"]);
    }

    #[test]
    fn what_was_typed_meanwhile_moves_nothing() {
        let mut terminal = Terminal::new(Vec::new());
        terminal.draw(&[], &["a 1".to_owned()], 80, Duration::ZERO).unwrap();
        terminal.out.extend(b"^C");
        terminal.draw(&[], &["a 2".to_owned()], 80, Duration::ZERO).unwrap();
        terminal.out.extend(b"^C");
        terminal.draw(&["a stopped".to_owned()], &[], 80, Duration::ZERO).unwrap();
        assert_eq!(screen(&terminal.out), ["a stopped"]);
    }

    #[test]
    fn a_terminal_made_narrow_loses_nothing_that_was_read() {
        let steps: [(&[&str], &[&str], usize); 4] = [
            (&["done before"], &["a wide line"], 80),
            (&[], &["narrow"], 8),
            (&[], &["narrow2"], 8),
            (&["end"], &[], 80),
        ];
        assert_eq!(draw(&steps), ["done before", "a wide line", "end"]);
    }

    #[test]
    fn pictures_are_drawn_at_most_ten_times_a_second() {
        let mut terminal = Terminal::new(Vec::new());
        assert!(terminal.is_due(Duration::ZERO));
        terminal.draw(&[], &[], 80, Duration::ZERO).unwrap();
        assert!(!terminal.is_due(Duration::from_millis(99)));
        assert!(terminal.is_due(Duration::from_millis(100)));
    }
}
