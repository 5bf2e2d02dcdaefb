//! The head of an answer as the rules of a download need it.

use crate::auth::Challenge;
use crate::digest::Digest;
use crate::headers::{
    self, Coding, ContentDisposition, ContentRange, ContentRangeError, Headers, LengthError, Links,
};
use crate::validator::{EntityTag, Identity};
use std::time::Duration;

/// Cookies that are taken of one answer, at most, and the longest in bytes.
const MAX_COOKIES: usize = 64;
const MAX_COOKIE: usize = 8 * 1024;

/// Longest entity tag that is kept, in bytes: it goes into checkpoints, which are bounded.
const MAX_ENTITY_TAG: usize = 1024;

/// A `Last-Modified` this many seconds before `Date` is a strong validator: nobody can have changed
/// the file twice within the second that it names (RFC 9110 section 8.8.2.2).
const STRONG_AFTER: i64 = 60;

/// Where the body of an answer ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// After this many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// Everything that a transfer needs of the head of an answer.
///
/// Nonsense in a field costs that field alone, except where going on would mean guessing what the
/// body is: those fields hold an error, to be refused on.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The status, 100 to 999.
    pub status: u16,
    /// Which version of the file this is about. Its length is that of the whole file, and only known
    /// if the file is not encoded.
    pub identity: Identity,
    /// Which bytes the body is; only read where it means something (206 and 416). A 206 without it,
    /// or with an error, must not be written.
    pub content_range: Option<Result<ContentRange, ContentRangeError>>,
    /// Where the body ends, or why that is in doubt.
    pub framing: Result<Framing, LengthError>,
    /// Whether another request may be sent over the connection once the body has been read.
    pub keep_alive: bool,
    /// What was done to the file, first to last; to be undone last to first. Empty: nothing.
    pub codings: Vec<Coding>,
    /// What was done to the body besides chunking, for this way only.
    pub transfer_codings: Vec<Coding>,
    /// Whether the server says that it serves ranges; `None` if it says nothing.
    pub accept_ranges: Option<bool>,
    /// The name suggested, **not safe** before [`crate::file_name::SafeName`] has seen it.
    pub suggested_name: Option<String>,
    /// Whether the server says that this is a file to be saved, not a page to be shown.
    pub attachment: bool,
    /// Media type without parameters, in lower case.
    pub content_type: Option<String>,
    /// Where a redirect leads, as written: see [`headers::resolve_location`].
    pub location: Option<String>,
    /// How long the server asks to be left alone, at most [`headers::MAX_RETRY_AFTER`].
    pub retry_after: Option<Duration>,
    /// Digests of the whole file, the strongest first. Empty if it is encoded: those that are sent
    /// are of the encoded bytes.
    pub digests: Vec<Digest>,
    /// Digests of the body of this answer as it is sent (a range of the file, with status 206).
    pub body_digests: Vec<Digest>,
    /// Other places that have the file, and documents about it.
    pub links: Links,
    /// Ways to authenticate to the server.
    pub challenges: Vec<Challenge>,
    /// Ways to authenticate to the proxy.
    pub proxy_challenges: Vec<Challenge>,
    /// `Set-Cookie` values as they are.
    pub set_cookies: Vec<Vec<u8>>,
    /// `Date` in seconds since 1970.
    pub date: Option<i64>,
}

