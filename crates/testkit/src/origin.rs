//! The server: what it serves, how it is started, watched, changed and ended.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::body::Body;
use crate::counters::{Counters, Exchanged};
use crate::exchange::{Ending, Exchange, Memory};
use crate::hub::{Hub, Network};
use crate::listen::{Door, Service};
use crate::recipes;
use crate::request::{self, NoRequest, RequestSeen, TlsSeen};
use crate::resource::Resource;
use crate::site::Site;
use crate::tls::{Authority, Tls};
use crate::wire::{Link, Wire};

/// Connections served at once, unless said otherwise.
pub const MOST_CONNECTIONS: usize = 512;

/// Where a recipe's file is, unless said otherwise.
pub const ENTRY: &str = "/file.bin";

/// An Origin to be.
#[must_use]
pub struct Builder {
    sites: Vec<Site>,
    listeners: Vec<(IpAddr, u16, Option<Tls>)>,
    entry: String,
    right: Option<Vec<Body>>,
    outage: Option<(Duration, Duration)>,
}

impl Builder {
    /// Serves this at that path in the last phase told so far.
    pub fn resource(mut self, path: &str, resource: Resource) -> Self {
        if let Some(site) = self.sites.last_mut() {
            site.put(path, resource);
        }
        self
    }

    /// Serves this from the start, instead of what was told so far.
    pub fn site(mut self, site: Site) -> Self {
        self.sites = vec![site];
        self
    }

    /// One more phase, which begins with [`Origin::enter_phase`].
    pub fn phase(mut self, site: Site) -> Self {
        self.sites.push(site);
        self
    }

    /// Changes the site of every phase.
    pub fn each_site(mut self, change: impl Fn(Site) -> Site) -> Self {
        self.sites = self.sites.into_iter().map(change).collect();
        self
    }

    /// Listens on ::1 instead of 127.0.0.1.
    pub fn ipv6(self) -> Self {
        self.listen_on(Ipv6Addr::LOCALHOST.into(), 0)
    }

    /// Listens there; port 0 takes a free one.
    pub fn listen_on(mut self, ip: IpAddr, port: u16) -> Self {
        if let Some(first) = self.listeners.first_mut() {
            (first.0, first.1) = (ip, port);
        }
        self
    }

    /// Speaks TLS on the first listener.
    pub fn tls(mut self, tls: Tls) -> Self {
        if let Some(first) = self.listeners.first_mut() {
            first.2 = Some(tls);
        }
        self
    }

    /// One more listener on a port of its own, for the same site: another origin to a client.
    pub fn also_listen(mut self, tls: Option<Tls>) -> Self {
        self.listeners.push((Ipv4Addr::LOCALHOST.into(), 0, tls));
        self
    }

    /// The path where a client is meant to begin; [`ENTRY`] otherwise. It may have a query.
    pub fn entry(mut self, path: &str) -> Self {
        self.entry = path.to_owned();
        self
    }

    /// What a client may call a whole file: one of these. With none, every success is a lie. Unless told,
    /// it is the body at the entry in the last phase.
    pub fn right(mut self, bodies: impl IntoIterator<Item = Body>) -> Self {
        self.right = Some(bodies.into_iter().collect());
        self
    }

