//! `Content-Disposition`: the name that a server suggests.
//!
//! RFC 6266 is read strictly, since a name out of a half-understood header is worse than the link's.
//! What real servers get wrong in a way that leaves no doubt is understood all the same: a `;` at the
//! end, names in raw UTF-8 or GBK, names that are percent-encoded without saying so, and `&amp;`.

use super::scan::{self, Scanner};
use super::text;

/// What a `Content-Disposition` says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContentDisposition {
    /// Whether the file is meant to be saved (`attachment`) rather than shown.
    pub attachment: bool,
    /// The name suggested, exactly as the server means it: **not safe** as a name here before
    /// [`crate::file_name::SafeName`] has seen it. Never empty, at most 4 KiB of header went into it.
    pub file_name: Option<String>,
}

/// Why a `Content-Disposition` is not understood. The file is then named as if there were none.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DispositionError {
    /// It breaks the grammar.
    #[error("Content-Disposition is malformed")]
    Malformed,
    /// It gives the same parameter twice.
    #[error("Content-Disposition names the file twice")]
    Twice,
    /// `filename*` cannot be decoded, and there is no plain `filename`.
    #[error("the name in Content-Disposition cannot be decoded")]
    Undecodable,
    /// Longer than any honest one.
    #[error("Content-Disposition is too long")]
    TooLong,
}

const MAX_LENGTH: usize = 4096;

impl ContentDisposition {
    /// Reads a field value.
    ///
    /// # Errors
    /// If it breaks the grammar beyond what the module's head lists.
    pub fn parse(value: &[u8]) -> Result<Self, DispositionError> {
        use DispositionError::{Malformed, TooLong, Twice, Undecodable};
        if value.len() > MAX_LENGTH {
            return Err(TooLong);
        }
        // First the encoding, then the grammar: the second byte of a GBK character may be a backslash.
        let decoded = text::decode(scan::trim(value));
        let mut scanner = Scanner::new(decoded.as_bytes());
        let kind = scanner.token().ok_or(Malformed)?;
        let attachment = kind.eq_ignore_ascii_case(b"attachment");
        let known = attachment || kind.eq_ignore_ascii_case(b"inline");
        let (mut plain, mut extended) = (None, None);
        loop {
            scanner.skip_blanks();
            if scanner.at_end() {
                break;
            }
            if !scanner.eat(b';') {
                return Err(Malformed);
            }
            scanner.skip_blanks();
            if scanner.at_end() {
                break;
            }
            let name = scanner.token().ok_or(Malformed)?;
            scanner.skip_blanks();
            if !scanner.eat(b'=') {
                return Err(Malformed);
            }
            scanner.skip_blanks();
            if name.eq_ignore_ascii_case(b"filename*") {
                let name = extended_value(&mut scanner)?;
                if extended.replace(name).is_some() {
                    return Err(Twice);
                }
            } else {
                let value = plain_value(&mut scanner)?;
                if name.eq_ignore_ascii_case(b"filename") && plain.replace(value).is_some() {
                    return Err(Twice);
                }
            }
        }
        let file_name = match (extended, plain) {
            (Some(Some(name)), _) => Some(name),
            // RFC 6266 section 4.3: an extended form that cannot be read gives way to the plain one.
            (_, Some(name)) => Some(decode_if_encoded(name)),
            (Some(None), None) => return Err(Undecodable),
            (None, None) => None,
        };
        // An empty name in the extended form still hides the plain one.
        let file_name = file_name.filter(|name| known && !name.is_empty());
        Ok(Self { attachment, file_name })
    }
}

/// A token or quoted string; characters beyond ASCII may stand in both.
fn plain_value(scanner: &mut Scanner<'_>) -> Result<String, DispositionError> {
    if scanner.peek() == Some(b'"') {
        let bytes = scanner.quoted().ok_or(DispositionError::Malformed)?;
        return text_of(bytes);
    }
    let mut value = Vec::new();
    loop {
        value.extend(scanner.take_while(|b| scan::is_token(b) || b >= 0x80));
        if !value.ends_with(b"&amp") || !is_entity(*scanner) {
            break;
        }
        scanner.eat(b';');
        value.truncate(value.len() - b"amp".len());
    }
    if value.is_empty() { Err(DispositionError::Malformed) } else { text_of(value) }
}

