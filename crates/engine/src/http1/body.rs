//! Which of the bytes that follow a head are content.

use super::head::{Framing, Head};
use crate::failure::FetchError;

/// Most bytes of one chunk's head line, and of all trailers together.
const MOST_LINE: u32 = 4 * 1024;
const MOST_TRAILERS: u32 = 16 * 1024;
/// Most bytes that chunk heads may have beyond an honest share of the content.
const MOST_EXCESS: u64 = 16 * 1024;

/// Tells content from framing, byte by byte if need be. Holds no content and does no input or output.
///
/// Chunk lines must end in CR LF, as the specification has it: there are public records of readers
/// that disagree about anything else.
#[derive(Clone, Debug)]
pub struct Body {
    state: State,
    received: u64,
    keep_alive: bool,
    length: Option<u64>,
    /// Bytes of chunk heads that content has not yet paid for.
    excess: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Done,
    Length {
        left: u64,
    },
    UntilClose,
    /// In the digits of a chunk's size; `digits` of them seen.
    Size {
        size: u64,
        digits: u32,
        line: u32,
    },
    /// After the size, until CR.
    Extension {
        size: u64,
        line: u32,
    },
    /// LF must follow.
    SizeEnd {
        size: u64,
    },
    Chunk {
        left: u64,
    },
    ChunkCr,
    ChunkLf,
    /// In a trailer; `line` bytes of this one seen, `total` of all.
    Trailer {
        line: u32,
        total: u32,
    },
    TrailerLf {
        line: u32,
        total: u32,
    },
    /// An error was returned: nothing more is content.
    Broken,
}

/// What some input turned out to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step<'a> {
    /// Content, a part of the input. May be empty.
    pub content: &'a [u8],
    /// How much of the input is done with, up to the end of `content`.
    pub consumed: usize,
}

/// What a buffer turned out to hold, after its content was moved to its front.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InPlace {
    /// Bytes of content, now at the front of the buffer.
    pub content: usize,
    /// How much of the buffer belonged to this body. Less than the whole only once the body is done:
    /// then the server sent more than it should, and the connection must not be used again.
    pub consumed: usize,
}

impl Body {
    /// The body that follows `head`.
    ///
    /// # Errors
    /// As [`Head::framing`].
    pub fn of(head: &Head) -> Result<Self, FetchError> {
        Ok(Self { keep_alive: head.keep_alive(), ..Self::new(head.framing()?) })
    }

    /// A body with this framing, on a connection that the server keeps open.
    pub fn new(framing: Framing) -> Self {
        let (state, length) = match framing {
            Framing::Empty | Framing::Length(0) => (State::Done, Some(0)),
            Framing::Length(n) => (State::Length { left: n }, Some(n)),
            Framing::Chunked => (State::Size { size: 0, digits: 0, line: 0 }, None),
            Framing::UntilClose => (State::UntilClose, None),
        };
        Self { state, received: 0, keep_alive: true, length, excess: 0 }
    }

    /// Bytes of content so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes of content in all, if the head says so.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// How many of the next bytes are certainly content; `None` if all are, until the connection ends.
    pub fn run(&self) -> Option<u64> {
        match self.state {
            State::Length { left } | State::Chunk { left } => Some(left),
            State::UntilClose => None,
            _ => Some(0),
        }
    }

    /// Whether the body has ended, so that the next byte would belong to something else.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes note that the server sent what does not belong to the answer: whatever comes next on this
    /// connection, it is not to be taken for another.
    pub fn do_not_reuse(&mut self) {
        self.keep_alive = false;
    }

    /// Whether another request may be sent on this connection: the body has ended where the head said
    /// that it would, and the server leaves the connection open.
    pub fn is_reusable(&self) -> bool {
        self.keep_alive && self.is_done()
    }

