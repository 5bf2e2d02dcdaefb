//! The server that files are fetched from: a process of its own, started from this same program.
//!
//! HTTP/1.1 over blocking threads, one for each connection: ranges, connections that stay open, a strong
//! validator, nothing else. Plain bodies go out by `sendfile`. Rules make it the lines that `line` asks about.
//! It speaks to who started it over its standard input and output, and ends when that input does, so none is
//! left behind.

use crate::sys;
use crate::tls;
use clap::Args;
use rustls::ServerConfig;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The longest head of a request.
const MOST_HEAD: usize = 16 << 10;
/// Connections at a time, at most.
const MOST_CONNECTIONS: usize = 2048;
/// How often sockets are asked what they got across, while that is watched.
const WATCH: Duration = Duration::from_millis(100);
/// How long a report waits for connections to end.
const LAST_CONNECTIONS: Duration = Duration::from_millis(500);
/// Samples that are kept: ten minutes.
const MOST_SAMPLES: usize = 6000;
/// The first bytes of a connection before its first acknowledgement, as TCP begins: ten segments.
const FIRST_WINDOW: u64 = 14_600;
/// Plain bodies up to this length go out together with their heads.
const SHORT: u64 = 64 << 10;
/// What one turn of a paced body sends at most.
const TURN: u64 = 64 << 10;

/// How the server behaves. Rates are bytes a second.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Files are served from this folder, by their names
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// The address to listen on; the port is chosen and told
    #[arg(long)]
    pub(crate) address: Option<IpAddr>,
    /// Speak TLS with the identity in this folder
    #[arg(long)]
    pub(crate) identity: Option<PathBuf>,
    /// Each connection gets this much
    #[arg(long)]
    pub(crate) rate: Option<u64>,
    /// Each connection of which the path begins so gets this much: /slow-=65536
    #[arg(long, value_parser = path_rate)]
    pub(crate) path_rate: Vec<(String, u64)>,
    /// One connection in so many gets `crawl_rate` instead
    #[arg(long)]
    pub(crate) crawl_every: Option<u64>,
    /// What a crawling connection gets
    #[arg(long, default_value_t = 16384)]
    pub(crate) crawl_rate: u64,
    /// Further connections are answered 503
    #[arg(long)]
    pub(crate) most: Option<usize>,
    /// Each second connection is cut off after so many bytes of bodies
    #[arg(long)]
    pub(crate) cut_after: Option<u64>,
    /// The first connection that comes to the last so many bytes of a file goes silent there
    #[arg(long)]
    pub(crate) silent_tail: Option<u64>,
    /// Each answer waits so long, and a connection begins as slowly as TCP does over such a distance
    #[arg(long)]
    pub(crate) round_trip_ms: Option<u64>,
    /// Keep what every socket got across, ten times a second
    #[arg(long)]
    pub(crate) watch: bool,
}

fn path_rate(text: &str) -> Result<(String, u64), String> {
    let (path, rate) = text.split_once('=').ok_or("a path and a rate are divided by =")?;
    Ok((path.to_owned(), rate.parse().map_err(|_| "the rate is no number".to_owned())?))
}

/// What is known of one connection.
#[derive(Debug)]
struct Watched {
    socket: TcpStream,
    path: String,
    open: bool,
    /// It is at an answer just now.
    busy: bool,
    /// The number of the sample that is first in `acked`.
    since: usize,
    acked: Vec<u64>,
    /// The samples at which it was at no answer.
    idle: Vec<usize>,
}

#[derive(Debug, Default)]
struct State {
    connects: u64,
    requests: u64,
    refused: u64,
    bytes: u64,
    /// What the clients of ended connections have acknowledged, heads and TLS included.
    acked: u64,
    open: usize,
    most_open: usize,
    /// Of the open ones, those that are not refused.
    served: usize,
    /// Connections that were served since the last report, for the rules that count them.
    numbered: u64,
    has_been_silent: bool,
    /// Milliseconds since the first one.
    samples: Vec<u64>,
    /// When the last socket of each had been asked: later on a busy machine.
    sampled: Vec<u64>,
    watched: BTreeMap<u64, Watched>,
}

impl State {
    fn left(&mut self, refused: bool) {
        self.open -= 1;
        self.served -= usize::from(!refused);
    }
}

