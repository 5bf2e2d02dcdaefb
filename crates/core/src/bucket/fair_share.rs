//! Who may read how much, when several connections share limits.
//!
//! A connection draws on up to three buckets at once: the total, its host's and its download's; the
//! least holds. Whenever the buckets of a waiting connection are open, the turn goes to the download
//! that got least in the last seconds, and in it to the connection that got least. Measuring what each
//! *got* gives max-min fairness whatever limits which of them: what one cannot use goes to the others,
//! and a download gains nothing from more connections or from new ones. Forgetting it within seconds
//! means that nobody pays, or is owed, for long; and whoever was passed over for several rounds (its
//! download gets enough elsewhere) is served first, so that nobody waits without bound.
//!
//! It is told the time in nanoseconds, as [`TokenBucket`] is, and does the same for the same calls.

use super::TokenBucket;
use crate::id::DownloadId;

/// The most bytes of one grant.
const MAX_GRANT: u64 = 512 << 10;
/// What was got is forgotten by a sixteenth each sixteenth of a second.
const FORGET_EVERY: u64 = 62_500_000;
/// Waiting longer than this and several rounds goes before everything else.
const PATIENCE: u64 = 2_000_000_000;
/// A connection looks again at least this often, if its buckets may be open: less than the time in
/// which a bucket runs over.
const LOOK_AGAIN: u64 = 25_000_000;
/// `got` counts in 256ths of a byte, so that it can fade smoothly.
const GOT_SCALE: u32 = 8;

/// The limits, and the connections that share them.
#[derive(Clone, Debug, Default)]
pub struct FairShare {
    total: Node,
    hosts: Vec<Host>,
    downloads: Vec<Download>,
    connections: Vec<Option<Connection>>,
    /// Granted but not told yet. Holds each connection once at most.
    woken: Vec<usize>,
    host_limit: Option<u64>,
    each_limit: Option<u64>,
    /// Counts connections, buckets and turns: tells which came first.
    counter: u64,
    faded_at: u64,
}

/// A connection of a [`FairShare`]; not valid in another, and never used again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnectionId {
    slot: usize,
    unique: u64,
}

impl ConnectionId {
    /// A small number that no other connection has at the same time: for tables beside the share.
    pub fn index(self) -> usize {
        self.slot
    }
}

/// The answer to [`FairShare::take`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grant {
    /// So many bytes may be read now: at least 1, at most what was wanted.
    Bytes(u64),
    /// Ask again at this time, or when [`FairShare::wake`] names the connection if that is sooner.
    Wait(u64),
}

impl FairShare {
    /// No limits, no connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits everything together, in bytes a second; `None` is no limit, and 0 counts as 1.
    pub fn set_total_limit(&mut self, limit: Option<u64>, now: u64) {
        self.counter += 1;
        self.total.set_limit(limit, now, self.counter);
        self.forget_the_past();
    }

    /// Limits each host.
    pub fn set_host_limit(&mut self, limit: Option<u64>, now: u64) {
        self.host_limit = limit;
        self.counter += 1;
        for host in &mut self.hosts {
            host.node.set_limit(limit, now, self.counter);
        }
        self.forget_the_past();
    }

    /// Limits each download.
    pub fn set_each_limit(&mut self, limit: Option<u64>, now: u64) {
        self.each_limit = limit;
        self.counter += 1;
        for download in &mut self.downloads {
            download.node.set_limit(least(limit, download.own_limit), now, self.counter);
        }
        self.forget_the_past();
    }

    /// Limits one download, beside the limit for each; the lesser holds. It is remembered until it is
    /// `None` again: say so when the download ends.
    pub fn set_download_limit(&mut self, download: DownloadId, limit: Option<u64>, now: u64) {
        let index = self.download(download, now);
        self.counter += 1;
        let limits = least(self.each_limit, limit);
        let download = &mut self.downloads[index];
        download.own_limit = limit;
        download.node.set_limit(limits, now, self.counter);
        self.forget_the_past();
    }

