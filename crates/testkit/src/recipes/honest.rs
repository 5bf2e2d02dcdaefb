//! Servers that do nothing wrong, each with less to hold on to.

use super::{Recipe, never, one, recipe};
use crate::body::Body;
use crate::exchange::{Ending, Framing};
use crate::resource::{Ranges, Resource};
use crate::site::Site;

pub(super) static RECIPES: &[Recipe] = &[
    recipe("honest", "ranges, strong ETag, Last-Modified, If-Range, HEAD, keep-alive", |given| {
        one(given.file())
    }),
    recipe("no-validators", "neither ETag nor Last-Modified", |given| one(given.file().no_validators())),
    recipe("weak-etag", "the ETag is weak", |given| one(given.file().etag("W/\"v1\""))),
    recipe("last-modified-only", "Last-Modified, but no ETag", |given| one(given.file().no_etag())),
    recipe("etag-only", "a strong ETag, but no Last-Modified", |given| one(given.file().last_modified(None))),
    recipe("etag-rotates", "another ETag for each request, Last-Modified stays", |given| {
        one(given.file().rotating_etags(&["\"node-0\"", "\"node-1\"", "\"node-2\""]))
    }),
    recipe("etag-rotates-alone", "another ETag for each request, no Last-Modified", |given| {
        one(given.file().rotating_etags(&["\"node-0\"", "\"node-1\"", "\"node-2\""]).last_modified(None))
    }),
    recipe("etag-unquoted", "an ETag without its quotes", |given| one(given.file().etag("v1"))),
    recipe("etag-empty", "the ETag is an empty string in quotes", |given| one(given.file().etag("\"\""))),
    recipe("if-range-ignored", "a range is served whatever If-Range says", |given| {
        one(given.file().ignores_if_range())
    }),
    recipe("if-range-always-whole", "any If-Range gets the whole file", |given| {
        let body = given.body();
        one(given.file().hook_on(206, move |request, answer| {
            if request.has("if-range") {
                super::make_whole(answer, &body);
            }
        }))
    }),
    recipe("if-range-refused", "any If-Range gets 403, as with some signed links", |given| {
        one(given.file().gate(|request| request.has("if-range").then(|| crate::Answer::status(403))))
    }),
    recipe("no-keep-alive", "closes after each answer", |given| one(given.file().ending(Ending::Fin))),
    recipe("keep-alive-lie", "promises to keep the connection and closes it", |given| {
        one(given.file().hook(|_, answer| {
            answer.set("Connection", "keep-alive");
            answer.ending = Ending::Fin;
        }))
    }),
    recipe("reset-after-answer", "resets the connection after each whole answer", |given| {
        one(given.file().hook(|_, answer| answer.ending = Ending::Reset))
    }),
    recipe("chunked", "no Content-Length, chunks of 16 KiB, no ranges", |given| {
        one(given.file().framing(Framing::Chunked(16 << 10)).ranges(Ranges::Denied))
    }),
    recipe("chunks-of-one", "chunks of one byte, no ranges", |given| {
        one(given.file().framing(Framing::Chunked(1)).ranges(Ranges::Denied))
    }),
    recipe("until-close", "no length: the end of the connection ends the file; no ranges", |given| {
        one(given.file().framing(Framing::UntilClose).ranges(Ranges::Denied))
    }),
    recipe("until-close-no-validators", "no length, no validators, no ranges", |given| {
        one(given.file().framing(Framing::UntilClose).ranges(Ranges::Denied).no_validators())
    }),
    recipe("no-ranges", "Accept-Ranges: none, and 200 to all", |given| {
        one(given.file().ranges(Ranges::Denied))
    }),
    recipe("ranges-unannounced", "ranges work, Accept-Ranges is missing", |given| {
        one(given.file().hook(|_, answer| answer.remove("Accept-Ranges")))
    }),
    recipe("zeros", "the file is all zeros", |given| one(Resource::new(Body::zeros(given.size)))),
    recipe("runs", "the file is long runs of equal bytes", |given| {
        one(Resource::new(Body::runs(given.seed, 100_000, given.size)))
    }),
    recipe("text", "the file is numbered lines of text", |given| {
        one(Resource::new(Body::text(given.size)).content_type("text/plain"))
    }),
    recipe("tc-41", "zero bytes, and 416 `bytes */0` to any range", |_| one(Resource::new(Body::bytes("")))),
    recipe("empty-chunked", "zero bytes in chunked framing", |_| {
        one(Resource::new(Body::bytes("")).framing(Framing::Chunked(1)).ranges(Ranges::Denied))
    }),
    recipe("no-content", "204, with nothing", |given| {
        never(given.file().gate(|_| Some(crate::Answer::new(204, Body::bytes("")))))
    }),
    recipe("tc-31", "HEAD gets 405", |given| one(given.file().head_status(405))),
    recipe("head-403", "HEAD gets 403", |given| one(given.file().head_status(403))),
    recipe("head-501", "HEAD gets 501", |given| one(given.file().head_status(501))),
    recipe("head-lies", "HEAD tells a length of 1 and another ETag", |given| {
        one(given.file().hook(|request, answer| {
            if request.is_head() {
                answer.set("Content-Length", "1");
                answer.set("ETag", "\"head\"");
            }
        }))
    }),
    recipe("head-with-body", "the answer to a HEAD carries the whole file", |given| {
        one(given.file().hook(|request, answer| answer.body_on_head = request.is_head()))
    }),
    recipe("tc-37", "honest, for a disk that fills up", |given| one(given.file())),
    recipe("tc-42", "Last-Modified with +0000 in the place of GMT", |given| {
        one(given.file().last_modified(Some("Tue, 15 Nov 2022 12:45:26 +0000")))
    }),
    recipe("last-modified-future", "Last-Modified is in the year 2099", |given| {
        one(given.file().last_modified(Some("Tue, 15 Nov 2099 12:45:26 GMT")))
    }),
    recipe(
        "last-modified-now",
        "no ETag, and modified just now: no strong validator for a minute",
        |given| {
            let now = httpdate::fmt_http_date(std::time::SystemTime::now());
            one(given.file().no_etag().last_modified(Some(&now)))
        },
    ),
    recipe("last-modified-rfc-850", "Last-Modified in the format of RFC 850", |given| {
        one(given.file().last_modified(Some("Tuesday, 15-Nov-22 12:45:26 GMT")))
    }),
    recipe("last-modified-garbage", "Last-Modified is no date", |given| {
        one(given.file().last_modified(Some("yesterday evening")))
    }),
    recipe("tc-44", "honest, full speed, send buffer 16 KiB", |given| {
        one(given.file()).each_site(|site: Site| site.send_buffer(16 << 10))
    }),
];
