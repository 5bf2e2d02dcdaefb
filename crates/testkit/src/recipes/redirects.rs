//! Redirects: short, long, round, elsewhere, and to links that die.

use super::{Recipe, never, one, recipe};
use crate::body::Body;
use crate::exchange::{Answer, Ending};
use crate::origin::{Builder, ENTRY, Origin};
use crate::recipes::Given;
use crate::request::RequestSeen;
use crate::resource::Resource;
use crate::tls::Tls;

/// Where the file is to which a redirect leads.
const REAL: &str = "/real/file.bin";
/// Where a signed link leads.
const SIGNED: &str = "/signed/file.bin";

fn redirect(answer: impl Fn(&RequestSeen) -> Answer + Send + Sync + 'static) -> Resource {
    Resource::new(Body::bytes("")).gate(move |request| Some(answer(request)))
}

/// The file at [`REAL`], and at the entry a redirect to this.
fn leads_to(given: &Given, status: u16, location: &'static str) -> Builder {
    Origin::builder()
        .resource(REAL, given.file())
        .resource(ENTRY, redirect(move |_| Answer::redirect(status, location)))
        .right([given.body()])
}

/// `hops` redirects, one after the other, and then the file.
fn chain(given: &Given, hops: u64) -> Builder {
    let mut builder = Origin::builder().resource(REAL, given.file()).right([given.body()]);
    for hop in 1..=hops {
        let path = if hop == 1 { ENTRY.to_owned() } else { format!("/hop/{hop}") };
        let next = if hop == hops { REAL.to_owned() } else { format!("/hop/{}", hop + 1) };
        builder = builder.resource(&path, redirect(move |_| Answer::redirect(302, next.as_str())));
    }
    builder
}

/// A redirect that never leads to the file.
fn leads_astray(given: &Given, location: &'static str) -> Builder {
    leads_to(given, 302, location).right([])
}

/// A redirect to a link with a fresh signature each time; what becomes of old ones is up to the gate of the
/// target, which is told the number of GETs with that signature, and the bytes sent since its first.
fn signed(given: &Given, target: Resource, dies: fn(u64, u64) -> Option<Answer>) -> Builder {
    use std::collections::HashMap;
    use std::sync::{Mutex, PoisonError};
    let uses: Mutex<HashMap<String, (u64, u64)>> = Mutex::new(HashMap::new());
    let target = target.gate(move |request| {
        let Some(signature) = request.query() else { return Some(Answer::status(403)) };
        let mut uses = uses.lock().unwrap_or_else(PoisonError::into_inner);
        // Signatures are ours, but anything may be asked for.
        if uses.len() > 10_000 {
            uses.clear();
        }
        let (used, first) = uses.entry(signature.to_owned()).or_insert((0, request.sent_before));
        *used += u64::from(request.method == "GET");
        dies(*used, request.sent_before.saturating_sub(*first))
    });
    Origin::builder()
        .resource(SIGNED, target)
        .resource(
            ENTRY,
            redirect(|request| Answer::redirect(302, format!("{SIGNED}?signature={:08x}", request.number))),
        )
        .right([given.body()])
}

