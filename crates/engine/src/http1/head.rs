//! The head of an answer, and what it says about the body.

use crate::failure::{FetchError, shown};
use std::future::poll_fn;
use std::pin::Pin;
use tidegate_core::headers::Headers;
use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes read at a time while a head is incomplete.
const READ: usize = 16 * 1024;
/// The same where a limit holds: most heads are shorter, and what comes with them of the body is more than
/// was granted.
const SPARING: usize = 1024;
/// Most bytes of one head.
const MOST_BYTES: usize = 64 * 1024;
/// Most fields in one head.
const MOST_FIELDS: usize = 256;
/// Most interim answers (1xx) before the real one.
const MOST_INTERIM: u32 = 16;

/// Fields that decide which bytes are the file: a line that cannot be read as a field but might be
/// meant as one of these makes the whole answer unreadable.
const DECISIVE: [&str; 4] = ["content-length", "transfer-encoding", "content-range", "content-encoding"];

/// The head of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Head {
    /// The status, 200 to 999.
    pub status: u16,
    /// HTTP/1.0 rather than 1.1.
    pub http10: bool,
    /// The reason phrase as the server sent it; text from outside.
    pub reason: String,
    /// The header fields. Folded lines are joined with one blank.
    pub headers: Headers,
}

/// How the end of a body is known (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// There is none.
    Empty,
    /// It has this many bytes.
    Length(u64),
    /// It comes in chunks, the last of which is empty.
    Chunked,
    /// It ends with the connection.
    UntilClose,
}

impl Head {
    /// How the end of the body is known, for an answer to a GET.
    ///
    /// Chunks win over a length; [`Head::keep_alive`] is then false.
    ///
    /// # Errors
    /// [`FetchError::Protocol`] if the fields contradict each other or cannot be read.
    pub fn framing(&self) -> Result<Framing, FetchError> {
        if matches!(self.status, 204 | 304) {
            return Ok(Framing::Empty);
        }
        if self.is_chunked()? {
            return Ok(Framing::Chunked);
        }
        let mut length = None;
        for value in self.headers.get_all("content-length") {
            // A proxy may have joined repeated fields by commas.
            for part in value.split(|b| *b == b',') {
                let n = length_of(part.trim_ascii())
                    .ok_or_else(|| FetchError::protocol(format!("Content-Length is {:?}", shown(value))))?;
                if length.is_some_and(|l| l != n) {
                    return Err(FetchError::protocol("it has two lengths"));
                }
                length = Some(n);
            }
        }
        Ok(length.map_or(Framing::UntilClose, Framing::Length))
    }

    /// Whether the server leaves the connection open after the body. A body that ends with the
    /// connection does not, whatever this says; see [`super::Body::is_reusable`].
    pub fn keep_alive(&self) -> bool {
        let chunked = self.headers.get("transfer-encoding").is_some();
        // Both at once is what request smuggling looks like, and HTTP/1.0 knows no chunks: whoever
        // sent that may not agree with us on where the body ends.
        if chunked && (self.http10 || self.headers.get("content-length").is_some()) {
            return false;
        }
        let says = |word: &str| {
            self.headers
                .get_all("connection")
                .flat_map(|v| v.split(|b| *b == b','))
                .any(|token| token.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        !says("close") && (!self.http10 || says("keep-alive"))
    }

    fn is_chunked(&self) -> Result<bool, FetchError> {
        let mut chunked = false;
        for value in self.headers.get_all("transfer-encoding") {
            for coding in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                if coding.is_empty() || coding.eq_ignore_ascii_case(b"identity") {
                    continue;
                }
                // We offered no transfer coding, so `chunked` is the only one that may come, once.
                if chunked || !coding.eq_ignore_ascii_case(b"chunked") {
                    return Err(FetchError::protocol(format!("Transfer-Encoding is {:?}", shown(value))));
                }
                chunked = true;
            }
        }
        Ok(chunked)
    }
}

/// Digits only, and no more than a file offset can hold.
fn length_of(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n: u64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (n <= i64::MAX as u64).then_some(n)
}

/// The bytes of an answer up to the end of its head and a little beyond. One for each request.
#[derive(Debug, Default)]
pub struct HeadBuffer {
    bytes: Vec<u8>,
    /// Where the search for the end of the head goes on.
    searched: usize,
    interim: u32,
    reused: bool,
    any: bool,
    /// How many bytes came in all.
    taken: usize,
    trimmed: bool,
    sparing: bool,
}

impl HeadBuffer {
    /// An empty buffer. `reused` says whether the connection has carried an answer before.
    pub fn new(reused: bool) -> Self {
        Self { reused, ..Self::default() }
    }