    /// That the network is meant to drop, so long after the first request, and for so long. Only told by
    /// [`Origin::outage`]: a test drops the network itself, when it has seen what it waits for.
    pub fn outage(mut self, after: Duration, length: Duration) -> Self {
        self.outage = Some((after, length));
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// Those of sockets, threads and keys.
    pub fn start(self) -> io::Result<Origin> {
        let shared = self.listeners.iter().flat_map(|(_, _, tls)| tls).find_map(Tls::own_authority).cloned();
        let authority = match shared {
            Some(authority) => Some(authority),
            None if self.listeners.iter().any(|(_, _, tls)| tls.is_some()) => Some(Authority::new()?),
            None => None,
        };
        let entry_path = self.entry.split('?').next().unwrap_or_default();
        let right = self.right.unwrap_or_else(|| {
            let resource = self.sites.last().and_then(|site| site.get(entry_path));
            resource.map(|resource| resource.body().clone()).into_iter().collect()
        });
        let sites: Vec<_> = self.sites.into_iter().map(Arc::new).collect();
        let hub = Hub::new();
        let core = Arc::new(Core {
            hub: hub.clone(),
            site: RwLock::new(sites.first().cloned().unwrap_or_default()),
            bases: OnceLock::new(),
            numbers: AtomicU64::new(0),
        });
        // Made before the listeners, so that these are closed if the next one fails.
        let (entry, outage) = (self.entry, self.outage);
        let mut origin = Origin { core, doors: Vec::new(), sites, entry, right, outage, authority };
        let mut bases = Vec::new();
        for (index, (ip, port, tls)) in self.listeners.into_iter().enumerate() {
            let config = match (&tls, &origin.authority) {
                (Some(tls), Some(authority)) => Some(tls.config(tls.own_authority().unwrap_or(authority))?),
                _ => None,
            };
            let scheme = if config.is_some() { "https" } else { "http" };
            let desk = Arc::new(Desk { core: origin.core.clone(), listener: index, tls: config });
            let door = Door::open(ip, port, &hub, desk)?;
            bases.push(format!("{scheme}://{}", door.address()));
            origin.doors.push(door);
        }
        // Set once, here.
        let _ = origin.core.bases.set(Arc::new(bases));
        Ok(origin)
    }
}

/// A running server. Dropping it closes its sockets and waits for its threads (at most 5 s).
pub struct Origin {
    core: Arc<Core>,
    doors: Vec<Door>,
    sites: Vec<Arc<Site>>,
    entry: String,
    right: Vec<Body>,
    outage: Option<(Duration, Duration)>,
    authority: Option<Authority>,
}

impl Origin {
    /// An Origin that serves nothing yet, on 127.0.0.1.
    pub fn builder() -> Builder {
        Builder {
            sites: vec![Site::new()],
            listeners: vec![(Ipv4Addr::LOCALHOST.into(), 0, None)],
            entry: ENTRY.to_owned(),
            right: None,
            outage: None,
        }
    }

    /// One resource at [`ENTRY`].
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn serve(resource: Resource) -> io::Result<Self> {
        Self::builder().resource(ENTRY, resource).start()
    }

