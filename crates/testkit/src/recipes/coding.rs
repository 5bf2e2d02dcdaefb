//! Content codings that nobody asked for. Ranges, where there are any, are of the coded bytes.

use super::{Recipe, never, one, recipe};
use crate::body::Body;
use crate::coding;
use crate::exchange::Ending;
use crate::origin::Builder;
use crate::recipes::Given;
use crate::resource::Resource;

/// How many bytes a bomb unpacks to.
const BOMB: u64 = 64 << 30;

/// Text, coded, with ranges of the coded bytes.
fn coded(given: &Given, name: &str, code: fn(&Body) -> Body) -> Builder {
    let text = Body::text(given.size);
    one(says(code(&text), name)).right([text])
}

fn says(body: Body, name: &str) -> Resource {
    Resource::new(body).content_type("text/plain").field("Content-Encoding", name)
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("tc-19", "text in gzip, unasked, with ranges of the coded bytes", |given| {
        coded(given, "gzip", coding::gzip)
    }),
    recipe("coding-x-gzip", "the same, called `x-gzip`", |given| coded(given, "x-gzip", coding::gzip)),
    recipe("coding-gzip-cut", "text in gzip, each answer reset at 40 %", |given| {
        let text = Body::text(given.size);
        one(says(coding::gzip(&text), "gzip").cut_at_share(0.4, Ending::Reset)).right([text])
    }),
    recipe("coding-gzip-chunked", "text in gzip, chunked, without ranges", |given| {
        let text = Body::text(given.size);
        let resource = says(coding::gzip(&text), "gzip").ranges(crate::resource::Ranges::Denied);
        one(resource.framing(crate::Framing::Chunked(1000))).right([text])
    }),
    recipe("coding-deflate", "text in deflate (zlib), unasked", |given| {
        coded(given, "deflate", coding::deflate)
    }),
    recipe("coding-deflate-raw", "text in deflate without its wrapping, unasked", |given| {
        coded(given, "deflate", coding::raw_deflate)
    }),
    recipe("coding-br", "text in br, unasked", |given| coded(given, "br", coding::brotli)),
    recipe("coding-zstd", "text in zstd, unasked", |given| coded(given, "zstd", coding::zstd)),
    recipe("coding-identity", "`Content-Encoding: identity`", |given| {
        one(given.file().field("Content-Encoding", "identity"))
    }),
    recipe("coding-unknown", "a coding that nobody knows; stored as it is, or refused", |given| {
        one(given.file().field("Content-Encoding", "tide"))
    }),
    recipe("coding-twice", "gzip in gzip, and says so", |given| {
        let text = Body::text(given.size);
        one(says(coding::gzip(&coding::gzip(&text)), "gzip, gzip")).right([text])
    }),
    recipe("coding-lie", "says gzip, but the bytes are plain", |given| {
        one(given.file().field("Content-Encoding", "gzip"))
    }),
    recipe(
        "coding-of-archive",
        "an archive `file.tar.gz` whose server says gzip: the archive itself is meant",
        |given| {
            let archive = coding::gzip(&Body::text(given.size));
            let resource = Resource::new(archive.clone()).content_type("application/gzip");
            let path = "/file.tar.gz";
            crate::Origin::builder()
                .resource(path, resource.field("Content-Encoding", "gzip"))
                .entry(path)
                .right([archive])
        },
    ),
    recipe("coding-only-if-asked", "text in gzip, but plain for who refuses it", |given| {
        let text = Body::text(given.size);
        let gzip = coding::gzip(&text);
        let plain = Resource::new(text.clone()).field("Vary", "Accept-Encoding");
        let zipped = says(gzip, "gzip").etag("\"v1-gzip\"").field("Vary", "Accept-Encoding");
        one(super::choose(vec![plain, zipped], |request| {
            usize::from(request.field("accept-encoding").is_some_and(|value| value.contains("gzip")))
        }))
        .right([text])
    }),
    recipe("gzip-bomb", "gzip of 64 GiB of zeros in 64 MiB", |_| {
        never(says(coding::gzip_bomb(BOMB), "gzip"))
    }),
    recipe("zstd-bomb", "zstd of 64 GiB of zeros in 2 MiB", |_| never(says(coding::zstd_bomb(BOMB), "zstd"))),
    recipe("gzip-truncated", "gzip that ends in the middle, with a Content-Length that agrees", |given| {
        let gzip = coding::gzip(&Body::text(given.size));
        never(says(gzip.slice(0..gzip.len() / 2), "gzip"))
    }),
    recipe("gzip-no-trailer", "gzip without its last eight bytes", |given| {
        let gzip = coding::gzip(&Body::text(given.size));
        never(says(gzip.slice(0..gzip.len() - 8), "gzip"))
    }),
    recipe("gzip-bad-checksum", "gzip with a wrong checksum at its end", |given| {
        let gzip = coding::gzip(&Body::text(given.size));
        let at = gzip.len() - 8;
        never(says(gzip.with_span_changed(at..at + 1), "gzip"))
    }),
    recipe("gzip-trailing-garbage", "gzip, and 1 KiB of noise after it", |given| {
        let text = Body::text(given.size);
        one(says(coding::gzip(&text).followed_by(Body::random(3, 1024)), "gzip")).right([text])
    }),
    recipe("gzip-two-members", "gzip of two members", |given| {
        let text = Body::text(given.size);
        let (first, second) = (text.slice(0..given.size / 2), text.slice(given.size / 2..given.size));
        one(says(coding::gzip(&first).followed_by(coding::gzip(&second)), "gzip")).right([text])
    }),
    recipe("gzip-empty", "gzip of nothing: no bytes at all", |_| one(says(Body::bytes(""), "gzip"))),
];