#[derive(Debug)]
struct Server {
    rules: Rules,
    tls: Option<Arc<ServerConfig>>,
    state: Mutex<State>,
    /// Numbers of watched connections, never used twice.
    next: AtomicU64,
}

/// Serves until standard input ends.
///
/// # Errors
/// When it cannot listen, or its identity cannot be read.
pub(crate) fn serve(rules: Rules) -> io::Result<()> {
    let tls = rules.identity.as_deref().map(tls::server_config).transpose()?;
    let address = SocketAddr::new(rules.address.unwrap_or(IpAddr::from([127, 0, 0, 1])), 0);
    let listener = TcpListener::bind(address)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}", json!({ "port": listener.local_addr()?.port() }))?;
    out.flush()?;
    let watches = rules.watch;
    let server = Arc::new(Server { rules, tls, state: Mutex::default(), next: AtomicU64::new(0) });
    let accepting = Arc::clone(&server);
    thread::Builder::new().name("accept".to_owned()).spawn(move || accepting.accept(&listener))?;
    if watches {
        let watching = Arc::clone(&server);
        thread::Builder::new().name("watch".to_owned()).spawn(move || watching.watch())?;
    }
    // Each line asks for a report, and for a new beginning of all counts.
    for line in io::stdin().lock().lines() {
        line?;
        writeln!(out, "{}", server.report())?;
        out.flush()?;
    }
    Ok(())
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> Value {
        // A client that has just ended has its connections closed in a moment, and then all is counted.
        let until = Instant::now() + LAST_CONNECTIONS;
        while self.lock().open > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let mut state = self.lock();
        let watched: Vec<Value> = state
            .watched
            .values()
            .map(|w| json!({ "path": w.path, "since": w.since, "acked": w.acked, "idle": w.idle }))
            .collect();
        let report = json!({
            "connects": state.connects,
            "requests": state.requests,
            "refused": state.refused,
            "bytes": state.bytes,
            "acked": state.acked,
            "most_open": state.most_open,
            "samples": state.samples,
            "sampled": state.sampled,
            "watched": watched,
        });
        *state = State { open: state.open, most_open: state.open, served: state.served, ..State::default() };
        report
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            let Ok((socket, _)) = listener.accept() else {
                // Out of descriptors, most likely: others have to end first.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let (number, refused) = {
                let mut state = self.lock();
                let most = self.rules.most.unwrap_or(MOST_CONNECTIONS).min(MOST_CONNECTIONS);
                let refused = state.served >= most;
                state.connects += 1;
                state.open += 1;
                state.most_open = state.open.max(state.most_open);
                if refused {
                    state.refused += 1;
                } else {
                    state.numbered += 1;
                    state.served += 1;
                }
                (state.numbered, refused)
            };
            let server = Arc::clone(self);
            let spawned = thread::Builder::new().stack_size(256 << 10).spawn(move || {
                // What goes wrong with one connection is the client's concern.
                let _ = server.connection(socket, number, refused);
                server.lock().left(refused);
            });
            if spawned.is_err() {
                self.lock().left(refused);
            }
        }
    }

    fn connection(&self, socket: TcpStream, number: u64, refused: bool) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(120)))?;
        socket.set_write_timeout(Some(Duration::from_secs(120)))?;
        let seen = socket.try_clone()?;
        let watched = if self.rules.watch { Some(self.enlist(socket.try_clone()?)) } else { None };
        let mut wire = match &self.tls {
            None => Wire::Plain(socket),
            Some(config) => {
                let connection =
                    rustls::ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                Wire::Tls(Box::new(rustls::StreamOwned::new(connection, socket)))
            }
        };
        let result = Connection::new(self, number, refused, watched).run(&mut wire);
        if let Some(id) = watched {
            self.delist(id);
        }
        self.lock().acked += sys::bytes_acked(seen.as_fd()).unwrap_or(0);
        result
    }

    fn enlist(&self, socket: TcpStream) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        let since = state.samples.len();
        let watched = Watched {
            socket,
            path: String::new(),
            open: true,
            busy: false,
            since,
            acked: Vec::new(),
            idle: Vec::new(),
        };
        state.watched.insert(id, watched);
        id
    }

    fn delist(&self, id: u64) {
        let mut state = self.lock();
        if let Some(watched) = state.watched.get_mut(&id) {
            watched.open = false;
            let last = sys::bytes_acked(watched.socket.as_fd()).unwrap_or(0);
            watched.acked.push(last);
        }
    }

    fn watch(&self) {
        let begin = Instant::now();
        for turn in 1u32.. {
            thread::sleep((begin + WATCH * turn).saturating_duration_since(Instant::now()));
            let mut state = self.lock();
            if state.samples.len() >= MOST_SAMPLES {
                continue;
            }
            let sample = state.samples.len();
            let now = || u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
            state.samples.push(now());
            for watched in state.watched.values_mut().filter(|watched| watched.open) {
                let acked = sys::bytes_acked(watched.socket.as_fd()).unwrap_or(0);
                watched.acked.push(acked);
                if !watched.busy {
                    watched.idle.push(sample);
                }
            }
            state.sampled.push(now());
        }
    }
}

