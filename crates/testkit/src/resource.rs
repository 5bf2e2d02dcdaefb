//! One file of an Origin: honest, until something is put on it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::body::Body;
use crate::exchange::{Answer, Ending, Exchange, Framing};
use crate::pace::{Pace, Rate};
use crate::request::{RangeAsked, RequestSeen};

/// The Last-Modified of a resource unless said otherwise.
pub const LAST_MODIFIED: &str = "Tue, 15 Nov 2022 12:45:26 GMT";

/// Changes an honest answer.
pub type Hook = Arc<dyn Fn(&RequestSeen, &mut Answer) + Send + Sync>;
/// Answers in the resource's stead, or does not.
pub type Gate = Arc<dyn Fn(&RequestSeen) -> Option<Answer> + Send + Sync>;
/// Writes the answer itself, and says what becomes of the connection.
pub type Responder = Arc<dyn Fn(&Resource, &mut Exchange<'_>) -> io::Result<Ending> + Send + Sync>;

/// What is done about a Range field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ranges {
    /// One range is served by 206; If-Range, and 416, as the standard says.
    Honoured,
    /// The same, but at most this many bytes at once.
    Capped(u64),
    /// `Accept-Ranges: bytes` is announced, and 200 with everything is sent.
    Ignored,
    /// `Accept-Ranges: none` is announced, and 200 with everything is sent.
    Denied,
    /// A request with a Range field gets this status.
    Refused(u16),
}

#[derive(Clone, Debug)]
enum Tag {
    None,
    Fixed(String),
    Rotating(Vec<String>),
}

#[derive(Clone, Copy, Debug)]
enum CutAt {
    Bytes(u64),
    Share(f64),
}

/// A file and how it is served. Made by [`Resource::new`] it is honest; each method puts one thing on it.
///
/// Gates are asked first, in the order of being put on; then the honest answer is made (or the responder
/// takes over), and the hooks change it, in order.
#[derive(Clone)]
pub struct Resource {
    body: Body,
    tag: Tag,
    last_modified: Option<String>,
    content_type: String,
    fields: Vec<(String, Vec<u8>)>,
    ranges: Ranges,
    if_range: bool,
    head_status: Option<u16>,
    framing: Framing,
    ending: Ending,
    cut: Option<(CutAt, Ending)>,
    paces: Vec<Pace>,
    gates: Vec<Gate>,
    hooks: Vec<Hook>,
    responder: Option<Responder>,
    tally: Arc<Tally>,
}

/// What a resource has done since it was put in place.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    hits: AtomicU64,
    pub(crate) sent: AtomicU64,
}

