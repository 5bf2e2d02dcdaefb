//! Input files: what to download, one entry a line.
//!
//! ```text
//! # a comment
//! http://one.example/f<TAB>http://two.example/f     two mirrors of one file
//!   dir=/srv/files                                  an option of the entry above, indented
//! http://one.example/g
//! ```
//!
//! Empty lines and comments may stand anywhere. Lines may end with CRLF, and the file may begin with a
//! byte order mark. Options are not judged here, only taken apart.

/// The longest line that is read, in bytes.
pub const MAX_LINE: usize = 64 << 10;
/// The most entries.
pub const MAX_ENTRIES: usize = 1_000_000;
/// The most mirrors of an entry.
pub const MAX_URIS: usize = 1000;
/// The most options of an entry.
pub const MAX_OPTIONS: usize = 1000;

/// One thing to download.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The places to fetch it from, at least one, in order. Not yet checked.
    pub uris: Vec<String>,
    /// Its options, in order; a name may come more than once.
    pub options: Vec<(String, String)>,
    /// The line that it begins on, counted from 1.
    pub line: usize,
}

/// Reads the content of a file.
///
/// # Errors
/// The first line that cannot be understood.
pub fn parse(content: &[u8]) -> Result<Vec<Entry>, UriListError> {
    parse_up_to(content, MAX_ENTRIES)
}

fn parse_up_to(content: &[u8], most_entries: usize) -> Result<Vec<Entry>, UriListError> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut entries: Vec<Entry> = Vec::new();
    for (index, bytes) in content.split(|&b| b == b'\n').enumerate() {
        let line = index + 1;
        let error = |problem| UriListError { line, problem };
        if bytes.len() > MAX_LINE {
            return Err(error(UriListProblem::TooLong));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| error(UriListProblem::NotUtf8))?;
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if text.starts_with([' ', '\t']) {
            let option = option(trimmed).map_err(error)?;
            let entry = entries.last_mut().ok_or_else(|| error(UriListProblem::NoEntry))?;
            if entry.options.len() == MAX_OPTIONS {
                return Err(error(UriListProblem::TooManyOptions));
            }
            entry.options.push(option);
            continue;
        }
        let uris: Vec<String> =
            text.split('\t').map(str::trim).filter(|u| !u.is_empty()).map(str::to_owned).collect();
        if uris.len() > MAX_URIS {
            return Err(error(UriListProblem::TooManyUris));
        }
        if entries.len() == most_entries {
            return Err(error(UriListProblem::TooManyEntries));
        }
        entries.push(Entry { uris, options: Vec::new(), line });
    }
    Ok(entries)
}

fn option(text: &str) -> Result<(String, String), UriListProblem> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    if name.contains("://") {
        return Err(UriListProblem::IndentedUri);
    }
    let name = name.trim();
    if name.is_empty() || name.contains(char::is_whitespace) || !text.contains('=') {
        return Err(UriListProblem::NotAnOption);
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Where an input file cannot be understood, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct UriListError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: UriListProblem,
}

