//! What an engine's process and its parent say to each other.
//!
//! The cold side of each download (its folder, its name, its end) stays in the parent; the control thread and the
//! data threads are in the child. What crosses is what these tell each other, as messages in
//! [frames](tidegate_core::frame) on a stream socket. `docs/protocol/engine/` has an example of each.
//!
//! The child says [`FromChild::Ready`], and the parent [`ToChild::Hello`]; nothing else is said before.
//! [`VERSION`] is checked and never negotiated: both are the same executable.
//!
//! Descriptors ride on messages to the child, with the first byte of the message; [`KindOf::descriptors`] says how
//! many. The parent takes none.
//!
//! What the child reads comes from its parent, and is checked so that a mistake shows where it was made. What the
//! parent reads comes from a process that strangers may have taken over: it is bounded in size, count and range,
//! says nothing that only a cold side can know, and whatever is not in order ends the child.

mod bounds;
mod kinds;
mod messages;
mod setup;

pub use crate::part_file::State as PartState;
pub use kinds::{Kind, KindOf};
pub use messages::{Cold, FromChild, Resolution, Roots, Saved, ToChild};
pub use setup::{Place, Setup};

use std::fmt;
use tidegate_core::frame::{Decoder, FrameError};

/// What both sides must speak. It goes up with every change of what is said.
pub const VERSION: u32 = 1;

/// The most bytes of what was found that an error shows.
const MOST_SHOWN: usize = 200;

/// Why something is not a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProtocolError {
    /// The bytes are not in frames, or a frame or message is too long.
    Frame(FrameError),
    /// There is no message of this kind in this direction.
    UnknownKind(u8),
    /// The body is not what its kind says.
    Body {
        /// The name of the kind.
        kind: &'static str,
        /// What is wrong, in at most 200 bytes.
        why: String,
    },
    /// The body can be read, but this cannot be.
    Beyond {
        /// The name of the kind.
        kind: &'static str,
        /// What is out of its bounds, or cannot be said.
        what: &'static str,
    },
}

impl ProtocolError {
    fn body(kind: &'static str, error: &serde_json::Error) -> Self {
        // It may quote what was found, and goes to a terminal or a log.
        let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let mut why: String = error.to_string().chars().take(MOST_SHOWN + 1).map(printable).collect();
        if why.len() > MOST_SHOWN {
            let most = MOST_SHOWN - '…'.len_utf8();
            why.truncate((0..=most).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0));
            why.push('…');
        }
        Self::Body { kind, why }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => fmt::Display::fmt(error, f),
            Self::UnknownKind(kind) => write!(f, "there is no message of kind {kind} in this direction"),
            Self::Body { kind, why } => write!(f, "a message \"{kind}\" cannot be read: {why}"),
            Self::Beyond { kind, what } => write!(f, "a message \"{kind}\" is not in order: {what}"),
        }
    }
}

impl std::error::Error for ProtocolError {}

impl From<FrameError> for ProtocolError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl ToChild {
    /// A decoder for what the child reads.
    pub fn decoder() -> Decoder {
        Decoder::new(|kind| kinds::longest(Self::KINDS, kind))
    }
}

impl FromChild {
    /// A decoder for what the parent reads.
    pub fn decoder() -> Decoder {
        Decoder::new(|kind| kinds::longest(Self::KINDS, kind))
    }
}

#[cfg(test)]
mod tests;
