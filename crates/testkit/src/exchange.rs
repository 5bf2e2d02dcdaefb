//! One answer: what it says, how its content is framed, how fast it goes, and how it ends.
//!
//! An [`Answer`] is plain data. A [`crate::Resource`] makes an honest one and hooks falsify it; what
//! cannot be said as an [`Answer`] is written through an [`Exchange`].

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::body::Body;
use crate::hub::Hub;
use crate::pace::{Pace, Pacer, Rate};
use crate::request::RequestSeen;
use crate::wire::Link;

/// The largest single write of content, in bytes.
const WRITE: usize = 64 * 1024;

/// How a response ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// The connection stays open for the next request.
    KeepAlive,
    /// By FIN, after close_notify if there is TLS.
    Fin,
    /// By FIN without close_notify: over TLS, what an attacker can forge. Without TLS the same as `Fin`.
    FinWithoutNotice,
    /// By RST, once what was sent has been acknowledged.
    Reset,
    /// Not at all: the connection stays open and nothing more comes, until the client leaves.
    Stall,
}

/// How content is delimited.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Framing {
    /// By Content-Length.
    Length,
    /// By chunks of at most this many bytes.
    Chunked(usize),
    /// By the end of the connection.
    UntilClose,
}

/// Chunked framing as it will be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chunks {
    /// Content in each chunk, in bytes; at least one. A chunk is shorter where a write of 64 KiB ends.
    pub size: usize,
    /// What follows each size, as in `;name=value`.
    pub extension: String,
    /// Fields after the last chunk, each line with its line end.
    pub trailers: String,
}

/// Where a response is broken off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// After this many bytes of content.
    pub after: u64,
    /// How.
    pub ending: Ending,
}

/// A response, as data. The fields are written as they stand: nothing corrects them.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Silence before the first byte.
    pub delay: Duration,
    /// Bytes before the status line: interim responses.
    pub preamble: Vec<u8>,
    /// The status code, also the one that is counted.
    pub status: u16,
    /// The whole status line without its line end, where it is not the usual one.
    pub status_line: Option<Vec<u8>>,
    /// The header fields in order, as written.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The content of this response: for a 206, the part.
    pub body: Body,
    /// Chunked framing, if the content is to be wrapped in it. Says nothing about the fields; use
    /// [`Answer::frame`] to change both.
    pub chunks: Option<Chunks>,
    /// Where it is broken off, if it is.
    pub cut: Option<Cut>,
    /// How it ends otherwise.
    pub ending: Ending,
    /// The rates it is held to, all of them.
    pub paces: Vec<Pace>,
    /// The rate of the head.
    pub head_rate: Option<Rate>,
    /// Whether even the answer to a HEAD carries the content.
    pub body_on_head: bool,
}

impl Answer {
    /// An answer with this status and content, with its Content-Length, that keeps the connection.
    pub fn new(status: u16, body: Body) -> Self {
        let mut answer = Self {
            delay: Duration::ZERO,
            preamble: Vec::new(),
            status,
            status_line: None,
            fields: Vec::new(),
            body,
            chunks: None,
            cut: None,
            ending: Ending::KeepAlive,
            paces: Vec::new(),
            head_rate: None,
            body_on_head: false,
        };
        answer.set("Date", httpdate::fmt_http_date(std::time::SystemTime::now()));
        if status != 204 && status != 304 {
            answer.frame(Framing::Length);
        }
        answer
    }

    /// An answer that only says its status, in a line of plain text.
    pub fn status(status: u16) -> Self {
        Self::new(status, Body::bytes(format!("{status} {}\n", reason(status))))
            .with("Content-Type", "text/plain")
    }

    /// A web page of `len` bytes.
    pub fn page(status: u16, len: usize) -> Self {
        const START: &str = "<!DOCTYPE html><html><head><title>Sorry</title></head><body>";
        const END: &str = "</body></html>\n";
        let filling = "<p>This page is not the file. </p>";
        let mut page = String::from(START);
        while page.len() + END.len() < len {
            let left = len - END.len() - page.len();
            page.push_str(&filling[..filling.len().min(left)]);
        }
        page.push_str(END);
        Self::new(status, Body::bytes(page)).with("Content-Type", "text/html; charset=utf-8")
    }

    /// A redirect to `location`.
    pub fn redirect(status: u16, location: impl Into<Vec<u8>>) -> Self {
        Self::status(status).with("Location", location)
    }

    /// With this field, instead of any of that name.
    pub fn with(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.set(name, value);
        self
    }