    /// The same, reading hardly more than the head.
    #[must_use]
    pub fn sparing(mut self, sparing: bool) -> Self {
        self.sparing = sparing;
        self
    }

    /// How many bytes came so far, heads of interim answers included.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// What came after the head: the beginning of the body, at most 16 KiB.
    pub fn leftover(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, taking the bytes.
    pub fn into_leftover(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds bytes as they came from the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        self.any |= !bytes.is_empty();
        self.taken += bytes.len();
        self.bytes.extend_from_slice(bytes);
    }

    /// The head, once it is complete; then only what follows it stays in the buffer. Interim answers
    /// (1xx) are dropped.
    ///
    /// # Errors
    /// As soon as the bytes cannot become an answer: [`FetchError::Protocol`],
    /// [`FetchError::HeadTooLarge`].
    pub fn parse(&mut self) -> Result<Option<Head>, FetchError> {
        loop {
            // Some servers end a body with a line break too many.
            if !self.trimmed && self.bytes.starts_with(b"\r\n") {
                self.bytes.drain(..2);
                self.trimmed = true;
            }
            const START: &[u8] = b"HTTP/1.";
            let first = &self.bytes[..self.bytes.len().min(START.len())];
            if !START.starts_with(first) && (self.trimmed || first != b"\r") {
                return Err(FetchError::protocol(format!("it begins with {:?}", shown(&self.bytes))));
            }
            // Parsing only whole heads keeps the work linear however small the reads are.
            let Some(end) = end_of_head(&self.bytes, self.searched) else {
                self.searched = self.bytes.len().saturating_sub(2);
                if self.bytes.len() >= MOST_BYTES {
                    return Err(too_large());
                }
                return Ok(None);
            };
            if end > MOST_BYTES {
                return Err(too_large());
            }
            let head = parse_head(&self.bytes[..end])?;
            self.bytes.drain(..end);
            self.searched = 0;
            match head.status {
                101 => return Err(FetchError::protocol("it switches to a protocol that was not asked for")),
                100..=199 => {
                    self.interim += 1;
                    if self.interim > MOST_INTERIM {
                        return Err(FetchError::protocol("too many interim answers"));
                    }
                }
                _ => return Ok(Some(head)),
            }
        }
    }
}

fn too_large() -> FetchError {
    FetchError::HeadTooLarge { what: format!("more than {} KiB", MOST_BYTES / 1024) }
}

/// One past the empty line that ends the head.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = bytes.get(at..)?.iter().position(|b| *b == b'\n') {
        let next = at + found + 1;
        match bytes.get(next..) {
            Some([b'\n', ..]) => return Some(next + 1),
            Some([b'\r', b'\n', ..]) => return Some(next + 2),
            _ => at = next,
        }
    }
    None
}

fn parse_head(bytes: &[u8]) -> Result<Head, FetchError> {
    match parse_fields(bytes, false) {
        Err(httparse::Error::HeaderName) => {
            // Lines that are no fields are skipped as browsers do, unless one of them could be read
            // as a field that says where the body ends or which bytes it has.
            let head = finish(parse_fields(bytes, true))?;
            let lines = |name: &str| bytes.split(|b| *b == b'\n').filter(|l| looks_like(l, name)).count();
            if DECISIVE.iter().any(|name| lines(name) != head.headers.get_all(name).count()) {
                return Err(FetchError::protocol("a field that matters is misspelt"));
            }
            Ok(head)
        }
        result => finish(result),
    }
}

