//! Content codings, undone while the body streams past.
//!
//! We ask for `identity`; servers that encode anyway exist, and then the file is what comes out here.
//! All decoders are in Rust (flate2 over miniz_oxide, brotli-decompressor, ruzstd): no C parses what a
//! stranger sends. They are foreign code all the same, so a panic of theirs is an error of the body,
//! and neither their memory nor their output may grow without bound.

mod brotli;
mod inflate;
mod zstd;

use crate::failure::{FetchError, shown};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidegate_core::headers::Headers;

/// Most codings on top of each other.
const MOST_CODINGS: usize = 3;
/// Most bytes of output for each byte of input; deflate cannot honestly exceed 1,032.
const MOST_RATIO: u64 = 1100;
/// Output below which no ratio is suspicious.
const FREE: u64 = 16 << 20;
/// Output from which even a ratio is suspicious that deflate can reach: files of nothing but zeros are
/// not what servers encode unasked, and gigabytes of them are what fills a disk.
const LARGE: u64 = 1 << 30;
const MOST_RATIO_OF_LARGE: u64 = 200;
/// Bytes of the buffer that each coding decodes into.
const ROOM: usize = 64 * 1024;

/// A content coding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or bare RFC 1951 as some servers send.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// Reads a word of `Content-Encoding`. `identity` is none.
    pub fn from_token(token: &str) -> Option<Self> {
        let is = |word: &str| token.eq_ignore_ascii_case(word);
        match () {
            () if is("gzip") || is("x-gzip") => Some(Self::Gzip),
            () if is("deflate") => Some(Self::Deflate),
            () if is("br") => Some(Self::Brotli),
            () if is("zstd") => Some(Self::Zstd),
            () => None,
        }
    }

    /// The codings of an answer in the order they were applied, at most three; empty if it is not
    /// encoded.
    ///
    /// # Errors
    /// [`FetchError::EncodingUnknown`].
    pub fn of(headers: &Headers) -> Result<Vec<Self>, FetchError> {
        let mut codings = Vec::new();
        for value in headers.get_all("content-encoding") {
            for token in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                if token.is_empty() || token.eq_ignore_ascii_case(b"identity") {
                    continue;
                }
                match std::str::from_utf8(token).ok().and_then(Self::from_token) {
                    Some(coding) if codings.len() < MOST_CODINGS => codings.push(coding),
                    _ => return Err(FetchError::EncodingUnknown { coding: shown(value) }),
                }
            }
        }
        Ok(codings)
    }
}

/// The word in `Content-Encoding`.
impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        })
    }
}

/// How decoding went wrong.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The encoded bytes are damaged or cut.
    #[error("the {coding} encoding of the file is damaged: {why}")]
    Damaged {
        /// Which coding.
        coding: Coding,
        /// What is wrong.
        why: String,
    },
    /// More came out than an honest file has.
    #[error("the encoded file grows beyond all measure: {input} bytes became more than {output}")]
    Bomb {
        /// Bytes of input so far.
        input: u64,
        /// Bytes of output at which it was stopped.
        output: u64,
    },
    /// Whoever takes the output failed.
    #[error("the decoded bytes could not be written: {0}")]
    Sink(#[source] io::Error),
}

/// Undoes the codings of one body.
///
/// Uses at most about 100 KiB for gzip and deflate, 17 MiB for brotli (its largest window) and 9 MiB
/// for zstd (the largest window that RFC 9659 lets a server use).
pub struct Decoder {
    /// The coding applied last is undone first.
    links: Vec<Link>,
    most: Option<u64>,
    input: u64,
    output: u64,
    /// An error was returned: what comes out any more would be nonsense.
    broken: Option<Coding>,
}

/// One coding, and how much it made of how much.
struct Link {
    coding: Coding,
    stage: Box<dyn Stage>,
    input: u64,
    output: u64,
}

