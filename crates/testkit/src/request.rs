//! A request as it was seen on the wire.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The longest head that is read, in bytes.
const HEAD: usize = 64 * 1024;
/// The longest request body that is read, in bytes.
const BODY: u64 = 1 << 20;

/// One request, with what its place among the others tells.
#[derive(Clone, Debug)]
pub struct RequestSeen {
    /// Its number among all requests of this Origin, from 1.
    pub number: u64,
    /// The number of its connection, from 0.
    pub connection: u64,
    /// Its number among the requests of its connection, from 1.
    pub nth_on_connection: u64,
    /// Which of the Origin's listeners it came to, from 0.
    pub listener: usize,
    /// When its head was complete, since the Origin began.
    pub at: Duration,
    /// The method, as written.
    pub method: String,
    /// The request target, as written: `/path?query`.
    pub target: String,
    /// The version, as written: `HTTP/1.1`.
    pub version: String,
    /// The header fields in order, names as written. Bytes that are not UTF-8 are replaced.
    pub fields: Vec<(String, String)>,
    /// The body (at most 1 MiB of it).
    pub body: Vec<u8>,
    /// Its number among the GETs of its resource since that was put in place, from 1. Requests with
    /// another method carry the number of GETs so far.
    pub hit: u64,
    /// Bytes of content that its resource had sent before this request.
    pub sent_before: u64,
    /// What TLS told, when it came over TLS.
    pub tls: Option<TlsSeen>,
    pub(crate) bases: Arc<Vec<String>>,
}

/// What a TLS handshake told about the client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsSeen {
    /// The host name that the client asked for.
    pub server_name: Option<String>,
    /// Whether it gave a certificate (which has been verified).
    pub client_certificate: bool,
}

/// What a Range field asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RangeAsked {
    /// `bytes=a-` or `bytes=a-b`, the end included.
    From(u64, Option<u64>),
    /// `bytes=-n`: the last n bytes.
    Last(u64),
    /// More than one range; whether each can be read is not looked at.
    Several,
    /// Anything else. It is to be ignored (RFC 9110 14.2).
    Unreadable,
}

impl RangeAsked {
    /// Reads the value of a Range field.
    pub fn parse(value: &str) -> Self {
        let Some(set) = value.trim().strip_prefix("bytes=") else { return Self::Unreadable };
        if set.contains(',') {
            return Self::Several;
        }
        let Some((from, to)) = set.trim().split_once('-') else { return Self::Unreadable };
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse::<u64>().ok(),
            false => None,
        };
        match (from.is_empty(), number(from), to.is_empty(), number(to)) {
            (true, _, false, Some(last)) => Self::Last(last),
            (false, Some(from), true, _) => Self::From(from, None),
            (false, Some(from), false, Some(to)) if from <= to => Self::From(from, Some(to)),
            _ => Self::Unreadable,
        }
    }

    /// The span of a body of `len` bytes that is meant, half open; `None` when there is none.
    pub fn within(&self, len: u64) -> Option<Range<u64>> {
        let span = match *self {
            Self::From(from, to) => from..to.map_or(len, |to| to.saturating_add(1)).min(len),
            Self::Last(n) => len.saturating_sub(n)..len,
            Self::Several | Self::Unreadable => return None,
        };
        (span.start < span.end).then_some(span)
    }
}

impl RequestSeen {
    /// The first field with this name, in any case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether there is a field with this name.
    pub fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// What the Range field asks for, if there is one.
    pub fn range(&self) -> Option<RangeAsked> {
        self.field("range").map(RangeAsked::parse)
    }

    /// The first byte asked for: 0 without a Range, or with one that says no first byte.
    pub fn starts_at(&self) -> u64 {
        match self.range() {
            Some(RangeAsked::From(from, _)) => from,
            _ => 0,
        }
    }

    /// The target up to the query, as written.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    /// The query, without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// Whether it is a HEAD request, whose answers have no body.
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The address of the Origin's listener with this number, as `http://host:port` or `https://…`, for
    /// links that lead elsewhere. The first listener where there is no such number.
    pub fn base(&self, listener: usize) -> &str {
        self.bases.get(listener).or_else(|| self.bases.first()).map_or("", String::as_str)
    }

    /// Whether the client asks or wants to have the connection kept.
    pub(crate) fn keeps_alive(&self) -> bool {
        let asked = self.field("connection").unwrap_or("").to_ascii_lowercase();
        let says = |word: &str| asked.split(',').any(|part| part.trim() == word);
        match self.version.as_str() {
            "HTTP/1.0" => says("keep-alive"),
            _ => !says("close"),
        }
    }
}

/// Why no request could be read.
#[derive(Debug)]
pub(crate) enum NoRequest {
    /// The client is done.
    Closed,
    /// What came is not a request.
    Malformed,
    /// The connection failed.
    Lost,
}