impl Answer {
    /// Reads the head of an answer to a GET. `http10`: the answer is of HTTP/1.0; `now_unix`: seconds
    /// since 1970.
    pub fn parse(status: u16, http10: bool, headers: &Headers, now_unix: i64) -> Self {
        let codings = headers::parse_codings(headers.list("content-encoding"));
        let transfer = Transfer::of(status, http10, headers);
        let content_range = content_range(status, headers, transfer.framing);
        let date = headers.sole("date").and_then(headers::parse_http_date);
        let last_modified = headers.sole("last-modified").and_then(headers::parse_http_date);
        let length = match (status, content_range, transfer.framing) {
            _ if !codings.is_empty() => None,
            (206 | 416, Some(Ok(range)), _) => range.total(),
            (200, _, Ok(Framing::Length(length))) => Some(length),
            _ => None,
        };
        let identity = Identity {
            length,
            etag: entity_tag(headers),
            last_modified,
            date_is_strong: matches!((date, last_modified), (Some(d), Some(m)) if d - m >= STRONG_AFTER),
            said_by: None,
        };
        let (digests, body_digests) = digests(status, codings.is_empty(), headers);
        let disposition = headers.sole("content-disposition").and_then(|v| ContentDisposition::parse(v).ok());
        Self {
            status,
            identity,
            content_range,
            framing: transfer.framing,
            keep_alive: transfer.keep_alive,
            codings,
            transfer_codings: transfer.codings,
            accept_ranges: headers::parse_accept_ranges(headers.list("accept-ranges")),
            attachment: disposition.as_ref().is_some_and(|d| d.attachment),
            suggested_name: disposition.and_then(|d| d.file_name),
            content_type: headers.get("content-type").and_then(headers::parse_media_type),
            location: headers.sole("location").and_then(headers::location_text).filter(|l| !l.is_empty()),
            retry_after: headers.get("retry-after").and_then(|v| headers::parse_retry_after(v, now_unix)),
            digests,
            body_digests,
            links: Links::parse(headers.list("link")),
            challenges: Challenge::parse_all(headers.get_all("www-authenticate")),
            proxy_challenges: Challenge::parse_all(headers.get_all("proxy-authenticate")),
            set_cookies: headers
                .get_all("set-cookie")
                .filter(|cookie| cookie.len() <= MAX_COOKIE)
                .take(MAX_COOKIES)
                .map(<[u8]>::to_vec)
                .collect(),
            date,
        }
    }

    /// Length of the body in bytes as it is sent, if told.
    pub fn body_length(&self) -> Option<u64> {
        match self.framing {
            Ok(Framing::Length(length)) => Some(length),
            _ => None,
        }
    }

    /// Whether the status is one that leads elsewhere (if there is a [`Self::location`]).
    pub fn is_redirect(&self) -> bool {
        matches!(self.status, 300..=303 | 307 | 308)
    }
}

/// How the body travels.
struct Transfer {
    framing: Result<Framing, LengthError>,
    codings: Vec<Coding>,
    keep_alive: bool,
}

impl Transfer {
    /// RFC 9112 section 6.3.
    fn of(status: u16, http10: bool, headers: &Headers) -> Self {
        let wants_close = headers.has_token("connection", "close");
        let persistent = !wants_close && (!http10 || headers.has_token("connection", "keep-alive"));
        if matches!(status, 100..=199 | 204 | 304) {
            return Self { framing: Ok(Framing::Length(0)), codings: Vec::new(), keep_alive: persistent };
        }
        let length = headers::parse_content_length(headers.list("content-length"));
        // A `Transfer-Encoding` that says nothing is as good as none.
        let mut codings: Vec<&[u8]> = headers
            .list("transfer-encoding")
            .filter(|coding| !coding.eq_ignore_ascii_case(b"identity"))
            .collect();
        if codings.is_empty() {
            let framing = length.map(|length| length.map_or(Framing::UntilClose, Framing::Length));
            let keep_alive = persistent && matches!(framing, Ok(Framing::Length(_)));
            return Self { framing, codings: Vec::new(), keep_alive };
        }
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        let chunked = codings.last().is_some_and(|last| is_chunked(last));
        if chunked {
            codings.pop();
        }
        let framing = match chunked {
            true if codings.iter().any(|c| is_chunked(c)) => Err(LengthError::ChunkedTwice),
            true => Ok(Framing::Chunked),
            false => Ok(Framing::UntilClose),
        };
        // Chunks outrank a length, but someone who sends both, or chunks in HTTP/1.0, may mean another
        // end than the one we find: nothing more is read from that connection.
        let in_doubt = http10 || length != Ok(None);
        Self {
            framing,
            codings: headers::parse_codings(codings.into_iter()),
            keep_alive: persistent && framing == Ok(Framing::Chunked) && !in_doubt,
        }
    }
}

