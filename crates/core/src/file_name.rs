//! A name that a server or a link suggests, made into one that is safe here.
//!
//! A server's word about names is hostile until it has passed through [`SafeName`], of which every
//! value is one component below the folder that the user chose: no separator, no `..`, no control
//! character, short enough for our side files beside it, and not the name of one.

use crate::headers::scan;
use crate::headers::text;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use url::Url;

/// What is added to a file's name while it is not whole.
pub const PART_SUFFIX: &str = ".part";

/// What is added to a part's name for its checkpoint.
pub const CHECKPOINT_SUFFIX: &str = ".tide";

/// Longest file name that file systems take, in bytes.
const MAX_COMPONENT: usize = 255;

/// Room for `.999`, which [`numbered`] may put in.
const ROOM_FOR_NUMBER: usize = 4;

/// Longest name of a file that we write, in bytes: with number, part and checkpoint it still fits.
pub const MAX_NAME: usize = MAX_COMPONENT - PART_SUFFIX.len() - CHECKPOINT_SUFFIX.len() - ROOM_FOR_NUMBER;

/// Longest path below the folder that a user may ask for, in bytes.
const MAX_RELATIVE_PATH: usize = 3072;

/// The name of a file whose link names none.
pub const NAMELESS: &str = "index.html";

/// Who chose a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChosenBy {
    /// The one who gave the link, and could see the name in it.
    Link,
    /// The server, in a header or a redirect.
    Server,
}

/// Which systems a name must be good for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Portability {
    /// All that a file may be copied to: no `<>:"|?*\`, no blanks or dots at the ends, no `CON`.
    #[default]
    Everywhere,
    /// This one: whatever it can store.
    Here,
}

/// A file name that is safe here. See the module's head for what it promises.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SafeName(String);

impl SafeName {
    /// Makes a suggestion safe; `None` if nothing of it can be a name (empty, blanks, `..`).
    ///
    /// - Control characters become `%NN` and `/` becomes `%2F`; characters that turn the direction of
    ///   writing, and so can show `exe.jpg` for `gpj.exe`, become `_`.
    /// - A leading dot becomes `_` if the server chose it: a hidden file is one that the user does not
    ///   see arrive, and names like `.bashrc` or `.htaccess` do something by being there. Who gives a
    ///   link that ends in `.bashrc` asked for that. Several leading dots look like `..` and go always.
    /// - A name that ends like our side files gets a `_`, so that `a.part` is only ever ours.
    /// - What is too long is cut between characters, and keeps its extension.
    pub fn new(suggested: &str, chosen_by: ChosenBy, portability: Portability) -> Option<Self> {
        let portable = portability == Portability::Everywhere;
        let mut name = String::new();
        for c in suggested.chars() {
            // Longer than any header or link that gets here.
            if name.len() > 64 * 1024 {
                break;
            }
            push_safe(&mut name, c, portable);
        }
        let trimmed = if portable { trim_ends(&name) } else { &name };
        if matches!(trimmed, "" | "." | "..") || trimmed.chars().all(char::is_whitespace) {
            return None;
        }
        let rest = trimmed.trim_start_matches('.');
        let dots = trimmed.len() - rest.len();
        let hidden_on_purpose = dots == 1 && chosen_by == ChosenBy::Link;
        let mut name = if dots == 0 || hidden_on_purpose {
            trimmed.to_owned()
        } else {
            format!("{}{rest}", "_".repeat(dots))
        };
        // Room for the two that may follow.
        name = shorten(&name, MAX_NAME - 2, portable);
        if portable && is_device(&name) {
            name.insert(0, '_');
        }
        if is_side_file(&name) {
            name.push('_');
        }
        Some(Self(name))
    }

    /// A safe name from a suggestion in `Content-Disposition`; `None` if it is a path or otherwise no
    /// name. A server that sends `../x` or `C:\x` is not asked what it may have meant.
    pub fn from_disposition(suggested: &str, portability: Portability) -> Option<Self> {
        if suggested.contains(['/', '\\']) {
            return None;
        }
        Self::new(suggested, ChosenBy::Server, portability)
    }