/// Whether the `;` here, after `&amp`, ends an HTML entity, and not a parameter: no parameter follows.
fn is_entity(mut scanner: Scanner<'_>) -> bool {
    if !scanner.eat(b';') {
        return false;
    }
    scanner.skip_blanks();
    let name = scanner.token();
    scanner.skip_blanks();
    name.is_none() || scanner.peek() != Some(b'=')
}

/// `CHARSET'LANGUAGE'PERCENT-ENCODED` (RFC 8187); `None` inside if it cannot be decoded.
fn extended_value(scanner: &mut Scanner<'_>) -> Result<Option<String>, DispositionError> {
    if scanner.peek() == Some(b'"') {
        scanner.quoted().ok_or(DispositionError::Malformed)?;
        return Ok(None);
    }
    // Wider than the grammar: encoders in use leave parentheses as they are, or encode nothing at all.
    let value = scanner.take_while(|b| scan::is_token(b) || b"()@:/[]{}?=<>".contains(&b) || b >= 0x80);
    if value.is_empty() {
        return Err(DispositionError::Malformed);
    }
    Ok(decode_extended(value))
}

fn decode_extended(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |&b| b == b'\'');
    let (charset, _language, encoded) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = scan::percent_decode(encoded)?;
    let name = if charset.eq_ignore_ascii_case(b"utf-8") {
        String::from_utf8(bytes).ok()?
    } else if charset.eq_ignore_ascii_case(b"iso-8859-1") {
        // The real one, whose controls are refused below; the registry's label means Windows-1252.
        bytes.into_iter().map(char::from).collect()
    } else {
        let encoding = encoding_rs::Encoding::for_label(charset)?;
        if !encoding.is_ascii_compatible() {
            return None;
        }
        encoding.decode_without_bom_handling_and_without_replacement(&bytes)?.into_owned()
    };
    (!name.chars().any(char::is_control)).then_some(name)
}

fn text_of(bytes: Vec<u8>) -> Result<String, DispositionError> {
    // Unescaping and splitting at ASCII bytes leave UTF-8 what it was.
    String::from_utf8(bytes).map_err(|_| DispositionError::Malformed)
}

