//! Lies about where the body ends.

use super::{Recipe, never, one, recipe};
use crate::body::Body;
use crate::exchange::{Answer, Chunks, Ending, Framing};
use crate::origin::Builder;
use crate::recipes::Given;
use crate::resource::{Ranges, Resource};

/// Every 200 to a GET is changed in this way; there are no ranges, so nothing else can be had.
fn wholes(given: &Given, change: impl Fn(&mut Answer) + Send + Sync + 'static) -> Resource {
    given.file().ranges(Ranges::Denied).hook_on(200, move |_, answer| change(answer))
}

/// Every body is in chunks, framed by this.
fn chunked(given: &Given, frame: impl Fn(&Body) -> Body + Send + Sync + 'static) -> Resource {
    wholes(given, move |answer| answer.chunked_as(frame(&answer.body)))
}

/// One good chunk of this content.
fn chunk(body: &Body) -> Body {
    Body::joined([Body::bytes(format!("{:x}\r\n", body.len())), body.clone(), Body::bytes("\r\n")])
}

fn halves(body: &Body) -> (Body, Body) {
    (body.slice(0..body.len() / 2), body.slice(body.len() / 2..u64::MAX))
}

/// A first half in a good chunk, and then this.
fn half_and_then(given: &Given, rest: fn(&Body) -> Vec<Body>) -> Builder {
    never(chunked(given, move |body| {
        let (first, second) = halves(body);
        let mut parts = vec![chunk(&first)];
        parts.extend(rest(&second));
        Body::joined(parts)
    }))
}

