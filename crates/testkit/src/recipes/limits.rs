//! Servers that are busy, or say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::{Recipe, never, one, recipe};
use crate::body::Body;
use crate::exchange::Answer;
use crate::origin::Builder;
use crate::pace::{Pace, Rate};
use crate::recipes::Given;
use crate::resource::Resource;

fn empty(status: u16) -> Answer {
    Answer::new(status, Body::bytes(""))
}

/// At most two answers at once, at 2 MiB/s each; this to the others.
fn two_at_once(given: &Given, refusal: Answer) -> Builder {
    let file = given.file().pace(Pace::Connection(Rate::mib(2)));
    one(file).each_site(move |site| site.most_in_flight(2, refusal.clone()))
}

/// The file, but every GET whose number can be divided by `n` gets this.
fn every(given: &Given, n: u64, answer: Answer) -> Resource {
    given.file().gate(move |request| {
        (request.method == "GET" && request.hit.is_multiple_of(n)).then(|| answer.clone())
    })
}

/// The first `times` GETs get this.
fn at_first(given: &Given, times: u64, answer: Answer) -> Resource {
    given.file().gate(move |request| (request.hit <= times).then(|| answer.clone()))
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("tc-23", "every third GET gets 503 with a page of 64 KiB and `Retry-After: 1`", |given| {
        one(every(given, 3, Answer::page(503, 65_536).with("Retry-After", "1")))
    }),
    recipe("500-every-second", "every second GET gets 500 with a page", |given| {
        one(every(given, 2, Answer::page(500, 4096)))
    }),
    recipe("503-at-first", "the first two GETs get 503 without Retry-After", |given| {
        one(at_first(given, 2, empty(503)))
    }),
    recipe("503-always", "every request gets 503", |given| never(given.file().gate(|_| Some(empty(503))))),
    recipe("500-always", "every request gets 500", |given| never(given.file().gate(|_| Some(empty(500))))),
    recipe("404-always", "every request gets 404 with a page", |given| {
        never(given.file().gate(|_| Some(Answer::page(404, 2048))))
    }),
    recipe("410-always", "every request gets 410", |given| never(given.file().gate(|_| Some(empty(410))))),
    recipe("403-always", "every request gets 403", |given| never(given.file().gate(|_| Some(empty(403))))),
    recipe("451-always", "every request gets 451", |given| never(given.file().gate(|_| Some(empty(451))))),
    recipe("429-at-first", "the first GET gets 429 with `Retry-After: 1`", |given| {
        one(at_first(given, 1, empty(429).with("Retry-After", "1")))
    }),
    recipe("429-date", "the first GET gets 429 with Retry-After as a date, two seconds from then", |given| {
        one(given.file().gate(|request| {
            let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(2));
            (request.hit <= 1).then(|| empty(429).with("Retry-After", date))
        }))
    }),
    recipe("retry-after-huge", "every request gets 503 with `Retry-After: 99999999999999999999`", |given| {
        never(given.file().gate(|_| Some(empty(503).with("Retry-After", "99999999999999999999"))))
    }),
    recipe("retry-after-garbage", "the first two GETs get 503 with a Retry-After that is nothing", |given| {
        one(at_first(given, 2, empty(503).with("Retry-After", "soon, -1")))
    }),
    recipe("retry-after-past", "the first two GETs get 503 with a Retry-After in 1994", |given| {
        one(at_first(given, 2, empty(503).with("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")))
    }),
    recipe("408-closing", "the first two GETs get 408 and a close", |given| {
        one(at_first(given, 2, empty(408).with("Connection", "close").ending(crate::Ending::Fin)))
    }),
    recipe("421-at-first", "the first GET gets 421", |given| one(at_first(given, 1, empty(421)))),
    recipe(
        "tc-27",
        "more than two requests at once get 503 and `Retry-After: 1`; 2 MiB/s for each",
        |given| two_at_once(given, empty(503).with("Retry-After", "1")),
    ),
    recipe("limit-429", "more than two requests at once get 429", |given| two_at_once(given, empty(429))),
    recipe("limit-403", "more than two requests at once get 403 with a page", |given| {
        two_at_once(given, Answer::page(403, 1024))
    }),
    recipe(
        "limit-reset",
        "more than two connections at once are reset as they come; 2 MiB/s for each",
        |given| {
            one(given.file().pace(Pace::Connection(Rate::mib(2)))).each_site(|site| site.most_connections(2))
        },
    ),
    recipe("limit-one", "more than one connection at once is reset as it comes", |given| {
        one(given.file()).each_site(|site| site.most_connections(1))
    }),
    recipe("tc-29", "the link is good for one GET, without ranges; HEAD and the rest get 403", |given| {
        let file = given.file().ranges(crate::resource::Ranges::Denied);
        one(file.gate(|request| (request.method != "GET" || request.hit > 1).then(|| empty(403))))
    }),
    recipe("good-for-three", "the link is good for three GETs, with ranges; the rest get 403", |given| {
        one(given.file().gate(|request| (request.method == "GET" && request.hit > 3).then(|| empty(403))))
    }),
    recipe(
        "409-for-a-second",
        "every fourth GET from the second on gets 409, and so do all others for 1 s",
        |given| {
            let until = Arc::new(AtomicU64::new(0));
            one(given.file().pace(Pace::Connection(Rate::mib(2))).gate({
                move |request| {
                    let now = request.at.as_millis() as u64;
                    let open = now >= until.load(Ordering::Relaxed);
                    (!open).then(|| empty(409)).or_else(|| {
                        (request.hit % 4 == 2).then(|| {
                            until.store(now + 1000, Ordering::Relaxed);
                            empty(409)
                        })
                    })
                }
            }))
        },
    ),
];