    /// A safe name from the last segment of a URL's path, percent-decoded once (but for `%2F`, which
    /// is not a separator there); `None` if there is none.
    pub fn from_url(url: &Url, chosen_by: ChosenBy, portability: Portability) -> Option<Self> {
        Self::new(&last_segment(url), chosen_by, portability)
    }

    /// The name for a file that was asked for at `original` and found at `last`, the end of its
    /// redirects (the same URL if there were none).
    ///
    /// 1. What `Content-Disposition` suggests.
    /// 2. Else the name in `last`, if it has an extension or the one in `original` has none. Browsers
    ///    and wget's `--trust-server-names` use `last`, which is right for `/latest` →
    ///    `/tool-1.2.tar.gz`; curl and wget use `original`, which is right for `/tool-1.2.tar.gz` →
    ///    `/blob/8f3a?sig=…`. The extension tells these apart.
    /// 3. Else the name in `original`.
    /// 4. Else `index.html`.
    pub fn choose(disposition: Option<&str>, original: &Url, last: &Url, portability: Portability) -> Self {
        if let Some(name) = disposition.and_then(|d| Self::from_disposition(d, portability)) {
            return name;
        }
        let from_original = Self::from_url(original, ChosenBy::Link, portability);
        // A name that the link had as well was not the server's choice.
        let chosen_by =
            if last_segment(last) == last_segment(original) { ChosenBy::Link } else { ChosenBy::Server };
        let from_last = Self::from_url(last, chosen_by, portability);
        match (from_last, from_original) {
            (Some(last), Some(original)) => {
                if last.has_extension() || !original.has_extension() {
                    last
                } else {
                    original
                }
            }
            (Some(name), None) | (None, Some(name)) => name,
            (None, None) => Self(NAMELESS.to_owned()),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name ends in an extension that says what the file is: one with a letter in it, so
    /// not `release-1.2`.
    fn has_extension(&self) -> bool {
        split_extension(&self.0).1.bytes().any(|b| b.is_ascii_alphabetic())
    }
}

impl fmt::Display for SafeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Path> for SafeName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

/// The `n`th other name for a file: `myfile.1.txt` for `myfile.txt`, `.bashrc.1` for `.bashrc`,
/// `a.tar.1.gz` for `a.tar.gz`. Folders before it stay as they are.
pub fn numbered(path: &Path, n: u32) -> PathBuf {
    // Its stem and extension are those of the standard library: a leading dot begins no extension.
    let Some(stem) = path.file_stem() else { return path.to_owned() };
    let mut name = stem.to_owned();
    name.push(format!(".{n}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Why a path that a user asked for is not one below the folder.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NameError {
    /// Nothing.
    #[error("the output name is empty")]
    Empty,
    /// It begins at the root.
    #[error("the output name {0:?} must not begin at the root: give the folder with --dir")]
    Absolute(PathBuf),
    /// It has `.`, `..`, an empty component or a separator at its end.
    #[error("the output name {0:?} must not have empty components, `.` or `..`")]
    Dots(PathBuf),
    /// It has a control character.
    #[error("the output name {0:?} must not have control characters")]
    Control(PathBuf),
    /// It is too long.
    #[error("the output name is too long: {limit} bytes are possible, it has {length}")]
    TooLong {
        /// The most bytes that the path or its component may have.
        limit: usize,
        /// Bytes that it has.
        length: usize,
    },
}

/// Checks the name that a user asked for (`-o`): it may have folders, all below the folder chosen.
///
/// Nothing is changed in it but that it is known to be relative, without `.` and `..`.
///
/// # Errors
/// If it leads out of the folder or cannot be stored.
pub fn relative_path(path: &Path) -> Result<PathBuf, NameError> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() {
        return Err(NameError::Empty);
    }
    if path.has_root() {
        return Err(NameError::Absolute(path.to_owned()));
    }
    if bytes.iter().any(u8::is_ascii_control) {
        return Err(NameError::Control(path.to_owned()));
    }
    if bytes.len() > MAX_RELATIVE_PATH {
        return Err(NameError::TooLong { limit: MAX_RELATIVE_PATH, length: bytes.len() });
    }
    // The standard library passes over `.` and empty components, so they are looked for in the bytes.
    let separates = |b: &u8| std::path::is_separator(char::from(*b)) && b.is_ascii();
    let mut components = bytes.split(separates).peekable();
    while let Some(component) = components.next() {
        if matches!(component, b"" | b"." | b"..") {
            return Err(NameError::Dots(path.to_owned()));
        }
        let limit = if components.peek().is_some() { MAX_COMPONENT } else { MAX_NAME };
        if component.len() > limit {
            return Err(NameError::TooLong { limit, length: component.len() });
        }
    }
    // On systems with drives, `C:x` has no root and yet leads elsewhere.
    if !path.components().all(|c| matches!(c, Component::Normal(_))) {
        return Err(NameError::Absolute(path.to_owned()));
    }
    Ok(path.to_owned())
}

/// The last segment of a URL's path, decoded, maybe empty.
fn last_segment(url: &Url) -> String {
    let mut rest = url.path().rsplit('/').next().unwrap_or_default().as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let Some((&first, after)) = rest.split_first() {
        match scan::escape_at(rest) {
            Some(b) if b != b'/' => {
                decoded.push(b);
                rest = &rest[3..];
            }
            _ => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    text::decode(&decoded)
}

fn push_safe(name: &mut String, c: char, portable: bool) {
    match c {
        '/' => name.push_str("%2F"),
        c if c.is_control() => {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|b| name.push_str(&format!("%{b:02X}")));
        }
        // Marks, embeddings, overrides and isolates of direction; separators of lines; a byte order mark.
        '\u{061c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => {
            name.push('_');
        }
        '<' | '>' | ':' | '"' | '|' | '?' | '*' | '\\' if portable => name.push('_'),
        c => name.push(c),
    }
}

/// Without blanks at either end and dots at the end.
fn trim_ends(name: &str) -> &str {
    name.trim_start().trim_end_matches(|c: char| c == '.' || c.is_whitespace())
}

/// A name and its extension with the dot (with `.tar` before it), if it has one that looks like one.
fn split_extension(name: &str) -> (&str, &str) {
    const LONGEST: usize = 16;
    let looks_like_one = |text: &str| {
        !text.is_empty() && text.len() <= LONGEST && text.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let at = match name.rfind('.') {
        Some(dot) if dot > 0 && looks_like_one(&name[dot + 1..]) => dot,
        _ => return (name, ""),
    };
    let stem = &name[..at];
    let tar = stem.len().saturating_sub(4);
    match stem.get(tar..) {
        Some(".tar" | ".TAR") if tar > 0 => name.split_at(tar),
        _ => name.split_at(at),
    }
}

fn shorten(name: &str, limit: usize, portable: bool) -> String {
    if name.len() <= limit {
        return name.to_owned();
    }
    let (stem, extension) = split_extension(name);
    let mut end = limit - extension.len();
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    let stem = &stem[..end];
    let trimmed = trim_ends(stem);
    // A stem of blanks alone is left as it is; before an extension it can do no harm.
    let stem = if portable && (!trimmed.is_empty() || extension.is_empty()) { trimmed } else { stem };
    format!("{stem}{extension}")
}

/// Whether a name means a device on Windows, whatever its extension.
fn is_device(name: &str) -> bool {
    let base = name.split('.').next().unwrap_or(name).trim_end().to_ascii_uppercase();
    if matches!(base.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$") {
        return true;
    }
    let number = base.strip_prefix("COM").or_else(|| base.strip_prefix("LPT"));
    matches!(number, Some("0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³"))
}

/// Whether a name ends like a part or a checkpoint, in any case: some file systems know no case.
fn is_side_file(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    [PART_SUFFIX, CHECKPOINT_SUFFIX].iter().any(|suffix| lower.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::ContentDisposition;
    use ChosenBy::{Link, Server};
    use Portability::{Everywhere, Here};
    use proptest::prelude::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn safe(suggested: &str) -> Option<String> {
        SafeName::new(suggested, Server, Everywhere).map(|n| n.0)
    }

    #[test]
    fn a_suggestion_becomes_a_safe_name() {
        for (suggested, expected) in [
            ("a.txt", Some("a.txt")),
            ("中文文件名.rar", Some("中文文件名.rar")),
            ("", None),
            (".", None),
            ("..", None),
            ("...", None),
            ("  ", None),
            (" . ", None),
            ("name. ", Some("name")),
            (" aria2 ", Some("aria2")),
            ("a/b", Some("a%2Fb")),
            ("../x", Some("__%2Fx")),
            ("..\\x", Some("___x")),
            ("a\0b", Some("a%00b")),
            ("a\tb\u{7f}", Some("a%09b%7F")),
            ("a\u{85}b", Some("a%C2%85b")),
            ("a:b?.txt", Some("a_b_.txt")),
            ("<>:\"|?*\\", Some("________")),
            ("report\u{202e}gpj.exe", Some("report_gpj.exe")),
            (".bashrc", Some("_bashrc")),
            ("..bashrc", Some("__bashrc")),
            ("CON", Some("_CON")),
            ("CON.txt", Some("_CON.txt")),
            ("con .tar.gz", Some("_con .tar.gz")),
            ("nul", Some("_nul")),
            ("COM1.log", Some("_COM1.log")),
            ("LPT².x", Some("_LPT².x")),
            ("COM10", Some("COM10")),
            ("CONSOLE", Some("CONSOLE")),
            ("a.part", Some("a.part_")),
            ("a.PART.Tide", Some("a.PART.Tide_")),
            ("a.tide", Some("a.tide_")),
            ("a.part.", Some("a.part_")),
            ("a.part1.rar", Some("a.part1.rar")),
            ("part", Some("part")),
        ] {
            assert_eq!(safe(suggested).as_deref(), expected, "{suggested:?}");
        }
    }

    #[test]
    fn a_name_for_this_system_alone_keeps_what_it_can_store() {
        for (suggested, expected) in [
            (" aria2 ", Some(" aria2 ")),
            ("a:b?.txt", Some("a:b?.txt")),
            ("CON.txt", Some("CON.txt")),
            ("name.", Some("name.")),
            ("a.part", Some("a.part_")),
            ("a/b", Some("a%2Fb")),
            ("\t", Some("%09")),
            ("  ", None),
            ("..", None),
            ("...", Some("___")),
        ] {
            let found = SafeName::new(suggested, Server, Here);
            assert_eq!(found.as_ref().map(SafeName::as_str), expected, "{suggested:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_keeps_its_extension() {
        let long = safe(&format!("{}.zip", "x".repeat(300))).unwrap();
        assert_eq!(long, format!("{}.zip", "x".repeat(MAX_NAME - 2 - 4)));
        let chinese = safe(&format!("{}.zip", "文".repeat(100))).unwrap();
        assert_eq!(chinese, format!("{}.zip", "文".repeat((MAX_NAME - 2 - 4) / 3)));
        assert!(safe(&format!("{}.tar.gz", "x".repeat(300))).unwrap().ends_with("x.tar.gz"));
        assert!(safe(&format!("{} . yy.zip", "x".repeat(234))).unwrap().ends_with("x.zip"));
        assert!(safe(&format!("{}.part", "x".repeat(300))).unwrap().ends_with("x.part_"));
        assert_eq!(safe(&format!("CON{}.txt", " ".repeat(300))).as_deref(), Some("_CON.txt"));
        let no_extension = safe(&format!("a.{}", "x".repeat(300))).unwrap();
        assert_eq!(no_extension.len(), MAX_NAME - 2);
        for name in [&long, &chinese] {
            let side =
                format!("{}{PART_SUFFIX}{CHECKPOINT_SUFFIX}", numbered(Path::new(name), 999).display());
            assert!(side.len() <= MAX_COMPONENT);
        }
    }

    #[test]
    fn a_path_in_a_header_is_no_name() {
        // The second column is what stands in the header, after `attachment; filename=`.
        for (expected, value) in [
            (None, r#""dir/file""#),
            (None, r#""dir\\file""#),
            (None, r#""/etc/passwd""#),
            (None, r#""../../evil-a.bin""#),
            (None, r#""/abs/evil-b.bin""#),
            (None, r#""..\\..\\evil-c.bin""#),
            (Some("____evil-c.bin"), r#""..\..\evil-c.bin""#),
            (None, r#""..""#),
            (None, ".."),
            (None, r#""""#),
            (Some("%2E%2E%2Ffoo.html"), r#""%2E%2E%2Ffoo.html""#),
            (Some("a%00b.bin"), r#""a%00b.bin""#),
            (Some("aria2"), r#"" aria2 ""#),
            (Some("_bashrc"), ".bashrc"),
        ] {
            let header = format!("attachment; filename={value}");
            let suggested = ContentDisposition::parse(header.as_bytes()).unwrap().file_name;
            let found = suggested.and_then(|s| SafeName::from_disposition(&s, Everywhere));
            assert_eq!(found.as_ref().map(SafeName::as_str), expected, "{value}");
        }
    }

    #[test]
    fn a_url_names_its_file_by_its_last_segment() {
        for (text, expected) in [
            ("http://localhost/archives/aria2-1.0.0.tar.bz2", "aria2-1.0.0.tar.bz2"),
            ("http://h/sp%20ace%2Fx.bin", "sp ace%2Fx.bin"),
            ("http://h/%E3%81%82", "あ"),
            ("http://h/%D6%D0%CE%C4.rar", "中文.rar"),
            ("http://h/dir/", "index.html"),
            ("http://h", "index.html"),
            ("http://h/a.zip?b=/c.exe", "a.zip"),
            ("http://h/50%.html", "50%.html"),
            ("http://h/a%2541", "a%41"),
            ("http://h/%2e%2e%2fevil-d.bin", "__%2fevil-d.bin"),
            ("http://h/..%2f..%2fevil-e.bin", "__%2f..%2fevil-e.bin"),
            ("http://h/%2e%2e%5cevil.bin", "___evil.bin"),
            ("http://h/a/%2e%2e/", "index.html"),
            ("http://h/a%00b%0a.bin", "a%00b%0A.bin"),
            ("http://h/.bashrc", ".bashrc"),
            ("http://h/%20", "index.html"),
        ] {
            let url = url(text);
            assert_eq!(SafeName::choose(None, &url, &url, Everywhere).as_str(), expected, "{text}");
        }
    }

    #[test]
    fn a_name_is_chosen_from_header_last_and_original_link_in_this_order() {
        for (disposition, original, last, expected) in [
            (Some("d.txt"), "http://h/a.zip", "http://c/b.zip", "d.txt"),
            (Some("../d.txt"), "http://h/a.zip", "http://h/a.zip", "a.zip"),
            (Some(""), "http://h/a.zip", "http://h/a.zip", "a.zip"),
            (None, "http://h/latest", "http://h/tool-1.2.tar.gz", "tool-1.2.tar.gz"),
            (None, "http://h/tool-1.2.tar.gz", "http://c/blob/8f3a?sig=x.exe", "tool-1.2.tar.gz"),
            (None, "http://h/a.zip", "http://c/release-1.2", "a.zip"),
            (None, "http://h/a.zip", "http://c/b.zip", "b.zip"),
            (None, "http://h/a", "http://c/b", "b"),
            (None, "http://h/a", "http://c/", "a"),
            (None, "http://h/", "http://c/b", "b"),
            (None, "http://h/", "http://c/", "index.html"),
            // A hidden file only if the link said so.
            (None, "http://h/.bashrc", "http://c/.bashrc", ".bashrc"),
            (None, "http://h/x", "http://c/.bashrc", "_bashrc"),
        ] {
            let found = SafeName::choose(disposition, &url(original), &url(last), Everywhere);
            assert_eq!(found.as_str(), expected, "{disposition:?} {original} {last}");
        }
        let kept = SafeName::new(".bashrc", Link, Everywhere);
        assert_eq!(kept.as_ref().map(SafeName::as_str), Some(".bashrc"));
    }

    #[test]
    fn a_number_goes_before_the_extension() {
        for (name, expected) in [
            ("myfile", "myfile.1"),
            ("myfile.txt", "myfile.1.txt"),
            ("/tmp.txt/myfile", "/tmp.txt/myfile.1"),
            (".bashrc", ".bashrc.1"),
            (".bashrc.txt", ".bashrc.1.txt"),
            ("a.tar.gz", "a.tar.1.gz"),
            ("", ""),
        ] {
            assert_eq!(numbered(Path::new(name), 1), Path::new(expected), "{name}");
        }
    }

    #[test]
    fn a_user_may_ask_for_folders_below_the_folder_only() {
        for good in ["foo", "foo/bar", ".bashrc", "a b/ c", "..foo/bar..", "x.part", "CON"] {
            assert_eq!(relative_path(Path::new(good)).as_deref(), Ok(Path::new(good)), "{good}");
        }
        for bad in [
            "/foo",
            "./foo",
            "../foo",
            "foo/../bar",
            "foo/.",
            "foo/..",
            ".",
            "..",
            "/",
            "foo/",
            "\t",
            "",
            "foo//bar",
            "a\0b",
            "a\nb",
        ] {
            assert!(relative_path(Path::new(bad)).is_err(), "{bad:?}");
        }
        let long = "x".repeat(MAX_NAME + 1);
        assert!(matches!(relative_path(Path::new(&long)), Err(NameError::TooLong { .. })));
        assert!(relative_path(Path::new(&format!("{long}/x"))).is_ok());
        assert!(relative_path(Path::new(&"x/".repeat(4000))).is_err());
    }

    /// Every promise of the module's head.
    fn check(name: &SafeName, portability: Portability) -> Result<(), TestCaseError> {
        let text = name.as_str();
        prop_assert!(text.len() <= MAX_NAME, "{} bytes", text.len());
        prop_assert_eq!(relative_path(name.as_ref()), Ok(PathBuf::from(text)));
        prop_assert_eq!(name.as_ref().components().count(), 1);
        prop_assert!(!text.contains(['/', '\0']) && !text.chars().any(char::is_control));
        prop_assert!(!is_side_file(text) && !text.starts_with(".."));
        prop_assert!(!text.chars().all(char::is_whitespace));
        let other = numbered(name.as_ref(), 999);
        prop_assert!(other.as_os_str().len() <= MAX_NAME + ROOM_FOR_NUMBER);
        prop_assert!(!is_side_file(&other.to_string_lossy()));
        if portability == Everywhere {
            prop_assert!(!text.contains(['<', '>', ':', '"', '|', '?', '*', '\\']));
            prop_assert!(!text.starts_with(char::is_whitespace));
            prop_assert!(!text.ends_with(|c: char| c == '.' || c.is_whitespace()));
            prop_assert!(!is_device(text));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn every_safe_name_is_safe(
            any in any::<String>(),
            nasty in "[./ \\\\a:\u{0}\u{202e}文]{0,12}(CON|nul|\\.part|\\.tide|\\.tar|\\.zip| |\\.){0,3}",
            long in "[x文. ]{200,300}(\\.part|\\.tide|\\.tar\\.gz|\\.zip|\\.){0,2}",
            link: bool,
            portable: bool,
        ) {
            let chosen_by = if link { Link } else { Server };
            let portability = if portable { Everywhere } else { Here };
            for suggested in [any, nasty, long] {
                if let Some(name) = SafeName::new(&suggested, chosen_by, portability) {
                    check(&name, portability)?;
                    prop_assert!(link || !name.as_str().starts_with('.'));
                }
                if let Ok(url) = Url::parse("http://h/").unwrap().join(&suggested) {
                    let other = Url::parse("http://h/x").unwrap();
                    check(&SafeName::choose(Some(&suggested), &url, &other, portability), portability)?;
                    check(&SafeName::choose(None, &url, &other, portability), portability)?;
                    check(&SafeName::choose(None, &other, &url, portability), portability)?;
                }
            }
        }
    }
}
