//! Files of checksums, as `sha256sum`, BSD's `sha256`, `openssl dgst` and others write them.
//!
//! | line | |
//! |---|---|
//! | `HEX  name`, `HEX *name` | `*` marks a binary file and means nothing here |
//! | `\HEX  na\nme` | a name with escapes |
//! | `SHA256 (name) = HEX`, `SHA256(name)= HEX` | names the algorithm |
//! | `HEX` | names no file |
//!
//! Comments, and the lines of a signature around them, are passed over. Names are only good for finding
//! the line of a file that one has: they come from outside and must never be written to.

use crate::digest::{Algorithm, Digest};

/// The largest file that is read, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// The most lines.
pub const MAX_LINES: usize = 1_000_000;

/// The content of a file of checksums.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ChecksumFile {
    /// The digests in order, at least one.
    pub entries: Vec<ChecksumEntry>,
    /// Lines that are not checksums, counted from 1: text, or algorithms that are not known here.
    pub skipped: Vec<usize>,
}

/// One line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChecksumEntry {
    /// The file's name as it was written, escapes undone; `None` if the line names no file.
    pub name: Option<String>,
    /// The digest that it must have.
    pub digest: Digest,
    /// The line, counted from 1.
    pub line: usize,
}

/// Reads the content of a file. Where a line does not name its algorithm it is `algorithm`, or else the
/// one whose digests have that length.
///
/// # Errors
/// The first line that is a checksum but a wrong one, or that there is none at all.
pub fn parse(content: &[u8], algorithm: Option<Algorithm>) -> Result<ChecksumFile, ChecksumFileError> {
    if content.len() > MAX_BYTES {
        return Err(ChecksumFileError::TooLarge);
    }
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut file = ChecksumFile::default();
    for (index, bytes) in content.split(|&b| b == b'\n').enumerate() {
        let line = index + 1;
        if line > MAX_LINES {
            return Err(ChecksumFileError::TooLarge);
        }
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.trim_ascii().is_empty() || bytes.starts_with(b"#") {
            continue;
        }
        let read = std::str::from_utf8(bytes).ok().and_then(|text| entry(text, algorithm, line).transpose());
        match read.transpose().map_err(|why| ChecksumFileError::Line { line, why })? {
            Some(entry) => file.entries.push(entry),
            None => file.skipped.push(line),
        }
    }
    if file.entries.is_empty() { Err(ChecksumFileError::None) } else { Ok(file) }
}

impl ChecksumFile {
    /// The strongest digest for a file: of the lines that name it exactly (a leading `./` aside), else of
    /// those whose last part is its name, else of those that name no file. `None` if there is none, or if
    /// two lines contradict each other.
    pub fn find(&self, name: &str) -> Option<&ChecksumEntry> {
        let plain = |name: &str| name.trim_start_matches("./").to_owned();
        let wanted = plain(name);
        let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
        let exactly = |e: &&ChecksumEntry| e.name.as_ref().is_some_and(|n| plain(n) == wanted);
        let by_last = |e: &&ChecksumEntry| e.name.as_ref().is_some_and(|n| last(n) == last(&wanted));
        let nameless = |e: &&ChecksumEntry| e.name.is_none();
        let tiers: [&dyn Fn(&&ChecksumEntry) -> bool; 3] = [&exactly, &by_last, &nameless];
        let found: Vec<&ChecksumEntry> = tiers
            .iter()
            .map(|tier| self.entries.iter().filter(|e| tier(e)).collect::<Vec<_>>())
            .find(|found| !found.is_empty())?;
        let best = found.iter().max_by_key(|e| e.digest.algorithm())?;
        let agreed =
            found.iter().all(|e| e.digest.algorithm() != best.digest.algorithm() || e.digest == best.digest);
        agreed.then_some(*best)
    }
}

/// Why a file of checksums cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChecksumFileError {
    /// More than [`MAX_BYTES`] or [`MAX_LINES`].
    #[error("the file of checksums has more than {MAX_BYTES} bytes or {MAX_LINES} lines")]
    TooLarge,
    /// No line is a checksum.
    #[error("the file holds no checksum; write a line as HEX, two blanks, NAME")]
    None,
    /// A checksum that cannot be one.
    #[error("line {line} of the file of checksums: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// The entry of a line; `None` if the line is not a checksum.