    /// The next piece of content in `input`. Consumes something unless `input` is empty or the body is
    /// done; call it again with the rest until then.
    ///
    /// # Errors
    /// [`FetchError::Protocol`] if chunks are malformed or carry too much beside content. The body
    /// stays broken.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, FetchError> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            if self.state == State::Done {
                break;
            }
            match self.run() {
                Some(0) => {
                    self.state = self.framing_byte(byte).inspect_err(|_| self.state = State::Broken)?;
                    at += 1;
                }
                run => {
                    let rest = &input[at..];
                    let n = run.map_or(rest.len(), |r| usize::try_from(r).unwrap_or(usize::MAX));
                    let content = &rest[..n.min(rest.len())];
                    self.advance(content.len() as u64);
                    return Ok(Step { content, consumed: at + content.len() });
                }
            }
        }
        Ok(Step { content: &[], consumed: at })
    }

    /// Moves all content in `buffer` to its front, so that one write takes it.
    ///
    /// # Errors
    /// As [`Body::next`]. Content before the error is not told.
    pub fn compact(&mut self, buffer: &mut [u8]) -> Result<InPlace, FetchError> {
        let (mut content, mut consumed) = (0, 0);
        while consumed < buffer.len() && !self.is_done() {
            let step = self.next(&buffer[consumed..])?;
            let (n, end) = (step.content.len(), consumed + step.consumed);
            if content != end - n {
                buffer.copy_within(end - n..end, content);
            }
            content += n;
            consumed = end;
        }
        Ok(InPlace { content, consumed })
    }

    /// Takes note of content that was moved without being shown, by `splice` for instance. At most
    /// [`Body::run`] bytes; more are not counted.
    pub fn advance(&mut self, bytes: u64) {
        let bytes = self.run().map_or(bytes, |run| run.min(bytes));
        self.received = self.received.saturating_add(bytes);
        self.excess = self.excess.saturating_sub(bytes.saturating_mul(2));
        match &mut self.state {
            State::Length { left } => {
                *left -= bytes;
                if *left == 0 {
                    self.state = State::Done;
                }
            }
            State::Chunk { left } => {
                *left -= bytes;
                if *left == 0 {
                    self.state = State::ChunkCr;
                }
            }
            _ => {}
        }
    }

    /// What the orderly end of the connection (a FIN, or TLS's close_notify) means here: the bytes of
    /// content that the whole body has. A reset is not an orderly end and must not be told here.
    ///
    /// # Errors
    /// [`FetchError::EndedEarly`] if there should be more.
    pub fn on_eof(&mut self) -> Result<u64, FetchError> {
        // There will not be another request, whatever happens.
        self.keep_alive = false;
        match self.state {
            // After the empty chunk only trailers are missing, which nobody needs; servers that close
            // there without the last line break are common.
            State::Done | State::UntilClose | State::Trailer { .. } | State::TrailerLf { .. } => {
                self.state = State::Done;
                Ok(self.received)
            }
            _ => Err(FetchError::EndedEarly { got: self.received, expected: self.length }),
        }
    }

    fn framing_byte(&mut self, byte: u8) -> Result<State, FetchError> {
        let bad = |what: &str| Err(FetchError::protocol(format!("chunks: {what}")));
        Ok(match (self.state, byte) {
            (State::Size { size, digits, line }, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                // One digit less than a u64 has: a single chunk then stays within file offsets.
                if line >= MOST_LINE || size >> 56 != 0 {
                    return bad("a size is too large");
                }
                State::Size { size: size << 4 | u64::from(digit), digits: digits + 1, line: line + 1 }
            }
            (State::Size { digits: 0, .. }, _) => return bad("a size has no digits"),
            (State::Size { size, line, .. } | State::Extension { size, line }, b'\r') => {
                // Leading zeros, extensions and tiny chunks cost more than they bring. Some is honest.
                self.excess = self.excess.saturating_add(u64::from(line.saturating_sub(16)));
                if self.excess > MOST_EXCESS {
                    return bad("far more extensions than content");
                }
                State::SizeEnd { size }
            }
            (State::Size { size, line, .. }, b' ' | b'\t' | b';') => {
                State::Extension { size, line: line + 1 }
            }
            (State::Size { .. }, _) => return bad("a size is no hexadecimal number"),
            (State::Extension { .. }, b'\n' | 0) => return bad("a line does not end in CR LF"),
            (State::Extension { size, line }, _) if line < MOST_LINE => {
                State::Extension { size, line: line + 1 }
            }
            (State::Extension { .. }, _) => return bad("an extension is too long"),
            (State::SizeEnd { size: 0 }, b'\n') => State::Trailer { line: 0, total: 0 },
            (State::SizeEnd { size }, b'\n') => State::Chunk { left: size },
            (State::ChunkCr, b'\r') => State::ChunkLf,
            (State::ChunkLf, b'\n') => State::Size { size: 0, digits: 0, line: 0 },
            (State::Trailer { line, total }, b'\r') => State::TrailerLf { line, total },
            (State::Trailer { .. }, b'\n') => return bad("a trailer does not end in CR LF"),
            (State::Trailer { line, total }, _) if total < MOST_TRAILERS => {
                State::Trailer { line: line + 1, total: total + 1 }
            }
            (State::Trailer { .. }, _) => return bad("the trailers are too long"),
            (State::TrailerLf { line: 0, .. }, b'\n') => State::Done,
            (State::TrailerLf { total, .. }, b'\n') => State::Trailer { line: 0, total: total + 1 },
            (State::SizeEnd { .. } | State::TrailerLf { .. }, _) => {
                return bad("a line does not end in CR LF");
            }
            (State::ChunkCr | State::ChunkLf, _) => return bad("no CR LF after a chunk"),
            (State::Broken, _) => return bad("went wrong before"),
            // These never reach here: their bytes are content or belong to the next answer.
            (State::Done | State::Length { .. } | State::UntilClose | State::Chunk { .. }, _) => self.state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The content of `wire` read in pieces of the given sizes (cycled), and the body after it.
    fn read(framing: Framing, wire: &[u8], pieces: &[usize]) -> Result<(Vec<u8>, usize, Body), FetchError> {
        let mut body = Body::new(framing);
        let (mut content, mut used) = (Vec::new(), 0);
        let mut sizes = pieces.iter().cycle();
        let mut from = 0;
        while from < wire.len() && !body.is_done() {
            let size = (*sizes.next().unwrap()).max(1);
            let mut piece = &wire[from..(from + size).min(wire.len())];
            from += piece.len();
            while !piece.is_empty() && !body.is_done() {
                let step = body.next(piece)?;
                assert!(step.consumed > 0);
                content.extend_from_slice(step.content);
                used += step.consumed;
                piece = &piece[step.consumed..];
            }
        }
        Ok((content, used, body))
    }

    fn chunked(wire: &str) -> Result<(String, bool), FetchError> {
        let (content, used, body) = read(Framing::Chunked, wire.as_bytes(), &[usize::MAX / 2])?;
        assert!(body.is_done() || used == wire.len());
        Ok((String::from_utf8(content).unwrap(), body.is_done()))
    }

    #[test]
    fn chunks_extensions_and_trailers_are_told_from_content() {
        let cases = [
            ("3\r\nabc\r\n0\r\n\r\n", "abc", true),
            ("3;extension1;extension2;\r\n123\r\n0\r\n\r\n", "123", true),
            ("3 \t\r\n123\r\n0\r\nt1\r\nt2\r\n\r\n", "123", true),
            ("00a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", true),
            ("0\r\n\r\n", "", true),
            ("3\r\nabc\r\n", "abc", false),
            ("3\r\nab", "ab", false),
        ];
        for (wire, content, done) in cases {
            assert_eq!(chunked(wire).unwrap(), (content.to_owned(), done), "{wire:?}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        let long = format!("3;{}\r\n", "x".repeat(5000));
        let zeros = format!("{}3\r\n", "0".repeat(5000));
        let trailers = format!("0\r\n{}", "t: v\r\n".repeat(5000));
        for wire in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            " 3\r\n",
            "3\nabc\r\n",
            "3\rabc\r\n",
            "3;a\nabc",
            "3\r\nabcd\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabc\r0\r\n\r\n",
            "7fffffffffffffff\r\n",
            "10000000000000003\r\n",
            "0\r\nt\n\r\n",
            "0\r\n\rX",
            long.as_str(),
            zeros.as_str(),
            trailers.as_str(),
        ] {
            assert!(matches!(chunked(wire), Err(FetchError::Protocol { .. })), "{wire:?}");
        }
    }

    #[test]
    fn a_broken_body_stays_broken() {
        let mut body = Body::new(Framing::Chunked);
        assert!(body.next(b"x").is_err());
        assert!(body.next(b"3\r\nabc").is_err());
        assert!(body.on_eof().is_err());
    }

    #[test]
    fn chunks_that_are_mostly_extension_are_refused_before_long() {
        let wire = format!("1;{}\r\nx\r\n", "e".repeat(1000)).repeat(40);
        assert!(chunked(&wire).is_err());
        // Tiny chunks alone are honest.
        assert!(chunked(&"1\r\nx\r\n".repeat(40_000)).is_ok());
    }

    #[test]
    fn an_orderly_end_ends_only_a_body_that_may_end_there() {
        let mut body = Body::new(Framing::UntilClose);
        assert_eq!(body.next(b"abc").unwrap().content, b"abc");
        assert_eq!(body.on_eof().unwrap(), 3);
        assert!(body.is_done() && !body.is_reusable());

        let mut body = Body::new(Framing::Length(5));
        assert_eq!(body.next(b"abc").unwrap().content, b"abc");
        assert!(matches!(body.on_eof(), Err(FetchError::EndedEarly { got: 3, expected: Some(5) })));

        let mut body = Body::new(Framing::Chunked);
        assert_eq!(body.compact(&mut b"3\r\nabc\r\n".to_vec()).unwrap().content, 3);
        assert!(matches!(body.on_eof(), Err(FetchError::EndedEarly { got: 3, expected: None })));
        assert_eq!(body.compact(&mut b"0\r\n".to_vec()).unwrap().content, 0);
        assert_eq!(body.on_eof().unwrap(), 3);
    }

    #[test]
    fn what_follows_a_body_is_left_alone() {
        let mut body = Body::new(Framing::Length(3));
        let step = body.next(b"abcHTTP/1.1 200").unwrap();
        assert_eq!((step.content, step.consumed), (&b"abc"[..], 3));
        assert!(body.is_reusable());
        assert_eq!(body.next(b"HTTP").unwrap(), Step { content: b"", consumed: 0 });
    }

    #[test]
    fn content_moved_past_us_is_counted_but_never_beyond_its_end() {
        let mut body = Body::new(Framing::Length(10));
        body.advance(4);
        assert_eq!((body.run(), body.received()), (Some(6), 4));
        body.advance(100);
        assert_eq!(body.received(), 10);
        assert!(body.is_done());
    }

    fn wire_of(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut wire = Vec::new();
        for (i, chunk) in chunks.iter().enumerate().filter(|(_, c)| !c.is_empty()) {
            let extension = if i % 3 == 0 { ";name=\"v\"" } else { "" };
            wire.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
        wire
    }

    proptest! {
        #[test]
        fn however_the_input_is_split_the_content_is_the_same(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
            pieces in prop::collection::vec(1usize..90, 1..20),
        ) {
            let (content, wire) = (chunks.concat(), wire_of(&chunks));
            let (got, used, body) = read(Framing::Chunked, &wire, &pieces).unwrap();
            prop_assert_eq!(&got, &content);
            prop_assert_eq!(used, wire.len());
            prop_assert!(body.is_reusable());
            // And in place, with the beginning of another answer behind it.
            let mut body = Body::new(Framing::Chunked);
            let mut sizes = pieces.iter().cycle();
            let (mut got, mut from) = (Vec::new(), 0);
            let tail = [wire.as_slice(), b"HTTP/1.1"].concat();
            while !body.is_done() {
                let to = (from + sizes.next().unwrap()).min(tail.len());
                let mut buffer = tail[from..to].to_vec();
                let InPlace { content, consumed } = body.compact(&mut buffer).unwrap();
                got.extend_from_slice(&buffer[..content]);
                from += consumed;
            }
            prop_assert_eq!(&got, &content);
            prop_assert_eq!(from, wire.len());
        }

        #[test]
        fn no_input_makes_a_body_panic_or_invent_content(
            wire in prop::collection::vec(prop::sample::select(b"0123aF;\r\n x".to_vec()), 0..60),
            pieces in prop::collection::vec(1usize..10, 1..5),
        ) {
            let whole = read(Framing::Chunked, &wire, &[usize::MAX / 2]).ok().map(|r| (r.0, r.1));
            let split = read(Framing::Chunked, &wire, &pieces).ok().map(|r| (r.0, r.1));
            prop_assert_eq!(whole, split);
        }
    }
}