fn parse_fields(bytes: &[u8], skip_invalid: bool) -> httparse::Result<Head> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    let mut config = httparse::ParserConfig::default();
    config
        .allow_multiple_spaces_in_response_status_delimiters(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .ignore_invalid_headers_in_responses(skip_invalid);
    let httparse::Status::Complete(used) = config.parse_response(&mut answer, bytes)? else {
        return Ok(httparse::Status::Partial);
    };
    if used != bytes.len() {
        return Err(httparse::Error::NewLine);
    }
    let mut headers = Headers::new();
    for field in answer.headers.iter() {
        match field.value.contains(&b'\n') {
            true => headers.push(field.name, &unfold(field.value)),
            false => headers.push(field.name, field.value),
        }
    }
    Ok(httparse::Status::Complete(Head {
        status: answer.code.unwrap_or(0),
        http10: answer.version == Some(0),
        reason: answer.reason.unwrap_or("").to_owned(),
        headers,
    }))
}

fn finish(result: httparse::Result<Head>) -> Result<Head, FetchError> {
    match result {
        Ok(httparse::Status::Complete(head)) if head.status < 100 => {
            Err(FetchError::protocol(format!("its status is {}", head.status)))
        }
        Ok(httparse::Status::Complete(head)) => Ok(head),
        Ok(httparse::Status::Partial) => Err(FetchError::protocol("its head has no end")),
        Err(httparse::Error::TooManyHeaders) => {
            Err(FetchError::HeadTooLarge { what: format!("more than {MOST_FIELDS} fields") })
        }
        Err(error) => Err(FetchError::protocol(error.to_string())),
    }
}

/// Whether a line begins with this name and a colon, blanks and what stands for them ignored.
fn looks_like(line: &[u8], name: &str) -> bool {
    let mut letters = line.iter().filter(|b| !b" \t\r\0-_".contains(b));
    name.bytes().filter(|n| *n != b'-').all(|n| letters.next().is_some_and(|l| l.eq_ignore_ascii_case(&n)))
        && letters.next() == Some(&b':')
}

/// Each line break with the blanks around it becomes one blank (RFC 9112, section 5.2).
fn unfold(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for line in value.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty()) {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend_from_slice(line);
    }
    out
}