    /// The recipe with this name ([`recipes::all`]) with 8 MiB of content.
    ///
    /// # Errors
    /// As [`Builder::start`]; `NotFound` for a name that is none.
    pub fn named(name: &str) -> io::Result<Self> {
        let recipe = recipes::find(name).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no behaviour is called {name}"))
        })?;
        recipe.builder(&recipes::Given::default()).start()
    }

    /// The address of the first listener.
    pub fn address(&self) -> SocketAddr {
        self.address_of(0)
    }

    /// The address of a listener; of the first where there is no such number.
    pub fn address_of(&self, listener: usize) -> SocketAddr {
        self.doors
            .get(listener)
            .or_else(|| self.doors.first())
            .map_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), Door::address)
    }

    /// A URL on the first listener, for a path that begins with `/`.
    pub fn url(&self, path: &str) -> String {
        self.url_of(0, path)
    }

    /// A URL on another listener.
    pub fn url_of(&self, listener: usize, path: &str) -> String {
        let bases = self.core.bases();
        format!("{}{path}", bases.get(listener).or_else(|| bases.first()).map_or("", String::as_str))
    }

    /// The URL where a client is meant to begin.
    pub fn entry_url(&self) -> String {
        self.url(&self.entry)
    }

    /// The whole files that a client may end with; none where every success would be a lie.
    pub fn right(&self) -> &[Body] {
        &self.right
    }

    /// When its network is meant to drop, after the first request, and for how long.
    pub fn outage(&self) -> Option<(Duration, Duration)> {
        self.outage
    }

    /// Who signs its certificates, when it speaks TLS.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// What it serves now.
    pub fn site(&self) -> Arc<Site> {
        self.core.site()
    }

    /// The content at this path now.
    pub fn body(&self, path: &str) -> Option<Body> {
        self.site().get(path).map(|resource| resource.body().clone())
    }

    /// How many phases it has.
    pub fn phases(&self) -> usize {
        self.sites.len()
    }

    /// Begins that phase, counted from 1, for requests to come; answers under way go on as they began.
    ///
    /// # Errors
    /// `InvalidInput` where there is no such phase.
    pub fn enter_phase(&self, phase: usize) -> io::Result<()> {
        let site = phase.checked_sub(1).and_then(|index| self.sites.get(index));
        self.core.set_site(site.ok_or(io::ErrorKind::InvalidInput)?.clone());
        Ok(())
    }

    /// Puts a resource in place for requests to come; answers under way go on as they began.
    pub fn set(&self, path: &str, resource: Resource) {
        self.edit(|site| site.put(path, resource));
    }

    /// Changes what it serves, for requests to come.
    pub fn edit(&self, change: impl FnOnce(&mut Site)) {
        let mut site = Site::clone(&self.site());
        change(&mut site);
        self.core.set_site(Arc::new(site));
    }

    /// Resets every connection, and from now on each new one as it is accepted. Returns when that is done.
    pub fn drop_network(&self) {
        self.core.hub.set_network(Network::Down);
    }

    /// Resets every connection, and stops listening: connecting is refused by the kernel. The port is kept.
    pub fn refuse_connects(&self) {
        self.core.hub.set_network(Network::Refusing);
    }

    /// Serves again after [`Origin::drop_network`] or [`Origin::refuse_connects`].
    pub fn restore_network(&self) {
        self.core.hub.set_network(Network::Up);
    }

    /// The counts as they are now.
    pub fn counters(&self) -> Counters {
        self.core.hub.counters()
    }

    /// All requests so far (the first 65,536), with what became of them.
    pub fn log(&self) -> Vec<Exchanged> {
        self.core.hub.log()
    }

    /// Only the requests of [`Origin::log`].
    pub fn requests(&self) -> Vec<Arc<RequestSeen>> {
        self.log().into_iter().map(|entry| entry.request).collect()
    }

    /// Waits until the counters are as wanted; `false` when the time is up first.
    #[must_use]
    pub fn wait_until(&self, within: Duration, enough: impl Fn(&Counters) -> bool) -> bool {
        self.core.hub.wait_until(within, |counters, _| enough(counters))
    }

    /// Waits until the log is as wanted; `false` when the time is up first.
    #[must_use]
    pub fn wait_for_log(&self, within: Duration, enough: impl Fn(&[Exchanged]) -> bool) -> bool {
        self.core.hub.wait_until(within, |_, log| enough(log))
    }

    /// Bytes that clients' kernels have acknowledged on all connections, open and gone: heads, content and
    /// TLS's own. Up to two bytes too many for each connection.
    pub fn bytes_acked(&self) -> u64 {
        self.core.hub.bytes_acked()
    }

    /// Time since it began, the clock of [`RequestSeen::at`].
    pub fn age(&self) -> Duration {
        self.core.hub.age()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.core.hub.set_network(Network::Over);
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("url", &self.entry_url()).finish_non_exhaustive()
    }
}

struct Core {
    hub: Arc<Hub>,
    site: RwLock<Arc<Site>>,
    bases: OnceLock<Arc<Vec<String>>>,
    numbers: AtomicU64,
}

impl Core {
    fn site(&self) -> Arc<Site> {
        self.site.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_site(&self, site: Arc<Site>) {
        *self.site.write().unwrap_or_else(PoisonError::into_inner) = site;
    }

    fn bases(&self) -> Arc<Vec<String>> {
        self.bases.get().cloned().unwrap_or_default()
    }
}

/// What serves the connections of one listener.
struct Desk {
    core: Arc<Core>,
    listener: usize,
    tls: Option<Arc<ServerConfig>>,
}

impl Service for Desk {
    fn most_connections(&self) -> usize {
        self.core.site().most_connections.unwrap_or(MOST_CONNECTIONS)
    }