    /// Whether any limit is set anywhere. While none is, nobody needs to ask.
    pub fn is_limited(&self) -> bool {
        self.total.bucket.is_some()
            || self.host_limit.is_some()
            || self.each_limit.is_some()
            || self.downloads.iter().any(|d| d.own_limit.is_some())
    }

    /// Adds a connection of `download` to `host`.
    pub fn add(&mut self, download: DownloadId, host: &str, now: u64) -> ConnectionId {
        self.fade(now);
        let download = self.download(download, now);
        let host = self.host(host, now);
        // A new one begins level with the least of its siblings: opening connections over and over
        // gains nothing.
        let siblings = self.connections.iter().flatten().filter(|c| c.download == download);
        let got = siblings.map(|c| c.got).min().unwrap_or(0);
        self.counter += 1;
        let unique = self.counter;
        let connection = Connection {
            unique,
            download,
            host,
            want: 0,
            granted: 0,
            lent: 0,
            lent_at: 0,
            since: now,
            got,
            turn: 0,
        };
        for node in [&mut self.total, &mut self.downloads[download].node, &mut self.hosts[host].node] {
            node.users += 1;
        }
        let slot = match self.connections.iter().position(Option::is_none) {
            Some(slot) => {
                self.connections[slot] = Some(connection);
                slot
            }
            None => {
                self.connections.push(Some(connection));
                self.woken.reserve(self.connections.len());
                self.connections.len() - 1
            }
        };
        ConnectionId { slot, unique }
    }

    /// Removes a connection. What it was granted and has not taken goes back.
    pub fn remove(&mut self, id: ConnectionId) {
        self.cancel(id);
        let Some(connection) = self.find(id).copied() else { return };
        self.connections[id.slot] = None;
        let download = &mut self.downloads[connection.download].node;
        for node in [&mut self.total, download, &mut self.hosts[connection.host].node] {
            node.users -= 1;
        }
    }

    /// Asks for up to `want` bytes (0 counts as 1). A connection that is told to wait goes on wanting
    /// until it asks again and gets something, or [`cancel`](Self::cancel)s. One that was removed waits
    /// for ever.
    pub fn take(&mut self, id: ConnectionId, want: u64, now: u64) -> Grant {
        let want = want.max(1);
        let Some(connection) = self.find_mut(id) else { return Grant::Wait(u64::MAX) };
        if connection.granted == 0 {
            if connection.want == 0 {
                connection.since = now;
            }
            connection.want = want;
            self.schedule(now);
        }
        let Some(connection) = self.find_mut(id) else { return Grant::Wait(u64::MAX) };
        if connection.granted == 0 {
            return Grant::Wait(self.next_look(id.slot, now));
        }
        let surplus = connection.granted.saturating_sub(want);
        connection.lent = connection.granted;
        connection.granted = 0;
        connection.want = 0;
        let bytes = connection.lent - surplus;
        self.woken.retain(|&slot| slot != id.slot);
        self.give_back(id, surplus);
        Grant::Bytes(bytes)
    }

    /// Wants nothing any more. What it was granted and has not taken goes back.
    pub fn cancel(&mut self, id: ConnectionId) {
        let Some(connection) = self.find_mut(id) else { return };
        connection.want = 0;
        if connection.granted > 0 {
            connection.lent = connection.granted;
            connection.granted = 0;
            let all = connection.lent;
            self.give_back(id, all);
        }
        self.woken.retain(|&slot| slot != id.slot);
    }

    /// Gives back bytes of the last grant that were not read; more than that grant counts as all of it.
    pub fn give_back(&mut self, id: ConnectionId, unused: u64) {
        let Some(connection) = self.find_mut(id) else { return };
        let unused = unused.min(connection.lent);
        connection.lent -= unused;
        let scaled = unused << GOT_SCALE;
        connection.got = connection.got.saturating_sub(scaled);
        let (lent_at, download, host) = (connection.lent_at, connection.download, connection.host);
        let download = &mut self.downloads[download];
        download.got = download.got.saturating_sub(scaled);
        for node in [&mut self.total, &mut download.node, &mut self.hosts[host].node] {
            node.refund(unused, lent_at);
        }
    }