/// Reads the head of the next answer. What of the body came with it stays in `buffer`.
///
/// `host` is for messages. Has no time-out of its own. Cancel-safe: what was read is in `buffer`.
///
/// # Errors
/// [`FetchError::ConnectionLost`] at an end or error of the connection, with `before_answer` if no
/// byte had come; otherwise as [`HeadBuffer::parse`].
pub async fn read_head<S>(stream: &mut S, host: &str, buffer: &mut HeadBuffer) -> Result<Head, FetchError>
where
    S: AsyncRead + Unpin + ?Sized,
{
    loop {
        if let Some(head) = buffer.parse()? {
            return Ok(head);
        }
        let read = poll_fn(|cx| {
            // On the stack and only inside the poll: it costs an idle request nothing.
            let mut room = [std::mem::MaybeUninit::<u8>::uninit(); READ];
            let most = if buffer.sparing { SPARING } else { READ };
            let mut room = ReadBuf::uninit(&mut room[..most]);
            Pin::new(&mut *stream).poll_read(cx, &mut room).map_ok(|()| {
                buffer.push(room.filled());
                room.filled().len()
            })
        })
        .await;
        let error = match read {
            Ok(0) => std::io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => continue,
            Err(error) => error,
        };
        return Err(FetchError::from_io(error, host, buffer.reused, !buffer.any));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    fn parse(text: &str) -> Result<Head, FetchError> {
        let mut buffer = HeadBuffer::new(false);
        buffer.push(text.as_bytes());
        buffer.parse().map(|head| head.expect("a whole head"))
    }

    fn head(fields: &str) -> Head {
        parse(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).unwrap()
    }

    fn framing(fields: &str) -> Result<Framing, FetchError> {
        head(fields).framing()
    }

    #[test]
    fn a_head_is_read_and_the_body_left_in_the_buffer() {
        let mut buffer = HeadBuffer::new(false);
        buffer.push(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nETag:  \"a\" \r\n\r\nabc");
        let head = buffer.parse().unwrap().unwrap();
        assert_eq!((head.status, head.http10, head.reason.as_str()), (206, false, "Partial Content"));
        assert_eq!(head.headers.text("etag"), Some("\"a\""));
        assert_eq!(buffer.leftover(), b"abc");
        assert_eq!(buffer.into_leftover(), b"abc");
    }

    #[test]
    fn what_real_servers_send_is_understood() {
        for text in [
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 200 \r\n\r\n",
            "HTTP/1.0  200  OK\r\n\r\n",
            "HTTP/1.1 200 OK\nX: y\n\n",
            "HTTP/1.1 200 OK\nX: y\r\n\n",
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 \u{e9}\r\nX: \u{e9}\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX:\r\n\r\n",
            "HTTP/1.1 200 OK\r\n X: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nthis is no field\r\nX Y: z\r\n\r\n",
        ] {
            assert_eq!(parse(text).unwrap().status, 200, "{text:?}");
        }
        let folded = head("Content-Disposition: attachment;\r\n \tfilename=a\r\nX: y\r\n");
        assert_eq!(folded.headers.text("content-disposition"), Some("attachment; filename=a"));
        assert_eq!(folded.headers.text("x"), Some("y"));
    }

    #[test]
    fn what_is_not_http_is_refused_at_once() {
        for text in [
            "<html>",
            "SSH-2.0-OpenSSH_9\r\n",
            "HTTP/2 200",
            "HTTP/0.9",
            "http/1.1 200 OK",
            "ICY 200 OK",
            "\n\nHTTP/1.1 200 OK",
            "\r\n\r\nHTTP/1.1 200 OK",
            "\0",
        ] {
            let mut buffer = HeadBuffer::new(false);
            buffer.push(text.as_bytes());
            assert!(matches!(buffer.parse(), Err(FetchError::Protocol { .. })), "{text:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in [
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 -20 OK\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
            "HTTP/1.1 200 OK\r\n Content-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX y: z\r\nTransfer-Encoding\t: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Range : bytes 0-1/2\r\n\r\n",
        ] {
            let result = parse(text);
            assert!(matches!(result, Err(FetchError::Protocol { .. })), "{text:?}: {result:?}");
        }
    }

    #[test]
    fn a_head_is_bounded_in_bytes_fields_and_interim_answers() {
        let field = format!("X: {}\r\n", "y".repeat(70_000));
        assert!(matches!(
            parse(&format!("HTTP/1.1 200 OK\r\n{field}\r\n")),
            Err(FetchError::HeadTooLarge { .. })
        ));
        let mut endless = HeadBuffer::new(false);
        endless.push(format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(11_000)).as_bytes());
        assert!(matches!(endless.parse(), Err(FetchError::HeadTooLarge { .. })));
        assert_eq!(head(&"X: y\r\n".repeat(MOST_FIELDS)).status, 200);
        assert!(matches!(
            parse(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(MOST_FIELDS + 1))),
            Err(FetchError::HeadTooLarge { .. })
        ));
        let hints =
            |n| format!("{}HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n".repeat(n));
        assert_eq!(parse(&hints(16)).unwrap().status, 200);
        assert!(matches!(parse(&hints(17)), Err(FetchError::Protocol { .. })));
    }

    #[test]
    fn the_end_of_a_body_is_known_from_its_head() {
        for (fields, expected) in [
            ("", Framing::UntilClose),
            ("Content-Length: 0\r\n", Framing::Length(0)),
            ("Content-Length: 05\r\n", Framing::Length(5)),
            ("Content-Length: 9223372036854775807\r\n", Framing::Length(i64::MAX as u64)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Framing::Length(5)),
            ("Content-Length: 5, 5\r\n", Framing::Length(5)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Framing::Chunked),
            ("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", Framing::Chunked),
            ("Transfer-Encoding: identity\r\nContent-Length: 5\r\n", Framing::Length(5)),
        ] {
            assert_eq!(framing(fields).unwrap(), expected, "{fields:?}");
        }
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 6\r\n",
            "Content-Length: 5 6\r\n",
            "Content-Length: 5\r\n 6\r\n",
            "Content-Length: 5,\r\n",
            "Content-Length:\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: 1e3\r\n",
            "Content-Length: 9223372036854775808\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Transfer-Encoding: gzip\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            assert!(matches!(framing(fields), Err(FetchError::Protocol { .. })), "{fields:?}");
        }
        for status in [204, 304] {
            let head = parse(&format!("HTTP/1.1 {status} x\r\nContent-Length: 5\r\n\r\n")).unwrap();
            assert_eq!(head.framing().unwrap(), Framing::Empty);
        }
    }

    #[test]
    fn a_connection_is_kept_only_when_both_sides_agree_where_the_body_ends() {
        let keep = |version: &str, fields: &str| {
            parse(&format!("HTTP/{version} 200 OK\r\n{fields}\r\n")).unwrap().keep_alive()
        };
        assert!(keep("1.1", ""));
        assert!(!keep("1.1", "Connection: close\r\n"));
        assert!(!keep("1.1", "Connection: foo, Close\r\n"));
        assert!(!keep("1.0", ""));
        assert!(keep("1.0", "Connection: Keep-Alive\r\n"));
        assert!(!keep("1.0", "Connection: keep-alive, close\r\n"));
        assert!(keep("1.1", "Transfer-Encoding: chunked\r\n"));
        assert!(!keep("1.1", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"));
        assert!(!keep("1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n"));
    }

    /// What `read_head` makes of a connection that carries these bytes and then ends.
    async fn from_wire(bytes: &[u8], reused: bool) -> (Result<Head, FetchError>, Vec<u8>) {
        let (mut ours, mut theirs) = tokio::io::duplex(100);
        let mut buffer = HeadBuffer::new(reused);
        let send = async {
            let _ = theirs.write_all(bytes).await;
            drop(theirs);
        };
        let (result, ()) = tokio::join!(
            async {
                let result = read_head(&mut ours, "h", &mut buffer).await;
                drop(ours);
                result
            },
            send
        );
        (result, buffer.into_leftover())
    }

    #[tokio::test]
    async fn an_end_before_an_answer_is_told_from_one_within() {
        let (result, _) = from_wire(b"", true).await;
        assert!(result.as_ref().is_err_and(FetchError::was_idle_close), "{result:?}");
        let (result, _) = from_wire(b"", false).await;
        assert!(matches!(result, Err(FetchError::ConnectionLost { reused: false, before_answer: true, .. })));
        let (result, _) = from_wire(b"HTTP/1.1 200 OK\r\nX", true).await;
        assert!(matches!(result, Err(FetchError::ConnectionLost { before_answer: false, .. })));
        let (result, _) = from_wire(b"HTTP/1.1 100 Continue\r\n\r\n", true).await;
        assert!(matches!(result, Err(FetchError::ConnectionLost { before_answer: false, .. })));
    }

    proptest! {
        #[test]
        fn however_a_head_is_split_it_reads_the_same(cuts in prop::collection::vec(1usize..30, 1..10)) {
            let wire = b"\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\nA: b\r\n c\r\nContent-Length: 4\r\n\r\nbody";
            let mut buffer = HeadBuffer::new(false);
            let (mut from, mut cuts) = (0, cuts.iter().cycle());
            let head = loop {
                let to = (from + cuts.next().unwrap()).min(wire.len());
                buffer.push(&wire[from..to]);
                from = to;
                if let Some(head) = buffer.parse().unwrap() {
                    break head;
                }
            };
            prop_assert_eq!(head.headers.text("a"), Some("b c"));
            prop_assert_eq!(head.framing().unwrap(), Framing::Length(4));
            prop_assert!(b"body".starts_with(buffer.leftover()));
            prop_assert_eq!(buffer.leftover().len(), from - (wire.len() - 4));
        }

        #[test]
        fn no_input_makes_a_head_panic(tail in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = HeadBuffer::new(false);
            buffer.push(b"HTTP/1.1 200 OK\r\n");
            buffer.push(&tail);
            if let Ok(Some(head)) = buffer.parse() {
                let _ = (head.framing(), head.keep_alive());
            }
        }
    }
}