    fn send_buffer(&self) -> Option<usize> {
        self.core.site().send_buffer
    }

    fn serve(&self, wire: Wire) {
        let connection = wire.number();
        let Some((mut link, tls)) = self.greet(wire) else { return };
        let (mut buffer, mut memory) = (Vec::new(), Memory::default());
        for nth in 1.. {
            match self.next(&mut link, &mut buffer, &mut memory, connection, nth, tls.as_ref()) {
                Ok(Ending::KeepAlive) => {}
                Ok(Ending::Fin) => return link.finish(),
                Ok(Ending::FinWithoutNotice) => return link.finish_without_notice(),
                Ok(Ending::Reset) => return link.reset(),
                Ok(Ending::Stall) => {
                    // It ends when the client or the Origin does; there is nothing to say about it.
                    let _ = link.wire().stall();
                    return;
                }
                Err(_) => return,
            }
        }
    }
}

impl Desk {
    fn greet(&self, mut wire: Wire) -> Option<(Link, Option<TlsSeen>)> {
        let Some(config) = &self.tls else { return Some((Link::Plain(wire), None)) };
        let mut session = ServerConnection::new(config.clone()).ok()?;
        while session.is_handshaking() {
            if session.complete_io(&mut wire).is_err() {
                self.core.hub.count(|counters| counters.tls_failures += 1);
                wire.finish();
                return None;
            }
        }
        let seen = TlsSeen {
            server_name: session.server_name().map(str::to_owned),
            client_certificate: session.peer_certificates().is_some(),
        };
        Some((Link::Tls(Box::new(StreamOwned::new(session, wire))), Some(seen)))
    }

    /// Reads one request and answers it.
    fn next(
        &self,
        link: &mut Link,
        buffer: &mut Vec<u8>,
        memory: &mut Memory,
        connection: u64,
        nth: u64,
        tls: Option<&TlsSeen>,
    ) -> io::Result<Ending> {
        let read = request::read_head(link, buffer)
            .and_then(|head| request::read_body(link, buffer, &head).map(|body| (head, body)));
        let (head, body) = match read {
            Ok(read) => read,
            Err(NoRequest::Closed) => return Ok(Ending::Fin),
            Err(NoRequest::Lost) => return Err(io::ErrorKind::ConnectionReset.into()),
            Err(NoRequest::Malformed) => {
                self.core.hub.count(|counters| counters.malformed += 1);
                io::Write::write_all(
                    link,
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                )?;
                return Ok(Ending::Fin);
            }
        };
        let site = self.core.site();
        let path = head.target.split('?').next().unwrap_or_default();
        let resource = site.get(path);
        let tally = resource.map(|resource| resource.tally().clone()).unwrap_or_default();
        let (hit, sent_before) = tally.enter(&head.method);
        let request = Arc::new(RequestSeen {
            number: self.core.numbers.fetch_add(1, Ordering::Relaxed) + 1,
            connection,
            nth_on_connection: nth,
            listener: self.listener,
            at: self.core.hub.age(),
            method: head.method,
            target: head.target,
            version: head.version,
            fields: head.fields,
            body,
            hit,
            sent_before,
            tls: tls.cloned(),
            bases: self.core.bases(),
        });
        let mut flight =
            Flight { hub: &self.core.hub, place: self.core.hub.note_request(&request), whole: false };
        let mut exchange = Exchange {
            link,
            hub: &self.core.hub,
            request: &request,
            sent: &tally.sent,
            place: flight.place,
            memory,
            broken_off: false,
        };
        let ending = site.serve(resource, &mut exchange)?;
        flight.whole = !exchange.broken_off && !matches!(ending, Ending::Reset | Ending::Stall);
        Ok(match ending {
            Ending::KeepAlive if !request.keeps_alive() => Ending::Fin,
            ending => ending,
        })
    }
}

/// A request in flight, until it is answered in one way or another (a panic of a hook included).
struct Flight<'a> {
    hub: &'a Hub,
    place: usize,
    whole: bool,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.hub.note_over(self.place, self.whole);
    }
}