/// `Content-Range` where it means something: on a 200 some servers repeat the range of the request.
fn content_range(
    status: u16,
    headers: &Headers,
    framing: Result<Framing, LengthError>,
) -> Option<Result<ContentRange, ContentRangeError>> {
    if !matches!(status, 206 | 416) {
        return None;
    }
    headers.get("content-range")?;
    let Some(value) = headers.sole("content-range") else {
        return Some(Err(ContentRangeError::Conflicting));
    };
    let range = ContentRange::parse(value);
    if let (206, Ok(ContentRange::Part { span, .. }), Ok(Framing::Length(body))) = (status, range, framing)
        && span.len() != body
    {
        return Some(Err(ContentRangeError::BodyLength { span: span.len(), body }));
    }
    Some(range)
}

fn entity_tag(headers: &Headers) -> Option<EntityTag> {
    let tag = headers.sole("etag").filter(|tag| tag.len() <= MAX_ENTITY_TAG)?;
    EntityTag::parse(std::str::from_utf8(tag).ok()?)
}

/// Digests of the whole file, and of this body (see [`headers`] on what each field covers).
fn digests(status: u16, plain: bool, headers: &Headers) -> (Vec<Digest>, Vec<Digest>) {
    if !matches!(status, 200 | 206) {
        return (Vec::new(), Vec::new());
    }
    let mut whole = headers::parse_structured_digest(headers.list("repr-digest"));
    let mut body = headers::parse_structured_digest(headers.list("content-digest"));
    if status == 200 {
        whole.extend(headers::parse_digest(headers.list("digest")));
        body.extend(headers.sole("content-md5").and_then(headers::parse_content_md5));
        whole.extend(body.iter().cloned());
    }
    if !plain {
        whole.clear();
    }
    (headers::agreed_digests(whole), headers::agreed_digests(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Algorithm;
    use crate::span::Span;
    use proptest::prelude::*;

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        fields.iter().for_each(|(n, v)| headers.push(n, v.as_bytes()));
        headers
    }

    fn answer(status: u16, fields: &[(&str, &str)]) -> Answer {
        Answer::parse(status, false, &headers(fields), 0)
    }

    #[test]
    fn the_length_of_the_file_is_the_range_s_total_or_the_body_s_length() {
        let length = |status, fields: &[(&str, &str)]| answer(status, fields).identity.length;
        let cl = ("Content-Length", "8388608");
        assert_eq!(length(200, &[("Content-Length", "4294967296")]), Some(4_294_967_296));
        assert_eq!(
            length(
                206,
                &[("Content-Length", "4294967296"), ("Content-Range", "bytes 1-4294967296/4294967297")]
            ),
            Some(4_294_967_297)
        );
        // aria2/aria2#509: a 200 that repeats the range of the request.
        let repeated = answer(200, &[cl, ("Content-Range", "bytes=0-8388607/8388608")]);
        assert_eq!((repeated.content_range, repeated.identity.length), (None, Some(8_388_608)));
        // aria2/aria2#926: an unknown total is not 0.
        let unknown = answer(206, &[("Content-Range", "bytes 5-9/*"), ("Content-Length", "5")]);
        assert_eq!(unknown.identity.length, None);
        assert_eq!(
            unknown.content_range,
            Some(Ok(ContentRange::Part { span: Span::new(5, 10).unwrap(), total: None }))
        );
        // aria2/aria2#1576: chunks with a range, and chunks without any length.
        let chunked = ("Transfer-Encoding", "chunked");
        let ranged = answer(206, &[chunked, ("Content-Range", "bytes 5-9/10")]);
        assert_eq!((ranged.framing, ranged.identity.length), (Ok(Framing::Chunked), Some(10)));
        assert_eq!(length(200, &[chunked]), None);
        // aria2/aria2#2210: a coded body's length is not the file's.
        let coded = answer(200, &[cl, ("Content-Encoding", "gzip")]);
        assert_eq!((coded.identity.length, coded.body_length()), (None, Some(8_388_608)));
        assert_eq!(length(206, &[("Content-Range", "bytes 5-9/10"), ("Content-Encoding", "gzip")]), None);
        assert_eq!(length(416, &[("Content-Range", "bytes */0"), ("Content-Length", "99")]), Some(0));
        assert_eq!(length(404, &[cl]), None);
    }

    #[test]
    fn a_range_that_cannot_be_believed_is_an_error_and_not_missing() {
        let range = |fields: &[(&str, &str)]| answer(206, fields).content_range;
        assert_eq!(range(&[]), None);
        assert_eq!(range(&[("Content-Range", "bytes 5-")]), Some(Err(ContentRangeError::Malformed)));
        let (one, other) = (("Content-Range", "bytes 0-9/20"), ("Content-Range", "bytes 10-19/20"));
        assert_eq!(range(&[one, other]), Some(Err(ContentRangeError::Conflicting)));
        assert!(matches!(range(&[one, one]), Some(Ok(_))));
        assert_eq!(
            range(&[one, ("Content-Length", "20")]),
            Some(Err(ContentRangeError::BodyLength { span: 10, body: 20 }))
        );
        assert!(matches!(
            range(&[one, ("Content-Length", "20"), ("Transfer-Encoding", "chunked")]),
            Some(Ok(_))
        ));
    }

    #[test]
    fn the_end_of_the_body_is_that_of_rfc_9112() {
        let chunked = ("Transfer-Encoding", "chunked");
        type Row<'a> = (u16, bool, &'a [(&'a str, &'a str)], Result<Framing, LengthError>, bool);
        let rows: &[Row<'_>] = &[
            (200, false, &[("Content-Length", "5")], Ok(Framing::Length(5)), true),
            (200, false, &[("Content-Length", "5"), ("Connection", "close")], Ok(Framing::Length(5)), false),
            (200, true, &[("Content-Length", "5")], Ok(Framing::Length(5)), false),
            (
                200,
                true,
                &[("Content-Length", "5"), ("Connection", "x, Keep-Alive")],
                Ok(Framing::Length(5)),
                true,
            ),
            (200, false, &[], Ok(Framing::UntilClose), false),
            (200, false, &[chunked], Ok(Framing::Chunked), true),
            (200, false, &[("Transfer-Encoding", "gzip, Chunked")], Ok(Framing::Chunked), true),
            (200, false, &[("Transfer-Encoding", "gzip")], Ok(Framing::UntilClose), false),
            (
                200,
                false,
                &[("Transfer-Encoding", "identity"), ("Content-Length", "5")],
                Ok(Framing::Length(5)),
                true,
            ),
            (200, false, &[chunked, ("Content-Length", "5")], Ok(Framing::Chunked), false),
            (200, true, &[chunked, ("Connection", "keep-alive")], Ok(Framing::Chunked), false),
            (200, false, &[chunked, chunked], Err(LengthError::ChunkedTwice), false),
            (200, false, &[("Transfer-Encoding", "chunked, gzip")], Ok(Framing::UntilClose), false),
            (
                200,
                false,
                &[("Content-Length", "5"), ("Content-Length", "6")],
                Err(LengthError::Conflicting),
                false,
            ),
            (200, false, &[("Content-Length", "5"), ("Content-Length", "5")], Ok(Framing::Length(5)), true),
            (200, false, &[("Content-Length", "-5")], Err(LengthError::Negative), false),
            (304, false, &[("Content-Length", "5")], Ok(Framing::Length(0)), true),
            (204, false, &[chunked], Ok(Framing::Length(0)), true),
        ];
        for (status, http10, fields, framing, keep_alive) in rows {
            let found = Answer::parse(*status, *http10, &headers(fields), 0);
            assert_eq!(
                (found.framing, found.keep_alive),
                (*framing, *keep_alive),
                "{status} {http10} {fields:?}"
            );
        }
        let found = answer(200, &[("Transfer-Encoding", "gzip, chunked")]);
        assert_eq!(found.transfer_codings, [Coding::Gzip]);
        let found = answer(200, &[("Transfer-Encoding", "chunked, gzip")]);
        assert_eq!(found.transfer_codings, [Coding::Unknown("chunked".to_owned()), Coding::Gzip]);
    }

    #[test]
    fn a_date_is_strong_a_minute_later() {
        let strong = |date, modified| {
            answer(200, &[("Date", date), ("Last-Modified", modified)]).identity.date_is_strong
        };
        let (at, before, later) = (
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:48:38 GMT",
            "Sun, 06 Nov 1994 08:49:38 +0000",
        );
        assert!(!strong(at, before));
        assert!(strong(later, before));
        assert!(!strong(before, later));
        assert!(!strong("never", before));
        // aria2/aria2#330: a numeric zone.
        let zone = answer(200, &[("Last-Modified", "Tue, 15 Nov 2022 12:45:26 +0000")]);
        assert_eq!(zone.identity.last_modified, Some(1_668_516_326));
    }

    #[test]
    fn digests_count_only_for_what_they_cover() {
        let repr = ("Repr-Digest", "sha-256=:d435qo+nKZ+gLcUHn7GQtQ72hiBVAgqoLsZnZPiTGPk=:");
        let content = (
            "Content-Digest",
            "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:",
        );
        let old = ("Digest", "SHA-1=82AD8itGL/oYQ5BTPFANiYnp9oE=");
        let md5 = ("Content-MD5", "LJDK2+9ClF8Nz/K5WZd/+A==");
        let fields = [repr, content, old, md5];
        let kinds = |digests: &[Digest]| digests.iter().map(|d| d.algorithm()).collect::<Vec<_>>();
        let found = answer(200, &fields);
        assert_eq!(
            kinds(&found.digests),
            [Algorithm::Sha512, Algorithm::Sha256, Algorithm::Sha1, Algorithm::Md5]
        );
        let found = answer(206, &fields);
        assert_eq!(kinds(&found.digests), [Algorithm::Sha256]);
        assert_eq!(kinds(&found.body_digests), [Algorithm::Sha512]);
        let found = answer(200, &[repr, ("Content-Encoding", "br")]);
        assert_eq!(found.digests, []);
        assert_eq!(answer(404, &fields).digests, []);
    }

    #[test]
    fn nonsense_in_one_field_costs_that_field_alone() {
        let good = [
            ("Content-Length", "10"),
            ("Content-Type", "Text/Plain; charset=utf-8"),
            ("ETag", "\"v1\""),
            ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Content-Disposition", "attachment; filename=a.txt"),
            ("Location", "/white space"),
            ("Retry-After", "7"),
            ("Accept-Ranges", "bytes"),
            ("Link", "</b>; rel=duplicate"),
            ("WWW-Authenticate", "Basic realm=x"),
            ("Proxy-Authenticate", "Basic realm=y"),
            ("Set-Cookie", "a=b"),
            ("Digest", "SHA-1=82AD8itGL/oYQ5BTPFANiYnp9oE="),
        ];
        let whole = answer(200, &good);
        assert_eq!(whole.identity.etag, EntityTag::parse("\"v1\""));
        assert_eq!((whole.suggested_name.as_deref(), whole.attachment), (Some("a.txt"), true));
        assert_eq!(whole.content_type.as_deref(), Some("text/plain"));
        assert_eq!(whole.location.as_deref(), Some("/white%20space"));
        assert_eq!(whole.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(whole.accept_ranges, Some(true));
        assert_eq!((whole.links.duplicates.len(), whole.digests.len(), whole.set_cookies.len()), (1, 1, 1));
        assert_eq!((whole.challenges.len(), whole.proxy_challenges.len()), (1, 1));
        for at in 1..good.len() {
            let mut fields = good;
            fields[at].1 = "\u{1}\"\\;=<";
            let found = answer(200, &fields);
            let changed = [
                found.content_type != whole.content_type,
                found.identity.etag != whole.identity.etag,
                found.identity.last_modified != whole.identity.last_modified,
                found.suggested_name != whole.suggested_name,
                found.location != whole.location,
                found.retry_after != whole.retry_after,
                found.accept_ranges != whole.accept_ranges,
                found.links != whole.links,
                found.challenges != whole.challenges,
                found.proxy_challenges != whole.proxy_challenges,
                found.set_cookies != whole.set_cookies,
                found.digests != whole.digests,
            ];
            let expected: Vec<bool> = (1..good.len()).map(|i| i == at).collect();
            assert_eq!(changed.to_vec(), expected, "{}", good[at].0);
            assert_eq!(found.framing, whole.framing);
        }
    }

    #[test]
    fn fields_that_contradict_themselves_are_not_believed() {
        let twice =
            answer(302, &[("Location", "/a"), ("Location", "/b"), ("ETag", "\"a\""), ("ETag", "\"b\"")]);
        assert_eq!((twice.location, twice.identity.etag), (None, None));
        let long = format!("\"{}\"", "x".repeat(MAX_ENTITY_TAG));
        assert_eq!(answer(200, &[("ETag", &long)]).identity.etag, None);
        let cookies = vec![("Set-Cookie", "a=b"); 1000];
        assert_eq!(answer(200, &cookies).set_cookies.len(), MAX_COOKIES);
    }

    #[test]
    fn only_six_statuses_are_redirects() {
        let all: Vec<u16> = (100..=599).filter(|s| answer(*s, &[]).is_redirect()).collect();
        assert_eq!(all, [300, 301, 302, 303, 307, 308]);
    }

    fn field() -> impl Strategy<Value = (String, Vec<u8>)> {
        let names = [
            "content-length",
            "content-range",
            "transfer-encoding",
            "content-encoding",
            "etag",
            "date",
            "last-modified",
            "content-disposition",
            "content-type",
            "location",
            "retry-after",
            "accept-ranges",
            "digest",
            "repr-digest",
            "content-digest",
            "content-md5",
            "link",
            "www-authenticate",
            "proxy-authenticate",
            "set-cookie",
            "connection",
            "x-other",
        ];
        let value = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            "[0-9]{1,20}".prop_map(String::into_bytes),
            "bytes [0-9]{1,3}-[0-9]{1,3}/([0-9]{1,3}|\\*)".prop_map(String::into_bytes),
            "(chunked|gzip|close|keep-alive|bytes|none)(, ?(chunked|gzip|identity))?"
                .prop_map(String::into_bytes),
        ];
        (prop::sample::select(names.to_vec()).prop_map(str::to_owned), value)
    }

    proptest! {
        #[test]
        fn any_head_is_taken(status: u16, http10: bool, fields in prop::collection::vec(field(), 0..12), now: i64) {
            let mut headers = Headers::new();
            fields.iter().for_each(|(n, v)| headers.push(n, v));
            let found = Answer::parse(status, http10, &headers, now);
            prop_assert!(found.identity.length.is_none_or(|n| n <= i64::MAX as u64));
            prop_assert!(found.codings.is_empty() || found.identity.length.is_none());
            prop_assert!(!found.keep_alive || matches!(found.framing, Ok(Framing::Length(_) | Framing::Chunked)));
            prop_assert!(found.retry_after.is_none_or(|d| d <= headers::MAX_RETRY_AFTER));
            if let (206, Some(Ok(range)), Some(body)) = (status, found.content_range, found.body_length()) {
                prop_assert!(range.span().is_none_or(|s| s.len() == body));
            }
        }
    }
}