/// Undoes one coding.
trait Stage: Send {
    /// Takes all of `input`, and emits all that can be known from it.
    fn feed(&mut self, input: &[u8], emit: &mut Emit<'_>) -> Result<(), DecodeError>;

    /// Whether the input may end here; why not, otherwise. Not asked if there was no input at all.
    fn may_end(&self) -> Result<(), String>;
}

type Emit<'a> = dyn FnMut(&[u8]) -> Result<(), DecodeError> + 'a;

impl Decoder {
    /// A decoder for a body that these codings were applied to, in this order. Without any, bytes pass
    /// through. More than `most` bytes of output are a [`DecodeError::Bomb`].
    pub fn new(codings: &[Coding], most: Option<u64>) -> Self {
        let link = |coding: &Coding| Link {
            coding: *coding,
            stage: match coding {
                Coding::Gzip => Box::new(inflate::Gzip::new()),
                Coding::Deflate => Box::new(inflate::Deflate::new()),
                Coding::Brotli => Box::new(brotli::Brotli::new()),
                Coding::Zstd => Box::new(zstd::Zstd::new()),
            },
            input: 0,
            output: 0,
        };
        // `Coding::of` gives no more; what a caller made up is bounded too.
        let links = codings.iter().rev().take(MOST_CODINGS).map(link).collect();
        Self { links, most, input: 0, output: 0, broken: None }
    }

    /// Bytes of output so far.
    pub fn output(&self) -> u64 {
        self.output
    }

    /// Decodes the next bytes of the body. `out` is called with pieces of at most 64 KiB, or with
    /// `input` itself if there is no coding.
    ///
    /// # Errors
    /// [`DecodeError`]; what went to `out` before is then not to be used, and every later call fails.
    pub fn feed(
        &mut self,
        input: &[u8],
        out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), DecodeError> {
        self.usable()?;
        self.input = self.input.saturating_add(input.len() as u64);
        let Self { links, most, output, input: fed, .. } = self;
        let result = push(links, input, &mut |bytes| {
            *output = output.saturating_add(bytes.len() as u64);
            if most.is_some_and(|most| *output > most) || is_bomb(*fed, *output) {
                return Err(DecodeError::Bomb { input: *fed, output: *output });
            }
            out(bytes).map_err(DecodeError::Sink)
        });
        self.noting(result)
    }

    /// Says that the body has ended, and gives the bytes of output in all. An empty body is an empty
    /// file in every coding.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if it was cut.
    pub fn finish(&mut self) -> Result<u64, DecodeError> {
        self.usable()?;
        let cut = self.links.iter().filter(|link| link.input > 0).find_map(|link| {
            link.stage.may_end().err().map(|why| DecodeError::Damaged { coding: link.coding, why })
        });
        self.noting(cut.map_or(Ok(self.output), Err))
    }

    fn usable(&self) -> Result<(), DecodeError> {
        self.broken.map_or(Ok(()), |coding| {
            Err(DecodeError::Damaged { coding, why: "it went wrong before".to_owned() })
        })
    }

    fn noting<T>(&mut self, result: Result<T, DecodeError>) -> Result<T, DecodeError> {
        if let Err(error) = &result {
            self.broken = match error {
                DecodeError::Damaged { coding, .. } => Some(*coding),
                // Whatever was outermost: the message will say that it had failed before.
                _ => Some(self.links.first().map_or(Coding::Gzip, |link| link.coding)),
            };
        }
        result
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codings: Vec<_> = self.links.iter().rev().map(|l| l.coding).collect();
        write!(f, "Decoder({codings:?}, {} bytes became {})", self.input, self.output)
    }
}

fn push(links: &mut [Link], bytes: &[u8], out: &mut Emit<'_>) -> Result<(), DecodeError> {
    let Some((link, rest)) = links.split_first_mut() else {
        return if bytes.is_empty() { Ok(()) } else { out(bytes) };
    };
    link.input = link.input.saturating_add(bytes.len() as u64);
    let Link { stage, input, output, .. } = link;
    stage.feed(bytes, &mut |bytes| {
        // Each coding alone is measured too, or one could do work without bound for the next, which
        // makes nothing of it.
        *output = output.saturating_add(bytes.len() as u64);
        if is_bomb(*input, *output) {
            return Err(DecodeError::Bomb { input: *input, output: *output });
        }
        push(rest, bytes, out)
    })
}

fn is_bomb(input: u64, output: u64) -> bool {
    (output > FREE && output > input.saturating_mul(MOST_RATIO))
        || (output > LARGE && output > input.saturating_mul(MOST_RATIO_OF_LARGE))
}

/// Calls into a foreign decoder.
fn call<T>(coding: Coding, f: impl FnOnce() -> T) -> Result<T, DecodeError> {
    // After a panic the decoder's state is never looked at again: `Decoder` is broken then.
    catch_unwind(AssertUnwindSafe(f))
        .map_err(|_| DecodeError::Damaged { coding, why: "its decoder gave up".to_owned() })
}

#[cfg(test)]
mod tests;
