//! Frames: how messages between two processes follow each other on a stream of bytes.
//!
//! A frame is a length (32 bits, big-endian, of what follows), a kind (one byte) and a body. The length is from
//! 1, for a frame without a body, to [`MAX_FRAME`]. What the kinds are, and what is in a body, is not known here.
//!
//! A message whose body does not fit into one frame goes as several, one after another, of the same kind: all but
//! the last have the bit [`MORE`] set in the kind. Kinds are therefore from 0 to 127.

use std::fmt;

/// The most bytes that a frame may announce: kind and body.
pub const MAX_FRAME: usize = 1 << 20;

/// Set in the kind of a frame whose message goes on in the next one.
pub const MORE: u8 = 0x80;

/// A buffer that grew beyond this is given back when it is empty.
const KEPT: usize = 64 << 10;

/// How many bytes the length takes.
const LENGTH: usize = 4;

/// Appends a message to `out`, as one frame or as several.
pub fn encode(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    let kind = kind & !MORE;
    let mut rest = body;
    while rest.len() > MAX_FRAME - 1 {
        let (part, more) = rest.split_at(MAX_FRAME - 1);
        put(kind | MORE, part, out);
        rest = more;
    }
    put(kind, rest, out);
}

fn put(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    // At most MAX_FRAME, which fits.
    let length = u32::try_from(body.len() + 1).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(body);
}

/// Why bytes are not frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// A length of 0 leaves no room for the kind.
    #[error("a frame has no kind")]
    Empty,
    /// A length beyond [`MAX_FRAME`].
    #[error("a frame of {0} bytes is announced, more than {MAX_FRAME}")]
    TooLong(u32),
    /// A message of this kind must not be as long as this one.
    #[error("a message of kind {kind} is longer than {most} bytes")]
    MessageTooLong {
        /// The kind.
        kind: u8,
        /// The most bytes that it may have.
        most: usize,
    },
    /// A message of this kind is not expected at all.
    #[error("there is no message of kind {0}")]
    UnknownKind(u8),
    /// A frame of another kind came in the middle of a message.
    #[error("a frame of kind {found} came in the middle of a message of kind {expected}")]
    Mixed {
        /// The kind of the message.
        expected: u8,
        /// The kind of the frame.
        found: u8,
    },
}

/// How long the body of a message of each kind may be; `None` for a kind that does not exist.
pub type Bounds = fn(kind: u8) -> Option<usize>;

/// A message: what kind it is, and its body.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Message<'a> {
    /// From 0 to 127.
    pub kind: u8,
    /// What the kind says that it is.
    pub body: &'a [u8],
}

/// Does not show the body, which may hold secrets.
impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message(kind {}, {} bytes)", self.kind, self.body.len())
    }
}

/// Finds the messages in bytes that come in any portions.
///
/// Takes memory for bytes that came, never for bytes that were announced. After an error nothing more is found:
/// where the next message would begin is not known.
pub struct Decoder {
    bounds: Bounds,
    bytes: Vec<u8>,
    /// Of `bytes`, those that were dealt with.
    taken: usize,
    /// The kind of the message of which some frames have come.
    unfinished: Option<u8>,
    /// The bodies of those frames; or of the last message of several frames, until it is asked for the next.
    joined: Vec<u8>,
    error: Option<FrameError>,
}

