//! A whole head: two bytes of status, then lines `NAME: VALUE`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::headers::{Coding, Headers, MAX_RETRY_AFTER};
use tidegate_core::{Answer, Framing};

fuzz_target!(|data: &[u8]| {
    let Some((status, head)) = data.split_first_chunk::<2>() else { return };
    let status = u16::from_be_bytes(*status);
    let mut headers = Headers::new();
    for line in head.split(|&b| b == b'\n').take(64) {
        let colon = line.iter().position(|&b| b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        headers.push(&String::from_utf8_lossy(&line[..colon]), value);
    }
    for status in [status, 200, 206, 302, 416] {
        let answer = Answer::parse(status, status % 2 == 1, &headers, 1_700_000_000);
        assert!(answer.identity.length.is_none_or(|n| n <= i64::MAX as u64));
        assert!(answer.codings.is_empty() || answer.identity.length.is_none());
        assert!(answer.codings.len() <= 5 && answer.links.duplicates.len() <= 64);
        assert!(!answer.codings.contains(&Coding::Unknown("identity".to_owned())));
        assert!(answer.retry_after.is_none_or(|d| d <= MAX_RETRY_AFTER));
        assert!(!answer.keep_alive || !matches!(answer.framing, Ok(Framing::UntilClose) | Err(_)));
        if let (206, Some(Ok(range)), Some(body)) = (status, answer.content_range, answer.body_length()) {
            assert!(range.span().is_none_or(|span| span.len() == body));
        }
    }
});
