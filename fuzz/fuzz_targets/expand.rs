//! Patterns of URLs: no text is too strange, and the results keep their bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::expand::{MAX_BYTES, MAX_RESULTS, expand};

fuzz_target!(|text: &str| {
    if let Ok(results) = expand(text) {
        assert!((1..=MAX_RESULTS).contains(&results.len()));
        assert!(results.iter().map(String::len).sum::<usize>() <= MAX_BYTES);
    }
});