/// One connection, and how far its rules have come.
struct Connection<'a> {
    server: &'a Server,
    number: u64,
    refused: bool,
    watched: Option<u64>,
    /// Bytes of bodies that it may still send before it is cut.
    before_cut: Option<u64>,
    /// What it may send until the next acknowledgement would come, over a distance.
    window: u64,
}

/// What a request asks for.
#[derive(Debug, Default, Eq, PartialEq)]
struct Asked {
    head_only: bool,
    path: String,
    /// First byte and last byte, or one of them, as written.
    range: Option<(Option<u64>, Option<u64>)>,
    if_range: Option<String>,
    closes: bool,
}

impl<'a> Connection<'a> {
    fn new(server: &'a Server, number: u64, refused: bool, watched: Option<u64>) -> Self {
        let before_cut = server.rules.cut_after.filter(|_| number.is_multiple_of(2));
        Self { server, number, refused, watched, before_cut, window: FIRST_WINDOW }
    }

    fn run(&mut self, wire: &mut Wire) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let Some(head) = read_head(wire, &mut buffer)? else { return Ok(()) };
            self.server.lock().requests += 1;
            let Some(asked) = asked(&head) else {
                return wire.write_all(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
            };
            if let Some(id) = self.watched
                && let Some(watched) = self.server.lock().watched.get_mut(&id)
            {
                watched.path.clone_from(&asked.path);
            }
            if let Some(wait) = self.server.rules.round_trip_ms {
                thread::sleep(Duration::from_millis(wait));
            }
            if self.refused {
                return wire.write_all(
                    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
            }
            self.busy(true);
            let answered = self.answer(wire, &asked);
            self.busy(false);
            answered?;
            if asked.closes {
                return Ok(());
            }
        }
    }

    fn busy(&self, busy: bool) {
        if let Some(id) = self.watched
            && let Some(watched) = self.server.lock().watched.get_mut(&id)
        {
            watched.busy = busy;
        }
    }

    fn answer(&mut self, wire: &mut Wire, asked: &Asked) -> io::Result<()> {
        let name = asked.path.trim_start_matches('/');
        let is_name = !name.is_empty() && !name.contains('/') && name != "..";
        let file = if is_name { open(&self.server.rules.root, name) } else { None };
        let Some((file, length, tag)) = file else {
            return wire.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        };
        let range = asked.range.filter(|_| asked.if_range.as_ref().is_none_or(|given| *given == tag));
        let common =
            format!("Accept-Ranges: bytes\r\nETag: {tag}\r\nContent-Type: application/octet-stream\r\n");
        let (from, to, head) = match range.map(|range| resolve(range, length)) {
            None => (0, length, format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{common}\r\n")),
            Some(Some((from, to))) => {
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{length}\r\n{common}\r\n",
                    to - from,
                    to - 1,
                );
                (from, to, head)
            }
            Some(None) => {
                let head = format!(
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nContent-Range: bytes */{length}\r\n\r\n"
                );
                return wire.write_all(head.as_bytes());
            }
        };
        let short = to - from <= SHORT && self.is_unhindered(&asked.path);
        if let (true, Wire::Plain(socket)) = (short && !asked.head_only, &mut *wire) {
            // Head and body in one piece, so that a client need not wake twice for so little.
            let mut answer = head.into_bytes();
            let begin = answer.len();
            answer.resize(begin + usize::try_from(to - from).map_err(io::Error::other)?, 0);
            file.read_exact_at(&mut answer[begin..], from)?;
            // Before it is sent: whoever has a byte finds it counted.
            self.server.lock().bytes += to - from;
            return socket.write_all(&answer);
        }
        wire.write_all(head.as_bytes())?;
        if asked.head_only {
            return Ok(());
        }
        self.body(wire, &file, from, to, length, &asked.path)
    }