fn entry(text: &str, algorithm: Option<Algorithm>, line: usize) -> Result<Option<ChecksumEntry>, String> {
    let (text, escaped) = match text.strip_prefix('\\') {
        Some(text) => (text, true),
        None => (text, false),
    };
    let name_of = |name: &str| if escaped { unescape(name) } else { Ok(name.to_owned()) };
    if let Some((kind, name, hex)) = tagged(text) {
        let Ok(named) = kind.parse::<Algorithm>() else { return Ok(None) };
        let digest = Digest::from_hex(named, hex).map_err(|e| e.to_string())?;
        return Ok(Some(ChecksumEntry { name: Some(name_of(name)?), digest, line }));
    }
    let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let (hex, rest) = text.split_at(digits);
    let Some(name) = plain_name(rest) else { return Ok(None) };
    let digest = match algorithm {
        // Whoever says the algorithm is told when a line does not fit; a word like "added" is not hex.
        Some(said) if hex.len() >= 8 => Digest::from_hex(said, hex).map_err(|e| e.to_string())?,
        Some(_) => return Ok(None),
        None => match by_length(hex.len()) {
            Some(guessed) => Digest::from_hex(guessed, hex).map_err(|e| e.to_string())?,
            None => return Ok(None),
        },
    };
    let name = name.map(name_of).transpose()?;
    Ok(Some(ChecksumEntry { name, digest, line }))
}

/// Algorithm, name and digest of `SHA256 (name) = HEX`.
fn tagged(text: &str) -> Option<(&str, &str, &str)> {
    let (kind, rest) = text.split_once('(')?;
    // A name may hold anything, ") = " too: the last one counts.
    let (name, hex) = rest.rsplit_once(") = ").or_else(|| rest.rsplit_once(")= "))?;
    let kind = kind.strip_suffix(' ').unwrap_or(kind);
    let word = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric() || b"-/_".contains(&b));
    (word && !name.is_empty()).then_some((kind, name, hex.trim_end()))
}

/// What follows the digits: `Some(None)` for nothing, `None` if it cannot be a name.
fn plain_name(rest: &str) -> Option<Option<&str>> {
    if rest.trim().is_empty() {
        return Some(None);
    }
    let name = ["  ", " *", " ", "\t"].iter().find_map(|gap| rest.strip_prefix(gap))?;
    Some(Some(name))
}

fn by_length(digits: usize) -> Option<Algorithm> {
    // Eight digits may as well be a CRC: Adler-32 has to be named.
    Algorithm::ALL.into_iter().find(|a| *a != Algorithm::Adler32 && a.digest_len() * 2 == digits)
}

