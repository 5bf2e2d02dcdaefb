//! Proxies for tests: HTTP (CONNECT and absolute targets) and SOCKS5.
//!
//! They never leave the machine: a host name leads where [`ProxyBuilder::map`] says, `localhost` and
//! loopback addresses lead to themselves, and everything else is refused.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::exchange::reason;
use crate::hub::{Hub, Network};
use crate::listen::{Door, Service};
use crate::request::{Head, NoRequest, read_head};
use crate::wire::{Way, Wire};

/// How long a proxy tries to reach a target.
const CONNECT: Duration = Duration::from_secs(5);
/// How long it waits for a target to say something.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line, and about the longest head, of an answer that it carries.
const MOST_LINE: u64 = 64 << 10;
/// Requests remembered.
const LOG: usize = 65_536;

/// How a client asked for a target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AskedBy {
    /// `CONNECT host:port`.
    Connect,
    /// A method with an absolute URL.
    AbsoluteTarget,
    /// SOCKS5 with a host name.
    SocksName,
    /// SOCKS5 with an IPv4 address.
    SocksV4,
    /// SOCKS5 with an IPv6 address.
    SocksV6,
}

/// What a client asked of a proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Asked {
    /// In which way.
    pub by: AskedBy,
    /// The host as written, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The user name that was given, if any.
    pub user: Option<String>,
    /// The answer: a status of HTTP, or a reply code of SOCKS5 (0 is success).
    pub answer: u16,
}

/// What a proxy has done.
#[derive(Clone, Debug, Default)]
pub struct ProxyCounters {
    /// Connections accepted.
    pub connects: u64,
    /// Connections open now.
    pub open: u64,
    /// Clients turned away for their credentials.
    pub unauthorised: u64,
    /// Bytes carried to targets.
    pub bytes_up: u64,
    /// Bytes carried to clients.
    pub bytes_down: u64,
    /// Everything asked for, in order (the first 65,536).
    pub asked: Vec<Asked>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Http,
    Socks5,
}

/// A proxy to be.
#[must_use]
pub struct ProxyBuilder {
    kind: Kind,
    credentials: Option<(String, String)>,
    refusal: Option<u16>,
    silent: bool,
    keeps: bool,
    names: BTreeMap<String, SocketAddr>,
}

impl ProxyBuilder {
    /// Wants this user and password.
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        self.credentials = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Refuses everything that it is asked for: by this status of HTTP (403, 407, 502), or this reply code of
    /// SOCKS5 (2 not allowed, 4 host unreachable, 5 refused).
    pub fn refuses(mut self, answer: u16) -> Self {
        self.refusal = Some(answer);
        self
    }

    /// Keeps connections after plain requests whose answer tells its length. Each request must carry the
    /// credentials, since the proxy remembers nobody; else every connection ends with its answer.
    pub fn keeps_connections(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// Accepts connections and says nothing.
    pub fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// Leads this host name, in any case and with any port, to that address.
    pub fn map(mut self, host: &str, address: SocketAddr) -> Self {
        self.names.insert(host.to_ascii_lowercase(), address);
        self
    }

    /// Starts it on 127.0.0.1.
    ///
    /// # Errors
    /// Those of sockets and threads.
    pub fn start(self) -> io::Result<Proxy> {
        let hub = Hub::new();
        let core = Arc::new(Core { plan: self, state: Mutex::default(), changed: Condvar::new() });
        let door = Door::open(Ipv4Addr::LOCALHOST.into(), 0, &hub, core.clone())?;
        Ok(Proxy { hub, core, door })
    }
}

/// A running proxy. Dropping it closes its sockets and waits for its threads (at most 5 s).
pub struct Proxy {
    hub: Arc<Hub>,
    core: Arc<Core>,
    door: Door,
}

impl Proxy {
    /// A proxy that speaks HTTP.
    pub fn http() -> ProxyBuilder {
        builder(Kind::Http)
    }

