//! The head of an answer reads the same however it is split, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_engine::http1::{Body, Head, HeadBuffer};

/// The head and how many bytes follow it, reading `step` bytes at a time.
fn read(data: &[u8], step: usize) -> Option<(Head, usize)> {
    let mut buffer = HeadBuffer::new(false);
    let mut from = 0;
    for piece in data.chunks(step) {
        buffer.push(piece);
        from += piece.len();
        match buffer.parse() {
            Ok(None) => {}
            Ok(Some(head)) => return Some((head, data.len() - from + buffer.leftover().len())),
            Err(_) => return None,
        }
    }
    None
}

fuzz_target!(|data: &[u8]| {
    let whole = read(data, data.len().max(1));
    assert_eq!(whole, read(data, 1));
    if let Some((head, _)) = whole {
        assert!(head.status >= 200);
        let _ = Body::of(&head);
    }
});
