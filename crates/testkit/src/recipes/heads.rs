//! Heads that are odd, wrong or without end.

use std::io;
use std::time::Duration;

use super::{Recipe, never, one, recipe};
use crate::body::Body;
use crate::exchange::{Ending, Exchange};
use crate::origin::Builder;
use crate::pace::Rate;
use crate::recipes::Given;
use crate::resource::{Ranges, Resource};

/// Writes raw bytes in the place of an answer, and closes.
fn raw(bytes: impl Into<Vec<u8>>) -> Resource {
    let bytes = bytes.into();
    Resource::new(Body::bytes("")).respond(move |_, exchange| {
        exchange.begin(0);
        exchange.break_off();
        exchange.raw(&bytes)?;
        Ok(Ending::Fin)
    })
}

/// Writes this again and again, as long as the client listens, up to 4 GiB.
fn endlessly(exchange: &mut Exchange<'_>, unit: &[u8]) -> io::Result<Ending> {
    let block = unit.repeat((16 << 10) / unit.len().max(1) + 1);
    exchange.break_off();
    for _ in 0..(4u64 << 30) / block.len() as u64 {
        exchange.raw(&block)?;
    }
    Ok(Ending::Fin)
}

/// A status line, and then the head that this changes, and the file.
fn status_line(given: &Given, line: &'static str) -> Resource {
    given
        .file()
        .ranges(Ranges::Denied)
        .hook(move |_, answer| answer.status_line = Some(line.as_bytes().to_vec()))
}

