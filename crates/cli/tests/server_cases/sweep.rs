//! Every behaviour that the testkit knows, small and in a hurry: whatever a server does, the rule holds.

use crate::common::{Ended, Place, word};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_testkit::recipes::{self, Given, PASSWORD, Recipe, TOKEN, USER};
use tidegate_testkit::{Body, Origin};

const SIZE: u64 = 1 << 20;

/// Runs at a time: most of the time is spent waiting.
const WORKERS: usize = 8;

/// After this a run is stopped by Ctrl-C, and must be one of [`SLOW`].
const PATIENCE: Duration = Duration::from_secs(20);

/// Behaviours for which no honest client would be done in time, since they never stop giving a little, or much of
/// what takes its time to unpack; and how long they are played. They are begun first.
const SLOW: [(&str, Duration); 4] = [
    ("drip", Duration::from_secs(5)),
    ("stall", PATIENCE),
    ("slowing-down", PATIENCE),
    ("gzip-bomb", Duration::from_secs(5)),
];

fn slow(name: &str) -> Option<Duration> {
    SLOW.iter().find(|(slow, _)| *slow == name).map(|(_, patience)| *patience)
}

/// Behaviours where a web page is the very first answer. Nothing tells it from a file then: it is one.
const PAGES: [&str; 3] = ["web-page", "web-page-first", "refresh-page"];

/// Requests for 16 parts of 64 KiB, each of them refused or cut a few times.
const MOST_REQUESTS: u64 = 130;

#[test]
fn whatever_a_server_does_no_wrong_file_is_called_right() {
    let mut all: Vec<&Recipe> = recipes::all().collect();
    all.sort_by_key(|recipe| slow(recipe.name).is_none());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(recipe) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let faults = sweep(recipe);
                    wrong.lock().unwrap().extend(faults.into_iter().map(|what| (recipe.name, what)));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    let text: String = wrong.iter().map(|(name, what)| format!("{name}: {what}\n")).collect();
    assert!(wrong.is_empty(), "{} faults\n{text}", wrong.len());
}

/// Plays one behaviour, all its phases in one folder, and tells what was wrong.
fn sweep(recipe: &Recipe) -> Vec<String> {
    let origin = recipe.builder(&Given { size: SIZE, seed: 1 }).start().unwrap();
    let place = Place::new();
    let words = words_for(recipe.name, &origin, &place);
    let mut faults = Vec::new();
    for phase in 1..=origin.phases() {
        origin.enter_phase(phase).unwrap();
        let last = phase == origin.phases();
        let requests = origin.counters().requests;
        let entry = origin.entry_url().splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap();
        // A file that is whole in an early phase is that phase's.
        let right: Vec<Body> = match last {
            true => origin.right().to_vec(),
            false => origin.body(&entry).into_iter().chain(origin.right().iter().cloned()).collect(),
        };
        let mut now: Vec<&str> = words.iter().map(String::as_str).collect();
        // Cut off in the middle, so that the next phase has something to go on with.
        now.extend(["--retries", if last { "2" } else { "0" }]);
        let running = place.start(&now);
        let ended = match running.end_within_or_interrupt(slow(recipe.name).unwrap_or(PATIENCE)) {
            Ok(ended) => ended,
            Err(heard) => {
                faults.push(format!("it did not end: {heard}"));
                return faults;
            }
        };
        let requests = origin.counters().requests - requests;
        println!(
            "{} {phase}: exit {} {:?}, {requests} requests, {:?}",
            recipe.name,
            ended.code,
            ended.words(),
            ended.took
        );
        faults.extend(judge(recipe.name, &place, &ended, &right, requests));
    }
    faults
}

/// The pass rule.
fn judge(name: &str, place: &Place, ended: &Ended, right: &[Body], requests: u64) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |what: String| faults.push(format!("{what}\n{ended:?}"));
    let finals = place.finals();
    match ended.code {
        0 => match finals.as_slice() {
            [] => fault("exit 0, and no file".to_owned()),
            [file] if PAGES.contains(&name) && is_a_page(&place.path(file)) => {}
            [file] if !right.iter().any(|body| place.holds(file, body)) => {
                fault("exit 0, and WRONG BYTES".to_owned())
            }
            [_] => {}
            several => fault(format!("one file was asked for, and these came: {several:?}")),
        },
        code => {
            if !finals.is_empty() {
                fault(format!("exit {code}, and a file under a final name: {finals:?}"));
            }
            match code {
                130 if slow(name).is_some() => {}
                1..=4 if ended.words().is_empty() => fault("no word for the failure".to_owned()),
                1..=4 => {}
                _ => fault(format!("exit {code}")),
            }
        }
    }
    if requests > MOST_REQUESTS {
        fault(format!("{requests} requests"));
    }
    if ended.says("panicked") || ended.says("[internal]") {
        fault("it broke".to_owned());
    }
    if !place.strays().is_empty() {
        fault(format!("written outside the folder: {:?}", place.strays()));
    }
    faults
}

fn is_a_page(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| {
        bytes.starts_with(b"<") && bytes.ends_with(b"</html>\n") || bytes.ends_with(b"</html>")
    })
}

/// What the behaviour is asked with: certificates, credentials, or the Metalink that it serves.
fn words_for(name: &str, origin: &Origin, place: &Place) -> Vec<String> {
    let mut words: Vec<String> = [
        "get",
        "--connections",
        "8",
        "--min-split",
        "64k",
        "--retry-wait",
        "100ms",
        "--timeout",
        "2s",
        "--connect-timeout",
        "2s",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
    if let Some(authority) = origin.authority() {
        say("--ca-file", place.write_aside("ca.pem", authority.pem()));
        if name == "tls-client-certificate" {
            let identity = authority.client_identity().unwrap();
            say("--client-cert", place.write_aside("me.pem", identity.certificate + &identity.key));
        }
    }
    match name {
        "auth-bearer" => say("--bearer-token-file", place.write_aside("token", TOKEN)),
        _ if name.starts_with("auth-") => say("--user", format!("{USER}:{PASSWORD}")),
        _ => {}
    }
    match origin.entry_url() {
        url if url.ends_with(".meta4") => {
            say("--metalink", place.write_aside("list.meta4", fetch(origin, "/file.meta4")));
        }
        url => words.push(word(url)),
    }
    words
}

/// A document by one plain request.
pub(crate) fn fetch(origin: &Origin, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(origin.address()).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", origin.address());
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    answer.split_off(end + 4)
}
