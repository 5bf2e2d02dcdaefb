//! Reading the files that are named on the command line, whole and bounded.

use crate::trouble::{Trouble, in_words};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// No honest list, Metalink or cookie file is larger, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The bytes of a file, or of standard input for `-`. `what` names the option in messages.
///
/// # Errors
/// When it cannot be read or is larger than 64 MiB.
pub(crate) fn read(what: &str, path: &Path) -> Result<Vec<u8>, Trouble> {
    let result =
        if path == Path::new("-") { bounded(io::stdin().lock()) } else { File::open(path).and_then(bounded) };
    let why = |e| format!("{what}: {} cannot be read: {}", path.display(), in_words(&e));
    result.map_err(|e| Trouble::configuration(why(e)))
}

/// The same as text.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub(crate) fn read_text(what: &str, path: &Path) -> Result<String, Trouble> {
    String::from_utf8(read(what, path)?)
        .map_err(|_| Trouble::configuration(format!("{what}: {} is not UTF-8", path.display())))
}

fn bounded(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_with_its_option() {
        let trouble = read("--cookies", Path::new("/nonexistent/c")).unwrap_err();
        assert!(trouble.message.starts_with("--cookies: /nonexistent/c cannot be read: "), "{trouble}");
        assert_eq!(trouble.exit.code(), 2);
    }

    #[test]
    fn a_file_without_end_is_not_read_without_end() {
        let trouble = read("-i", Path::new("/dev/zero")).unwrap_err();
        assert!(trouble.message.contains("larger than 64 MiB"), "{trouble}");
    }
}
