//! Input files: no bytes are too strange, and every entry has somewhere to fetch from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::uri_list::parse;

fuzz_target!(|data: &[u8]| {
    if let Ok(entries) = parse(data) {
        assert!(entries.iter().all(|entry| !entry.uris.is_empty() && entry.line > 0));
        assert!(entries.iter().flat_map(|entry| &entry.options).all(|(name, _)| !name.is_empty()));
        assert!(entries.is_sorted_by_key(|entry| entry.line));
    }
});