    /// With this ending.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Puts this field in the place of any of that name.
    pub fn set(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        let value = value.into();
        match self.fields.iter().position(|(is, _)| is.eq_ignore_ascii_case(name)) {
            Some(at) => {
                self.fields[at] = (name.to_owned(), value);
                let mut index = 0;
                self.fields.retain(|(is, _)| {
                    index += 1;
                    index - 1 <= at || !is.eq_ignore_ascii_case(name)
                });
            }
            None => self.fields.push((name.to_owned(), value)),
        }
    }

    /// Adds a field, whatever is there already.
    pub fn add(&mut self, name: &str, value: impl Into<Vec<u8>>) {
        self.fields.push((name.to_owned(), value.into()));
    }

    /// Removes all fields of that name.
    pub fn remove(&mut self, name: &str) {
        self.fields.retain(|(is, _)| !is.eq_ignore_ascii_case(name));
    }

    /// Delimits the content in this way, with the fields that say so.
    pub fn frame(&mut self, framing: Framing) {
        self.remove("Content-Length");
        self.remove("Transfer-Encoding");
        self.chunks = None;
        match framing {
            Framing::Length => self.set("Content-Length", self.body.len().to_string()),
            Framing::Chunked(size) => {
                self.set("Transfer-Encoding", "chunked");
                self.chunks =
                    Some(Chunks { size: size.max(1), extension: String::new(), trailers: String::new() });
            }
            Framing::UntilClose => {
                self.set("Connection", "close");
                if self.ending == Ending::KeepAlive {
                    self.ending = Ending::Fin;
                }
            }
        }
    }

    /// Writes these bytes as the content, with no framing of our own, and closes after them: for chunked
    /// framing that is wrong. The fields say `chunked`.
    pub fn chunked_as(&mut self, framed: Body) {
        self.frame(Framing::Chunked(1));
        self.chunks = None;
        self.body = framed;
        self.ending = Ending::Fin;
    }

    /// Breaks off after this many bytes of content.
    pub fn cut_after(&mut self, after: u64, ending: Ending) {
        self.cut = Some(Cut { after, ending });
    }

    /// The head as it will be written, the empty line included.
    fn head(&self) -> Vec<u8> {
        let mut head = self.preamble.clone();
        match &self.status_line {
            Some(line) => head.extend_from_slice(line),
            None => {
                head.extend_from_slice(format!("HTTP/1.1 {} {}", self.status, reason(self.status)).as_bytes())
            }
        }
        head.extend_from_slice(b"\r\n");
        for (name, value) in &self.fields {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// The standard phrase for a status.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        410 => "Gone",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

/// What a connection keeps between its responses.
#[derive(Default)]
pub(crate) struct Memory {
    pacer: Option<Arc<Pacer>>,
    buffer: Vec<u8>,
}

/// The writing side of one request: counts first, then writes.
pub struct Exchange<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) hub: &'a Hub,
    pub(crate) request: &'a RequestSeen,
    pub(crate) sent: &'a AtomicU64,
    pub(crate) place: usize,
    pub(crate) memory: &'a mut Memory,
    pub(crate) broken_off: bool,
}

impl Exchange<'_> {
    /// The request that is answered.
    pub fn request(&self) -> &RequestSeen {
        self.request
    }

    /// Sends a whole answer. The result says what becomes of the connection.
    ///
    /// # Errors
    /// When the client has gone, or the connection was ended by order.
    pub fn send(&mut self, answer: &Answer) -> io::Result<Ending> {
        self.wait(answer.delay)?;
        let head = answer.head();
        self.hub.note_status(self.place, answer.status);
        match answer.head_rate {
            None => self.raw(&head)?,
            Some(rate) => {
                let pacer = Pacer::new(rate);
                for piece in head.chunks(rate.grain()) {
                    self.wait_for(&[&pacer], piece.len())?;
                    self.raw(piece)?;
                }
            }
        }
        if self.request.is_head() && !answer.body_on_head {
            return Ok(match answer.ending {
                // The end of a connection delimits nothing here, but it was announced.
                Ending::Reset | Ending::Stall => Ending::KeepAlive,
                ending => ending,
            });
        }
        let pacers = self.pacers(&answer.paces);
        let whole = answer.body.len();
        let until = answer.cut.map_or(whole, |cut| cut.after.min(whole));
        self.content(&answer.body.slice(0..until), answer.chunks.as_ref(), &pacers)?;
        if let Some(cut) = answer.cut {
            self.broken_off = true;
            return Ok(cut.ending);
        }
        if let Some(chunks) = &answer.chunks {
            self.raw(format!("0\r\n{}\r\n", chunks.trailers).as_bytes())?;
        }
        Ok(answer.ending)
    }

    /// Counts an answer with this status as begun; 0 for one that has none.
    pub fn begin(&mut self, status: u16) {
        self.hub.note_status(self.place, status);
    }

