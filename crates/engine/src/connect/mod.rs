//! The only place where a socket is opened: names, addresses, proxies, TLS.
//!
//! [`Network`] says how; [`connect`] does it and returns a [`Stream`], which has no buffer but what
//! TLS needs. Everything between us and the origin is hostile: answers of proxies are bounded in size
//! and time, and so is the number of addresses that are tried.
//!
//! [`Resolve`] and [`Dial`] are the seam for simulated networks, and for an engine that may not look
//! up names itself and asks its parent.

mod happy;
mod proxy;
mod resolve;
mod secure;
mod socks;
mod stream;
pub(crate) mod tls;
mod window;

pub use proxy::{Proxies, Proxy};
pub use resolve::SystemResolver;
pub(crate) use resolve::in_our_words;
pub use stream::{Duplex, Stream};
pub use tidegate_core::no_proxy::NoProxy;
pub(crate) use tls::SystemRoots;
pub use tls::TlsConfig;
use window::Opened;
pub use window::Window;

use crate::failure::{FetchError, Step, in_words};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_core::Failure;
use tidegate_core::request::Mirror;
use tokio::net::TcpSocket;
use url::{Host, Url};

/// A future that can be held without its type, and moved between threads.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which addresses may be used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// IPv4 and IPv6, in the order the system prefers.
    #[default]
    Any,
    /// Only IPv4.
    V4,
    /// Only IPv6.
    V6,
}

impl Family {
    fn allows(self, address: &SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

/// How to reach the network. Plain data, nothing of it read from the environment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    /// Which addresses may be used.
    pub family: Family,
    /// Which proxies stand between.
    pub proxies: Proxies,
    /// What TLS trusts and shows.
    pub tls: TlsConfig,
}

/// Finds the addresses of names.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// The addresses of `host`, the preferred first. `host` is a name, never an address.
    ///
    /// An error of the kind `NotFound` is an answer: there is no such name. Any other may pass.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Boxed<'a, io::Result<Vec<SocketAddr>>>;
}

/// Opens connections.
pub trait Dial: Send + Sync + fmt::Debug {
    /// A connection to `address`. `receive_buffer` is the socket's, in bytes, set before connecting
    /// since the window scale is fixed then; `None` leaves the system's own tuning on.
    fn dial(&self, address: SocketAddr, receive_buffer: Option<u32>) -> Boxed<'_, io::Result<Stream>>;
}

/// Dials TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialer;

impl Dial for TcpDialer {
    fn dial(&self, address: SocketAddr, receive_buffer: Option<u32>) -> Boxed<'_, io::Result<Stream>> {
        Box::pin(async move {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            if let Some(bytes) = receive_buffer {
                socket.set_recv_buffer_size(bytes)?;
            }
            let stream = socket.connect(address).await?;
            // Requests are single writes; without this a TLS handshake can wait for an acknowledgement.
            stream.set_nodelay(true)?;
            Ok(Stream::from(stream))
        })
    }
}

/// How to reach the network, ready for use. Cheap to clone; clones share the TLS sessions.
#[derive(Clone, Debug)]
pub struct Network {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    family: Family,
    proxies: Proxies,
    tls: tls::Tls,
    resolver: Box<dyn Resolve>,
    dialer: Box<dyn Dial>,
}

impl Network {
    /// The network of this machine. Files that TLS needs were read by the caller; the system's own
    /// certificates are only read when the first HTTPS connection is made.
    ///
    /// # Errors
    /// `certificate-refused` when a certificate or key of the configuration cannot be used.
    pub fn new(config: NetworkConfig) -> Result<Self, Failure> {
        Self::simulated(config, Box::new(SystemResolver::default()), Box::new(TcpDialer))
    }

    /// A network of a process that can neither look up names nor read files.
    pub(crate) fn asking(
        config: NetworkConfig,
        resolver: Box<dyn Resolve>,
        roots: Box<dyn SystemRoots>,
    ) -> Result<Self, Failure> {
        Self::made_of(config, resolver, Box::new(TcpDialer), roots)
    }