fn preamble(given: &Given, preamble: &'static str) -> Builder {
    one(given.file().hook(move |_, answer| answer.preamble = preamble.as_bytes().to_vec()))
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("head-endless", "header fields without end", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.begin(200);
            exchange.raw(b"HTTP/1.1 200 OK\r\n")?;
            endlessly(exchange, b"X-Field: and one more\r\n")
        }))
    }),
    recipe("head-line-endless", "one header line without end", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.begin(200);
            exchange.raw(b"HTTP/1.1 200 OK\r\nX-Field: ")?;
            endlessly(exchange, b"x")
        }))
    }),
    recipe("status-line-endless", "a reason phrase without end", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.begin(200);
            exchange.raw(b"HTTP/1.1 200 ")?;
            endlessly(exchange, b"OK")
        }))
    }),
    recipe("head-10000-fields", "a head of 10,000 fields; a client may refuse it", |given| {
        one(given.file().hook(|_, answer| {
            for number in 0..10_000 {
                answer.add(&format!("X-Field-{number}"), "value");
            }
        }))
    }),
    recipe("head-line-1mib", "a header line of 1 MiB; a client may refuse it", |given| {
        one(given.file().hook(|_, answer| answer.add("X-Long", vec![b'x'; 1 << 20])))
    }),
    recipe("head-none", "a close before any byte", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.break_off();
            Ok(Ending::Fin)
        }))
    }),
    recipe("head-none-reset", "a reset before any byte", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.break_off();
            Ok(Ending::Reset)
        }))
    }),
    recipe("head-cut", "a close in the middle of the head", |_| {
        never(raw("HTTP/1.1 200 OK\r\nContent-Length: 8388608\r\nContent-Ty"))
    }),
    recipe("head-stall", "silence in the middle of the head", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.begin(200);
            exchange.break_off();
            exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Le")?;
            Ok(Ending::Stall)
        }))
    }),
    recipe("head-silence", "silence before the head", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.break_off();
            Ok(Ending::Stall)
        }))
    }),
    recipe("head-slow", "the head comes at 200 bytes per second, the body at full speed", |given| {
        one(given.file().hook(|_, answer| answer.head_rate = Some(Rate::bytes(200))))
    }),
    recipe("head-late", "two seconds of silence before each answer", |given| {
        one(given.file().hook(|_, answer| answer.delay = Duration::from_secs(2)))
    }),
    recipe("status-bad", "`HTTP/1.1 abc OK`", |given| never(status_line(given, "HTTP/1.1 abc OK"))),
    recipe("status-999", "`HTTP/1.1 999 Odd`", |given| never(status_line(given, "HTTP/1.1 999 Odd"))),
    recipe("status-four-digits", "`HTTP/1.1 2000 OK`", |given| never(status_line(given, "HTTP/1.1 2000 OK"))),
    recipe("status-no-reason", "`HTTP/1.1 200` without a reason phrase", |given| {
        one(status_line(given, "HTTP/1.1 200"))
    }),
    recipe("status-utf8-reason", "a reason phrase that is not ASCII", |given| {
        one(status_line(given, "HTTP/1.1 200 Tout va bien, éé"))
    }),
    recipe("status-http-2", "`HTTP/2.0 200 OK` in plain text", |given| {
        never(status_line(given, "HTTP/2.0 200 OK"))
    }),
    recipe("status-garbage", "a line that is no HTTP", |_| never(raw("SSH-2.0-OpenSSH_9.9\r\n"))),
    recipe("noise", "64 KiB of noise in the place of an answer", |_| {
        never(raw(Body::random(99, 64 << 10).to_vec()))
    }),
    recipe("http-0.9", "the file without any head", |given| {
        never(given.file().respond(|resource, exchange| {
            exchange.begin(0);
            exchange.break_off();
            exchange.body(resource.body())?;
            Ok(Ending::Fin)
        }))
    }),
    recipe("http-1.0", "HTTP/1.0 with a length; closes; no ranges", |given| {
        one(status_line(given, "HTTP/1.0 200 OK").ending(Ending::Fin))
    }),
    recipe("http-1.0-until-close", "HTTP/1.0 without a length; no ranges", |given| {
        one(status_line(given, "HTTP/1.0 200 OK").framing(crate::Framing::UntilClose).hook(|_, answer| {
            answer.remove("Connection");
        }))
    }),
    recipe("interim-100", "`100 Continue` before each answer", |given| {
        preamble(given, "HTTP/1.1 100 Continue\r\n\r\n")
    }),
    recipe("interim-103", "three interim answers with fields before each answer", |given| {
        preamble(
            given,
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n\
             HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\nLocation: /elsewhere\r\n\r\n",
        )
    }),
    recipe("interim-endless", "interim answers without end", |given| {
        never(given.file().respond(|_, exchange| {
            exchange.begin(0);
            endlessly(exchange, b"HTTP/1.1 103 Early Hints\r\n\r\n")
        }))
    }),
    recipe("interim-101", "`101 Switching Protocols` that nobody asked for", |_| {
        never(raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: tide\r\nConnection: upgrade\r\n\r\n"))
    }),
    recipe("fields-lower-case", "field names in lower case", |given| {
        one(given.file().hook(|_, answer| {
            answer.fields.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
        }))
    }),
    recipe("fields-upper-case", "field names in capitals", |given| {
        one(given.file().hook(|_, answer| {
            answer.fields.iter_mut().for_each(|(name, _)| name.make_ascii_uppercase());
        }))
    }),
    recipe("fields-padded", "blanks and tabs round field values", |given| {
        one(given.file().hook(|_, answer| {
            for (_, value) in &mut answer.fields {
                *value = [b" \t ", value.as_slice(), b" \t "].concat();
            }
        }))
    }),
    recipe("fields-folded", "a field value goes on in the next line; a client may refuse it", |given| {
        one(given.file().field("X-Folded", "one\r\n two"))
    }),
    recipe("fields-blank-before-colon", "`Content-Length : N`; a client may refuse it", |given| {
        one(given.file().hook(|_, answer| {
            for (name, _) in &mut answer.fields {
                if name == "Content-Length" {
                    name.push(' ');
                }
            }
        }))
    }),
    recipe("fields-bare-lf", "lines of the head end with LF alone; a client may refuse it", |given| {
        one(given.file().ranges(Ranges::Denied).respond(|resource, exchange| {
            exchange.begin(200);
            exchange
                .raw(format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n", resource.body().len()).as_bytes())?;
            if !exchange.request().is_head() {
                exchange.body(resource.body())?;
            }
            Ok(Ending::Fin)
        }))
    }),
    recipe("fields-nul", "a NUL byte in a field value", |given| {
        one(given.file().field("X-Nul", b"a\0b".to_vec()))
    }),
    recipe("fields-latin-1", "bytes above 127 that are not UTF-8 in a field value", |given| {
        one(given.file().field("X-Latin", b"caf\xe9".to_vec()))
    }),
    recipe("fields-no-colon", "a line without a colon in the head; a client may refuse it", |given| {
        one(given.file().respond(|resource, exchange| {
            let mut answer = resource.answer(exchange.request());
            answer.status_line =
                Some(format!("HTTP/1.1 {} OK\r\nno colon in here", answer.status).into_bytes());
            exchange.send(&answer)
        }))
    }),
];
