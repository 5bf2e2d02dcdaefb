//! One line from a name, a bar and fields, in the room that there is.

use crate::style::{Style, columns, cut, fit};

/// A part of a line, right of the name.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// What it says.
    pub(super) text: String,
    /// The greater, the sooner it is left out when there is no room.
    pub(super) rank: u8,
    /// Whether it may be cut off at its end rather than left out.
    pub(super) elastic: bool,
}

impl Field {
    /// A part that is there whole or not at all.
    pub(super) fn rigid(rank: u8, text: String) -> Self {
        Self { text, rank, elastic: false }
    }

    /// A part that may be cut off.
    pub(super) fn elastic(rank: u8, text: String) -> Self {
        Self { text, rank, elastic: true }
    }
}

const GAP: &str = "  ";
/// A cut-off sentence shorter than this tells nothing.
const LEAST_SENTENCE: usize = 10;
const LEAST_BAR: usize = 12;
const GREATEST_BAR: usize = 30;

/// A line of at most `width` columns: the name, a bar if `done` (in thousandths) is known and there
/// is room, and the fields in their order as far as there is room by their rank.
pub(super) fn line(name: &str, done: Option<u64>, fields: &[Field], width: usize, style: Style) -> String {
    let least_name = columns(name).min((width / 4).max(8)).min(width);
    let mut room = width - least_name;
    let mut texts: Vec<Option<String>> = vec![None; fields.len()];
    let mut order: Vec<usize> = (0..fields.len()).collect();
    order.sort_by_key(|at| fields[*at].rank);
    for at in order {
        let field = &fields[at];
        let Some(left) = room.checked_sub(GAP.len()) else { break };
        let text = if field.elastic && left >= LEAST_SENTENCE {
            cut(&field.text, left, style)
        } else {
            field.text.clone()
        };
        if columns(&text) <= left {
            room = left - columns(&text);
            texts[at] = Some(text);
        }
    }
    let name = fit(name, least_name + room, style);
    room = (least_name + room) - columns(&name);
    let mut text = name;
    match done {
        Some(done) if room >= LEAST_BAR + GAP.len() => {
            let size = (room - GAP.len()).min(GREATEST_BAR);
            text += &" ".repeat(room - size);
            text += &bar(done, size, style);
        }
        _ => text += &" ".repeat(room),
    }
    for field in texts.into_iter().flatten() {
        text += GAP;
        text += &field;
    }
    text.truncate(text.trim_end().len());
    text
}

/// A bar of `size` columns, at least 3. It is full only at 1000.
fn bar(done: u64, size: usize, style: Style) -> String {
    let inner = size - 2;
    let full = usize::try_from(done.min(1000)).unwrap_or(0) * inner / 1000;
    let (sign, rest) = if style.unicode { ("█", "░") } else { ("#", "-") };
    let (open, close) = if style.unicode { ("▕", "▏") } else { ("[", "]") };
    format!("{open}{}{}{close}", sign.repeat(full), rest.repeat(inner - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field() -> impl Strategy<Value = Field> {
        ("\\PC{0,20}", 0u8..6, any::<bool>()).prop_map(|(text, rank, elastic)| Field { text, rank, elastic })
    }

    proptest! {
        #[test]
        fn a_line_never_takes_more_than_its_room(
            name in "\\PC{0,30}", done in prop::option::of(0u64..=1000),
            fields in prop::collection::vec(field(), 0..6), width in 0usize..120, unicode: bool,
        ) {
            let text = line(&name, done, &fields, width, Style { color: false, unicode });
            prop_assert!(columns(&text) <= width, "{text:?} in {width}");
        }
    }

    #[test]
    fn a_bar_is_full_only_at_the_end() {
        assert_eq!(bar(999, 12, Style::PLAIN), "[#########-]");
        assert_eq!(bar(1000, 12, Style::PLAIN), "[##########]");
        assert_eq!(bar(0, 12, Style::PLAIN), "[----------]");
    }
}
