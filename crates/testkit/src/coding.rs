//! Coded content: gzip, deflate, br and zstd, and bombs of any size that are never held.
//!
//! br and zstd are written with stored blocks only: they test a decoder's limits, not its ratio.

use std::io::Read as _;

use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};
use flate2::{Compress, Compression, Crc, FlushCompress};

use crate::body::Body;

/// The header of a gzip member with no name and no time (RFC 1952 2.3).
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty last deflate block with fixed codes.
const DEFLATE_END: [u8; 2] = [0x03, 0x00];
/// Zeros in one unit of a gzip bomb, in bytes.
const BOMB_UNIT: usize = 1 << 20;
/// The most content of one zstd block, in bytes (RFC 8878 3.1.1.2.4).
const ZSTD_BLOCK: usize = 128 * 1024;

/// Compressed by gzip. Held in memory.
pub fn gzip(body: &Body) -> Body {
    let mut coded = Vec::new();
    // Reading a Body and writing to memory do not fail.
    let _ = GzEncoder::new(body.reader(), Compression::fast()).read_to_end(&mut coded);
    Body::bytes(coded)
}

/// Compressed by deflate in its zlib wrapping, which is what HTTP calls `deflate`. Held in memory.
pub fn deflate(body: &Body) -> Body {
    let mut coded = Vec::new();
    let _ = ZlibEncoder::new(body.reader(), Compression::fast()).read_to_end(&mut coded);
    Body::bytes(coded)
}

/// Compressed by deflate without its wrapping, as some servers mean `deflate`. Held in memory.
pub fn raw_deflate(body: &Body) -> Body {
    let mut coded = Vec::new();
    let _ = DeflateEncoder::new(body.reader(), Compression::fast()).read_to_end(&mut coded);
    Body::bytes(coded)
}

/// In brotli's format, stored (RFC 7932 9.2).
pub fn brotli(body: &Body) -> Body {
    // WBITS 16 is the single bit 0; each meta-block: ISLAST 0, MNIBBLES 4 (00), MLEN - 1 in 16 bits,
    // ISUNCOMPRESSED 1, padding to a byte. The first one is shifted by the bit of WBITS.
    const MOST: u64 = 1 << 16;
    let mut parts = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let len = MOST.min(body.len() - at);
        let header = ((len as u32) - 1) << 3 | 1 << 19;
        let header = if at == 0 { header << 1 } else { header };
        parts.push(Body::bytes(header.to_le_bytes()[..3].to_vec()));
        parts.push(body.slice(at..at + len));
        at += len;
    }
    // ISLAST 1, ISLASTEMPTY 1; after WBITS where nothing came before.
    parts.push(Body::bytes(vec![if at == 0 { 0b110 } else { 0b11 }]));
    Body::joined(parts)
}

/// In zstd's format, stored (RFC 8878 3.1).
pub fn zstd(body: &Body) -> Body {
    let mut parts = vec![Body::bytes(zstd_header())];
    let mut at = 0;
    loop {
        let len = (ZSTD_BLOCK as u64).min(body.len() - at);
        let last = at + len == body.len();
        parts.push(Body::bytes(zstd_block(last, 0, len as u32)));
        parts.push(body.slice(at..at + len));
        at += len;
        if last {
            return Body::joined(parts);
        }
    }
}

/// A gzip member of zeros, a thousandth of `len` long; `len` is rounded up to whole MiB.
pub fn gzip_bomb(len: u64) -> Body {
    let unit = vec![0; BOMB_UNIT];
    let times = len.div_ceil(BOMB_UNIT as u64).max(1);
    let mut crc = Crc::new();
    crc.update(&unit);
    let crc = crc_of_repeated(&crc, times);
    let mut tail = DEFLATE_END.to_vec();
    tail.extend_from_slice(&crc.to_le_bytes());
    tail.extend_from_slice(&((times.wrapping_mul(BOMB_UNIT as u64)) as u32).to_le_bytes());
    Body::joined([Body::bytes(GZIP_HEADER), Body::repeated(deflated_alone(&unit), times), Body::bytes(tail)])
}

/// A zstd frame of zeros, a thirty-thousandth of `len` long; `len` is rounded up to whole 128 KiB.
pub fn zstd_bomb(len: u64) -> Body {
    let times = len.div_ceil(ZSTD_BLOCK as u64).max(1);
    let block = |last| {
        let mut block = zstd_block(last, 1, ZSTD_BLOCK as u32).to_vec();
        block.push(0);
        block
    };
    Body::joined([
        Body::bytes(zstd_header()),
        Body::repeated(block(false), times - 1),
        Body::bytes(block(true)),
    ])
}

/// A piece of a deflate stream that refers to nothing before it and ends at a byte.
fn deflated_alone(unit: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::best(), false);
    let mut coded = Vec::with_capacity(unit.len() / 2 + 1024);
    // The output has room for everything, so one call does it; it fails only for a bad dictionary.
    let _ = compress.compress_vec(unit, &mut coded, FlushCompress::Full);
    coded
}

/// The checksum of `times` equal units, by doubling.
fn crc_of_repeated(unit: &Crc, times: u64) -> u32 {
    let mut result = Crc::new();
    let mut power = Crc::new();
    power.combine(unit);
    let mut left = times;
    while left > 0 {
        if left & 1 == 1 {
            result.combine(&power);
        }
        let same = {
            let mut copy = Crc::new();
            copy.combine(&power);
            copy
        };
        power.combine(&same);
        left >>= 1;
    }
    result.sum()
}

fn zstd_header() -> Vec<u8> {
    // Magic; a descriptor with neither size, checksum nor dictionary; a window of 128 KiB (exponent 7).
    vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3]
}

fn zstd_block(last: bool, kind: u32, size: u32) -> [u8; 3] {
    let header = (size << 3 | kind << 1 | u32::from(last)).to_le_bytes();
    [header[0], header[1], header[2]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn read(mut reader: impl Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn samples() -> Vec<Body> {
        [0, 1, 65_535, 65_536, 65_537, 131_072, 300_000].map(|len| Body::random(9, len)).to_vec()
    }

    #[test]
    fn what_is_coded_can_be_decoded_by_someone_else() {
        for body in samples() {
            let plain = body.to_vec();
            assert_eq!(read(flate2::read::GzDecoder::new(gzip(&body).reader())), plain);
            assert_eq!(read(flate2::read::ZlibDecoder::new(deflate(&body).reader())), plain);
            assert_eq!(read(flate2::read::DeflateDecoder::new(raw_deflate(&body).reader())), plain);
            assert_eq!(read(brotli_decompressor::Decompressor::new(brotli(&body).reader(), 4096)), plain);
            assert_eq!(read(ruzstd::decoding::StreamingDecoder::new(zstd(&body).reader()).unwrap()), plain);
        }
    }

    #[test]
    fn bombs_are_small_right_and_all_zero() {
        let len = 5 << 20;
        let bomb = gzip_bomb(len);
        assert!(bomb.len() < len / 500, "{} bytes", bomb.len());
        // The decoder checks length and checksum at the end.
        let plain = read(flate2::read::GzDecoder::new(bomb.reader()));
        assert_eq!(Body::zeros(len).first_difference(&plain[..]).unwrap(), None);
        let bomb = zstd_bomb(len);
        assert!(bomb.len() < len / 10_000);
        let plain = read(ruzstd::decoding::StreamingDecoder::new(bomb.reader()).unwrap());
        assert_eq!(Body::zeros(len).first_difference(&plain[..]).unwrap(), None);
        assert!(gzip_bomb(100 << 30).len() < 200 << 20, "made without being held");
    }
}