    /// A proxy that speaks SOCKS5 (RFC 1928, with user and password by RFC 1929).
    pub fn socks5() -> ProxyBuilder {
        builder(Kind::Socks5)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// Its URL, without credentials: `http://127.0.0.1:port` or `socks5://127.0.0.1:port`.
    pub fn url(&self) -> String {
        let scheme = match self.core.plan.kind {
            Kind::Http => "http",
            Kind::Socks5 => "socks5",
        };
        format!("{scheme}://{}", self.address())
    }

    /// What it has done so far.
    pub fn counters(&self) -> ProxyCounters {
        let counters = self.hub.counters();
        ProxyCounters { connects: counters.connects, open: counters.open, ..self.core.lock().clone() }
    }

    /// Waits until the counters are as wanted (`connects` and `open` aside); `false` when the time is up
    /// first.
    #[must_use]
    pub fn wait_until(&self, within: Duration, enough: impl Fn(&ProxyCounters) -> bool) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.core.lock();
        loop {
            if enough(&state) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (state, _) = self.core.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Resets every connection and refuses new ones, until [`Proxy::restore`].
    pub fn refuse_connects(&self) {
        self.hub.set_network(Network::Refusing);
    }

    /// Serves again.
    pub fn restore(&self) {
        self.hub.set_network(Network::Up);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.hub.set_network(Network::Over);
    }
}

fn builder(kind: Kind) -> ProxyBuilder {
    ProxyBuilder {
        kind,
        credentials: None,
        refusal: None,
        silent: false,
        keeps: false,
        names: BTreeMap::new(),
    }
}

struct Core {
    plan: ProxyBuilder,
    state: Mutex<ProxyCounters>,
    changed: Condvar,
}

impl Service for Core {
    fn most_connections(&self) -> usize {
        crate::origin::MOST_CONNECTIONS
    }

    fn serve(&self, wire: Wire) {
        if self.plan.silent {
            let _ = wire.stall();
            return;
        }
        // A client that leaves, or speaks nonsense, is told nothing more.
        let _ = match self.plan.kind {
            Kind::Http => self.serve_http(wire),
            Kind::Socks5 => self.serve_socks(wire),
        };
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, ProxyCounters> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut ProxyCounters)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn note(&self, by: AskedBy, host: &str, port: u16, user: Option<&str>, answer: u16) {
        self.count(|state| {
            if state.asked.len() < LOG {
                let (host, user) = (host.to_owned(), user.map(str::to_owned));
                state.asked.push(Asked { by, host, port, user, answer });
            }
        });
    }

    /// Connects to where a name leads.
    fn reach(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let address = match self.plan.names.get(&host.to_ascii_lowercase()) {
            Some(address) => *address,
            None if host.eq_ignore_ascii_case("localhost") => {
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
            }
            None => match host.parse::<IpAddr>() {
                Ok(ip) if ip.is_loopback() => SocketAddr::new(ip, port),
                _ => return Err(io::ErrorKind::HostUnreachable.into()),
            },
        };
        TcpStream::connect_timeout(&address, CONNECT)
    }

    fn relay(&self, wire: Wire, upstream: &TcpStream) -> io::Result<()> {
        wire.relay(upstream, |way, bytes| {
            self.count(|state| match way {
                Way::Up => state.bytes_up += bytes as u64,
                Way::Down => state.bytes_down += bytes as u64,
            });
        })
    }

    fn serve_http(&self, mut wire: Wire) -> io::Result<()> {
        let mut buffer = Vec::new();
        loop {
            let head = match read_head(&mut wire, &mut buffer) {
                Ok(head) => head,
                Err(NoRequest::Closed | NoRequest::Lost) => return Ok(()),
                Err(NoRequest::Malformed) => {
                    say(&mut wire, 400, "Connection: close\r\n")?;
                    wire.finish();
                    return Ok(());
                }
            };
            let Some((by, host, port, path)) = target_of(&head) else {
                say(&mut wire, 400, "")?;
                continue;
            };
            let given = head.field("proxy-authorization").and_then(read_basic);
            let user = given.as_ref().map(|(user, _)| user.as_str());
            if let Some(status) = self.plan.refusal {
                self.note(by, &host, port, user, status);
                let challenge =
                    if status == 407 { "Proxy-Authenticate: Basic realm=\"testkit\"\r\n" } else { "" };
                say(&mut wire, status, challenge)?;
                continue;
            }
            if self.plan.credentials.is_some() && self.plan.credentials != given {
                self.count(|state| state.unauthorised += 1);
                self.note(by, &host, port, user, 407);
                say(&mut wire, 407, "Proxy-Authenticate: Basic realm=\"testkit\"\r\n")?;
                continue;
            }
            let mut upstream = match self.reach(&host, port) {
                Ok(upstream) => upstream,
                Err(_) => {
                    self.note(by, &host, port, user, 502);
                    say(&mut wire, 502, "")?;
                    continue;
                }
            };
            self.note(by, &host, port, user, 200);
            if self.plan.keeps && by == AskedBy::AbsoluteTarget {
                upstream.write_all(&forwarded(&head, &path))?;
                if self.carry_one(&mut wire, upstream)? {
                    continue;
                }
                wire.finish();
                return Ok(());
            }
            match by {
                AskedBy::Connect => wire.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
                _ => upstream.write_all(&forwarded(&head, &path))?,
            }
            // What the client has sent beyond its head.
            upstream.write_all(&buffer)?;
            return self.relay(wire, &upstream);
        }
    }

    /// Carries one answer to the client. Whether the connection to the client can go on after it.
    fn carry_one(&self, wire: &mut Wire, upstream: TcpStream) -> io::Result<bool> {
        upstream.set_read_timeout(Some(PATIENCE))?;
        let mut upstream = io::BufReader::new(upstream);
        let (mut head, mut length) = (String::new(), None);
        loop {
            let mut line = String::new();
            // A head that does not end is none.
            if (&mut upstream).take(MOST_LINE).read_line(&mut line)? == 0 || head.len() as u64 > MOST_LINE {
                return Ok(false);
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<u64>().ok();
            }
            if name.eq_ignore_ascii_case("connection") {
                continue;
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let keeps = length.is_some();
        let connection = if keeps { "keep-alive" } else { "close" };
        wire.write_all(format!("{head}Connection: {connection}\r\n\r\n").as_bytes())?;
        let mut left = length.unwrap_or(u64::MAX);
        let mut buffer = vec![0; 64 << 10];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let count = upstream.read(&mut buffer[..most])?;
            if count == 0 {
                // Less than it said: the client must see the same.
                return Ok(false);
            }
            wire.write_all(&buffer[..count])?;
            self.count(|state| state.bytes_down += count as u64);
            left -= count as u64;
        }
        Ok(keeps)
    }

    fn serve_socks(&self, mut wire: Wire) -> io::Result<()> {
        let [version, methods] = read_array(&mut wire)?;
        let mut offered = vec![0; usize::from(methods)];
        wire.read_exact(&mut offered)?;
        let wanted = if self.plan.credentials.is_some() { 2 } else { 0 };
        if version != 5 || !offered.contains(&wanted) {
            self.count(|state| state.unauthorised += u64::from(version == 5));
            wire.write_all(&[5, 0xff])?;
            wire.finish();
            return Ok(());
        }
        wire.write_all(&[5, wanted])?;
        let mut user = None;
        if let Some(credentials) = &self.plan.credentials {
            let [_] = read_array(&mut wire)?;
            let given = (read_text(&mut wire)?, read_text(&mut wire)?);
            let right = *credentials == given;
            wire.write_all(&[1, u8::from(!right)])?;
            if !right {
                self.count(|state| state.unauthorised += 1);
                wire.finish();
                return Ok(());
            }
            user = Some(given.0);
        }
        let [_, command, _, kind] = read_array(&mut wire)?;
        let (by, host) = match kind {
            1 => (AskedBy::SocksV4, Ipv4Addr::from(read_array(&mut wire)?).to_string()),
            3 => (AskedBy::SocksName, read_text(&mut wire)?),
            4 => (AskedBy::SocksV6, Ipv6Addr::from(read_array::<16>(&mut wire)?).to_string()),
            _ => return socks_refusal(wire, 8),
        };
        let port = u16::from_be_bytes(read_array(&mut wire)?);
        let reached = match (command, self.plan.refusal) {
            (1, None) => self.reach(&host, port).map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => 5,
                io::ErrorKind::HostUnreachable => 4,
                _ => 1,
            }),
            (1, Some(code)) => Err(code),
            _ => Err(7),
        };
        match reached {
            Ok(upstream) => {
                self.note(by, &host, port, user.as_deref(), 0);
                wire.write_all(&socks_reply(0))?;
                self.relay(wire, &upstream)
            }
            Err(code) => {
                self.note(by, &host, port, user.as_deref(), code);
                socks_refusal(wire, code as u8)
            }
        }
    }
}

fn say(wire: &mut Wire, status: u16, fields: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status} {}\r\n{fields}Content-Length: 0\r\n\r\n", reason(status));
    wire.write_all(head.as_bytes())
}

/// How, where to (host and port) and for which path a request asks.
fn target_of(head: &Head) -> Option<(AskedBy, String, u16, String)> {
    if head.method == "CONNECT" {
        let (host, port) = split_host(&head.target)?;
        return Some((AskedBy::Connect, host, port?, String::new()));
    }
    let rest = head.target.strip_prefix("http://")?;
    let (authority, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = split_host(authority)?;
    let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
    Some((AskedBy::AbsoluteTarget, host, port.unwrap_or(80), path))
}

fn split_host(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

fn read_basic(value: &str) -> Option<(String, String)> {
    let bytes = BASE64.decode(value.strip_prefix("Basic ")?.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// The head as the target shall see it: without what was for the proxy, and closing, because the next
/// request on this connection may be for another target.
fn forwarded(head: &Head, path: &str) -> Vec<u8> {
    let mut text = format!("{} {path} {}\r\n", head.method, head.version);
    for (name, value) in &head.fields {
        let hop = ["connection", "proxy-connection", "proxy-authorization", "keep-alive"];
        if !hop.iter().any(|hop| name.eq_ignore_ascii_case(hop)) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    text.push_str("Via: 1.1 testkit\r\nConnection: close\r\n\r\n");
    text.into_bytes()
}

fn socks_reply(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

fn socks_refusal(mut wire: Wire, code: u8) -> io::Result<()> {
    wire.write_all(&socks_reply(code))?;
    wire.finish();
    Ok(())
}

fn read_array<const N: usize>(wire: &mut Wire) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    wire.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A text of at most 255 bytes after its length.
fn read_text(wire: &mut Wire) -> io::Result<String> {
    let [len] = read_array(wire)?;
    let mut bytes = vec![0; usize::from(len)];
    wire.read_exact(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
