//! Deterministic content of any length, never held in memory.
//!
//! A byte is a function of the body and its offset, so a test can ask for the expected bytes of any
//! range of a 5 GiB file, and two processes agree about a file by its seed and length alone.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// The length of the block in which [`Body::with_block_changed`] differs, in bytes.
pub const BLOCK: u64 = 4096;

const CHUNK: usize = 64 * 1024;

/// Content that can be read at any offset. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Body {
    len: u64,
    kind: Arc<Kind>,
}

#[derive(Debug)]
enum Kind {
    Random { seed: u64 },
    Fill(u8),
    Runs { seed: u64, run: u64 },
    Text,
    Bytes(Vec<u8>),
    Repeated(Vec<u8>),
    Inverted { base: Body, span: Range<u64> },
    Joined(Vec<(u64, Body)>),
    Slice { base: Body, from: u64 },
}

impl Body {
    /// `len` bytes of noise. Equal seeds give equal bytes, and a longer body begins with the shorter.
    pub fn random(seed: u64, len: u64) -> Self {
        Self::of(len, Kind::Random { seed })
    }

    /// `len` zero bytes.
    pub fn zeros(len: u64) -> Self {
        Self::filled(0, len)
    }

    /// `len` times the same byte.
    pub fn filled(byte: u8, len: u64) -> Self {
        Self::of(len, Kind::Fill(byte))
    }

    /// Runs of one repeated byte, each `run` bytes long (at least one), of `len` bytes in all: content
    /// in which a window of a few KiB says little about where it lies.
    pub fn runs(seed: u64, run: u64, len: u64) -> Self {
        Self::of(len, Kind::Runs { seed, run: run.max(1) })
    }

    /// Numbered lines of 16 ASCII bytes each, which compress well; the last may be cut.
    pub fn text(len: u64) -> Self {
        Self::of(len, Kind::Text)
    }

