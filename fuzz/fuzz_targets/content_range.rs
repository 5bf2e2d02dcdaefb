//! `Content-Range`: what is accepted is consistent, and is read again as what it is written as.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::headers::ContentRange;

fuzz_target!(|data: &[u8]| {
    let Ok(range) = ContentRange::parse(data) else { return };
    if let (Some(span), Some(total)) = (range.span(), range.total()) {
        assert!(span.end() <= total);
    }
    assert_eq!(ContentRange::parse(range.to_string().as_bytes()), Ok(range));
});
