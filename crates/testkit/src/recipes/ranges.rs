//! Lies about ranges. In all of them a whole file can be had by one honest plain GET, unless said otherwise.

use super::{Recipe, make_whole, never, one, recipe, two};
use crate::body::Body;
use crate::exchange::{Answer, Ending, Framing};
use crate::origin::Builder;
use crate::recipes::Given;
use crate::request::RequestSeen;
use crate::resource::{Ranges, Resource};

/// How a 206 lies.
struct Part<'a> {
    request: &'a RequestSeen,
    answer: &'a mut Answer,
    /// The whole file.
    whole: &'a Body,
    /// The first byte asked for, and the first beyond what is sent.
    from: u64,
    to: u64,
}

impl Part<'_> {
    fn total(&self) -> u64 {
        self.whole.len()
    }

    fn say(&mut self, range: String) {
        self.answer.set("Content-Range", range);
    }

    fn send(&mut self, from: u64, to: u64) {
        self.answer.body = self.whole.slice(from..to);
        self.answer.frame(Framing::Length);
    }
}

/// Every 206 is changed in this way.
fn parts(given: &Given, change: impl Fn(Part<'_>) + Send + Sync + 'static) -> Resource {
    let whole = given.body();
    given.file().hook_on(206, move |request, answer| {
        let from = request.range().and_then(|asked| asked.within(whole.len())).map_or(0, |span| span.start);
        let to = from + answer.body.len();
        change(Part { request, answer, whole: &whole, from, to });
    })
}

/// Every 206 that does not begin at the first byte is changed in this way.
fn later_parts(given: &Given, change: impl Fn(Part<'_>) + Send + Sync + 'static) -> Builder {
    one(parts(given, move |part| {
        if part.from > 0 {
            change(part);
        }
    }))
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("tc-01", "a range that begins above 0 gets 200 with the whole file", |given| {
        later_parts(given, |part| make_whole(part.answer, part.whole))
    }),
    recipe("range-ignored", "every range gets 200 with the whole file", |given| {
        one(given.file().ranges(Ranges::Ignored))
    }),
    recipe("tc-03", "phase 1: each answer reset at 40 %; phase 2: ranges ignored", |given| {
        two(given.file().cut_at_share(0.4, Ending::Reset), given.file().ranges(Ranges::Ignored))
    }),
    recipe("tc-04", "a later range gets a 206 that begins at 0", |given| {
        later_parts(given, |mut part| {
            let len = part.to - part.from;
            part.send(0, len);
            let total = part.total();
            part.say(format!("bytes 0-{}/{total}", len - 1));
        })
    }),
    recipe(
        "range-starts-later",
        "a later range gets a 206 that begins one byte further on, and says so",
        |given| {
            later_parts(given, |mut part| {
                let (from, to) = ((part.from + 1).min(part.to - 1), part.to);
                part.send(from, to);
                let total = part.total();
                part.say(format!("bytes {from}-{}/{total}", to - 1));
            })
        },
    ),
    recipe(
        "range-starts-earlier",
        "a later range gets a 206 that begins 4 KiB before, and says so",
        |given| {
            later_parts(given, |mut part| {
                let (from, to) = (part.from.saturating_sub(4096), part.to);
                part.send(from, to);
                let total = part.total();
                part.say(format!("bytes {from}-{}/{total}", to - 1));
            })
        },
    ),
    recipe(
        "range-shifted",
        "right heads, but a later range's bytes are those 4 KiB on: only comparing can tell",
        |given| {
            later_parts(given, |part| {
                let len = part.to - part.from;
                let (whole, from) = (part.whole.clone(), part.from + 4096);
                part.answer.body = Body::joined([whole.slice(from..from + len), whole]).slice(0..len);
                part.answer.frame(Framing::Length);
            })
        },
    ),
    recipe("range-end-one-more", "Content-Range ends one byte too late (sloppy, harmless)", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, part.to, part.total());
            part.say(format!("bytes {from}-{to}/{total}"));
        }))
    }),
    recipe("range-wrong-end", "a 206 sends and says half of the range asked for, and closes", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, part.from + (part.to - part.from).div_ceil(2), part.total());
            part.send(from, to);
            part.say(format!("bytes {from}-{}/{total}", to - 1));
            part.answer.set("Connection", "close");
            part.answer.ending = Ending::Fin;
        }))
    }),
    recipe("range-longer", "a 206 runs 4 KiB beyond the range asked for, and says so", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, (part.to + 4096).min(part.total()), part.total());
            part.send(from, to);
            part.say(format!("bytes {from}-{}/{total}", to - 1));
        }))
    }),
    recipe("range-wrong-total", "a later range tells a total one byte longer", |given| {
        later_parts(given, |mut part| {
            let (from, to, total) = (part.from, part.to, part.total() + 1);
            part.say(format!("bytes {from}-{}/{total}", to - 1));
        })
    }),
    recipe("range-total-wavers", "each 206 tells another total", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, part.to, part.total() + part.request.hit);
            part.say(format!("bytes {from}-{}/{total}", to - 1));
        }))
    }),
    recipe("tc-08", "each 206 says `bytes a-b/*`", |given| {
        one(parts(given, |mut part| {
            let (from, to) = (part.from, part.to);
            part.say(format!("bytes {from}-{}/*", to - 1));
        }))
    }),
    recipe(
        "range-length-short",
        "a 206 with the right Content-Range has half the Content-Length and bytes",
        |given| {
            one(parts(given, |mut part| {
                let (from, to) = (part.from, part.from + (part.to - part.from).div_ceil(2));
                part.send(from, to);
            }))
        },
    ),
    recipe(
        "range-length-long",
        "a 206 with the right Content-Range has 100 bytes more in length and body",
        |given| {
            one(parts(given, |part| {
                let (from, to) = (part.from, part.to);
                part.answer.body = part.whole.slice(from..to).followed_by(Body::filled(b'X', 100));
                part.answer.frame(Framing::Length);
            }))
        },
    ),
    recipe("range-no-content-range", "a 206 without Content-Range", |given| {
        one(parts(given, |part| part.answer.remove("Content-Range")))
    }),
    recipe("range-two-content-ranges", "a later 206 has two Content-Ranges that differ", |given| {
        later_parts(given, |part| {
            let range = format!("bytes 0-{}/{}", part.to - part.from - 1, part.total());
            part.answer.add("Content-Range", range);
        })
    }),
    recipe("range-multipart", "a 206 is multipart/byteranges with one part", |given| {
        one(parts(given, |part| {
            let head = format!(
                "\r\n--tide\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {}-{}/{}\r\n\r\n",
                part.from,
                part.to - 1,
                part.total()
            );
            part.answer.body = Body::joined([
                Body::bytes(head),
                part.whole.slice(part.from..part.to),
                Body::bytes("\r\n--tide--\r\n"),
            ]);
            part.answer.remove("Content-Range");
            part.answer.set("Content-Type", "multipart/byteranges; boundary=tide");
            part.answer.frame(Framing::Length);
        }))
    }),
    recipe("range-reversed", "Content-Range ends before it begins", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, part.to, part.total());
            part.say(format!("bytes {}-{from}/{total}", to.max(from + 2) - 1));
        }))
    }),
    recipe("range-overflow", "Content-Range holds numbers beyond 64 bits", |given| {
        one(parts(given, |mut part| {
            part.say("bytes 18446744073709551616-18446744073709551999/18446744073709552000".to_owned());
        }))
    }),
    recipe("range-negative", "Content-Range holds a negative number", |given| {
        one(parts(given, |mut part| part.say("bytes -1-5/100".to_owned())))
    }),
    recipe("range-garbage", "Content-Range is no range", |given| {
        one(parts(given, |mut part| part.say("all of it".to_owned())))
    }),
    recipe("range-request-style", "a 206 says `bytes=a-b/N`, as in a request", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, part.to, part.total());
            part.say(format!("bytes={from}-{}/{total}", to - 1));
        }))
    }),
    recipe("range-unit-in-capitals", "a 206 says `Bytes a-b/N`", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, part.to, part.total());
            part.say(format!("Bytes {from}-{}/{total}", to - 1));
        }))
    }),
    recipe("range-other-unit", "a 206 says `items a-b/N`", |given| {
        one(parts(given, |mut part| {
            let (from, to, total) = (part.from, part.to, part.total());
            part.say(format!("items {from}-{}/{total}", to - 1));
        }))
    }),
    recipe("tc-07", "200 to all, with `Content-Range: bytes=0-(N-1)/N`", |given| {
        let range = format!("bytes=0-{}/{}", given.size.saturating_sub(1), given.size);
        one(given.file().ranges(Ranges::Ignored).field("Content-Range", range))
    }),
    recipe("range-on-200", "200 to all, with the Content-Range that was asked for", |given| {
        let whole = given.body();
        one(parts(given, move |part| {
            let range = format!("bytes {}-{}/{}", part.from, part.to - 1, part.total());
            make_whole(part.answer, &whole);
            part.answer.set("Content-Range", range);
        }))
    }),
    recipe("range-part-as-200", "a range gets its part, but with status 200 and no Content-Range", |given| {
        one(parts(given, |part| {
            part.answer.status = 200;
            part.answer.remove("Content-Range");
        }))
    }),
    recipe("tc-09", "all bodies chunked; a 206 carries Content-Range, a 200 no length", |given| {
        one(given.file().framing(Framing::Chunked(16 << 10)))
    }),
    recipe("range-capped", "ranges are answered with at most 1 MiB", |given| {
        one(given.file().ranges(Ranges::Capped(1 << 20)))
    }),
    recipe("range-capped-small", "ranges are answered with at most 64 KiB", |given| {
        one(given.file().ranges(Ranges::Capped(64 << 10)))
    }),
    recipe(
        "range-chunked-beyond",
        "a 206 is chunked, says at most 1 MiB, and goes on with 64 KiB of something else",
        |given| {
            one(given.file().ranges(Ranges::Capped(1 << 20)).hook_on(206, |_, answer| {
                answer.body = answer.body.clone().followed_by(Body::filled(b'X', 64 << 10));
                answer.frame(Framing::Chunked(64 << 10));
            }))
        },
    ),
    recipe("range-capped-4-kib", "ranges are answered with at most 4 KiB", |given| {
        one(given.file().ranges(Ranges::Capped(4 << 10)))
    }),
    recipe("range-one-byte", "ranges are answered with one byte", |given| {
        one(given.file().ranges(Ranges::Capped(1)))
    }),
    recipe("tc-32", "a request with Range gets 400", |given| one(given.file().ranges(Ranges::Refused(400)))),
    recipe("range-refused-403", "a request with Range gets 403", |given| {
        one(given.file().ranges(Ranges::Refused(403)))
    }),
    recipe("range-refused-501", "a request with Range gets 501", |given| {
        one(given.file().ranges(Ranges::Refused(501)))
    }),
    recipe("range-refused-503", "a request with Range gets 503", |given| {
        one(given.file().ranges(Ranges::Refused(503)))
    }),
    recipe("range-resets", "a request with a Range above 0 is answered by a reset", |given| {
        one(given.file().respond(|resource, exchange| {
            if exchange.request().starts_at() > 0 {
                exchange.break_off();
                return Ok(Ending::Reset);
            }
            let answer = resource.answer(exchange.request());
            exchange.send(&answer)
        }))
    }),
    recipe("tc-17", "416 with a web page of 206 bytes to `bytes=N-`", |given| {
        let total = given.size;
        one(given.file().hook_on(416, move |_, answer| {
            *answer = Answer::page(416, 206).with("Content-Range", format!("bytes */{total}"));
        }))
    }),
    recipe("416-always", "any range gets 416 with the right total", |given| {
        let total = given.size;
        one(given.file().gate(move |request| {
            request
                .has("range")
                .then(|| Answer::status(416).with("Content-Range", format!("bytes */{total}")))
        }))
    }),
    recipe("416-bare", "any range gets 416 without Content-Range", |given| {
        one(given.file().ranges(Ranges::Refused(416)))
    }),
    recipe("416-zero", "any range gets 416 `bytes */0`, though the file is not empty", |given| {
        one(given.file().gate(|request| {
            request.has("range").then(|| Answer::status(416).with("Content-Range", "bytes */0"))
        }))
    }),
    recipe("416-wrong-total", "a range beyond the end gets 416 with a total one byte longer", |given| {
        let total = given.size + 1;
        one(given
            .file()
            .hook_on(416, move |_, answer| answer.set("Content-Range", format!("bytes */{total}"))))
    }),
    recipe("416-star", "a range beyond the end gets 416 `bytes */*`", |given| {
        one(given.file().hook_on(416, |_, answer| answer.set("Content-Range", "bytes */*")))
    }),
    recipe("416-once", "every second request with a range above 0 gets 416", |given| {
        let total = given.size;
        one(given.file().gate(move |request| {
            (request.starts_at() > 0 && request.hit % 2 == 0)
                .then(|| Answer::status(416).with("Content-Range", format!("bytes */{total}")))
        }))
    }),
    recipe("unasked-206", "a plain GET gets 206 with the whole file", |given| {
        one(given.file().hook_on(200, |_, answer| {
            answer.status = 206;
            let len = answer.body.len();
            answer.set("Content-Range", format!("bytes 0-{}/{len}", len.saturating_sub(1)));
        }))
    }),
    recipe("unasked-206-half", "a plain GET gets 206 with the first half", |given| {
        one(given.file().hook_on(200, |_, answer| {
            let len = answer.body.len();
            answer.status = 206;
            answer.body = answer.body.slice(0..len.div_ceil(2));
            answer.frame(Framing::Length);
            answer.set("Content-Range", format!("bytes 0-{}/{len}", len.div_ceil(2).saturating_sub(1)));
        }))
    }),
    recipe("unasked-206-half-forever", "every request gets 206 with the first half", |given| {
        never(given.file().ranges(Ranges::Ignored).hook_on(200, |_, answer| {
            let len = answer.body.len();
            answer.status = 206;
            answer.body = answer.body.slice(0..len.div_ceil(2));
            answer.frame(Framing::Length);
            answer.set("Content-Range", format!("bytes 0-{}/{len}", len.div_ceil(2).saturating_sub(1)));
        }))
    }),
];
