//! Names in one directory: which are safe, and what to try when one is taken.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// How many numbered names are tried before giving up.
pub(super) const MOST_NUMBERS: u32 = 999;

/// The longest name of a file that Linux file systems take, in bytes.
const LONGEST: usize = 255;

/// Whether a name is one plain component: it cannot lead out of its directory.
pub(super) fn is_plain(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/') && !bytes.contains(&0)
}

/// The part's and the checkpoint's name: `NAME.part` for number 0, then `NAME.1.part`. A name that is too
/// long loses its end.
pub(super) fn part_names(name: &OsStr, number: u32) -> (OsString, OsString) {
    let suffix = if number == 0 { ".part".to_owned() } else { format!(".{number}.part") };
    let part = cut_to(name.as_bytes(), LONGEST - suffix.len() - ".tide".len(), suffix.as_bytes());
    let checkpoint = [&part[..], b".tide"].concat();
    (OsString::from_vec(part), OsString::from_vec(checkpoint))
}

/// The final name: NAME itself for number 0, then `STEM.1.EXT`. A name that is too long loses the end of
/// its stem, not its extension.
pub(super) fn final_name(name: &OsStr, number: u32) -> OsString {
    let bytes = name.as_bytes();
    let (stem, extension) = bytes.split_at(extension_start(bytes));
    let number = if number == 0 { String::new() } else { format!(".{number}") };
    let suffix = [number.as_bytes(), extension].concat();
    OsString::from_vec(cut_to(stem, LONGEST.saturating_sub(suffix.len()), &suffix))
}

/// Where the extension begins, its dot included; the end if there is none. `.tar.gz` is one extension;
/// a dot at the very beginning hides a file and starts none.
fn extension_start(name: &[u8]) -> usize {
    // An "extension" as long as this is a sentence with a dot in it.
    const LONGEST_EXTENSION: usize = 16;
    let last_dot = |text: &[u8]| {
        let at = text.iter().rposition(|b| *b == b'.').filter(|at| *at > 0)?;
        let plain = text[at + 1..].iter().all(u8::is_ascii_alphanumeric);
        (plain && text.len() - at <= LONGEST_EXTENSION && at + 1 < text.len()).then_some(at)
    };
    let Some(dot) = last_dot(name) else { return name.len() };
    match last_dot(&name[..dot]) {
        Some(inner) if name[inner..dot].eq_ignore_ascii_case(b".tar") => inner,
        _ => dot,
    }
}

/// At most `most` bytes of `text`, not ending inside a character, and then the suffix.
fn cut_to(text: &[u8], most: usize, suffix: &[u8]) -> Vec<u8> {
    let mut end = text.len().min(most);
    // A byte 0b10xxxxxx goes on with the character before it.
    while end > 0 && end < text.len() && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    [&text[..end], suffix].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(name: &str, number: u32) -> String {
        final_name(OsStr::new(name), number).into_string().unwrap()
    }

    #[test]
    fn a_number_goes_before_the_extension() {
        assert_eq!(numbered("a.zip", 0), "a.zip");
        assert_eq!(numbered("a.zip", 1), "a.1.zip");
        assert_eq!(numbered("a.tar.gz", 12), "a.12.tar.gz");
        assert_eq!(numbered("videoplayback", 1), "videoplayback.1");
        assert_eq!(numbered(".profile", 1), ".profile.1");
        assert_eq!(numbered("Dr. No", 1), "Dr. No.1");
        assert_eq!(numbered("a.", 1), "a..1");
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_keeps_its_extension() {
        let long = format!("{}.zip", "漢".repeat(100));
        let cut = numbered(&long, 7);
        assert!(cut.len() <= LONGEST && cut.len() > LONGEST - 4, "{}", cut.len());
        assert!(cut.ends_with("漢.7.zip"));
        let (part, checkpoint) = part_names(OsStr::new(&long), 999);
        assert!(checkpoint.len() <= LONGEST);
        assert!(part.into_string().unwrap().ends_with("漢.999.part"));
    }

    #[test]
    fn only_one_plain_component_is_a_name() {
        for bad in ["", ".", "..", "a/b", "/", "../a", "a\0b"] {
            assert!(!is_plain(OsStr::new(bad)), "{bad:?}");
        }
        assert!(is_plain(OsStr::new("...")) && is_plain(OsStr::new("a b")));
    }
}