    /// Exactly these bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::of(bytes.len() as u64, Kind::Bytes(bytes))
    }

    /// The same unit, `times` times after itself.
    pub fn repeated(unit: impl Into<Vec<u8>>, times: u64) -> Self {
        let unit = unit.into();
        Self::of((unit.len() as u64).saturating_mul(times), Kind::Repeated(unit))
    }

    /// The bodies one after another.
    pub fn joined(parts: impl IntoIterator<Item = Body>) -> Self {
        let mut starts = Vec::new();
        let mut len = 0u64;
        for part in parts.into_iter().filter(|part| part.len > 0) {
            starts.push((len, part.clone()));
            len = len.saturating_add(part.len);
        }
        Self::of(len, Kind::Joined(starts))
    }

    /// This body and then `tail`: a file that has grown.
    pub fn followed_by(&self, tail: Body) -> Self {
        Self::joined([self.clone(), tail])
    }

    /// The bytes of `span` (clipped to the body) as a body of their own.
    pub fn slice(&self, span: Range<u64>) -> Self {
        let from = span.start.min(self.len);
        let to = span.end.clamp(from, self.len);
        Self::of(to - from, Kind::Slice { base: self.clone(), from })
    }

    /// An equal body but for the block of [`BLOCK`] bytes that holds `offset`, where every byte differs.
    pub fn with_block_changed(&self, offset: u64) -> Self {
        let start = offset / BLOCK * BLOCK;
        self.with_span_changed(start..start.saturating_add(BLOCK))
    }

    /// An equal body in which every byte of `span` differs.
    pub fn with_span_changed(&self, span: Range<u64>) -> Self {
        Self::of(self.len, Kind::Inverted { base: self.clone(), span })
    }

    /// This body up to `offset`, and `other` from there on: what a careless resume makes.
    pub fn spliced(&self, offset: u64, other: &Body) -> Self {
        Self::joined([self.slice(0..offset), other.slice(offset..u64::MAX)])
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `buffer` with the bytes from `offset` on, and returns how many there were: fewer than
    /// `buffer.len()` only at the end of the body.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let left = self.len.saturating_sub(offset);
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if take > 0 {
            self.fill(offset, &mut buffer[..take]);
        }
        take
    }

    /// The bytes of `span`, clipped to the body. For small spans: they are held in memory.
    pub fn bytes_of(&self, span: Range<u64>) -> Vec<u8> {
        let part = self.slice(span);
        let mut bytes = vec![0; usize::try_from(part.len).unwrap_or(0)];
        part.read_at(0, &mut bytes);
        bytes
    }

    /// The whole body. For small bodies: it is held in memory.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes_of(0..self.len)
    }

    /// Reads the body from its beginning.
    pub fn reader(&self) -> Reader {
        Reader { body: self.clone(), at: 0 }
    }

    /// The SHA-256 digest of the whole body.
    pub fn sha256(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        loop {
            match self.read_at(at, &mut buffer) {
                0 => return hasher.finalize().into(),
                n => {
                    hasher.update(&buffer[..n]);
                    at += n as u64;
                }
            }
        }
    }

    /// [`Body::sha256`] in lower-case hexadecimal.
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256())
    }

    /// The offset of the first byte in which `other` differs from this body; where one is the beginning
    /// of the other, the length of the shorter. `None` when they are equal.
    ///
    /// # Errors
    /// Those of reading `other`.
    pub fn first_difference(&self, mut other: impl Read) -> io::Result<Option<u64>> {
        let (mut theirs, mut ours) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut at = 0u64;
        loop {
            let n = match other.read(&mut theirs) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if n == 0 {
                return Ok((at != self.len).then_some(at));
            }
            let m = self.read_at(at, &mut ours[..n]);
            if let Some(i) = (0..n).find(|&i| i >= m || theirs[i] != ours[i]) {
                return Ok(Some(at + i as u64));
            }
            at += n as u64;
        }
    }

    /// [`Body::first_difference`] from a file.
    ///
    /// # Errors
    /// Those of opening and reading the file.
    pub fn first_difference_in(&self, path: impl AsRef<Path>) -> io::Result<Option<u64>> {
        self.first_difference(File::open(path)?)
    }

    fn of(len: u64, kind: Kind) -> Self {
        Self { len, kind: Arc::new(kind) }
    }

    /// Fills all of `out`, which is not empty; the caller has clipped it to the body.
    fn fill(&self, offset: u64, out: &mut [u8]) {
        match &*self.kind {
            Kind::Random { seed } => fill_random(*seed, offset, out),
            Kind::Fill(byte) => out.fill(*byte),
            Kind::Runs { seed, run } => pieces(offset, *run, out, |index, _, piece| {
                piece.fill(mix(seed.wrapping_add(index)) as u8);
            }),
            Kind::Text => pieces(offset, 16, out, |index, within, piece| {
                let line = text_line(index);
                piece.copy_from_slice(&line[within..within + piece.len()]);
            }),
            Kind::Bytes(bytes) => {
                let from = offset as usize;
                out.copy_from_slice(&bytes[from..from + out.len()]);
            }
            Kind::Repeated(unit) => pieces(offset, unit.len().max(1) as u64, out, |_, within, piece| {
                piece.copy_from_slice(&unit[within..within + piece.len()]);
            }),
            Kind::Inverted { base, span } => {
                base.fill(offset, out);
                let end = offset + out.len() as u64;
                if span.start < end && span.end > offset {
                    let from = (span.start.max(offset) - offset) as usize;
                    let to = (span.end.min(end) - offset) as usize;
                    out[from..to].iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
            Kind::Joined(parts) => {
                let mut index = parts.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
                let mut filled = 0;
                while filled < out.len() {
                    let Some((start, part)) = parts.get(index) else { break };
                    filled += part.read_at(offset + filled as u64 - start, &mut out[filled..]);
                    index += 1;
                }
            }
            Kind::Slice { base, from } => base.fill(from + offset, out),
        }
    }
}

/// Reads a [`Body`] in order.
#[derive(Clone, Debug)]
pub struct Reader {
    body: Body,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.body.read_at(self.at, buffer);
        self.at += n as u64;
        Ok(n)
    }
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// SplitMix64's finisher: every bit of the input moves every bit of the output.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn fill_random(seed: u64, offset: u64, out: &mut [u8]) {
    let base = mix(seed);
    let word = |index: u64| mix(base.wrapping_add(index)).to_le_bytes();
    let within = (offset % 8) as usize;
    let mut index = offset / 8;
    let mut rest = out;
    if within > 0 {
        let take = rest.len().min(8 - within);
        let (head, tail) = rest.split_at_mut(take);
        head.copy_from_slice(&word(index)[within..within + take]);
        rest = tail;
        index += 1;
    }
    let mut words = rest.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(index));
        index += 1;
    }
    let tail = words.into_remainder();
    let n = tail.len();
    tail.copy_from_slice(&word(index)[..n]);
}