    /// The connections whose turn has come since the last time: they should ask again.
    pub fn wake(&mut self, now: u64) -> impl Iterator<Item = ConnectionId> + '_ {
        self.schedule(now);
        let Self { woken, connections, .. } = self;
        woken.drain(..).filter_map(|slot| {
            let connection = connections[slot].as_ref()?;
            Some(ConnectionId { slot, unique: connection.unique })
        })
    }

    /// What a connection may expect, in bytes a second, if all want as much as they can get; `None` without a
    /// limit. For the size of its receive buffer.
    pub fn share_of(&self, id: ConnectionId) -> Option<u64> {
        let connection = self.find(id)?;
        let download = &self.downloads[connection.download];
        let others = self.downloads.iter().filter(|d| d.node.users > 0 && d.id != download.id).count();
        let divided = |limit: Option<u64>, by: usize| limit.map(|l| (l / by.max(1) as u64).max(1));
        least(
            least(
                divided(self.total.limit(), download.node.users.saturating_mul(others + 1)),
                divided(least(self.each_limit, download.own_limit), download.node.users),
            ),
            divided(self.host_limit, self.hosts[connection.host].node.users),
        )
    }
}

/// A limit and those under it.
#[derive(Clone, Debug, Default)]
struct Node {
    bucket: Option<TokenBucket>,
    /// When the bucket was made, by the counter: what was lent before did not come from it.
    born: u64,
    users: usize,
}

impl Node {
    fn limit(&self) -> Option<u64> {
        self.bucket.as_ref().map(TokenBucket::rate)
    }

    fn set_limit(&mut self, limit: Option<u64>, now: u64, counter: u64) {
        match (limit, &mut self.bucket) {
            (None, bucket) => *bucket = None,
            (Some(rate), Some(bucket)) => bucket.set_rate(rate, now),
            (Some(rate), bucket @ None) => {
                *bucket = Some(TokenBucket::new(rate, now));
                self.born = counter;
            }
        }
    }

    /// The most bytes of one grant: 16 ms worth, less if not all users would get four turns a second: what they
    /// got is remembered for about a second, and whoever took more than that at once would gain by it. Not less
    /// than 4 KiB if that leaves everyone as many turns. Less than the bucket holds.
    fn quantum(&self) -> u64 {
        let Some(rate) = self.limit() else { return MAX_GRANT };
        let users = u64::try_from(self.users).unwrap_or(u64::MAX).max(1);
        let smooth = rate / users.saturating_mul(4).max(64);
        let cheap = (rate / 4 / users).min(4096);
        smooth.max(cheap).clamp(1, MAX_GRANT)
    }

    /// Whether there is a whole quantum. It is the same for all users, whatever they want, so that small
    /// takers do not keep a bucket too low for large ones.
    fn is_open(&self) -> bool {
        self.bucket.as_ref().is_none_or(|b| b.available() >= self.quantum())
    }

    /// When it opens if `ahead` bytes are taken before.
    fn opens_at(&self, ahead: u64) -> u64 {
        self.bucket.as_ref().map_or(0, |b| b.ready_at(self.quantum().saturating_add(ahead)))
    }

    fn charge(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            let taken = bucket.take(bytes);
            debug_assert_eq!(taken, bytes, "grants come from open buckets");
        }
    }

    fn refund(&mut self, bytes: u64, lent_at: u64) {
        if let Some(bucket) = self.bucket.as_mut().filter(|_| self.born <= lent_at) {
            bucket.give_back(bytes);
        }
    }

    /// How long it takes to fill one quantum, in nanoseconds.
    fn quantum_takes(&self) -> u64 {
        self.limit().map_or(0, |rate| self.quantum().saturating_mul(1_000_000_000) / rate)
    }
}

#[derive(Clone, Debug)]
struct Host {
    name: String,
    node: Node,
}

