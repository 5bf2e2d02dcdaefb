//! Connections that end, stall, or crawl.

use super::{Recipe, never, one, recipe};
use crate::exchange::Ending;
use crate::origin::Origin;
use crate::pace::{Pace, Pacer, Rate};
use crate::recipes::Given;
use crate::resource::Resource;
use crate::tls::{Certificate, Tls};

/// Only the first `times` answers are cut.
fn cut_at_first(given: &Given, times: u64, share: f64, ending: Ending) -> Resource {
    given.file().hook(move |request, answer| {
        if request.method == "GET" && request.hit <= times {
            answer.cut_after((answer.body.len() as f64 * share) as u64, ending);
        }
    })
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe(
        "cut-reset",
        "each answer is reset at 40 %; ranges work, but the last two bytes never come",
        |given| one(given.file().cut_at_share(0.4, Ending::Reset)),
    ),
    recipe(
        "cut-fin",
        "each answer is closed at 40 %; ranges work, but the last two bytes never come",
        |given| one(given.file().cut_at_share(0.4, Ending::Fin)),
    ),
    recipe("cut-once", "the first answer is reset at 40 %", |given| {
        one(cut_at_first(given, 1, 0.4, Ending::Reset))
    }),
    recipe("cut-at-first-byte", "the first eight answers are reset after their head", |given| {
        one(cut_at_first(given, 8, 0.0, Ending::Reset))
    }),
    recipe("cut-last-byte", "the first eight answers lack their last byte, and close", |given| {
        one(given.file().hook(|request, answer| {
            if request.method == "GET" && request.hit <= 8 {
                answer.cut_after(answer.body.len().saturating_sub(1), Ending::Fin);
            }
        }))
    }),
    recipe("cut-every-64kib", "each answer is reset after 64 KiB", |given| {
        one(given.file().cut_after(64 << 10, Ending::Reset))
    }),
    recipe("until-close-reset", "no length, no ranges, and a reset at 40 %", |given| {
        never(
            given
                .file()
                .framing(crate::Framing::UntilClose)
                .ranges(crate::resource::Ranges::Denied)
                .cut_at_share(0.4, Ending::Reset),
        )
    }),
    recipe("stall", "each answer falls silent at 40 % and stays open", |given| {
        one(given.file().cut_at_share(0.4, Ending::Stall))
    }),
    recipe("stall-once", "the first answer falls silent at 40 %", |given| {
        one(cut_at_first(given, 1, 0.4, Ending::Stall))
    }),
    recipe("stall-before-body", "the first two answers fall silent after their head", |given| {
        one(cut_at_first(given, 2, 0.0, Ending::Stall))
    }),
    recipe(
        "stall-last-byte",
        "the first answer to reach the end lacks the last byte of the file, and is silent",
        |given| {
            let total = given.size;
            let held = std::sync::atomic::AtomicBool::new(false);
            one(given.file().hook(move |request, answer| {
                let ends = request.starts_at() + answer.body.len() == total;
                if request.method == "GET" && ends && !held.swap(true, std::sync::atomic::Ordering::Relaxed) {
                    answer.cut_after(answer.body.len().saturating_sub(1), Ending::Stall);
                }
            }))
        },
    ),
    recipe("drip", "one byte per second for each answer", |given| one(given.file().rate(Rate::bytes(1)))),
    recipe("slow", "64 KiB per second for each connection", |given| {
        one(given.file().pace(Pace::Connection(Rate::kib(64))))
    }),
    recipe("rate-per-connection", "1 MiB per second for each connection", |given| {
        one(given.file().pace(Pace::Connection(Rate::mib(1))))
    }),
    recipe("rate-total", "2 MiB per second for all connections together", |given| {
        one(given.file().pace(Pace::Shared(Pacer::new(Rate::mib(2)))))
    }),
    recipe("tc-25", "every third GET crawls at 16 KiB/s, the others go at 2 MiB/s", |given| {
        one(given.file().hook(|request, answer| {
            let rate = if request.hit % 3 == 0 { Rate::kib(16) } else { Rate::mib(2) };
            answer.paces = vec![Pace::Response(rate)];
        }))
    }),
    recipe("slowing-down", "each answer gives its first quarter at once and the rest at 16 KiB/s", |given| {
        one(given.file().respond(|resource, exchange| {
            let answer = resource.answer(exchange.request());
            let quarter = answer.body.len() / 4;
            let mut first = answer.clone();
            first.body = answer.body.slice(0..quarter);
            first.ending = Ending::KeepAlive;
            exchange.send(&first)?;
            if exchange.request().is_head() {
                return Ok(Ending::KeepAlive);
            }
            exchange.body_at(&answer.body.slice(quarter..u64::MAX), Rate::kib(16))?;
            Ok(answer.ending)
        }))
    }),
    recipe("tc-40", "512 KiB/s for each connection; the network drops after 1 s, for 4 s", |given| {
        one(given.file().pace(Pace::Connection(Rate::kib(512))))
            .outage(std::time::Duration::from_secs(1), std::time::Duration::from_secs(4))
    }),
    recipe("tls", "honest, over TLS, by an authority of its own", |given| one(given.file()).tls(Tls::new())),
    recipe("tls-1.2", "honest, TLS 1.2 only", |given| one(given.file()).tls(Tls::new().only_tls12())),
    recipe("tls-no-notice", "over TLS; each answer closes at 40 % by FIN without close_notify", |given| {
        one(given.file().cut_at_share(0.4, Ending::FinWithoutNotice)).tls(Tls::new())
    }),
    recipe(
        "tls-until-close-no-notice",
        "over TLS; no length; whole, but closes without close_notify",
        |given| {
            let resource =
                given.file().framing(crate::Framing::UntilClose).ranges(crate::resource::Ranges::Denied);
            never(resource.hook(|_, answer| answer.ending = Ending::FinWithoutNotice)).tls(Tls::new())
        },
    ),
    recipe("tls-self-signed", "the certificate is signed by itself", |given| {
        never(given.file()).tls(Tls::new().certificate(Certificate::SelfSigned))
    }),
    recipe("tls-unknown-authority", "the certificate is by an authority that nobody knows", |given| {
        never(given.file()).tls(Tls::new().certificate(Certificate::UnknownAuthority))
    }),
    recipe("tls-expired", "the certificate has expired", |given| {
        never(given.file()).tls(Tls::new().certificate(Certificate::Expired))
    }),
    recipe("tls-not-yet-valid", "the certificate is not valid yet", |given| {
        never(given.file()).tls(Tls::new().certificate(Certificate::NotYetValid))
    }),
    recipe("tls-wrong-name", "the certificate is for another name", |given| {
        never(given.file()).tls(Tls::new().certificate(Certificate::WrongName))
    }),
    recipe("tls-client-certificate", "only for clients with a certificate", |given| {
        one(given.file()).tls(Tls::new().requires_client_certificate())
    }),
    recipe("https-is-plain", "an https URL is told, but the port speaks plain HTTP", |given| {
        // The redirect leads to the plain listener under the wrong scheme.
        let origin = Origin::builder().resource("/real.bin", given.file()).right([]);
        origin.resource(
            crate::origin::ENTRY,
            Resource::new(given.body()).gate(|request| {
                let wrong = request.base(0).replacen("http://", "https://", 1);
                Some(crate::Answer::redirect(302, format!("{wrong}/real.bin")))
            }),
        )
    }),
];
