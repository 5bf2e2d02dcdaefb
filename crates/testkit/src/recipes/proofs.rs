//! Digests and mirrors that a server tells of, true and false.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use md5::Md5;
use sha2::Digest as _;

use super::{Recipe, never, one, recipe};
use crate::body::Body;
use crate::exchange::Answer;
use crate::origin::{Builder, ENTRY, Origin};
use crate::recipes::Given;
use crate::request::RequestSeen;
use crate::resource::Resource;

/// The length of the pieces in Metalinks, in bytes.
const PIECE: u64 = 1 << 20;

fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// A Metalink 4 document (RFC 5854) for one file.
pub(super) fn metalink(name: &str, body: &Body, pieces: bool, urls: &[String]) -> String {
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n\
         <file name=\"{name}\">\n<size>{}</size>\n<hash type=\"sha-256\">{}</hash>\n",
        body.len(),
        body.sha256_hex()
    );
    if pieces {
        text.push_str(&format!("<pieces length=\"{PIECE}\" type=\"sha-256\">\n"));
        let mut at = 0;
        while at < body.len() {
            text.push_str(&format!("<hash>{}</hash>\n", body.slice(at..at + PIECE).sha256_hex()));
            at += PIECE;
        }
        text.push_str("</pieces>\n");
    }
    for (index, url) in urls.iter().enumerate() {
        text.push_str(&format!("<url priority=\"{}\">{url}</url>\n", index + 1));
    }
    text.push_str("</file>\n</metalink>\n");
    text
}

/// A Metalink that is written when it is asked for, when the Origin's own address is known.
fn document(make: impl Fn(&RequestSeen) -> String + Send + Sync + 'static) -> Resource {
    Resource::new(Body::bytes("")).gate(move |request| {
        Some(Answer::new(200, Body::bytes(make(request))).with("Content-Type", "application/metalink4+xml"))
    })
}

/// Two mirrors on two ports, the second with this, and Metalinks with and without pieces.
fn mirrors(given: &Given, second: Resource) -> Builder {
    let urls = |request: &RequestSeen| {
        vec![
            format!("{}/mirror-1/file.bin", request.base(0)),
            format!("{}/mirror-2/file.bin", request.base(1)),
        ]
    };
    let (with, without) = (given.body(), given.body());
    Origin::builder()
        .also_listen(None)
        .resource("/mirror-1/file.bin", given.file())
        .resource("/mirror-2/file.bin", second)
        .resource("/file.meta4", document(move |request| metalink("file.bin", &with, true, &urls(request))))
        .resource(
            "/file-without-pieces.meta4",
            document(move |request| metalink("file.bin", &without, false, &urls(request))),
        )
        .entry("/file.meta4")
        .right([given.body()])
}

