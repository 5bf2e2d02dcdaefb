//! Resources that ask who is there.

use super::{PASSWORD, Recipe, TOKEN, USER, one, recipe};
use crate::auth::{DigestHash, basic, bearer, digest};
use crate::exchange::Answer;
use crate::origin::{ENTRY, Origin};

pub(super) static RECIPES: &[Recipe] = &[
    recipe("auth-basic", "401 by Basic; user `tide`, password `gate:pass word`", |given| {
        one(given.file().gate(basic(USER, PASSWORD)))
    }),
    recipe("auth-digest-md5", "401 by Digest with MD5; user `tide`, password `gate:pass word`", |given| {
        one(given.file().gate(digest(DigestHash::Md5, USER, PASSWORD)))
    }),
    recipe(
        "auth-digest-sha-256",
        "401 by Digest with SHA-256; user `tide`, password `gate:pass word`",
        |given| one(given.file().gate(digest(DigestHash::Sha256, USER, PASSWORD))),
    ),
    recipe("auth-bearer", "401 by Bearer; token `mF_9.B5f-4.1JqM`", |given| {
        one(given.file().gate(bearer(TOKEN)))
    }),
    recipe("auth-choice", "401 that offers an unknown scheme, Digest and Basic; Basic is taken", |given| {
        let asks = basic(USER, PASSWORD);
        one(given.file().gate(move |request| {
            asks(request).map(|mut answer| {
                answer.remove("WWW-Authenticate");
                answer.add("WWW-Authenticate", "Negotiate, Tide realm=\"a, b\"");
                answer.add("WWW-Authenticate", "Basic realm=\"testkit\"");
                answer
            })
        }))
    }),
    recipe("auth-never", "401 by Basic, whatever is given", |given| {
        one(given
            .file()
            .gate(|_| Some(Answer::status(401).with("WWW-Authenticate", "Basic realm=\"testkit\""))))
        .right([])
    }),
    recipe("auth-no-challenge", "401 without WWW-Authenticate", |given| {
        one(given.file().gate(|_| Some(Answer::status(401)))).right([])
    }),
    recipe(
        "auth-then-redirect",
        "401 by Basic, then a redirect to another origin, which wants no credentials",
        |given| {
            let asks = basic(USER, PASSWORD);
            Origin::builder()
                .also_listen(None)
                .resource(
                    "/real.bin",
                    given.file().gate(|request| {
                        // Credentials here have been given to a stranger.
                        request.has("authorization").then(|| Answer::status(400))
                    }),
                )
                .resource(
                    ENTRY,
                    given.file().gate(move |request| {
                        asks(request)
                            .or_else(|| Some(Answer::redirect(302, format!("{}/real.bin", request.base(1)))))
                    }),
                )
                .right([given.body()])
        },
    ),
    recipe("auth-expires", "401 by Basic for the first two GETs with credentials as well", |given| {
        let asks = basic(USER, PASSWORD);
        one(given
            .file()
            .gate(move |request| asks(request).or_else(|| (request.hit <= 3).then(|| Answer::status(401)))))
    }),
];