impl Decoder {
    /// A decoder for messages within these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, bytes: Vec::new(), taken: 0, unfinished: None, joined: Vec::new(), error: None }
    }

    /// Takes bytes as they were read. Call [`Decoder::message`] until it returns `None` before the next ones, or
    /// they pile up.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        if self.taken == self.bytes.len() {
            self.taken = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT {
                self.bytes = Vec::new();
            }
        } else if self.taken >= self.bytes.len() - self.taken {
            // No more is moved than was dealt with since: in all, no byte more than once.
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it is here.
    ///
    /// # Errors
    /// When the bytes are not frames, or a message is out of its bounds: as soon as that can be told, and from
    /// then on always.
    pub fn message(&mut self) -> Result<Option<Message<'_>>, FrameError> {
        if self.unfinished.is_none() && !self.joined.is_empty() {
            self.joined = Vec::new();
        }
        loop {
            let Some(frame) = self.frame()? else { return Ok(None) };
            let body = self.taken + LENGTH + 1..self.taken + LENGTH + frame.length;
            self.taken = body.end;
            if !frame.more && self.unfinished.is_none() {
                return Ok(Some(Message { kind: frame.kind, body: &self.bytes[body] }));
            }
            self.joined.extend_from_slice(&self.bytes[body]);
            self.unfinished = frame.more.then_some(frame.kind);
            if !frame.more {
                return Ok(Some(Message { kind: frame.kind, body: &self.joined }));
            }
        }
    }

    /// The head of the next frame, if the whole frame is here.
    fn frame(&mut self) -> Result<Option<Head>, FrameError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.head().inspect_err(|error| {
            self.error = Some(*error);
            (self.bytes, self.joined, self.taken) = (Vec::new(), Vec::new(), 0);
        })
    }

    fn head(&self) -> Result<Option<Head>, FrameError> {
        let Some((length, rest)) = self.bytes[self.taken..].split_first_chunk() else { return Ok(None) };
        let announced = u32::from_be_bytes(*length);
        let length = match usize::try_from(announced) {
            Ok(0) => return Err(FrameError::Empty),
            Ok(length) if length <= MAX_FRAME => length,
            Ok(_) | Err(_) => return Err(FrameError::TooLong(announced)),
        };
        let Some(&tag) = rest.first() else { return Ok(None) };
        let (kind, more) = (tag & !MORE, tag & MORE != 0);
        if let Some(expected) = self.unfinished.filter(|expected| *expected != kind) {
            return Err(FrameError::Mixed { expected, found: kind });
        }
        let most = (self.bounds)(kind).ok_or(FrameError::UnknownKind(kind))?;
        let before = if self.unfinished.is_some() { self.joined.len() } else { 0 };
        if before + length - 1 > most {
            return Err(FrameError::MessageTooLong { kind, most });
        }
        Ok((rest.len() >= length).then_some(Head { length, kind, more }))
    }
}

struct Head {
    /// Of kind and body.
    length: usize,
    kind: u8,
    more: bool,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({} bytes wait)", self.bytes.len() - self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Kinds below 100; even ones may be long.
    fn bounds(kind: u8) -> Option<usize> {
        (kind < 100).then_some(if kind.is_multiple_of(2) { 3 * MAX_FRAME } else { 1000 })
    }

    type Found = (Vec<(u8, Vec<u8>)>, Option<FrameError>);

    /// What is found in bytes that come in portions of these lengths, again and again.
    fn found(bytes: &[u8], portions: &[usize]) -> Found {
        let (mut decoder, mut messages, mut rest) = (Decoder::new(bounds), Vec::new(), bytes);
        for portion in portions.iter().cycle() {
            let (now, later) = rest.split_at((*portion).clamp(1, rest.len().max(1)).min(rest.len()));
            decoder.feed(now);
            rest = later;
            loop {
                match decoder.message() {
                    Ok(Some(Message { kind, body })) => messages.push((kind, body.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error)),
                }
            }
            if rest.is_empty() {
                break;
            }
        }
        (messages, None)
    }

    proptest! {
        #[test]
        fn messages_are_found_however_they_are_split(
            messages in prop::collection::vec((0u8..100, prop::collection::vec(any::<u8>(), 0..900)), 0..20),
            portions in prop::collection::vec(1usize..2000, 1..8),
        ) {
            let mut bytes = Vec::new();
            messages.iter().for_each(|(kind, body)| encode(*kind, body, &mut bytes));
            prop_assert_eq!(found(&bytes, &portions), (messages.clone(), None));
            prop_assert_eq!(found(&bytes, &[1]), (messages, None));
        }

        #[test]
        fn any_bytes_give_the_same_however_they_are_split(
            bytes in prop::collection::vec(prop_oneof![4 => 0u8..3, 1 => any::<u8>()], 0..400),
            portions in prop::collection::vec(1usize..50, 1..8),
        ) {
            let whole = found(&bytes, &[usize::MAX]);
            prop_assert_eq!(&found(&bytes, &portions), &whole);
            prop_assert_eq!(&found(&bytes, &[1]), &whole);
        }

        #[test]
        fn what_was_refused_stays_refused(
            bad in prop::collection::vec(any::<u8>(), 5..50),
            after in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut decoder = Decoder::new(bounds);
            decoder.feed(&bad);
            let error = loop {
                match decoder.message() {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(()),
                    Err(error) => break error,
                }
            };
            let mut good = Vec::new();
            encode(1, &after, &mut good);
            decoder.feed(&good);
            prop_assert_eq!(decoder.message(), Err(error));
            prop_assert_eq!(decoder.bytes.len(), 0);
        }
    }

