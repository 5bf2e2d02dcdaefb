//! Files that change, between runs or in the middle of one, and pages where files were.

use super::{A_DAY_LATER, Recipe, choose, never, one, recipe, two};
use crate::body::Body;
use crate::exchange::{Answer, Ending};
use crate::resource::Ranges;

pub(super) static RECIPES: &[Recipe] = &[
    recipe("tc-06", "after two GETs the file is 49 bytes longer, with new validators", |given| {
        let grown = given.body().followed_by(Body::filled(b'Z', 49));
        let later = given.file().with_body(grown.clone()).etag("\"v2\"").last_modified(Some(A_DAY_LATER));
        one(choose(vec![given.file(), later], |request| usize::from(request.hit > 2)))
            .right([grown, given.body()])
    }),
    recipe(
        "grows-silently",
        "after two GETs the file is 49 bytes longer; there are no validators",
        |given| {
            let grown = given.body().followed_by(Body::filled(b'Z', 49));
            let later = given.file().with_body(grown.clone()).no_validators();
            let first = given.file().no_validators();
            one(choose(vec![first, later], |request| usize::from(request.hit > 2)))
                .right([grown, given.body()])
        },
    ),
    recipe("shrinks", "after two GETs the file is half as long, with new validators", |given| {
        let half = given.body().slice(0..given.size / 2);
        let later = given.file().with_body(half.clone()).etag("\"v2\"").last_modified(Some(A_DAY_LATER));
        one(choose(vec![given.file(), later], |request| usize::from(request.hit > 2)))
            .right([half, given.body()])
    }),
    recipe(
        "changes",
        "after two GETs there is other content of the same length, with new validators",
        |given| {
            one(choose(vec![given.file(), given.newer()], |request| usize::from(request.hit > 2)))
                .right([given.other(), given.body()])
        },
    ),
    recipe("changes-no-if-range", "the same, and If-Range is not looked at", |given| {
        let pair = vec![given.file().ignores_if_range(), given.newer().ignores_if_range()];
        one(choose(pair, |request| usize::from(request.hit > 2))).right([given.other(), given.body()])
    }),
    recipe("changes-silently", "after two GETs there is other content, and no validator tells", |given| {
        let pair = vec![given.file().no_validators(), given.file().no_validators().with_body(given.other())];
        one(choose(pair, |request| usize::from(request.hit > 2))).right([given.other(), given.body()])
    }),
    recipe("changes-one-block", "after two GETs one block of 4 KiB differs, with a new ETag", |given| {
        let changed = given.body().with_block_changed(given.size / 2);
        let later = given.file().with_body(changed.clone()).etag("\"v2\"").last_modified(Some(A_DAY_LATER));
        one(choose(vec![given.file(), later], |request| usize::from(request.hit > 2)))
            .right([changed, given.body()])
    }),
    recipe("changes-every-time", "other content and validators for each GET", |given| {
        let pair = vec![given.file().ignores_if_range(), given.newer().ignores_if_range()];
        one(choose(pair, |request| (request.hit % 2) as usize)).right([given.other(), given.body()])
    }),
    recipe(
        "two-versions-behind-one-name",
        "odd GETs get one version, even ones another, each with its ETag",
        |given| {
            one(choose(vec![given.file(), given.newer()], |request| (request.hit % 2) as usize))
                .right([given.other(), given.body()])
        },
    ),
    recipe(
        "same-etag-other-content",
        "odd and even GETs differ in content, but not in length or validators",
        |given| {
            let pair = vec![given.file(), given.file().with_body(given.other())];
            one(choose(pair, |request| (request.hit % 2) as usize)).right([given.other(), given.body()])
        },
    ),
    recipe(
        "tc-11",
        "another ETag for each request, same bytes; phase 1: reset at 40 %; phase 2: whole",
        |given| {
            let file = given.file().rotating_etags(&["\"node-0\"", "\"node-1\"", "\"node-2\""]);
            two(file.clone().cut_at_share(0.4, Ending::Reset), file)
        },
    ),
    recipe("tc-12", "phase 1: B, reset at 40 %; phase 2: B2 with new validators", |given| {
        two(given.file().cut_at_share(0.4, Ending::Reset), given.newer())
    }),
    recipe("tc-12-no-if-range", "tc-12, but If-Range is not looked at", |given| {
        two(
            given.file().ignores_if_range().cut_at_share(0.4, Ending::Reset),
            given.newer().ignores_if_range(),
        )
    }),
    recipe(
        "tc-12-silent",
        "phase 1: B, reset at 40 %; phase 2: B2 of the same length; no validators",
        |given| {
            let file = given.file().no_validators();
            two(file.clone().cut_at_share(0.4, Ending::Reset), file.with_body(given.other()))
        },
    ),
    recipe("tc-12-weak", "tc-12 with weak ETags and no Last-Modified", |given| {
        let file = given.file().etag("W/\"v1\"").last_modified(None);
        two(file.clone().cut_at_share(0.4, Ending::Reset), file.etag("W/\"v2\"").with_body(given.other()))
    }),
    recipe("tc-14", "no validators, same bytes; phase 1: reset at 40 %; phase 2: whole", |given| {
        let file = given.file().no_validators();
        two(file.clone().cut_at_share(0.4, Ending::Reset), file)
    }),
    recipe(
        "zeros-then-other",
        "tc-12-silent, but the first file is zeros: windows of it say nothing",
        |given| {
            let file = given.file().no_validators();
            let zeros = Body::zeros(given.size);
            two(file.clone().with_body(zeros).cut_at_share(0.4, Ending::Reset), file.with_body(given.other()))
        },
    ),
    recipe("honest-then-gone", "phase 1: reset at 40 %; phase 2: 404", |given| {
        two(
            given.file().cut_at_share(0.4, Ending::Reset),
            given.file().gate(|_| Some(Answer::page(404, 2048))),
        )
        .right([])
    }),
    recipe("web-page", "a web page with status 200 in the place of the file, ever", |given| {
        never(given.file().gate(|_| Some(Answer::page(200, 2048))))
    }),
    recipe("web-page-first", "the first GET gets a web page with status 200 and no validators", |given| {
        one(given.file().gate(|request| (request.hit <= 1).then(|| Answer::page(200, 2048))))
    }),
    recipe(
        "web-page-later",
        "after two GETs a web page with status 200 (a portal, or a log-in page)",
        |given| one(given.file().gate(|request| (request.hit > 2).then(|| Answer::page(200, 2048)))),
    ),
    recipe("web-page-phase", "phase 1: reset at 40 %; phase 2: a web page with status 200", |given| {
        two(
            given.file().cut_at_share(0.4, Ending::Reset),
            given.file().gate(|_| Some(Answer::page(200, 2048))),
        )
        .right([])
    }),
    recipe(
        "web-page-as-206",
        "after two GETs ranges get a web page with status 206 and the right Content-Range",
        |given| {
            one(given.file().hook_on(206, |request, answer| {
                if request.hit > 2 {
                    let page = Answer::page(200, answer.body.len() as usize).body;
                    answer.body = page.slice(0..answer.body.len());
                    answer.set("Content-Type", "text/html");
                    answer.frame(crate::Framing::Length);
                }
            }))
        },
    ),
    recipe("ranges-stop", "after two GETs ranges are ignored", |given| {
        let pair = vec![given.file(), given.file().ranges(Ranges::Ignored)];
        one(choose(pair, |request| usize::from(request.hit > 2)))
    }),
    recipe("type-changes", "after two GETs the type is text/html, but the bytes are right", |given| {
        one(given.file().hook(|request, answer| {
            if request.hit > 2 {
                answer.set("Content-Type", "text/html");
            }
        }))
    }),
];
