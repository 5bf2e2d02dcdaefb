//! Names and links into safe names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use tidegate_core::file_name::{ChosenBy, MAX_NAME, Portability, SafeName, numbered, relative_path};
use url::Url;

fn check(name: &SafeName) {
    let name = name.as_str();
    assert!(!name.is_empty() && name.len() <= MAX_NAME);
    assert_eq!(relative_path(Path::new(name)).as_deref(), Ok(Path::new(name)));
    assert_eq!(Path::new(name).components().count(), 1);
    for name in [name.to_owned(), numbered(Path::new(name), 7).to_string_lossy().into_owned()] {
        let lower = name.to_ascii_lowercase();
        assert!(!lower.ends_with(".part") && !lower.ends_with(".tide"));
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let base = Url::parse("http://h/dir/file").ok();
    let link = base.as_ref().and_then(|base| base.join(&text).ok());
    for portability in [Portability::Everywhere, Portability::Here] {
        for chosen_by in [ChosenBy::Link, ChosenBy::Server] {
            SafeName::new(&text, chosen_by, portability).iter().for_each(check);
        }
        if let (Some(base), Some(link)) = (&base, &link) {
            check(&SafeName::choose(None, link, link, portability));
            check(&SafeName::choose(None, base, link, portability));
            check(&SafeName::choose(Some(&text), link, base, portability));
        }
    }
    let _ = relative_path(Path::new(text.as_ref()));
});