    /// A network that finds names and opens connections as told.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn simulated(
        config: NetworkConfig,
        resolver: Box<dyn Resolve>,
        dialer: Box<dyn Dial>,
    ) -> Result<Self, Failure> {
        Self::made_of(config, resolver, dialer, Box::new(tls::SystemFiles))
    }

    fn made_of(
        config: NetworkConfig,
        resolver: Box<dyn Resolve>,
        dialer: Box<dyn Dial>,
        roots: Box<dyn SystemRoots>,
    ) -> Result<Self, Failure> {
        let NetworkConfig { family, proxies, tls } = config;
        let tls = tls::Tls::new(tls, roots)?;
        Ok(Self { shared: Arc::new(Shared { family, proxies, tls, resolver, dialer }) })
    }

    /// The addresses of a host that may be used, families alternating, at most 16.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, FetchError> {
        let Shared { family, resolver, .. } = &*self.shared;
        let fail = |why: String, unknown| FetchError::Resolve { host: host.to_owned(), why, unknown };
        let found = match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => resolver
                .resolve(host, port)
                .await
                .map_err(|e| fail(e.to_string(), e.kind() == io::ErrorKind::NotFound))?,
        };
        let none = found.is_empty();
        let usable = happy::interleave(found.into_iter().filter(|a| family.allows(a)));
        if usable.is_empty() {
            let why = match family {
                Family::V4 if !none => "it has no IPv4 address",
                Family::V6 if !none => "it has no IPv6 address",
                _ => "it has no address",
            };
            return Err(fail(why.to_owned(), true));
        }
        Ok(usable)
    }
}

/// The server that a URL names: the key by which connections are kept.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Endpoint {
    /// TLS or not.
    pub https: bool,
    /// The host in lower case; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// The server that a URL names.
    ///
    /// # Errors
    /// [`FetchError::BadRequest`] if it is not `http` or `https`, or has no host.
    pub fn of(url: &Url) -> Result<Self, FetchError> {
        let bad = |what: &str| FetchError::BadRequest { what: what.to_owned() };
        let https = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(bad("only http and https are spoken")),
        };
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => name.to_ascii_lowercase(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            _ => return Err(bad("the URL names no host")),
        };
        let port = url.port().unwrap_or(if https { 443 } else { 80 });
        Ok(Self { https, host, port })
    }

    /// The server of a mirror, which has one by construction.
    ///
    /// # Errors
    /// As [`Endpoint::of`]; not for any [`Mirror`] that exists.
    pub fn of_mirror(mirror: &Mirror) -> Result<Self, FetchError> {
        Self::of(mirror.url())
    }

    /// `host:port`, IPv6 in brackets.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority())
    }
}

/// Who reads the requests on a connection first, and what it needs to see in each.
#[derive(Clone, Eq, PartialEq)]
pub enum Form {
    /// The endpoint: a request names the path.
    Origin,
    /// An HTTP proxy: a request names the whole URL.
    Absolute {
        /// The value of `Proxy-Authorization`, if any. A secret for the proxy alone, and one that belongs
        /// to each request: a proxy remembers nobody from one request to the next.
        proxy_authorization: Option<String>,
    },
}

impl Form {
    /// Whether requests name the whole URL.
    pub fn is_absolute(&self) -> bool {
        matches!(self, Self::Absolute { .. })
    }

    /// The value of `Proxy-Authorization` that each request must carry, if any.
    pub fn proxy_authorization(&self) -> Option<&str> {
        match self {
            Self::Origin => None,
            Self::Absolute { proxy_authorization } => proxy_authorization.as_deref(),
        }
    }
}

/// Shows no secret.
impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Origin => "Origin",
            Self::Absolute { proxy_authorization: None } => "Absolute",
            Self::Absolute { proxy_authorization: Some(_) } => "Absolute(with credentials)",
        })
    }
}

/// A connection over which the endpoint can be asked.
#[derive(Debug)]
pub struct Connected {
    /// The connection, TLS done.
    pub stream: Stream,
    /// What each request on it must be like, the first and all later ones.
    pub form: Form,
    /// The other end of the socket: the proxy, if there is one.
    pub peer: Option<SocketAddr>,
    /// Its receive window, if it was opened for a share.
    pub window: Option<Window>,
}

/// What a single connection is to be like.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// How long all steps together may take.
    pub timeout: Duration,
    /// What it may expect of a limit, in bytes a second: its receive buffer is no larger than that needs.
    /// `None` without a limit.
    pub share: Option<u64>,
}