fn bytes(text: &str) -> Body {
    Body::bytes(text)
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("tc-21", "Content-Length N, 40 % of the bytes, then a reset; no ranges", |given| {
        never(given.file().ranges(Ranges::Denied).cut_at_share(0.4, Ending::Reset))
    }),
    recipe(
        "length-long-fin",
        "Content-Length N, 40 % of the bytes, then a plain close; no ranges",
        |given| never(given.file().ranges(Ranges::Denied).cut_at_share(0.4, Ending::Fin)),
    ),
    recipe("length-one-more", "Content-Length is one byte more than is sent; no ranges", |given| {
        never(wholes(given, |answer| {
            answer.set("Content-Length", (answer.body.len() + 1).to_string());
            answer.ending = Ending::Fin;
        }))
    }),
    recipe(
        "length-short",
        "Content-Length is 100 bytes less than is sent, then a close; no ranges",
        |given| {
            let cut = given.body().slice(0..given.size.saturating_sub(100));
            one(wholes(given, |answer| {
                answer.set("Content-Length", answer.body.len().saturating_sub(100).to_string());
                answer.ending = Ending::Fin;
            }))
            .right([cut])
        },
    ),
    recipe(
        "length-short-keep-alive",
        "after each body come 100 bytes that nobody announced; ranges",
        |given| {
            one(given.file().hook(|request, answer| {
                if request.method == "GET" {
                    answer.body = answer.body.followed_by(Body::filled(b'Z', 100));
                }
            }))
        },
    ),
    recipe("next-answer-early", "after each body comes an answer that nobody asked for; ranges", |given| {
        one(given.file().hook(|request, answer| {
            if request.method == "GET" {
                let extra = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
                answer.body = answer.body.followed_by(Body::bytes(extra));
            }
        }))
    }),
    recipe("length-twice", "Content-Length twice, the same", |given| {
        one(wholes(given, |answer| answer.add("Content-Length", answer.body.len().to_string())))
    }),
    recipe("length-list", "`Content-Length: N, N`", |given| {
        one(wholes(given, |answer| {
            let len = answer.body.len();
            answer.set("Content-Length", format!("{len}, {len}"));
        }))
    }),
    recipe("length-conflict", "two Content-Lengths that differ, the first is right; no ranges", |given| {
        never(wholes(given, |answer| answer.add("Content-Length", (answer.body.len() / 2).to_string())))
    }),
    recipe(
        "length-conflict-first",
        "two Content-Lengths that differ, the second is right; no ranges",
        |given| {
            never(wholes(given, |answer| {
                let len = answer.body.len();
                answer.set("Content-Length", (len / 2).to_string());
                answer.add("Content-Length", len.to_string());
            }))
        },
    ),
    recipe("length-list-conflict", "`Content-Length: N, N/2`; no ranges", |given| {
        never(wholes(given, |answer| {
            let len = answer.body.len();
            answer.set("Content-Length", format!("{len}, {}", len / 2));
        }))
    }),
    recipe("length-negative", "`Content-Length: -1`; no ranges", |given| {
        never(wholes(given, |answer| answer.set("Content-Length", "-1")))
    }),
    recipe("length-plus", "`Content-Length: +N`; no ranges", |given| {
        never(wholes(given, |answer| answer.set("Content-Length", format!("+{}", answer.body.len()))))
    }),
    recipe("length-hex", "Content-Length in hexadecimal; no ranges", |given| {
        never(wholes(given, |answer| answer.set("Content-Length", format!("0x{:x}", answer.body.len()))))
    }),
    recipe("length-garbage", "`Content-Length: many`; no ranges", |given| {
        never(wholes(given, |answer| answer.set("Content-Length", "many")))
    }),
    recipe("length-empty", "Content-Length without a value; no ranges", |given| {
        never(wholes(given, |answer| answer.set("Content-Length", "")))
    }),
    recipe("length-huge", "Content-Length is 2^63 - 1, and then the file and a close; no ranges", |given| {
        never(wholes(given, |answer| {
            answer.set("Content-Length", i64::MAX.to_string());
            answer.ending = Ending::Fin;
        }))
    }),
    recipe("length-overflow", "Content-Length is N + 2^64; no ranges", |given| {
        never(wholes(given, |answer| {
            answer.set("Content-Length", (u128::from(answer.body.len()) + (1u128 << 64)).to_string());
            answer.ending = Ending::Fin;
        }))
    }),
    recipe("length-zero", "Content-Length is 0, and the whole file follows; no ranges", |given| {
        one(wholes(given, |answer| {
            answer.set("Content-Length", "0");
            answer.ending = Ending::Fin;
        }))
        .right([Body::bytes("")])
    }),
    recipe("body-missing", "the head of a 200, and then a close; no ranges", |given| {
        never(wholes(given, |answer| answer.cut_after(0, Ending::Fin)))
    }),
    recipe("tc-10", "Content-Length and chunked together; chunked is right", |given| {
        one(wholes(given, |answer| {
            let len = answer.body.len();
            answer.frame(Framing::Chunked(16 << 10));
            answer.add("Content-Length", len.to_string());
        }))
    }),
    recipe("chunked-and-short-length", "chunked, with a Content-Length of half; chunked is right", |given| {
        one(wholes(given, |answer| {
            let len = answer.body.len();
            answer.frame(Framing::Chunked(16 << 10));
            answer.add("Content-Length", (len / 2).to_string());
        }))
    }),
    recipe("chunked-bad-size", "a chunk size that is no number in the middle", |given| {
        half_and_then(given, |rest| vec![bytes("XYZ\r\n"), rest.clone(), bytes("\r\n0\r\n\r\n")])
    }),
    recipe("chunked-empty-size", "an empty line where a chunk size should be", |given| {
        half_and_then(given, |rest| vec![bytes("\r\n"), rest.clone(), bytes("\r\n0\r\n\r\n")])
    }),
    recipe("chunked-negative", "a negative chunk size in the middle", |given| {
        half_and_then(given, |rest| vec![bytes("-5\r\n"), rest.clone(), bytes("\r\n0\r\n\r\n")])
    }),
    recipe("chunked-hex-prefix", "chunk sizes with 0x before them", |given| {
        half_and_then(given, |rest| {
            vec![bytes(&format!("0x{:x}\r\n", rest.len())), rest.clone(), bytes("\r\n0\r\n\r\n")]
        })
    }),
    recipe("chunked-missing-crlf", "no line end after a chunk in the middle", |given| {
        half_and_then(given, |rest| {
            vec![bytes(&format!("{:x}\r\n", rest.len())), rest.clone(), bytes("0\r\n\r\n")]
        })
    }),
    recipe("chunked-overflow", "a chunk size of 17 digits in the middle", |given| {
        half_and_then(given, |rest| {
            vec![bytes(&format!("1{:016x}\r\n", rest.len())), rest.clone(), bytes("\r\n0\r\n\r\n")]
        })
    }),
    recipe("chunked-huge", "a chunk size of 2^64 - 1 in the middle", |given| {
        half_and_then(given, |rest| vec![bytes("ffffffffffffffff\r\n"), rest.clone()])
    }),
    recipe("chunked-cut", "a plain close in the middle of a chunk", |given| {
        half_and_then(given, |rest| {
            vec![bytes(&format!("{:x}\r\n", rest.len())), rest.slice(0..rest.len() / 2)]
        })
    }),
    recipe("chunked-no-end", "all chunks, but no last one, and a plain close", |given| {
        never(chunked(given, chunk))
    }),
    recipe(
        "chunked-half-end",
        "all chunks and the last size, but not the line end after it, and a close: all content is there",
        |given| one(chunked(given, |body| Body::joined([chunk(body), bytes("0\r\n")]))),
    ),
    recipe("chunked-reset", "a reset in the middle of a chunked body", |given| {
        never(wholes(given, |answer| {
            answer.frame(Framing::Chunked(16 << 10));
            answer.cut_after(answer.body.len() / 2, Ending::Reset);
        }))
    }),
    recipe(
        "chunked-early-end",
        "the last chunk after half of the body, then the rest: the half is all there is",
        |given| {
            let half = given.body().slice(0..given.size / 2);
            one(chunked(given, |body| {
                let (first, second) = halves(body);
                Body::joined([chunk(&first), bytes("0\r\n\r\n"), chunk(&second), bytes("0\r\n\r\n")])
            }))
            .right([half])
        },
    ),
    recipe("chunked-extensions", "each chunk has extensions", |given| {
        one(wholes(given, |answer| {
            answer.frame(Framing::Chunked(16 << 10));
            answer.chunks = Some(Chunks {
                size: 16 << 10,
                extension: ";name=value;quoted=\"a;b\"".to_owned(),
                trailers: String::new(),
            });
        }))
    }),
    recipe("chunked-trailers", "fields after the last chunk", |given| {
        one(wholes(given, |answer| {
            answer.frame(Framing::Chunked(16 << 10));
            answer.chunks = Some(Chunks {
                size: 16 << 10,
                extension: String::new(),
                trailers: "X-One: 1\r\nContent-Length: 5\r\nX-Two: 2\r\n".to_owned(),
            });
        }))
    }),
    recipe("chunked-leading-zeros", "chunk sizes with many zeros before them", |given| {
        one(chunked(given, |body| {
            Body::joined([bytes(&format!("{:015x}\r\n", body.len())), body.clone(), bytes("\r\n000\r\n\r\n")])
        }))
    }),
    recipe("chunked-endless-extension", "a chunk extension that never ends", |given| {
        half_and_then(given, |_| vec![bytes("10;x="), Body::filled(b'x', 1 << 32)])
    }),
    recipe("chunked-endless-trailers", "trailers that never end", |given| {
        never(chunked(given, |body| {
            Body::joined([chunk(body), bytes("0\r\n"), Body::repeated(*b"X-Trailer: more\r\n", 1 << 28)])
        }))
    }),
    recipe("chunked-bare-lf", "chunk lines end with LF alone", |given| {
        never(chunked(given, |body| {
            Body::joined([bytes(&format!("{:x}\n", body.len())), body.clone(), bytes("\n0\n\n")])
        }))
        .right([given.body()])
    }),
    recipe("chunked-twice", "`Transfer-Encoding: chunked, chunked`, chunked once", |given| {
        one(wholes(given, |answer| {
            answer.frame(Framing::Chunked(16 << 10));
            answer.set("Transfer-Encoding", "chunked, chunked");
        }))
    }),
    recipe("chunked-in-capitals", "`Transfer-Encoding: CHUNKED`", |given| {
        one(wholes(given, |answer| {
            answer.frame(Framing::Chunked(16 << 10));
            answer.set("Transfer-Encoding", "CHUNKED");
        }))
    }),
    recipe("transfer-coding-unknown", "`Transfer-Encoding: gzip, chunked`, and the body coded so", |given| {
        one(wholes(given, |answer| {
            answer.body = crate::coding::gzip(&answer.body);
            answer.frame(Framing::Chunked(16 << 10));
            answer.set("Transfer-Encoding", "gzip, chunked");
        }))
    }),
    recipe("transfer-coding-identity", "`Transfer-Encoding: identity` and Content-Length", |given| {
        one(wholes(given, |answer| answer.add("Transfer-Encoding", "identity")))
    }),
];