impl Tally {
    /// The number of this GET from 1, or of the GETs so far for another method; and the bytes sent.
    pub(crate) fn enter(&self, method: &str) -> (u64, u64) {
        let hit = match method {
            "GET" => self.hits.fetch_add(1, Ordering::Relaxed) + 1,
            _ => self.hits.load(Ordering::Relaxed),
        };
        (hit, self.sent.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource")
            .field("body", &self.body)
            .field("ranges", &self.ranges)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

impl Resource {
    /// An honest file: ranges, the strong ETag `"v1"`, [`LAST_MODIFIED`], If-Range, HEAD, conditional GET.
    pub fn new(body: Body) -> Self {
        Self {
            body,
            tag: Tag::Fixed("\"v1\"".to_owned()),
            last_modified: Some(LAST_MODIFIED.to_owned()),
            content_type: "application/octet-stream".to_owned(),
            fields: Vec::new(),
            ranges: Ranges::Honoured,
            if_range: true,
            head_status: None,
            framing: Framing::Length,
            ending: Ending::KeepAlive,
            cut: None,
            paces: Vec::new(),
            gates: Vec::new(),
            hooks: Vec::new(),
            responder: None,
            tally: Arc::default(),
        }
    }

    /// Its content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The same service with other content.
    pub fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// The ETag as written, quotes included: `"v1"`, `W/"v1"`.
    pub fn etag(mut self, tag: &str) -> Self {
        self.tag = Tag::Fixed(tag.to_owned());
        self
    }

    /// Another of these ETags for each request, as from the nodes of a delivery network.
    pub fn rotating_etags(mut self, tags: &[&str]) -> Self {
        self.tag = Tag::Rotating(tags.iter().map(|&tag| tag.to_owned()).collect());
        self
    }

    /// No ETag.
    pub fn no_etag(mut self) -> Self {
        self.tag = Tag::None;
        self
    }

    /// Last-Modified as written, if any.
    pub fn last_modified(mut self, date: Option<&str>) -> Self {
        self.last_modified = date.map(str::to_owned);
        self
    }

    /// Neither ETag nor Last-Modified.
    pub fn no_validators(self) -> Self {
        self.no_etag().last_modified(None)
    }

    /// The Content-Type.
    pub fn content_type(mut self, content_type: &str) -> Self {
        self.content_type = content_type.to_owned();
        self
    }

    /// One more field of each answer with content, in any bytes.
    pub fn field(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    /// What is done about ranges.
    pub fn ranges(mut self, ranges: Ranges) -> Self {
        self.ranges = ranges;
        self
    }

    /// If-Range is not looked at: a range is served whatever it says.
    pub fn ignores_if_range(mut self) -> Self {
        self.if_range = false;
        self
    }

    /// HEAD gets this status.
    pub fn head_status(mut self, status: u16) -> Self {
        self.head_status = Some(status);
        self
    }

    /// How content is delimited.
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// How each answer ends. Other than with [`Ending::KeepAlive`] the answer says `Connection: close`.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Each answer with content is broken off after this many bytes of it.
    pub fn cut_after(mut self, bytes: u64, ending: Ending) -> Self {
        self.cut = Some((CutAt::Bytes(bytes), ending));
        self
    }

    /// Each answer with content is broken off after this share (0 to 1) of it.
    pub fn cut_at_share(mut self, share: f64, ending: Ending) -> Self {
        self.cut = Some((CutAt::Share(share.clamp(0.0, 1.0)), ending));
        self
    }

    /// Each response has this rate for itself.
    pub fn rate(self, rate: Rate) -> Self {
        self.pace(Pace::Response(rate))
    }

    /// Holds answers to one more rate.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.paces.push(pace);
        self
    }

    /// Asked before anything else whether it answers instead.
    pub fn gate(mut self, gate: impl Fn(&RequestSeen) -> Option<Answer> + Send + Sync + 'static) -> Self {
        self.gates.push(Arc::new(gate));
        self
    }

    /// Changes each honest answer, a 416, a 304 or an answer to a HEAD too.
    pub fn hook(mut self, hook: impl Fn(&RequestSeen, &mut Answer) + Send + Sync + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// [`Resource::hook`], but only for answers with this status to a GET.
    pub fn hook_on(
        self,
        status: u16,
        hook: impl Fn(&RequestSeen, &mut Answer) + Send + Sync + 'static,
    ) -> Self {
        self.hook(move |request, answer| {
            if answer.status == status && request.method == "GET" {
                hook(request, answer);
            }
        })
    }

    /// Writes all answers by itself.
    pub fn respond(
        mut self,
        responder: impl Fn(&Resource, &mut Exchange<'_>) -> io::Result<Ending> + Send + Sync + 'static,
    ) -> Self {
        self.responder = Some(Arc::new(responder));
        self
    }

    /// The answer to this request, hooks applied; gates and responder are not asked.
    pub fn answer(&self, request: &RequestSeen) -> Answer {
        let mut answer = self.honest(request);
        for hook in &self.hooks {
            hook(request, &mut answer);
        }
        answer
    }

    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// With its counts at zero, for being put in place.
    pub(crate) fn fresh(mut self) -> Self {
        self.tally = Arc::default();
        self
    }

    pub(crate) fn serve(&self, exchange: &mut Exchange<'_>) -> io::Result<Ending> {
        if let Some(answer) = self.gates.iter().find_map(|gate| gate(exchange.request())) {
            return exchange.send(&answer);
        }
        match &self.responder {
            Some(respond) => respond(self, exchange),
            None => {
                let answer = self.answer(exchange.request());
                exchange.send(&answer)
            }
        }
    }

    fn honest(&self, request: &RequestSeen) -> Answer {
        match request.method.as_str() {
            "GET" => {}
            "HEAD" => {
                if let Some(status) = self.head_status {
                    return Answer::status(status).with("Allow", "GET");
                }
            }
            _ => return Answer::status(405).with("Allow", "GET, HEAD"),
        }
        let tag = self.tag_for(request);
        if let Some(status) = self.precondition(request, tag.as_deref()) {
            let mut answer = Answer::new(status, Body::bytes(""));
            self.add_validators(&mut answer, tag.as_deref());
            return answer;
        }
        let asked = request.range().filter(|_| request.method == "GET");
        let span = match (self.ranges, asked) {
            (Ranges::Refused(status), Some(_)) => return Answer::status(status),
            (Ranges::Honoured | Ranges::Capped(_), Some(RangeAsked::Several | RangeAsked::Unreadable))
            | (Ranges::Ignored | Ranges::Denied | Ranges::Refused(_), _)
            | (_, None) => None,
            (Ranges::Honoured | Ranges::Capped(_), Some(_))
                if !self.same_version(request, tag.as_deref()) =>
            {
                None
            }
            (Ranges::Honoured | Ranges::Capped(_), Some(asked)) => match asked.within(self.body.len()) {
                Some(span) => Some(span),
                None => {
                    return Answer::status(416).with("Content-Range", format!("bytes */{}", self.body.len()));
                }
            },
        };
        let mut answer = match span {
            None => Answer::new(200, self.body.clone()),
            Some(mut span) => {
                if let Ranges::Capped(most) = self.ranges {
                    span.end = span.end.min(span.start.saturating_add(most.max(1)));
                }
                let range = format!("bytes {}-{}/{}", span.start, span.end - 1, self.body.len());
                Answer::new(206, self.body.slice(span)).with("Content-Range", range)
            }
        };
        self.dress(&mut answer, tag.as_deref());
        match (request.version.as_str(), request.keeps_alive()) {
            (_, false) => answer.set("Connection", "close"),
            ("HTTP/1.0", true) if answer.ending == Ending::KeepAlive => {
                answer.set("Connection", "keep-alive")
            }
            _ => {}
        }
        answer
    }

    /// What is the same for all answers with content.
    fn dress(&self, answer: &mut Answer, tag: Option<&str>) {
        answer.ending = self.ending;
        if self.ending != Ending::KeepAlive {
            answer.set("Connection", "close");
        }
        answer.set("Accept-Ranges", if self.ranges == Ranges::Denied { "none" } else { "bytes" });
        answer.set("Content-Type", self.content_type.as_str());
        self.add_validators(answer, tag);
        if self.framing != Framing::Length {
            answer.frame(self.framing.clone());
        }
        for (name, value) in &self.fields {
            answer.add(name, value.clone());
        }
        answer.paces.clone_from(&self.paces);
        if let Some((at, ending)) = self.cut {
            let after = match at {
                CutAt::Bytes(bytes) => bytes,
                CutAt::Share(share) => (answer.body.len() as f64 * share) as u64,
            };
            if after < answer.body.len() {
                answer.cut_after(after, ending);
            }
        }
    }

    fn add_validators(&self, answer: &mut Answer, tag: Option<&str>) {
        if let Some(tag) = tag {
            answer.set("ETag", tag);
        }
        if let Some(date) = &self.last_modified {
            answer.set("Last-Modified", date.as_str());
        }
    }

    fn tag_for(&self, request: &RequestSeen) -> Option<String> {
        match &self.tag {
            Tag::None => None,
            Tag::Fixed(tag) => Some(tag.clone()),
            Tag::Rotating(tags) => {
                let len = tags.len().max(1) as u64;
                tags.get((request.number.wrapping_sub(1) % len) as usize).cloned()
            }
        }
    }

    /// The status that a conditional request gets, if its condition fails.
    fn precondition(&self, request: &RequestSeen, tag: Option<&str>) -> Option<u16> {
        let lists = |value: &str, weakly: bool| {
            let plain = |tag: &str| match weakly {
                true => tag.trim().trim_start_matches("W/").to_owned(),
                false => tag.trim().to_owned(),
            };
            value.trim() == "*" || tag.is_some_and(|tag| value.split(',').any(|one| plain(one) == plain(tag)))
        };
        if let Some(value) = request.field("if-match")
            && !lists(value, false)
        {
            return Some(412);
        }
        match (request.field("if-none-match"), request.field("if-modified-since")) {
            (Some(value), _) => lists(value, true).then_some(304),
            (None, Some(date)) => (self.last_modified.as_deref() == Some(date)).then_some(304),
            (None, None) => None,
        }
    }

    /// Whether If-Range, where there is one, names what we have (RFC 9110 13.1.5).
    fn same_version(&self, request: &RequestSeen, tag: Option<&str>) -> bool {
        match request.field("if-range") {
            _ if !self.if_range => true,
            None => true,
            Some(value) if value.starts_with("W/") => false,
            Some(value) if value.starts_with('"') => tag == Some(value),
            Some(date) => self.last_modified.as_deref() == Some(date),
        }
    }
}
