//! Metalink documents: no bytes are too strange, and what is taken is safe to use.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::{Component, Path};
use tidegate_core::metalink::{MAX_FILES, MAX_MIRRORS, parse};
use url::Url;

fuzz_target!(|data: &[u8]| {
    let base = Url::parse("http://base.example/dir/file").expect("a constant");
    let Ok(metalink) = parse(data, Some(&base)) else { return };
    assert!((1..=MAX_FILES).contains(&metalink.files.len()));
    for file in &metalink.files {
        let path = Path::new(&file.name);
        assert!(path.file_name().is_some());
        assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
        assert!(file.mirrors.len() <= MAX_MIRRORS);
        assert!(file.mirrors.is_sorted_by_key(|m| m.priority));
        assert!(file.mirrors.iter().all(|m| matches!(m.mirror.url().scheme(), "http" | "https")));
        if let (Some(size), Some(pieces)) = (file.size, &file.pieces) {
            assert_eq!(pieces.digests.len() as u64, size.div_ceil(pieces.length));
        }
    }
});