#[derive(Clone, Debug)]
struct Download {
    /// `None` when the place is free.
    id: Option<DownloadId>,
    node: Node,
    own_limit: Option<u64>,
    /// What it got in the last seconds.
    got: u64,
    /// The counter at its last turn.
    turn: u64,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    unique: u64,
    download: usize,
    host: usize,
    /// Bytes it waits for; 0 while it does not wait.
    want: u64,
    /// Bytes set aside for it.
    granted: u64,
    /// Bytes of its last grant that it may still give back, and the counter at that time.
    lent: u64,
    lent_at: u64,
    /// Since when it waits.
    since: u64,
    got: u64,
    turn: u64,
}

impl FairShare {
    fn find(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(id.slot)?.as_ref().filter(|c| c.unique == id.unique)
    }

    fn find_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.slot)?.as_mut().filter(|c| c.unique == id.unique)
    }

    /// The place of a download, made if there is none.
    fn download(&mut self, id: DownloadId, now: u64) -> usize {
        if let Some(index) = self.downloads.iter().position(|d| d.id == Some(id)) {
            return index;
        }
        let active = self.downloads.iter().filter(|d| d.node.users > 0);
        let got = active.map(|d| d.got).min().unwrap_or(0);
        self.counter += 1;
        let mut node = Node::default();
        node.set_limit(self.each_limit, now, self.counter);
        let new = Download { id: Some(id), node, own_limit: None, got, turn: 0 };
        match self.downloads.iter().position(|d| d.id.is_none()) {
            Some(index) => {
                self.downloads[index] = new;
                index
            }
            None => {
                self.downloads.push(new);
                self.downloads.len() - 1
            }
        }
    }

    fn host(&mut self, name: &str, now: u64) -> usize {
        if let Some(index) = self.hosts.iter().position(|h| h.name == name) {
            return index;
        }
        self.counter += 1;
        let mut node = Node::default();
        node.set_limit(self.host_limit, now, self.counter);
        let new = Host { name: name.to_owned(), node };
        match self.hosts.iter().position(|h| h.node.users == 0) {
            Some(index) => {
                self.hosts[index] = new;
                index
            }
            None => {
                self.hosts.push(new);
                self.hosts.len() - 1
            }
        }
    }

    /// Grants whatever can be granted now, in the order of turns.
    fn schedule(&mut self, now: u64) {
        self.fade(now);
        let nodes = self.hosts.iter_mut().map(|h| &mut h.node);
        let nodes = nodes.chain(self.downloads.iter_mut().map(|d| &mut d.node));
        for bucket in nodes.chain([&mut self.total]).filter_map(|n| n.bucket.as_mut()) {
            bucket.refill(now);
        }
        // Each turn ends the waiting of one connection, so this ends.
        while let Some(slot) = self.next_turn(now) {
            self.grant(slot);
        }
    }

    /// Lets what was got fade, and clears away downloads that are gone and forgotten.
    fn fade(&mut self, now: u64) {
        let steps = now.saturating_sub(self.faded_at) / FORGET_EVERY;
        if steps == 0 {
            return;
        }
        self.faded_at += steps * FORGET_EVERY;
        let fade = |got: &mut u64| {
            for _ in 0..steps.min(1024) {
                *got = got.saturating_sub((*got >> 4).max(1));
                if *got == 0 {
                    break;
                }
            }
        };
        for download in &mut self.downloads {
            fade(&mut download.got);
            if download.got == 0 && download.node.users == 0 && download.own_limit.is_none() {
                download.id = None;
                download.node.bucket = None;
            }
        }
        self.connections.iter_mut().flatten().for_each(|c| fade(&mut c.got));
    }

    /// What was got under other limits says nothing about who is owed under these.
    fn forget_the_past(&mut self) {
        self.downloads.iter_mut().for_each(|d| d.got = 0);
        self.connections.iter_mut().flatten().for_each(|c| c.got = 0);
    }

    fn nodes(&self, connection: &Connection) -> [&Node; 3] {
        [&self.total, &self.hosts[connection.host].node, &self.downloads[connection.download].node]
    }

    /// The waiting connection that goes first among those whose buckets are open.
    fn next_turn(&self, now: u64) -> Option<usize> {
        if !self.total.is_open() {
            return None;
        }
        let waiting = self.connections.iter().enumerate().filter_map(|(slot, c)| Some((slot, c.as_ref()?)));
        waiting
            .filter(|(_, c)| c.waits() && self.nodes(c).iter().all(|n| n.is_open()))
            .min_by_key(|(_, c)| self.order(c, now))
            .map(|(slot, _)| slot)
    }

    /// Where a connection stands in the order of turns; the least goes first.
    fn order(&self, connection: &Connection, now: u64) -> (bool, u64, u64, u64, u64) {
        let download = &self.downloads[connection.download];
        let waited = now.saturating_sub(connection.since);
        if waited > PATIENCE && waited - PATIENCE > self.four_rounds(connection) {
            return (false, connection.since, 0, 0, connection.unique);
        }
        let turn = if connection.turn == 0 { connection.unique } else { connection.turn };
        (true, download.got, download.turn, connection.got, turn)
    }

    /// How long four rounds of everyone may take at the slowest of a connection's buckets.
    fn four_rounds(&self, connection: &Connection) -> u64 {
        let nodes = self.nodes(connection);
        let slowest = nodes.iter().map(|n| n.quantum_takes()).max().unwrap_or(0);
        let downloads = self.downloads.iter().filter(|d| d.node.users > 0).count();
        let turns = downloads.saturating_mul(self.downloads[connection.download].node.users);
        slowest.saturating_mul(4).saturating_mul(u64::try_from(turns).unwrap_or(u64::MAX))
    }

    fn grant(&mut self, slot: usize) {
        let Some(connection) = &self.connections[slot] else { return };
        let nodes = self.nodes(connection);
        let most = nodes.iter().map(|n| n.quantum()).min().unwrap_or(MAX_GRANT);
        let limited = nodes.iter().any(|n| n.bucket.is_some());
        self.counter += 1;
        let counter = self.counter;
        let Some(connection) = &mut self.connections[slot] else { return };
        let bytes = connection.want.min(most);
        let scaled = if limited { bytes << GOT_SCALE } else { 0 };
        connection.granted = bytes;
        connection.lent_at = counter;
        connection.turn = counter;
        connection.got = connection.got.saturating_add(scaled);
        let download = &mut self.downloads[connection.download];
        download.turn = counter;
        download.got = download.got.saturating_add(scaled);
        for node in [&mut self.total, &mut download.node, &mut self.hosts[connection.host].node] {
            node.charge(bytes);
        }
        self.woken.push(slot);
    }

    /// When a waiting connection should look again. Each has its own time, by its place in the order,
    /// so that they do not all come at once; and none depends on another to be woken, since the thread
    /// of that other may hang in a write.
    fn next_look(&self, slot: usize, now: u64) -> u64 {
        let Some(me) = self.connections.get(slot).and_then(Option::as_ref) else { return u64::MAX };
        let mine = self.order(me, now);
        let mut ahead = [0_u64; 3];
        for other in self.connections.iter().flatten().filter(|c| c.waits() && c.unique != me.unique) {
            if self.order(other, now) < mine {
                let nodes = self.nodes(other);
                let bytes = nodes.iter().map(|n| n.quantum()).min().unwrap_or(0).min(other.want);
                let shared = [true, other.host == me.host, other.download == me.download];
                for (sum, _) in ahead.iter_mut().zip(shared).filter(|(_, shared)| *shared) {
                    *sum = sum.saturating_add(bytes);
                }
            }
        }
        let nodes = self.nodes(me);
        let possible = nodes.iter().map(|n| n.opens_at(0)).max().unwrap_or(0);
        let likely = nodes.iter().zip(ahead).map(|(n, ahead)| n.opens_at(ahead)).max().unwrap_or(0);
        likely.min(now.saturating_add(LOOK_AGAIN)).max(possible).max(now.saturating_add(1))
    }
}

impl Connection {
    fn waits(&self) -> bool {
        self.want > 0 && self.granted == 0
    }
}

/// The lesser of two limits.
fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

#[cfg(test)]
mod tests;
