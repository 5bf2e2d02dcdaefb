//! Decoders neither panic nor exceed their bounds, and give the same however their input is split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_engine::decode::{Coding, Decoder};

const CODINGS: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];
const MOST: u64 = 1 << 20;

fn decode(codings: &[Coding], data: &[u8], step: usize) -> Option<Vec<u8>> {
    let mut decoder = Decoder::new(codings, Some(MOST));
    let mut content = Vec::new();
    for piece in data.chunks(step) {
        decoder
            .feed(piece, &mut |bytes| {
                content.extend_from_slice(bytes);
                Ok(())
            })
            .ok()?;
        assert!(content.len() as u64 <= MOST);
    }
    assert_eq!(decoder.finish().ok()?, content.len() as u64);
    Some(content)
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    let coding = |shift: u8| CODINGS[usize::from(kind >> shift & 3)];
    let codings = [coding(0), coding(2), coding(4)];
    let codings = &codings[..1 + usize::from(kind >> 6).min(2)];
    let whole = decode(codings, data, data.len().max(1));
    assert_eq!(whole, decode(codings, data, 5));
});
