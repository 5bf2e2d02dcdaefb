//! Digests of files and streams: whether the bytes are what somebody said they are.

use adler2::Adler32;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_core::digest::Pieces;
use tidegate_core::{Algorithm, Digest, Span};

/// How much is read at a time, in bytes. Each step can be cancelled.
const STEP: usize = 1 << 20;

/// Computes one digest of bytes as they come.
#[derive(Clone, Debug)]
pub struct Hasher {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Adler32(Adler32),
    Md5(Md5),
    Sha1(Sha1),
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    /// A hasher that has seen no byte yet.
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match algorithm {
            Algorithm::Adler32 => State::Adler32(Adler32::new()),
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
            Algorithm::Sha224 => State::Sha224(Sha224::new()),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha384 => State::Sha384(Sha384::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        };
        Self { state }
    }

    /// What it computes.
    pub fn algorithm(&self) -> Algorithm {
        match self.state {
            State::Adler32(_) => Algorithm::Adler32,
            State::Md5(_) => Algorithm::Md5,
            State::Sha1(_) => Algorithm::Sha1,
            State::Sha224(_) => Algorithm::Sha224,
            State::Sha256(_) => Algorithm::Sha256,
            State::Sha384(_) => Algorithm::Sha384,
            State::Sha512(_) => Algorithm::Sha512,
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Adler32(state) => state.write_slice(bytes),
            State::Md5(state) => state.update(bytes),
            State::Sha1(state) => state.update(bytes),
            State::Sha224(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Sha384(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// The digest of all bytes taken.
    pub fn finish(self) -> Digest {
        let algorithm = self.algorithm();
        let bytes = match self.state {
            State::Adler32(state) => state.checksum().to_be_bytes().to_vec(),
            State::Md5(state) => state.finalize().to_vec(),
            State::Sha1(state) => state.finalize().to_vec(),
            State::Sha224(state) => state.finalize().to_vec(),
            State::Sha256(state) => state.finalize().to_vec(),
            State::Sha384(state) => state.finalize().to_vec(),
            State::Sha512(state) => state.finalize().to_vec(),
        };
        #[expect(clippy::expect_used, reason = "each state is made for its algorithm, above")]
        Digest::new(algorithm, bytes).expect("a hasher makes digests of its algorithm's length")
    }
}

/// Reads a whole file once and computes the digest for each algorithm, in their order.
/// `progress` is told how many bytes have been read, after each step of 1 MiB.
///
/// # Errors
/// Those of reading; `Interrupted` when `cancel` was set.
pub fn hash_file(
    file: &File,
    algorithms: &[Algorithm],
    cancel: &AtomicBool,
    mut progress: impl FnMut(u64),
) -> io::Result<Vec<Digest>> {
    let mut hashers: Vec<Hasher> = algorithms.iter().map(|algorithm| Hasher::new(*algorithm)).collect();
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    loop {
        let count = read_step(file, at, &mut buffer, cancel)?;
        if count == 0 {
            return Ok(hashers.into_iter().map(Hasher::finish).collect());
        }
        hashers.iter_mut().for_each(|hasher| hasher.update(&buffer[..count]));
        at += count as u64;
        progress(at);
    }
}

/// The first of the digests that a file does not have, with what it has instead; `None` if it has all.
/// Of several, the strongest alone would do, but one that is wrong is a reason for doubt whatever the
/// others say.
///
/// # Errors
/// As [`hash_file`].
pub fn mismatch(
    file: &File,
    expected: &[Digest],
    cancel: &AtomicBool,
    progress: impl FnMut(u64),
) -> io::Result<Option<(Digest, Digest)>> {
    let mut algorithms: Vec<Algorithm> = expected.iter().map(Digest::algorithm).collect();
    algorithms.sort_unstable();
    // However many digests there are, the file is hashed once by each.
    algorithms.dedup();
    let found = hash_file(file, &algorithms, cancel, progress)?;
    let of = |expected: &Digest| found.iter().find(|found| found.algorithm() == expected.algorithm());
    let pairs = expected.iter().filter_map(|expected| Some((expected, of(expected)?)));
    let wrong = pairs.into_iter().find(|(expected, found)| expected != found);
    Ok(wrong.map(|(expected, found)| (expected.clone(), found.clone())))
}

/// Which pieces of a file of `length` bytes do not have their digest: the spans to fetch again, in order,
/// neighbours not joined. A piece without a digest (the list is too short) is bad, since nothing vouches
/// for it.
///
/// # Errors
/// Those of reading; `Interrupted` when `cancel` was set; `InvalidInput` for pieces of length 0.
pub fn bad_pieces(file: &File, length: u64, pieces: &Pieces, cancel: &AtomicBool) -> io::Result<Vec<Span>> {
    let mut bad = Vec::new();
    let mut expected = pieces.digests.iter();
    let mut start = 0;
    while start < length {
        let end = start.saturating_add(pieces.length).min(length);
        let span = Span::new(start, end).ok_or(io::ErrorKind::InvalidInput)?;
        let is_good = match expected.next() {
            Some(digest) => has_digest(file, span, digest, cancel)?,
            None => {
                // All the rest at once: there may be very many.
                bad.extend(Span::new(start, length));
                return Ok(bad);
            }
        };
        if !is_good {
            bad.push(span);
        }
        start = end;
    }
    Ok(bad)
}

/// Whether the bytes of `span` have this digest. Bytes beyond the end of the file have none.
///
/// # Errors
/// Those of reading; `Interrupted` when `cancel` was set.
pub fn has_digest(file: &File, span: Span, digest: &Digest, cancel: &AtomicBool) -> io::Result<bool> {
    let mut hasher = Hasher::new(digest.algorithm());
    let mut buffer = vec![0; STEP.min(usize::try_from(span.len()).unwrap_or(STEP))];
    let mut at = span.start();
    while at < span.end() {
        let wanted = buffer.len().min(usize::try_from(span.end() - at).unwrap_or(STEP));
        let count = read_step(file, at, &mut buffer[..wanted], cancel)?;
        if count == 0 {
            return Ok(false);
        }
        hasher.update(&buffer[..count]);
        at += count as u64;
    }
    Ok(hasher.finish() == *digest)
}

fn read_step(file: &File, at: u64, into: &mut [u8], cancel: &AtomicBool) -> io::Result<usize> {
    loop {
        if cancel.load(Ordering::Relaxed) {
            // Not the kernel's EINTR, which is asked again below.
            return Err(io::Error::new(io::ErrorKind::Interrupted, "cancelled"));
        }
        match file.read_at(into, at) {
            Err(error) if error.raw_os_error().is_some() && error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn go() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn every_algorithm_gives_the_digest_that_the_world_knows() {
        // Of "abc", from the standards' own examples.
        let known = [
            "adler32=024d0127",
            "md5=900150983cd24fb0d6963f7d28e17f72",
            "sha-1=a9993e364706816aba3e25717850c26c9cd0d89d",
            "sha-224=23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
            "sha-256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "sha-384=cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            "sha-512=ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ];
        let expected: Vec<Digest> = known.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(hash_file(&file(b"abc"), &Algorithm::ALL, &go(), |_| {}).unwrap(), expected);
        assert_eq!(mismatch(&file(b"abc"), &expected, &go(), |_| {}).unwrap(), None);
        let (wanted, found) = mismatch(&file(b"abd"), &expected[2..], &go(), |_| {}).unwrap().unwrap();
        assert_eq!(wanted, expected[2]);
        assert_ne!(found, wanted);
    }

    #[test]
    fn a_file_longer_than_one_step_is_read_to_its_end() {
        let bytes: Vec<u8> = (0..STEP * 2 + 7).map(|i| (i % 251) as u8).collect();
        let mut whole = Hasher::new(Algorithm::Sha256);
        whole.update(&bytes);
        let mut told = Vec::new();
        let found = hash_file(&file(&bytes), &[Algorithm::Sha256], &go(), |at| told.push(at)).unwrap();
        assert_eq!(found, [whole.finish()]);
        assert_eq!(told.last(), Some(&(bytes.len() as u64)));
    }

    fn pieces(length: u64, bytes: &[u8]) -> Pieces {
        let digests = bytes
            .chunks(length as usize)
            .map(|piece| {
                let mut hasher = Hasher::new(Algorithm::Sha1);
                hasher.update(piece);
                hasher.finish()
            })
            .collect();
        Pieces { length, digests }
    }

    fn span(start: u64, end: u64) -> Span {
        Span::new(start, end).unwrap()
    }

    #[test]
    fn a_flipped_bit_condemns_its_piece_and_no_other() {
        let mut bytes = vec![7; 10_500];
        let pieces = pieces(1000, &bytes);
        assert_eq!(bad_pieces(&file(&bytes), 10_500, &pieces, &go()).unwrap(), []);
        bytes[3000] ^= 1;
        bytes[10_499] ^= 1;
        assert_eq!(
            bad_pieces(&file(&bytes), 10_500, &pieces, &go()).unwrap(),
            [span(3000, 4000), span(10_000, 10_500)]
        );
    }

    #[test]
    fn a_piece_that_is_missing_or_has_no_digest_is_bad() {
        let bytes = vec![7; 3000];
        let mut pieces = pieces(1000, &bytes);
        assert_eq!(bad_pieces(&file(&bytes[..2500]), 3000, &pieces, &go()).unwrap(), [span(2000, 3000)]);
        pieces.digests.truncate(1);
        assert_eq!(bad_pieces(&file(&bytes), 3000, &pieces, &go()).unwrap(), [span(1000, 3000)]);
        pieces.length = 0;
        assert_eq!(
            bad_pieces(&file(&bytes), 3000, &pieces, &go()).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn a_cancelled_computation_ends() {
        let cancelled = AtomicBool::new(true);
        let error = hash_file(&file(b"abc"), &[Algorithm::Md5], &cancelled, |_| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }
}