/// A request's own words, before its place among the others is known.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Reads one head. `buffer` holds what was read beyond the last one, and then beyond this one.
pub(crate) fn read_head(link: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Head, NoRequest> {
    let mut looked = 0;
    loop {
        // Empty lines before a request are to be skipped (RFC 9112 2.2).
        let blank = buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        if blank > 0 {
            buffer.drain(..blank);
            looked = 0;
        }
        if let Some(end) = end_of_head(buffer, looked) {
            let head = parse_head(&buffer[..end]).ok_or(NoRequest::Malformed);
            buffer.drain(..end);
            return head;
        }
        if buffer.len() >= HEAD {
            return Err(NoRequest::Malformed);
        }
        looked = buffer.len().saturating_sub(3);
        match fill(link, buffer) {
            Ok(0) if buffer.is_empty() => return Err(NoRequest::Closed),
            Ok(0) => return Err(NoRequest::Malformed),
            Ok(_) => {}
            Err(_) => return Err(NoRequest::Lost),
        }
    }
}

/// Reads a request's body, as far as its head announces one.
pub(crate) fn read_body(
    link: &mut impl Read,
    buffer: &mut Vec<u8>,
    head: &Head,
) -> Result<Vec<u8>, NoRequest> {
    let len = match head.field("content-length").map(str::parse::<u64>) {
        None => return Ok(Vec::new()),
        Some(Ok(len)) if len <= BODY => len as usize,
        Some(_) => return Err(NoRequest::Malformed),
    };
    while buffer.len() < len {
        if fill(link, buffer).map_err(|_| NoRequest::Lost)? == 0 {
            return Err(NoRequest::Lost);
        }
    }
    Ok(buffer.drain(..len).collect())
}

fn fill(link: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut piece = [0; 8192];
    let n = link.read(&mut piece)?;
    buffer.extend_from_slice(&piece[..n]);
    Ok(n)
}

fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    bytes[from.min(bytes.len())..].windows(4).position(|window| window == b"\r\n\r\n").map(|at| from + at + 4)
}

fn parse_head(bytes: &[u8]) -> Option<Head> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || method.is_empty() || target.is_empty() || !version.starts_with("HTTP/") {
        return None;
    }
    let mut fields = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        if name.is_empty() || name.ends_with([' ', '\t']) {
            return None;
        }
        fields.push((name.to_owned(), value.trim().to_owned()));
    }
    Some(Head { method: method.to_owned(), target: target.to_owned(), version: version.to_owned(), fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Head, NoRequest> {
        read_head(&mut &bytes[..], &mut Vec::new())
    }

    #[test]
    fn a_request_is_read_however_it_is_cut() {
        let bytes = b"\r\nGET /a?b=c HTTP/1.1\r\nHost: x\r\nRange:  bytes=1-2 \r\n\r\nrest";
        for cut in 1..bytes.len() {
            let mut buffer = Vec::new();
            let mut link = bytes[..cut].chain(&bytes[cut..]);
            let head = read_head(&mut link, &mut buffer).unwrap();
            assert_eq!((head.method.as_str(), head.target.as_str()), ("GET", "/a?b=c"));
            assert_eq!(head.fields[1], ("Range".to_owned(), "bytes=1-2".to_owned()));
            assert!(b"rest".starts_with(&buffer[..]), "what follows is kept");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert!(matches!(read(b""), Err(NoRequest::Closed)));
        for bad in [
            "GET /\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "GET / x HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\n",
        ] {
            assert!(matches!(read(bad.as_bytes()), Err(NoRequest::Malformed)), "{bad:?}");
        }
        let endless = vec![b'a'; 2 * HEAD];
        assert!(matches!(read(&endless), Err(NoRequest::Malformed)));
    }

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        use RangeAsked::*;
        for (text, asked) in [
            ("bytes=0-", From(0, None)),
            ("bytes=5-9", From(5, Some(9))),
            ("bytes=-7", Last(7)),
            ("bytes=0-1,3-4", Several),
            ("bytes=9-5", Unreadable),
            ("bytes=-", Unreadable),
            ("bytes=+1-2", Unreadable),
            ("items=0-1", Unreadable),
            ("bytes=99999999999999999999-", Unreadable),
        ] {
            assert_eq!(RangeAsked::parse(text), asked, "{text}");
        }
        assert_eq!(From(5, Some(9)).within(100), Some(5..10));
        assert_eq!(From(5, Some(u64::MAX)).within(8), Some(5..8));
        assert_eq!(From(8, None).within(8), None);
        assert_eq!(Last(3).within(8), Some(5..8));
        assert_eq!(Last(0).within(8), None);
        assert_eq!(Last(99).within(8), Some(0..8));
    }
}