/// The file with this field made of its SHA-256.
fn with_digest(given: &Given, of: Body, name: &str, write: fn(&[u8]) -> String) -> Builder {
    let value = write(&of.sha256());
    one(given.file().field(name, value))
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("digest", "`Digest: SHA-256=…`, right", |given| {
        with_digest(given, given.body(), "Digest", |hash| format!("SHA-256={}", base64(hash)))
    }),
    recipe("digest-wrong", "`Digest: SHA-256=…` of other content", |given| {
        with_digest(given, given.other(), "Digest", |hash| format!("SHA-256={}", base64(hash))).right([])
    }),
    recipe(
        "digest-many",
        "Digest with an unknown algorithm, and two SHA-256 that differ: to be ignored",
        |given| {
            let (right, wrong) = (base64(&given.body().sha256()), base64(&given.other().sha256()));
            one(given.file().field("Digest", format!("TIDE=abc,SHA-256={right},SHA-256={wrong}")))
        },
    ),
    recipe("repr-digest", "`Repr-Digest: sha-256=:…:`, right", |given| {
        with_digest(given, given.body(), "Repr-Digest", |hash| format!("sha-256=:{}:", base64(hash)))
    }),
    recipe("repr-digest-wrong", "`Repr-Digest: sha-256=:…:` of other content", |given| {
        with_digest(given, given.other(), "Repr-Digest", |hash| format!("sha-256=:{}:", base64(hash)))
            .right([])
    }),
    recipe("repr-digest-bad", "a Repr-Digest that cannot be read: to be ignored", |given| {
        one(given.file().field("Repr-Digest", "sha-256=:@@@@:, sha-512=1"))
    }),
    recipe("content-digest", "`Content-Digest: sha-256=:…:` of each part, right", |given| {
        one(given.file().hook(|request, answer| {
            if request.method == "GET" {
                let hash = answer.body.sha256();
                answer.set("Content-Digest", format!("sha-256=:{}:", base64(&hash)));
            }
        }))
    }),
    recipe("content-md5", "Content-MD5, right, with every whole answer", |given| {
        let body = given.body();
        let mut hash = Md5::new();
        let mut buffer = vec![0; 64 << 10];
        let mut at = 0;
        loop {
            match body.read_at(at, &mut buffer) {
                0 => break,
                n => {
                    hash.update(&buffer[..n]);
                    at += n as u64;
                }
            }
        }
        let value = base64(&hash.finalize());
        one(given.file().hook_on(200, move |_, answer| answer.set("Content-MD5", value.as_str())))
    }),
    recipe(
        "link-mirrors",
        "`Link: <…>; rel=duplicate` to a mirror on another port, and other links",
        |given| {
            let file = given.file().hook(|request, answer| {
                answer.add(
                    "Link",
                    format!("<{}/mirror.bin>; rel=duplicate; pri=1; geo=no; pref", request.base(1)),
                );
                answer.add(
                    "Link",
                    "</describes>; rel=describedby, <http://127.0.0.1:1/x>; rel=duplicate; pri=9",
                );
            });
            Origin::builder()
                .also_listen(None)
                .resource(ENTRY, file)
                .resource("/mirror.bin", given.file())
                .right([given.body()])
        },
    ),
    recipe(
        "link-mirror-stale",
        "`Link: <…>; rel=duplicate` to a mirror with other content of the same length",
        |given| {
            let file = given.file().hook(|request, answer| {
                answer.add("Link", format!("<{}/mirror.bin>; rel=duplicate; pri=1", request.base(1)));
            });
            Origin::builder()
                .also_listen(None)
                .resource(ENTRY, file)
                .resource("/mirror.bin", Resource::new(given.other()))
                .right([given.body()])
        },
    ),
    recipe("link-metalink", "`Link: <…>; rel=describedby` to a Metalink", |given| {
        mirrors(given, given.file()).entry(ENTRY).resource(
            ENTRY,
            given.file().field("Link", "</file.meta4>; rel=describedby; type=\"application/metalink4+xml\""),
        )
    }),
    recipe("metalink", "/file.meta4 with two good mirrors and hashes of pieces of 1 MiB", |given| {
        mirrors(given, given.file())
    }),
    recipe(
        "tc-45",
        "the same, but the second mirror has other content; /file-without-pieces.meta4 too",
        |given| mirrors(given, Resource::new(given.other())),
    ),
    recipe("metalink-one-block", "the same, but one block of 4 KiB differs at the second mirror", |given| {
        mirrors(given, given.file().with_body(given.body().with_block_changed(given.size / 2)))
    }),
    recipe("metalink-mirror-longer", "the same, but the second mirror's file is longer", |given| {
        mirrors(given, Resource::new(given.body().followed_by(Body::filled(b'Z', 49))))
    }),
    recipe("metalink-mirror-dead", "the same, but the second mirror says 404", |given| {
        mirrors(given, given.file().gate(|_| Some(Answer::status(404))))
    }),
    recipe("metalink-traversal", "a Metalink whose file is called `../../x`", |given| {
        let body = given.body();
        let urls = |request: &RequestSeen| vec![format!("{}{ENTRY}", request.base(0))];
        Origin::builder()
            .resource(ENTRY, given.file())
            .resource(
                "/file.meta4",
                document(move |request| metalink("../../x", &body, false, &urls(request))),
            )
            .entry("/file.meta4")
            .right([given.body()])
    }),
    recipe("metalink-broken", "a Metalink that ends in the middle", |given| {
        let body = given.body();
        Origin::builder()
            .resource(ENTRY, given.file())
            .resource(
                "/file.meta4",
                document(move |request| {
                    let mut text =
                        metalink("file.bin", &body, true, &[format!("{}{ENTRY}", request.base(0))]);
                    text.truncate(text.len() / 2);
                    text
                }),
            )
            .entry("/file.meta4")
            .right([])
    }),
    recipe("metalink-unasked", "an Accept of Metalinks gets one in the place of the file", |given| {
        let body = given.body();
        never(given.file().gate(move |request| {
            let asked = request.field("accept").is_some_and(|value| value.contains("metalink"));
            asked.then(|| {
                let text = metalink("file.bin", &body, true, &[format!("{}{ENTRY}", request.base(0))]);
                Answer::new(200, Body::bytes(text)).with("Content-Type", "application/metalink4+xml")
            })
        }))
        .right([given.body()])
    }),
];