    /// The rate at which a body of this path goes out; `None` for as fast as it can.
    fn rate(&self, path: &str) -> Option<u64> {
        let rules = &self.server.rules;
        let of_path =
            rules.path_rate.iter().find(|(begin, _)| path.starts_with(begin)).map(|(_, rate)| *rate);
        match rules.crawl_every {
            // The last of each group, so that the first connection of all is an honest one.
            Some(every) if every > 0 && self.number.is_multiple_of(every) => Some(rules.crawl_rate),
            _ => of_path.or(rules.rate),
        }
    }

    /// Whether a body of this path goes out as fast as it can, to its end.
    fn is_unhindered(&self, path: &str) -> bool {
        let rules = &self.server.rules;
        let whole = self.before_cut.is_none() && rules.silent_tail.is_none();
        whole && self.rate(path).is_none() && rules.round_trip_ms.is_none()
    }

    fn body(
        &mut self,
        wire: &mut Wire,
        file: &File,
        from: u64,
        to: u64,
        length: u64,
        path: &str,
    ) -> io::Result<()> {
        let rules = &self.server.rules;
        let rate = self.rate(path);
        let silent_from = rules.silent_tail.map(|tail| length.saturating_sub(tail).max(from));
        let unhindered = rate.is_none() && rules.round_trip_ms.is_none();
        let round_trip = Duration::from_millis(rules.round_trip_ms.unwrap_or(0));
        let mut at = from;
        // Since when `paid` bytes went out at the rate.
        let (mut since, mut paid) = (Instant::now(), 0u64);
        while at < to {
            let mut most = if unhindered { 1 << 20 } else { TURN };
            if let Some(rate) = rate {
                // Fifty turns a second are smooth enough for anyone.
                most = most.min((rate / 50).max(1));
            }
            let full =
                rate.map_or(u64::MAX, |rate| rate.saturating_mul(rules.round_trip_ms.unwrap_or(0)) / 1000);
            let in_window = rules.round_trip_ms.is_some() && self.window < full;
            if in_window {
                most = most.max(self.window).min(self.window);
            }
            most = most.min(to - at);
            if let Some(left) = self.before_cut {
                if left == 0 {
                    // Not a proper end: what was announced is not whole.
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                most = most.min(left);
            }
            if let Some(silent) = silent_from {
                if at >= silent {
                    let goes_silent = {
                        let mut state = self.server.lock();
                        !std::mem::replace(&mut state.has_been_silent, true)
                    };
                    if goes_silent {
                        return silence(wire);
                    }
                } else {
                    most = most.min(silent - at);
                }
            }
            let sent = wire.send(file, at, most)?;
            if sent == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            at += sent;
            paid += sent;
            self.server.lock().bytes += sent;
            if let Some(left) = &mut self.before_cut {
                *left = left.saturating_sub(sent);
            }
            if in_window {
                // As far as TCP would have come before the first acknowledgement; then it doubles.
                thread::sleep(round_trip);
                self.window = self.window.saturating_mul(2);
                (since, paid) = (Instant::now(), 0);
            } else if let Some(rate) = rate {
                let due = since + Duration::from_secs_f64(paid as f64 / rate.max(1) as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                // Time that the client let pass is not made up for by a burst.
                if due + Duration::from_millis(250) < Instant::now() {
                    (since, paid) = (Instant::now(), 0);
                }
            }
        }
        Ok(())
    }
}

/// Says nothing more, and waits for the client to go.
fn silence(wire: &mut Wire) -> io::Result<()> {
    let socket = wire.socket();
    let mut byte = [0];
    loop {
        match socket.peek(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(_) => thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error),
        }
    }
}

fn open(root: &Path, name: &str) -> Option<(File, u64, String)> {
    let file = File::open(root.join(name)).ok()?;
    let data = file.metadata().ok()?;
    let tag = format!("\"{:x}-{:x}\"", data.len(), data.mtime());
    data.is_file().then_some((file, data.len(), tag))
}

/// First byte and the one after the last, of a file of this length; `None` if it has none of them.
fn resolve(range: (Option<u64>, Option<u64>), length: u64) -> Option<(u64, u64)> {
    let (from, to) = match range {
        (Some(from), Some(last)) => (from, last.saturating_add(1).min(length)),
        (Some(from), None) => (from, length),
        (None, Some(count)) => (length.saturating_sub(count), length),
        (None, None) => return None,
    };
    (from < to).then_some((from, to))
}

/// The next head, without the empty line; `None` at the orderly end of the connection.
fn read_head(wire: &mut Wire, buffer: &mut Vec<u8>) -> io::Result<Option<String>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..end + 4);
            return Ok(Some(head));
        }
        if buffer.len() >= MOST_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut part = [0; 2048];
        let count = wire.read(&mut part)?;
        if count == 0 {
            return Ok(None);
        }
        buffer.extend_from_slice(&part[..count]);
    }
}

