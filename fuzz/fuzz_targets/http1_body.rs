//! The content of a body is the same however it is split, in place or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_engine::http1::{Body, Framing};

/// The content, what was consumed and whether the body has ended; `None` if it is malformed.
fn read(framing: Framing, data: &[u8], step: usize) -> Option<(Vec<u8>, usize, bool)> {
    let mut body = Body::new(framing);
    let (mut content, mut consumed) = (Vec::new(), 0);
    while consumed < data.len() && !body.is_done() {
        let mut piece = &data[consumed..data.len().min(consumed.saturating_add(step))];
        while !piece.is_empty() && !body.is_done() {
            let step = body.next(piece).ok()?;
            assert!(step.consumed > 0);
            content.extend_from_slice(step.content);
            consumed += step.consumed;
            piece = &piece[step.consumed..];
        }
    }
    assert_eq!(body.received(), content.len() as u64);
    let done = body.is_done();
    if let Ok(n) = body.on_eof() {
        assert_eq!(n, content.len() as u64);
    }
    Some((content, consumed, done))
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    let framing = match kind {
        0 => Framing::UntilClose,
        1 => Framing::Empty,
        n if n < 16 => Framing::Length(u64::from(n)),
        _ => Framing::Chunked,
    };
    let whole = read(framing, data, usize::MAX);
    assert_eq!(whole, read(framing, data, 1 + usize::from(kind % 7)));
    let mut buffer = data.to_vec();
    let in_place = Body::new(framing).compact(&mut buffer).ok();
    assert_eq!(
        whole.map(|(content, consumed, _)| (content, consumed)),
        in_place.map(|p| (buffer[..p.content].to_vec(), p.consumed))
    );
});