/// Connects to `endpoint`, by way of a proxy if the configuration says so, and shakes hands.
///
/// Dropping the future closes what was opened.
///
/// # Errors
/// The step that failed, and why; [`FetchError::ConnectTimeout`] with the step that was being waited for.
pub async fn connect(
    network: &Network,
    endpoint: &Endpoint,
    options: ConnectOptions,
) -> Result<Connected, FetchError> {
    let attempt = Attempt { network, share: options.share, opened: Mutex::new(None), step: AtomicU8::new(0) };
    match tokio::time::timeout(options.timeout, attempt.run(endpoint)).await {
        Ok(result) => result,
        Err(_) => Err(FetchError::ConnectTimeout {
            host: endpoint.authority(),
            after: options.timeout,
            during: attempt.step(),
        }),
    }
}

/// One attempt to connect, and how far it is.
struct Attempt<'a> {
    network: &'a Network,
    share: Option<u64>,
    /// How the connection came to its receive buffer, if it was opened for a share.
    opened: Mutex<Option<Opened>>,
    step: AtomicU8,
}

impl Attempt<'_> {
    async fn run(&self, endpoint: &Endpoint) -> Result<Connected, FetchError> {
        let shared = &*self.network.shared;
        let (mut stream, form) = match shared.proxies.choose(endpoint) {
            None => (self.dial(&endpoint.host, endpoint.port).await?, Form::Origin),
            Some(proxy) if proxy.is_socks() => {
                (socks::reach_endpoint(self, proxy, endpoint).await?, Form::Origin)
            }
            Some(proxy) if endpoint.https => (proxy::tunnel(self, proxy, endpoint).await?, Form::Origin),
            Some(proxy) => {
                let proxy_authorization = proxy.authorization();
                (proxy::reach(self, proxy).await?, Form::Absolute { proxy_authorization })
            }
        };
        if endpoint.https {
            self.at(Step::Securing);
            stream = shared.tls.secure(stream, &endpoint.host, tls::With::Origin).await?;
        }
        let peer = stream.peer();
        let opened = *self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let window = opened.zip(stream.socket()).and_then(|(opened, socket)| Window::of(socket, opened));
        Ok(Connected { stream, form, peer, window })
    }

    /// A plain connection to one of the addresses of a host.
    async fn dial(&self, host: &str, port: u16) -> Result<Stream, FetchError> {
        self.at(Step::Resolving);
        let addresses = self.network.addresses(host, port).await?;
        self.at(Step::Connecting);
        let dialer = &*self.network.shared.dialer;
        let buffer = self.share.and_then(window::first);
        let stream = happy::race(dialer, &addresses, buffer).await.map_err(|(address, source)| {
            let (host, said) = (authority(host, port), in_words(&source));
            let why = match addresses.len() {
                // An address as the host is not told twice.
                1 if host == address.to_string() => said,
                1 => format!("{address}: {said}"),
                n => format!("{n} addresses were tried, the last was {address}: {said}"),
            };
            FetchError::Connect { host, why, source }
        })?;
        let (stream, opened) = self.large_enough(stream, buffer).await;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = opened;
        Ok(stream)
    }

    /// The same connection, or another to the same address if this one can never carry its share over the
    /// distance that has shown now. Nothing was sent over it yet.
    async fn large_enough(&self, stream: Stream, buffer: Option<u32>) -> (Stream, Option<Opened>) {
        let (Some(share), Some(size), Some(socket)) = (self.share, buffer, stream.socket()) else {
            return (stream, None);
        };
        let Some((wanted, peer)) = window::too_small(socket, share).zip(stream.peer()) else {
            return (stream, Some(Opened::With(size)));
        };
        let another = self.network.shared.dialer.dial(peer, wanted);
        match (tokio::time::timeout(window::patience(socket), another).await, wanted) {
            (Ok(Ok(larger)), None) => (larger, Some(Opened::ByTheKernel)),
            (Ok(Ok(larger)), Some(wanted)) => {
                // Scaling may be refused on the way, and then it would be so again.
                let in_vain = larger.socket().is_some_and(|s| window::too_small(s, share).is_some());
                let opened = if in_vain { Opened::AtMost(wanted) } else { Opened::With(wanted) };
                (larger, Some(opened))
            }
            (Ok(Err(_)) | Err(_), _) => (stream, Some(Opened::AtMost(size))),
        }
    }

    fn at(&self, step: Step) {
        self.step.store(step as u8, Ordering::Relaxed);
    }

    fn step(&self) -> Step {
        let now = self.step.load(Ordering::Relaxed);
        [Step::Resolving, Step::Connecting, Step::AskingProxy, Step::Securing]
            .into_iter()
            .find(|s| *s as u8 == now)
            .unwrap_or(Step::Resolving)
    }
}

#[cfg(test)]
mod tests;