    #[test]
    fn a_long_message_goes_as_several_frames_and_comes_as_one() {
        let body: Vec<u8> = (0..MAX_FRAME * 5 / 2).map(|n| (n % 251) as u8).collect();
        let mut bytes = Vec::new();
        encode(2, &body, &mut bytes);
        encode(1, b"next", &mut bytes);
        assert_eq!(bytes.len(), body.len() + 4 + 4 * (LENGTH + 1));
        let expected = (vec![(2, body), (1, b"next".to_vec())], None);
        assert_eq!(found(&bytes, &[70_001]), expected);
        assert_eq!(found(&bytes, &[usize::MAX]), expected);
    }

    #[test]
    fn what_just_fits_is_one_frame() {
        for (length, frames) in [(MAX_FRAME - 1, 1), (MAX_FRAME, 2)] {
            let (body, mut bytes) = (vec![7; length], Vec::new());
            encode(0, &body, &mut bytes);
            assert_eq!(bytes.len(), length + frames * (LENGTH + 1));
            assert_eq!(found(&bytes, &[4096]), (vec![(0, body)], None));
        }
    }

    #[test]
    fn a_bad_frame_is_refused_before_its_body_comes() {
        let first_error = |bytes: &[u8]| {
            let mut decoder = Decoder::new(bounds);
            decoder.feed(bytes);
            decoder.message().unwrap_err()
        };
        assert_eq!(first_error(&[0, 0, 0, 0]), FrameError::Empty);
        assert_eq!(first_error(&[0, 0x10, 0, 1]), FrameError::TooLong((1 << 20) + 1));
        assert_eq!(first_error(&[0xff; 4]), FrameError::TooLong(u32::MAX));
        assert_eq!(first_error(&[0, 0, 0, 9, 100]), FrameError::UnknownKind(100));
        assert_eq!(first_error(&[0, 0, 3, 234, 1]), FrameError::MessageTooLong { kind: 1, most: 1000 });
        let mixed = [0, 0, 0, 2, 2 | MORE, b'a', 0, 0, 0, 2, 4];
        assert_eq!(first_error(&mixed), FrameError::Mixed { expected: 2, found: 4 });
        let mut beyond = Vec::new();
        (0..4).for_each(|_| put(2 | MORE, &vec![0; MAX_FRAME - 1], &mut beyond));
        assert_eq!(first_error(&beyond), FrameError::MessageTooLong { kind: 2, most: 3 * MAX_FRAME });
    }

    #[test]
    fn nothing_is_taken_for_what_is_only_announced() {
        let mut decoder = Decoder::new(bounds);
        decoder.feed(&[0, 0x10, 0, 0, 2]);
        assert_eq!(decoder.message(), Ok(None));
        assert!(decoder.bytes.capacity() + decoder.joined.capacity() < 100);
    }

    #[test]
    fn a_large_frame_in_small_portions_is_not_moved_again_and_again() {
        let mut bytes = Vec::new();
        encode(1, b"small", &mut bytes);
        encode(2, &vec![0; MAX_FRAME - 1], &mut bytes);
        let mut decoder = Decoder::new(bounds);
        let mut heads = 0;
        for portion in bytes.chunks(100) {
            let before = decoder.taken;
            decoder.feed(portion);
            heads += usize::from(decoder.taken != before);
            while decoder.message().unwrap().is_some() {}
        }
        assert!(heads <= 2, "moved {heads} times");
    }
}