/// Cuts `out` where units of `unit` bytes begin, and hands each piece over with its unit's index and
/// its place within the unit.
fn pieces(offset: u64, unit: u64, out: &mut [u8], mut put: impl FnMut(u64, usize, &mut [u8])) {
    let mut filled = 0;
    while filled < out.len() {
        let at = offset + filled as u64;
        let within = at % unit;
        let left = usize::try_from(unit - within).unwrap_or(usize::MAX);
        let end = filled.saturating_add(left).min(out.len());
        put(at / unit, within as usize, &mut out[filled..end]);
        filled = end;
    }
}

fn text_line(mut index: u64) -> [u8; 16] {
    let mut line = [b'0'; 16];
    line[15] = b'\n';
    for digit in line[..15].iter_mut().rev() {
        *digit = b'0' + (index % 10) as u8;
        index /= 10;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn every_kind(len: u64) -> Vec<Body> {
        let random = Body::random(7, len);
        vec![
            random.clone(),
            Body::zeros(len),
            Body::runs(7, 1000, len),
            Body::text(len),
            Body::bytes(random.to_vec()),
            Body::repeated(*b"abcdefg", len / 7),
            random.with_block_changed(len / 2),
            random.slice(0..len / 3).followed_by(Body::text(len / 3)).followed_by(Body::bytes("end")),
            random.slice(13..len),
            random.spliced(len / 2, &Body::zeros(len)),
        ]
    }

    proptest! {
        #[test]
        fn any_window_equals_the_same_window_of_the_whole(
            len in 1u64..20_000, from in 0u64..21_000, window in 0usize..9_000,
        ) {
            for body in every_kind(len) {
                let whole = body.to_vec();
                prop_assert_eq!(whole.len() as u64, body.len());
                let mut read = vec![0xAA; window];
                let n = body.read_at(from, &mut read);
                let from = (from as usize).min(whole.len());
                prop_assert_eq!(&read[..n], &whole[from..whole.len().min(from + window)]);
            }
        }
    }

    #[test]
    fn far_offsets_of_a_long_body_can_be_read_without_holding_it() {
        let long = Body::random(1, 5 << 30);
        let mut word = [0; 16];
        assert_eq!(long.read_at((5 << 30) - 9, &mut word), 9);
        assert_ne!(word[..8], [0; 8]);
        assert_eq!(Body::random(1, u64::MAX).read_at(u64::MAX - 3, &mut word), 3);
        assert_eq!(long.read_at(u64::MAX, &mut word), 0);
    }

    #[test]
    fn a_changed_block_differs_in_each_of_its_bytes_and_nowhere_else() {
        let body = Body::random(3, 20_000);
        let changed = body.with_block_changed(9_000);
        let (was, is) = (body.to_vec(), changed.to_vec());
        let differing: Vec<_> = (0..was.len()).filter(|&i| was[i] != is[i]).collect();
        assert_eq!(differing, (8192..12_288).collect::<Vec<_>>());
        assert_eq!(body.first_difference(changed.reader()).unwrap(), Some(8192));
    }

    #[test]
    fn a_difference_in_length_is_a_difference() {
        let body = Body::random(3, 100);
        assert_eq!(body.first_difference(body.reader()).unwrap(), None);
        assert_eq!(body.first_difference(body.slice(0..99).reader()).unwrap(), Some(99));
        assert_eq!(body.first_difference(Body::random(3, 101).reader()).unwrap(), Some(100));
    }

    #[test]
    fn seeds_differ_and_the_digest_is_the_standard_one() {
        assert_ne!(Body::random(1, 64).to_vec(), Body::random(2, 64).to_vec());
        // Neighbouring seeds must not be the same stream, shifted.
        let (one, two) = (Body::random(1, 4096).to_vec(), Body::random(2, 4096).to_vec());
        assert!(!one.windows(8).any(|window| window == &two[..8]));
        assert_eq!(
            Body::bytes("abc").sha256_hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn text_is_numbered_lines() {
        assert_eq!(Body::text(32).to_vec(), b"000000000000000\n000000000000001\n");
    }
}