/// What a head asks for; `None` if that is nothing we serve.
fn asked(head: &str) -> Option<Asked> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let mut asked = Asked {
        head_only: method == "HEAD",
        path: target.split(['?', '#']).next()?.to_owned(),
        closes: version != "HTTP/1.1",
        ..Asked::default()
    };
    if !matches!(method, "GET" | "HEAD") {
        return None;
    }
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "range" => asked.range = range(value),
            "if-range" => asked.if_range = Some(value.to_owned()),
            "connection" if value.eq_ignore_ascii_case("close") => asked.closes = true,
            "connection" if value.eq_ignore_ascii_case("keep-alive") => asked.closes = false,
            _ => {}
        }
    }
    Some(asked)
}

/// One range; several, and what is none, are served as the whole file.
fn range(value: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (from, to) = value.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
    Some((number(from)?, number(to)?)).filter(|range| *range != (None, None))
}

/// A connection, plain or not.
enum Wire {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ServerConnection, TcpStream>>),
}

impl Wire {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Sends some bytes of a file, and tells how many; 0 at its end.
    fn send(&mut self, file: &File, at: u64, most: u64) -> io::Result<u64> {
        match self {
            Self::Plain(socket) => {
                let mut offset = at;
                let most = usize::try_from(most).unwrap_or(1 << 20);
                let sent = rustix::fs::sendfile(&*socket, file, Some(&mut offset), most)?;
                Ok(sent as u64)
            }
            Self::Tls(stream) => {
                let mut buffer = [0; 32 << 10];
                let most = usize::try_from(most).unwrap_or(buffer.len()).min(buffer.len());
                let count = file.read_at(&mut buffer[..most], at)?;
                stream.write_all(&buffer[..count])?;
                Ok(count as u64)
            }
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_for_what_it_asks() {
        let head = "GET /a?b HTTP/1.1\r\nHost: h\r\nRange: bytes=5-\r\nif-range: \"x\"\r\nConnection: close";
        let expected = Asked {
            head_only: false,
            path: "/a".to_owned(),
            range: Some((Some(5), None)),
            if_range: Some("\"x\"".to_owned()),
            closes: true,
        };
        assert_eq!(asked(head), Some(expected));
        for bad in ["", "GET", "GET /", "POST / HTTP/1.1", "GET / HTTP/1.1\r\nno colon"] {
            assert_eq!(asked(bad), None, "{bad:?}");
        }
        assert!(asked("GET / HTTP/1.0").unwrap().closes);
    }

    #[test]
    fn a_range_is_resolved_as_the_rules_of_http_say() {
        for (text, expected) in [
            ("bytes=0-0", Some((0, 1))),
            ("bytes=5-", Some((5, 10))),
            ("bytes=-3", Some((7, 10))),
            ("bytes=-30", Some((0, 10))),
            ("bytes=8-99", Some((8, 10))),
            ("bytes=10-", None),
            ("bytes=-0", None),
            ("bytes=7-3", None),
        ] {
            assert_eq!(resolve(range(text).unwrap(), 10), expected, "{text}");
        }
        for whole in ["bytes=-", "bytes=1-2,4-5", "lines=1-2", "bytes=a-", "bytes=-18446744073709551616"] {
            assert_eq!(range(whole), None, "{whole}");
        }
    }
}