    /// Writes bytes that are no content: heads, chunk sizes, noise.
    ///
    /// # Errors
    /// When the client has gone, or the connection was ended by order.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.link.write_all(bytes)?;
        self.link.flush()
    }

    /// Writes content as it is, at full speed.
    ///
    /// # Errors
    /// When the client has gone, or the connection was ended by order.
    pub fn body(&mut self, body: &Body) -> io::Result<()> {
        self.content(body, None, &[])
    }

    /// Writes content as it is, at this rate.
    ///
    /// # Errors
    /// When the client has gone, or the connection was ended by order.
    pub fn body_at(&mut self, body: &Body, rate: Rate) -> io::Result<()> {
        self.content(body, None, &[Pacer::new(rate)])
    }

    /// Waits, and stops waiting when the connection ends.
    ///
    /// # Errors
    /// When the client has gone, or the connection was ended by order.
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        if time.is_zero() { Ok(()) } else { self.link.wire().sleep_until(Instant::now() + time) }
    }

    /// Marks the answer as one that did not come to its end.
    pub fn break_off(&mut self) {
        self.broken_off = true;
    }

    fn content(&mut self, body: &Body, chunks: Option<&Chunks>, pacers: &[Arc<Pacer>]) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.memory.buffer);
        buffer.resize(WRITE, 0);
        let result = self.content_through(&mut buffer, body, chunks, pacers);
        self.memory.buffer = buffer;
        result?;
        self.link.flush()
    }

    fn content_through(
        &mut self,
        buffer: &mut [u8],
        body: &Body,
        chunks: Option<&Chunks>,
        pacers: &[Arc<Pacer>],
    ) -> io::Result<()> {
        let most = pacers.iter().map(|pacer| pacer.rate().grain()).min().unwrap_or(WRITE).min(WRITE);
        let pacers: Vec<_> = pacers.iter().collect();
        let mut framed = Vec::new();
        let mut at = 0;
        loop {
            let n = body.read_at(at, &mut buffer[..most]);
            if n == 0 {
                return Ok(());
            }
            at += n as u64;
            self.wait_for(&pacers, n)?;
            self.sent.fetch_add(n as u64, Ordering::Relaxed);
            self.hub.note_body(self.place, self.request.path(), n as u64);
            match chunks {
                None => self.link.write_all(&buffer[..n])?,
                Some(chunks) => {
                    framed.clear();
                    for piece in buffer[..n].chunks(chunks.size.max(1)) {
                        framed.extend_from_slice(
                            format!("{:x}{}\r\n", piece.len(), chunks.extension).as_bytes(),
                        );
                        framed.extend_from_slice(piece);
                        framed.extend_from_slice(b"\r\n");
                    }
                    self.link.write_all(&framed)?;
                }
            }
        }
    }

    fn wait_for(&self, pacers: &[&Arc<Pacer>], bytes: usize) -> io::Result<()> {
        let now = Instant::now();
        match pacers.iter().map(|pacer| pacer.book(bytes as u64, now)).max() {
            Some(at) if at > now => self.link.wire().sleep_until(at),
            _ => self.link.wire().ordered(),
        }
    }

    fn pacers(&mut self, paces: &[Pace]) -> Vec<Arc<Pacer>> {
        paces
            .iter()
            .map(|pace| match pace {
                Pace::Response(rate) => Pacer::new(*rate),
                Pace::Shared(pacer) => pacer.clone(),
                Pace::Connection(rate) => {
                    let kept = self.memory.pacer.take().filter(|pacer| pacer.rate() == *rate);
                    self.memory.pacer.insert(kept.unwrap_or_else(|| Pacer::new(*rate))).clone()
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_a_field_leaves_one_of_that_name_in_its_place() {
        let mut answer = Answer::status(200);
        answer.fields.clear();
        answer.add("A", "1");
        answer.add("b", "2");
        answer.add("a", "3");
        answer.set("a", "4");
        assert_eq!(answer.fields, [("a".to_owned(), b"4".to_vec()), ("b".to_owned(), b"2".to_vec())]);
    }

    #[test]
    fn framing_and_its_fields_go_together() {
        let mut answer = Answer::new(200, Body::zeros(5));
        let has = |answer: &Answer, name: &str| answer.fields.iter().any(|(is, _)| is == name);
        assert!(has(&answer, "Content-Length"));
        answer.frame(Framing::Chunked(2));
        assert!(has(&answer, "Transfer-Encoding") && !has(&answer, "Content-Length"));
        answer.frame(Framing::UntilClose);
        assert!(!has(&answer, "Transfer-Encoding") && answer.chunks.is_none());
        assert_eq!(answer.ending, Ending::Fin);
    }

    #[test]
    fn a_page_has_the_length_asked_for() {
        for len in [206, 1000, 65_536] {
            assert_eq!(Answer::page(503, len).body.len(), len as u64);
        }
    }
}