/// A link on the second listener, which is another origin.
fn elsewhere(
    given: &Given,
    scheme_host: fn(&RequestSeen) -> String,
    answer: fn(Answer) -> Answer,
) -> Builder {
    Origin::builder()
        .also_listen(None)
        .resource(REAL, given.file())
        .resource(
            ENTRY,
            redirect(move |request| answer(Answer::redirect(302, format!("{}{REAL}", scheme_host(request))))),
        )
        .right([given.body()])
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("redirect-301", "301 to the file, by an absolute path", |given| leads_to(given, 301, REAL)),
    recipe("redirect-302", "302 to the file, by an absolute path", |given| leads_to(given, 302, REAL)),
    recipe("redirect-303", "303 to the file, by an absolute path", |given| leads_to(given, 303, REAL)),
    recipe("redirect-307", "307 to the file, by an absolute path", |given| leads_to(given, 307, REAL)),
    recipe("redirect-308", "308 to the file, by an absolute path", |given| leads_to(given, 308, REAL)),
    recipe("redirect-300", "300 with a Location", |given| leads_to(given, 300, REAL)),
    recipe("redirect-relative", "a redirect by a relative path with dots in it", |given| {
        leads_to(given, 302, "./x/../real/./file.bin")
    }),
    recipe("redirect-fragment", "a redirect with a fragment and a query", |given| {
        leads_to(given, 302, "/real/file.bin?a=b#part")
    }),
    recipe("redirect-no-scheme", "a redirect by `//host:port/path`", |given| {
        elsewhere(given, |request| request.base(0).trim_start_matches("http:").to_owned(), |answer| answer)
    }),
    recipe("redirect-white-space", "a redirect with blanks round and in its Location", |given| {
        Origin::builder()
            .resource("/real%20file.bin", given.file())
            .resource(ENTRY, redirect(|_| Answer::redirect(302, "  /real file.bin  ")))
            .right([given.body()])
    }),
    recipe("redirect-chain-5", "five redirects", |given| chain(given, 5)),
    recipe("redirect-chain-20", "twenty redirects", |given| chain(given, 20)),
    recipe("redirect-chain-100", "a hundred redirects; a client may refuse them", |given| chain(given, 100)),
    recipe("redirect-loop", "two redirects that lead to each other", |given| {
        Origin::builder()
            .resource(ENTRY, redirect(|_| Answer::redirect(302, "/other.bin")))
            .resource("/other.bin", redirect(|_| Answer::redirect(302, ENTRY)))
            .resource(REAL, given.file())
            .right([])
    }),
    recipe("redirect-self", "a redirect to itself", |given| leads_astray(given, ENTRY)),
    recipe("redirect-endless", "each redirect leads to a new one", |_| {
        Origin::builder()
            .resource("*", redirect(|request| Answer::redirect(302, format!("/hop/{}", request.number))))
            .right([])
    }),
    recipe("redirect-cookie", "a redirect that sets a cookie, without which there is 403", |given| {
        Origin::builder()
            .resource(
                REAL,
                given.file().gate(|request| {
                    let has = request.field("cookie").is_some_and(|cookie| cookie.contains("pass=tide"));
                    (!has).then(|| Answer::status(403))
                }),
            )
            .resource(
                ENTRY,
                redirect(|_| Answer::redirect(302, REAL).with("Set-Cookie", "pass=tide; Path=/; HttpOnly")),
            )
            .right([given.body()])
    }),
    recipe("redirect-other-port", "a redirect to another origin (another port), with a cookie", |given| {
        elsewhere(
            given,
            |request| request.base(1).to_owned(),
            |answer| answer.with("Set-Cookie", "secret=first-origin; Path=/"),
        )
    }),
    recipe("redirect-other-host", "a redirect from 127.0.0.1 to localhost, another origin", |given| {
        elsewhere(given, |request| request.base(0).replace("127.0.0.1", "localhost"), |answer| answer)
    }),
    recipe("redirect-credentials", "a redirect with a user and a password in its Location", |given| {
        elsewhere(given, |request| request.base(1).replace("://", "://user:secret@"), |answer| answer)
    }),
    recipe("redirect-to-http", "https to http on another port", |given| {
        elsewhere(given, |request| request.base(1).to_owned(), |answer| answer).tls(Tls::new())
    }),
    recipe("redirect-to-https", "http to https on another port", |given| {
        Origin::builder()
            .also_listen(Some(Tls::new()))
            .resource(REAL, given.file())
            .resource(ENTRY, redirect(|request| Answer::redirect(302, format!("{}{REAL}", request.base(1)))))
            .right([given.body()])
    }),
    recipe("redirect-big-body", "a redirect with a web page of 1 MiB", |given| {
        let page = Answer::page(302, 1 << 20).with("Location", REAL);
        leads_to(given, 302, REAL).resource(ENTRY, redirect(move |_| page.clone()))
    }),
    recipe("redirect-body-stall", "a redirect whose body never comes", |given| {
        leads_to(given, 302, REAL).resource(
            ENTRY,
            redirect(|_| {
                let mut answer = Answer::redirect(302, REAL);
                answer.cut_after(0, Ending::Stall);
                answer
            }),
        )
    }),
    recipe("redirect-no-location", "302 without Location", |given| {
        leads_to(given, 302, REAL).resource(ENTRY, redirect(|_| Answer::status(302))).right([])
    }),
    recipe("redirect-two-locations", "302 with two Locations that differ", |given| {
        leads_to(given, 302, REAL).resource(
            ENTRY,
            redirect(|_| {
                let mut answer = Answer::redirect(302, REAL);
                answer.add("Location", "/elsewhere");
                answer
            }),
        )
    }),
    recipe("redirect-empty", "302 with an empty Location", |given| leads_astray(given, "")),
    recipe("redirect-bad", "302 with a Location that is no URL", |given| {
        leads_astray(given, "http://[::bad/%zz")
    }),
    recipe("redirect-to-file", "302 to file:///etc/passwd", |given| {
        leads_astray(given, "file:///etc/passwd")
    }),
    recipe("redirect-to-ftp", "302 to an ftp URL", |given| leads_astray(given, "ftp://127.0.0.1/file.bin")),
    recipe("redirect-to-data", "302 to a data URL", |given| {
        leads_astray(given, "data:text/plain,not%20the%20file")
    }),
    recipe("redirect-nowhere", "302 to a port where nobody listens", |given| {
        leads_astray(given, "http://127.0.0.1:1/file.bin")
    }),
    recipe("redirect-304", "304 with a Location, which is no redirect", |given| {
        leads_to(given, 304, REAL).right([])
    }),
    recipe("redirect-of-ranges", "only requests with a range above 0 are redirected", |given| {
        let file =
            given.file().gate(|request| (request.starts_at() > 0).then(|| Answer::redirect(302, REAL)));
        leads_to(given, 302, REAL).resource(ENTRY, file)
    }),
    recipe(
        "signed-403",
        "a signed link is good for four GETs, then 403; the first link gives a new one",
        |given| signed(given, given.file(), |used, _| (used > 4).then(|| Answer::status(403))),
    ),
    recipe("signed-404", "a signed link is good for four GETs, then 404", |given| {
        signed(given, given.file(), |used, _| (used > 4).then(|| Answer::status(404)))
    }),
    recipe("signed-410", "a signed link is good for four GETs, then 410 with a page", |given| {
        signed(given, given.file(), |used, _| (used > 4).then(|| Answer::page(410, 4096)))
    }),
    recipe("signed-once", "a signed link is good for one GET, which is reset at 40 %", |given| {
        let file = given.file().cut_at_share(0.4, Ending::Reset);
        signed(given, file, |used, _| (used > 1).then(|| Answer::status(403)))
    }),
    recipe(
        "signed-after-bytes",
        "a signed link dies by 403 once 1 MiB was sent since its first use; resets",
        |given| {
            let file = given.file().cut_after(512 << 10, Ending::Reset);
            signed(given, file, |_, sent| (sent >= 1 << 20).then(|| Answer::status(403)))
        },
    ),
    recipe("signed-dead", "the first link redirects, but each signed link gets 403", |given| {
        signed(given, given.file(), |_, _| Some(Answer::status(403))).right([])
    }),
    recipe("signed-web-page", "a signed link is good for four GETs, then 200 with a web page", |given| {
        signed(given, given.file(), |used, _| (used > 4).then(|| Answer::page(200, 4096)))
    }),
    recipe("refresh-page", "200 with a page that goes on by itself (meta refresh): no redirect", |given| {
        let page = "<html><head><meta http-equiv=refresh content='0;url=/real/file.bin'></head></html>";
        never(Resource::new(Body::bytes(page)).content_type("text/html")).resource(REAL, given.file())
    }),
    recipe("content-location", "200 with a Content-Location and a Location, which lead nowhere", |given| {
        one(given.file().field("Content-Location", "/other.bin").field("Location", "/elsewhere.bin"))
    }),
];