fn unescape(name: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(name.len());
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => plain.push(match letters.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some('r') => '\r',
                _ => {
                    return Err("the name has a backslash that is followed by none of \\, n and r".to_owned());
                }
            }),
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";
    const SHA1: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
    const SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn read(text: &str) -> ChecksumFile {
        parse(text.as_bytes(), None).unwrap()
    }

    #[test]
    fn each_form_of_a_line_is_read() {
        let sha256 = format!("sha-256={SHA256}");
        let md5 = format!("md5={MD5}");
        for (line, name, digest) in [
            (format!("{SHA256}  a.iso"), Some("a.iso"), &sha256),
            (format!("{SHA256} *a.iso"), Some("a.iso"), &sha256),
            (format!("{SHA256} a.iso"), Some("a.iso"), &sha256),
            (format!("{SHA256}\ta.iso\r"), Some("a.iso"), &sha256),
            (format!("{SHA256}  two words "), Some("two words "), &sha256),
            (format!("{SHA256}   blank"), Some(" blank"), &sha256),
            (format!("\\{SHA256}  a\\\\b\\nc"), Some("a\\b\nc"), &sha256),
            (format!("{SHA256}  a\\nb"), Some("a\\nb"), &sha256),
            (SHA256.to_ascii_uppercase(), None, &sha256),
            (format!("{SHA256} \r"), None, &sha256),
            (format!("{MD5}  -"), Some("-"), &md5),
            (format!("SHA256 (a.iso) = {SHA256}"), Some("a.iso"), &sha256),
            (format!("SHA-256(a.iso)= {SHA256}"), Some("a.iso"), &sha256),
            (format!("SHA256 (a) = (b) = c) = {SHA256}"), Some("a) = (b) = c"), &sha256),
            (format!("\\MD5 (a\\\\b) = {MD5}"), Some("a\\b"), &md5),
        ] {
            let file = read(&line);
            assert_eq!(file.entries.len(), 1, "{line}");
            assert_eq!(file.entries[0].name.as_deref(), name, "{line}");
            assert_eq!(file.entries[0].digest.to_string(), *digest, "{line}");
        }
    }

    #[test]
    fn a_signed_file_with_comments_is_read() {
        let text = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# a.iso: 12 bytes\nSHA256 (a.iso) = {SHA256}\n\
             BLAKE2b (a.iso) = 00\n-----BEGIN PGP SIGNATURE-----\n\niQIzBAEBCAAdFiEE\n-----END PGP SIGNATURE-----\n"
        );
        let file = read(&text);
        assert_eq!(file.entries.len(), 1);
        assert_eq!(file.entries[0].line, 5);
        assert_eq!(file.skipped, [1, 2, 6, 7, 9, 10]);
    }

    #[test]
    fn a_wrong_checksum_is_an_error_and_other_text_is_not() {
        for (text, line) in [
            (format!("SHA256 (a) = {MD5}"), 1),
            (format!("\nMD5 (a) = {}", MD5.replace('d', "x")), 2),
            (format!("\\{MD5}  a\\x"), 1),
            (format!("\\{MD5}  a\\"), 1),
        ] {
            let error = parse(text.as_bytes(), None).unwrap_err();
            assert!(matches!(error, ChecksumFileError::Line { line: l, .. } if l == line), "{text}: {error}");
        }
        for text in
            ["", "\n#x", "added  a file", "d41d8cd9  crc", &format!("{MD5}x  a"), &format!(" {MD5}  a")]
        {
            assert_eq!(parse(text.as_bytes(), None), Err(ChecksumFileError::None), "{text}");
        }
        assert_eq!(parse(b"\xff\xfe", None), Err(ChecksumFileError::None));
    }

    #[test]
    fn an_algorithm_that_is_said_must_fit() {
        let text = format!("{MD5}  a");
        assert!(parse(text.as_bytes(), Some(Algorithm::Md5)).is_ok());
        assert!(matches!(
            parse(text.as_bytes(), Some(Algorithm::Sha1)),
            Err(ChecksumFileError::Line { line: 1, .. })
        ));
        let adler = parse(b"11e60398  a", Some(Algorithm::Adler32)).unwrap();
        assert_eq!(adler.entries[0].digest.algorithm(), Algorithm::Adler32);
        // A line that names its own keeps it.
        let tagged = parse(format!("MD5 (a) = {MD5}").as_bytes(), Some(Algorithm::Sha1)).unwrap();
        assert_eq!(tagged.entries[0].digest.algorithm(), Algorithm::Md5);
    }

    #[test]
    fn a_file_finds_its_strongest_digest() {
        let found = |text: &str, name: &str| read(text).find(name).map(|e| e.digest.to_string());
        let both = format!("{MD5}  ./a\n{SHA256}  a\n{SHA1}  sub/a\n{SHA1}  sub/b\n");
        assert_eq!(found(&both, "a"), Some(format!("sha-256={SHA256}")));
        assert_eq!(found(&both, "./sub/a"), Some(format!("sha-1={SHA1}")));
        assert_eq!(found(&both, "b"), Some(format!("sha-1={SHA1}")));
        assert_eq!(found(&both, "c"), None);
        assert_eq!(found(MD5, "anything"), Some(format!("md5={MD5}")));
        let other = MD5.replace('d', "e");
        assert_eq!(found(&format!("{MD5}  x/a\n{other}  y/a"), "a"), None);
        assert_eq!(found(&format!("{MD5}  x/a\n{other}  y/a"), "y/a"), Some(format!("md5={other}")));
        assert_eq!(found(&format!("{MD5}  a\n{MD5}  a"), "a"), Some(format!("md5={MD5}")));
        assert_eq!(found(&format!("{MD5}\n{other}"), "a"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..100), text in "[\\\\]?([0-9a-f]{32}|MD5|[()=* \\\\\nné]){0,12}") {
            for algorithm in [None, Some(Algorithm::Md5)] {
                let _ = parse(&bytes, algorithm);
                if let Ok(file) = parse(text.as_bytes(), algorithm) {
                    let _ = file.find("n");
                }
            }
        }

        #[test]
        fn what_coreutils_writes_is_read_back(name in "[^\0]{1,12}", tag: bool) {
            let escaped = name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
            let mark = if escaped == name { "" } else { "\\" };
            let line = if tag { format!("{mark}MD5 ({escaped}) = {MD5}\n") } else { format!("{mark}{MD5}  {escaped}\n") };
            let file = parse(line.as_bytes(), None).unwrap();
            // A name of nothing but blanks cannot be told from none.
            if tag || !escaped.trim().is_empty() {
                prop_assert_eq!(file.entries[0].name.as_deref(), Some(name.as_str()));
            }
        }
    }
}
