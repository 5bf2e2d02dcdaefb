//! `Content-Disposition`, and the file name that comes of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use tidegate_core::file_name::{MAX_NAME, Portability, SafeName, relative_path};
use tidegate_core::headers::ContentDisposition;

fuzz_target!(|data: &[u8]| {
    let Ok(ContentDisposition { file_name: Some(name), .. }) = ContentDisposition::parse(data) else {
        return;
    };
    assert!(!name.is_empty());
    for portability in [Portability::Everywhere, Portability::Here] {
        if let Some(safe) = SafeName::from_disposition(&name, portability) {
            assert!(safe.as_str().len() <= MAX_NAME && !safe.as_str().starts_with('.'));
            assert!(relative_path(Path::new(safe.as_str())).is_ok());
        }
    }
});