/// What is wrong with a line of an input file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UriListProblem {
    /// Text in another encoding.
    #[error("it is not text in UTF-8")]
    NotUtf8,
    /// Longer than [`MAX_LINE`].
    #[error("it is longer than {MAX_LINE} bytes")]
    TooLong,
    /// An option before any link.
    #[error("an indented line is an option of the link above it, and there is none")]
    NoEntry,
    /// An indented line that is a link.
    #[error("an indented line is an option; begin a link at the start of the line")]
    IndentedUri,
    /// An indented line that is not `name=value`.
    #[error("an indented line is an option and must be written name=value, for example dir=/srv/files")]
    NotAnOption,
    /// More than [`MAX_URIS`] mirrors.
    #[error("it has more than {MAX_URIS} mirrors")]
    TooManyUris,
    /// More than [`MAX_OPTIONS`] options.
    #[error("the link above has more than {MAX_OPTIONS} options")]
    TooManyOptions,
    /// More than [`MAX_ENTRIES`] entries.
    #[error("the file has more than {MAX_ENTRIES} links")]
    TooManyEntries,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(uris: &[&str], options: &[(&str, &str)], line: usize) -> Entry {
        Entry {
            uris: uris.iter().map(|u| (*u).to_owned()).collect(),
            options: options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            line,
        }
    }

    #[test]
    fn an_input_file_is_read_as_aria2_reads_it() {
        // B37.
        let text = "# c\nhttp://localhost/index.html\thttp://localhost2/index.html\n\nftp://localhost/aria2.tar.bz2\n\
                    \x20 dir=/tmp\n# comment\n\t out=chunky_chocolate\n";
        let expected = [
            entry(&["http://localhost/index.html", "http://localhost2/index.html"], &[], 2),
            entry(&["ftp://localhost/aria2.tar.bz2"], &[("dir", "/tmp"), ("out", "chunky_chocolate")], 4),
        ];
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
        let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(parse(windows.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn lines_are_taken_apart() {
        for (text, expected) in [
            ("", vec![]),
            ("\n \t\n  # only\n", vec![]),
            ("a", vec![entry(&["a"], &[], 1)]),
            ("a\t\tb\t", vec![entry(&["a", "b"], &[], 1)]),
            ("a b", vec![entry(&["a b"], &[], 1)]),
            ("a\n\n out=x", vec![entry(&["a"], &[("out", "x")], 1)]),
            (
                "a\n header = A: b=c\n header=D:\n quiet=",
                vec![entry(&["a"], &[("header", "A: b=c"), ("header", "D:"), ("quiet", "")], 1)],
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_understood_names_its_line() {
        for (text, line, problem) in [
            (&b" out=x\na"[..], 1, UriListProblem::NoEntry),
            (b"a\n\n out", 3, UriListProblem::NotAnOption),
            (b"a\n =x", 2, UriListProblem::NotAnOption),
            (b"a\n two words=x", 2, UriListProblem::NotAnOption),
            (b"a\n  http://h/b", 2, UriListProblem::IndentedUri),
            (b"a\n  http://h/b?x=1", 2, UriListProblem::IndentedUri),
            (b"a\n\xff", 2, UriListProblem::NotUtf8),
        ] {
            assert_eq!(parse(text).unwrap_err(), UriListError { line, problem }, "{text:?}");
        }
        let problem = |text: String| parse(text.as_bytes()).unwrap_err().problem;
        assert_eq!(problem("x".repeat(MAX_LINE + 1)), UriListProblem::TooLong);
        assert_eq!(problem("x\t".repeat(MAX_URIS + 1)), UriListProblem::TooManyUris);
        assert_eq!(problem(format!("x{}", "\n a=b".repeat(MAX_OPTIONS + 1))), UriListProblem::TooManyOptions);
        assert_eq!(parse_up_to(b"x\ny\n", 2).unwrap().len(), 2);
        assert_eq!(
            parse_up_to(b"x\ny\nz", 2).unwrap_err(),
            UriListError { line: 3, problem: UriListProblem::TooManyEntries }
        );
        assert_eq!(
            parse(b"\n out=x").unwrap_err().to_string(),
            "line 2: an indented line is an option of the link above it, and there is none"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b' '), Just(b'=')], 0..100)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_was_written_is_read_back(
            entries in prop::collection::vec(
                (prop::collection::vec("[a-z:/]{1,9}", 1..4), prop::collection::vec(("[a-z-]{1,5}", "[a-z=]{0,5}"), 0..4)),
                0..6,
            )
        ) {
            let mut text = String::new();
            for (uris, options) in &entries {
                text.push_str(&uris.join("\t"));
                for (name, value) in options {
                    text.push_str(&format!("\n {name}={value}"));
                }
                text.push('\n');
            }
            let back = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(back.into_iter().map(|e| (e.uris, e.options)).collect::<Vec<_>>(), entries);
        }
    }
}