/// Undoes percent encoding in a plain name if an encoder was surely at work.
///
/// The plain form has no percent encoding, and names like `50%.html` or `%2E%2E%2Fx` are what they
/// are. But a name in which every `%` begins an escape, no escape stands for a character that no
/// encoder touches (letters, digits, `-._~`), a separator or a control, and which then is UTF-8, is
/// the work of a server that thought otherwise: `%EC%82%AC%EB%B3%B8.jpg`, `my%20file.pdf`.
fn decode_if_encoded(name: String) -> String {
    let bytes = name.as_bytes();
    let by_an_encoder = (0..bytes.len()).filter(|&at| bytes[at] == b'%').all(|at| {
        scan::escape_at(&bytes[at..])
            .is_some_and(|b| !b.is_ascii_alphanumeric() && !b.is_ascii_control() && !b"-._~/\\".contains(&b))
    });
    if !by_an_encoder {
        return name;
    }
    match scan::percent_decode(bytes).and_then(|b| String::from_utf8(b).ok()) {
        Some(decoded) if !decoded.chars().any(char::is_control) => decoded,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(value: impl AsRef<[u8]>) -> Result<Option<String>, DispositionError> {
        ContentDisposition::parse(value.as_ref()).map(|d| d.file_name)
    }

    #[track_caller]
    fn check(rows: &[(&[u8], Option<&str>)]) {
        for (value, expected) in rows {
            let shown = String::from_utf8_lossy(value);
            assert_eq!(name(value), Ok(expected.map(str::to_owned)), "{shown}");
        }
    }

    #[test]
    fn plain_and_quoted_names_are_read() {
        check(&[
            (b"inline", None),
            (br#"inline; filename="foo.html""#, Some("foo.html")),
            (br#"attachment; filename="Not an attachment!""#, Some("Not an attachment!")),
            (br#"attachment; filename="f\oo.html""#, Some("foo.html")),
            (br#"attachment; filename="\"quoting\" tested.html""#, Some("\"quoting\" tested.html")),
            (br#"attachment; filename="Here's a semicolon;.html""#, Some("Here's a semicolon;.html")),
            (br#"attachment; foo="\"\\";filename="foo.html""#, Some("foo.html")),
            (br#"attachment; FILENAME="foo.html""#, Some("foo.html")),
            (b"attachment; filename=foo.html", Some("foo.html")),
            (b"attachment; filename = foo.html", Some("foo.html")),
            (br#"attachment; filename =" foo""#, Some(" foo")),
            (b"attachment; filename=foo.html ; hello=world", Some("foo.html")),
            (b"attachment; filename='foo.bar'", Some("'foo.bar'")),
            (br#"attachment; filename="50%.html""#, Some("50%.html")),
            (br#"attachment; filename="foo-%41.html""#, Some("foo-%41.html")),
            (br#"attachment; filename="%2E%2E%2Ffoo.html""#, Some("%2E%2E%2Ffoo.html")),
            (
                br#"attachment; filename="=?ISO-8859-1?Q?foo-=E4.html?=""#,
                Some("=?ISO-8859-1?Q?foo-=E4.html?="),
            ),
            (b"foobar", None),
            (br#"foobar; filename="foo.html""#, None),
            (b"attachment; xfilename=foo.html", None),
            (br#"attachment; name="x""#, None),
            (br#"attachment; example="filename=example.txt""#, None),
            (br#"attachment; filename="""#, None),
            // Read as they are; not safe, which is for `SafeName` to say.
            (br#"attachment; filename="dir/file""#, Some("dir/file")),
            (br#"attachment; filename="dir\\file""#, Some("dir\\file")),
            (br#"attachment; filename="/etc/passwd""#, Some("/etc/passwd")),
            (br#"attachment; filename="..""#, Some("..")),
            (b"attachment; filename=..", Some("..")),
            (br#"attachment; filename=" aria2 ""#, Some(" aria2 ")),
        ]);
        assert_eq!(ContentDisposition::parse(b"ATTACHMENT").map(|d| d.attachment), Ok(true));
        assert_eq!(ContentDisposition::parse(b"inline").map(|d| d.attachment), Ok(false));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for value in [
            r#""inline""#,
            "attachment; filename=foo,bar.html",
            "attachment; ;filename=foo",
            "attachment; filename=foo bar.html",
            "attachment; filename=a; filename=b",
            "attachment; filename*=UTF-8''a; filename*=UTF-8''b",
            "attachment; filename=foo[1](2).html",
            "filename=foo.html",
            "x=y; filename=foo.html",
            "filename=foo.html; attachment",
            "attachment; foo=foo filename=bar",
            "attachment filename=bar",
            "attachment; filename=",
            "attachment; filename=;",
            "attachment; filename=dir/file",
            "attachment; filename=\"foo",
            "attachment; filename=\"foo\\",
            "attachment; filename=\"a\nb\"",
            "attachment; filename=\"a\" b",
            "",
            ";",
        ] {
            assert!(name(value).is_err(), "{value}: {:?}", name(value));
        }
        assert_eq!(name(vec![b'a'; MAX_LENGTH + 1]), Err(DispositionError::TooLong));
    }

    #[test]
    fn the_extended_form_is_read_and_wins() {
        check(&[
            (b"attachment; filename*=iso-8859-1''foo-%E4.html", Some("foo-ä.html")),
            (b"attachment; filename*=UTF-8''foo-%c3%a4-%e2%82%ac.html", Some("foo-ä-€.html")),
            (b"attachment; filename*= UTF-8''foo-%c3%a4-%e2%82%ac.html", Some("foo-ä-€.html")),
            (b"attachment; filename* =UTF-8''foo-%c3%a4-%e2%82%ac.html", Some("foo-ä-€.html")),
            (b"attachment; filename*=UTF-8''A-%2541.html", Some("A-%41.html")),
            (b"attachment; filename*=UTF-8'japanese'konnichiwa", Some("konnichiwa")),
            (b"attachment; filename*=GBK''%d6%d0%ce%c4.rar", Some("中文.rar")),
            (b"attachment; filename*=UTF-8''it's%20(1).pdf", Some("it's (1).pdf")),
            (br#"attachment; filename="foo-ae.html"; filename*=UTF-8''foo-%c3%a4.html"#, Some("foo-ä.html")),
            (br#"attachment; filename*=UTF-8''foo-%c3%a4.html; filename="foo-ae.html""#, Some("foo-ä.html")),
            (b"attachment; filename*=UTF-8''; filename=foo", None),
            (br#"attachment; filename*=UTF-8''%E4; filename="plain.html""#, Some("plain.html")),
            (br#"attachment; filename*="UTF-8''x"; filename="plain.html""#, Some("plain.html")),
        ]);
        for value in [
            "attachment; filename *=UTF-8''foo-%c3%a4.html",
            "attachment; filename*=''x",
            "attachment; filename*=\"UTF-8''x\"",
            "attachment; filename*=UTF-8'x",
            "attachment; filename*=UTF-8''foo%",
            "attachment; filename*=UTF-8''f%oo",
            "attachment; filename*=utf-8''foo-%E4.html",
            "attachment; filename*=iso-8859-1''foo-%c3%a4-%e2%82%ac",
            "attachment; filename*=UTF-8''a%00b.bin",
            "attachment; filename*=UTF-8''a%0d%0ab.bin",
            "attachment; filename*=utf-16''a%00",
        ] {
            assert!(name(value).is_err(), "{value}: {:?}", name(value));
        }
    }

    /// GopeedLab/gopeed#1215, aria2/aria2#1118, #425, #1028, #813, #1873 and others.
    #[test]
    fn what_real_servers_get_wrong_is_understood() {
        let gbk = |text: &str| encoding_rs::GBK.encode(text).0.into_owned();
        check(&[
            (br#"attachment; filename="opensmile-2.3.0.tar.gz";"#, Some("opensmile-2.3.0.tar.gz")),
            // aria2 refuses this one for the `;` at its end.
            (b"attachment; filename=foo.html ;", Some("foo.html")),
            (b"attachment; filename*=UTF-8''%e2%82%ac%20rates.bin", Some("€ rates.bin")),
            (
                br#"attachment; filename="EURO rates.bin"; filename*=UTF-8''%e2%82%ac%20rates.bin"#,
                Some("€ rates.bin"),
            ),
            (br#"inline; filename="%EC%82%AC%EB%B3%B8.jpg""#, Some("사본.jpg")),
            (br#"inline; filename="my%20file%20100%25.pdf""#, Some("my file 100%.pdf")),
            (br#"inline; filename="%EC%82.jpg""#, Some("%EC%82.jpg")),
            (br#"inline; filename="a%00b.bin""#, Some("a%00b.bin")),
            (br#"inline; filename="%C2%85.bin""#, Some("%C2%85.bin")),
            ("attachment; filename=\"中文文件名.rar\"".as_bytes(), Some("中文文件名.rar")),
            // aria2 refuses characters beyond ASCII without quotes.
            ("attachment; filename=中文文件名.rar".as_bytes(), Some("中文文件名.rar")),
            (&gbk("attachment; filename=\"中文文件名.rar\""), Some("中文文件名.rar")),
            (&gbk("attachment; filename=中文文件名.rar"), Some("中文文件名.rar")),
            // A character (誠) whose second byte in GBK is a backslash, among common ones.
            (&gbk("attachment; filename=\"中文誠.rar\""), Some("中文誠.rar")),
            (b"attachment; filename=\"foo-\xe4.html\"", Some("foo-ä.html")),
            // aria2 reads ISO 8859-1 by default, as RFC 2616 had it; nobody means that today.
            (b"attachment; filename=\"foo-\xc3\xa4.html\"", Some("foo-ä.html")),
            (b"attachment; filename=a&amp;b.bin", Some("a&b.bin")),
            (b"attachment; filename=a&amp;b&amp;c.bin; x=y", Some("a&b&c.bin")),
            (b"attachment; filename=a&amp;x=y", Some("a&amp")),
            (br#"attachment; filename="a&amp;b.bin""#, Some("a&amp;b.bin")),
        ]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(noise in prop::collection::vec(any::<u8>(), 0..80), text in "(attachment|inline)?(; ?(filename|filename\\*|x) ?=[ -~é]{0,12}){0,3}") {
            for value in [noise.as_slice(), text.as_bytes()] {
                if let Ok(d) = ContentDisposition::parse(value) {
                    prop_assert!(d.file_name.is_none_or(|n| !n.is_empty() && n.len() <= 3 * MAX_LENGTH));
                }
            }
        }

        #[test]
        fn a_name_written_by_rfc_8187_is_read_again(name in "[^\\p{Cc}]{1,40}") {
            let encoded: String = name.bytes().map(|b| format!("%{b:02X}")).collect();
            let value = format!("attachment; filename*=UTF-8''{encoded}");
            prop_assert_eq!(ContentDisposition::parse(value.as_bytes()).unwrap().file_name, Some(name));
        }
    }
}
