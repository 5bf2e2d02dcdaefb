//! The control thread: owns every transfer, the limits and the hosts; never writes to a disk.
//!
//! It takes one message at a time from one bounded inbox, hands it to the transfer that it concerns,
//! and performs the actions that come back. Data threads and cold sides only ever talk to it. It
//! never waits for any of them, so a command is answered at once whatever the disks do.

mod address;
mod messages;
mod running;
mod source;

pub(crate) use self::address::{Ended, ToControl};
pub(crate) use self::messages::{Asked, Back, ColdSide, Disk, FromCold, Inbox, Reply, Start, ToCold};
pub(crate) use self::running::is_ended_by_a_pause;
pub(crate) use self::source::Source;

use self::running::{Hot, Live, Running};
use crate::config::Config;
use crate::connect::Network;
use crate::data::DataThread;
use crate::fetch::{self, Cell, FetchId, Job, Report, Reporter, Verdict};
use crate::hosts::Hosts;
use crate::limiter::RateLimiter;
use crate::session::{Logins, Session};
use crate::sync::mpsc::RecvTimeoutError;
use crate::target::Target;
use crate::threads::Threads;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::{EventKind, Limits, Phase, Progress, Snapshot};
use tidegate_core::netrc::Netrc;
use tidegate_core::transfer::{Action, Count, End, Input, Order, Transfer, Verified};
use tidegate_core::{Code, DownloadId, Failure, Remedy, SegmentId};
use url::Url;

/// How often running fetches are looked at.
const TICK: Duration = Duration::from_millis(100);

/// A write that takes longer than this is shown as waiting for the disk, and silence is forgiven.
const DISK_PATIENCE: Duration = Duration::from_millis(500);

/// Data threads that are left when no download uses them, at most.
const MOST_IDLE_DISKS: usize = 4;

/// The control thread's state.
pub(crate) struct Control {
    inbox: Box<dyn Source>,
    report: Arc<Reporter>,
    network: Network,
    threads: Arc<Threads>,
    limiter: RateLimiter,
    limits: Limits,
    session: Session,
    hosts: Hosts,
    splice: bool,
    seed: u64,
    downloads: BTreeMap<DownloadId, Running>,
    disks: BTreeMap<Disk, DataThread>,
    /// Whom to ask what the user keeps for a host, and for which it was asked or told; `None` where all is known.
    strangers: Option<Strangers>,
    /// Something has happened since connections were shared out.
    unshared: bool,
    scratch: (Vec<DownloadId>, Vec<Count>),
    /// How many fetches were launched so far.
    launches: u64,
    wake: Option<Instant>,
    last_tick: Instant,
    ending: bool,
}

impl Control {
    pub(crate) fn new(
        config: Config,
        network: Network,
        inbox: Box<dyn Source>,
        tell: impl Fn(Inbox) + Send + Sync + 'static,
        threads: Arc<Threads>,
    ) -> Self {
        let report: Reporter = Box::new(move |id, report| tell(Inbox::Report { id, report }));
        let logins = Logins { netrc: config.netrc, certificates_are_checked: !config.network.tls.insecure };
        Self {
            inbox,
            report: Arc::new(report),
            network,
            threads,
            limiter: RateLimiter::new(&config.limits),
            limits: config.limits,
            session: Session::new(config.cookies, logins, config.user_agent, config.referer),
            hosts: Hosts::default(),
            splice: !config.buffered,
            seed: config.seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
            downloads: BTreeMap::new(),
            disks: BTreeMap::new(),
            strangers: None,
            unshared: false,
            scratch: (Vec::new(), Vec::new()),
            launches: 0,
            wake: None,
            last_tick: Instant::now(),
            ending: false,
        }
    }

    /// Of what the user keeps nothing is known here but what is told of each host, in answer to this question.
    #[must_use]
    pub(crate) fn asking(mut self, ask: impl Fn(&str) + Send + 'static) -> Self {
        self.strangers = Some(Strangers { ask: Box::new(ask), asked: BTreeSet::new(), met: BTreeSet::new() });
        self
    }

    /// Runs until told to end and nothing is left to save.
    pub(crate) fn run(mut self) {
        while !(self.ending && self.downloads.is_empty()) {
            let heard = match self.inbox.next() {
                Some(message) => Ok(message),
                None => self.inbox.wait(self.patience()),
            };
            match heard {
                Ok(message) => {
                    self.take(message);
                    // What has come meanwhile is taken before connections are shared out again.
                    for _ in 0..256 {
                        let Some(message) = self.inbox.next() else { break };
                        self.take(message);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if self.wake.is_some_and(|at| now >= at) || now.duration_since(self.last_tick) >= TICK {
                self.tick(now);
            }
            if self.unshared {
                self.share_out(now);
            }
            self.flush_backlogs();
        }
    }

    fn patience(&self) -> Duration {
        let now = Instant::now();
        let busy = self
            .downloads
            .values()
            .any(|d| !d.backlog.is_empty() || d.hot.as_ref().is_some_and(|hot| !hot.fetches.is_empty()));
        let tick = if busy {
            (self.last_tick + TICK).saturating_duration_since(now)
        } else {
            Duration::from_secs(5)
        };
        self.wake.map_or(tick, |at| at.saturating_duration_since(now).min(tick))
    }

    fn take(&mut self, message: Inbox) {
        let now = Instant::now();
        match message {
            Inbox::Register { id, cold } => {
                let mut running = Running::new(cold);
                if self.ending {
                    running.send_away(ToCold::End, Phase::Paused);
                }
                self.downloads.insert(id, running);
            }
            Inbox::Start(start) => self.start(*start, now),
            Inbox::Report { id, report } => self.on_report(id, report, now),
            Inbox::Cold { id, turn, input } => self.on_cold(id, turn, input, now),
            Inbox::Pause { id, done } => {
                self.pause(id, now);
                done.give(());
            }
            Inbox::Resume { id } => {
                if let Some(running) = self.downloads.get_mut(&id).filter(|r| r.paused && !r.leaving) {
                    running.paused = false;
                    if let Some(hot) = &running.hot {
                        // Others may have filled the disk meanwhile.
                        hot.granted.store(hot.target.unlooked(), Ordering::Relaxed);
                    }
                    self.hand(id, Input::Resume, now);
                }
            }
            Inbox::Stop { id, done } => {
                self.send_away(id, ToCold::End, Phase::Paused);
                done.give(());
            }
            Inbox::Cancel { id } => self.send_away(id, ToCold::Cancel, Phase::Failed),
            Inbox::SetLimits(limits) => {
                self.limits = limits;
                self.limiter.set_limits(&limits);
                self.unshared = true;
            }
            Inbox::SetDownloadLimit { id, limit } => {
                // Nobody would take back the limit of one that has ended.
                if let Some(running) = self.downloads.get_mut(&id) {
                    running.limit_is_set = true;
                    self.limiter.set_download_limit(id, limit);
                }
            }
            Inbox::Snapshot(mut asked) => {
                self.refresh(&mut asked.snapshot, now);
                asked.give();
            }
            Inbox::Progress { id, reply } => {
                let progress = self.downloads.get(&id).map(|running| {
                    let mut progress = Progress::new(id);
                    running.tell_progress(id, &mut progress, now);
                    progress
                });
                reply.give(progress);
            }
            Inbox::Cookies { reply } => reply.give(self.session.cookies.clone()),
            Inbox::Introduced { host, cookies, netrc } => self.meet(host, cookies, netrc),
            Inbox::Ping { reply } => reply.give(()),
            Inbox::TellTime { id } => {
                let message = crate::sys::monotonic_ns().to_string();
                self.tell(id, ToCold::Tell(EventKind::Notice { message }));
            }
            Inbox::Shutdown => {
                self.ending = true;
                self.unshared = true;
                self.downloads.values_mut().for_each(|d| d.send_away(ToCold::End, Phase::Paused));
            }
        }
    }

    fn start(&mut self, start: Start, now: Instant) {
        let Start { id, mut request, found, borrowed, target, mut disk, doubts } = start;
        let Some(running) = self.downloads.get_mut(&id).filter(|r| !r.leaving) else { return };
        // Another attempt of the same download: what the one before used is returned first.
        running.cool();
        if !matches!(disk, Disk::FileSystem(_)) {
            // In order means one answer after the other.
            request.options.connections = 1;
        }
        if let std::collections::btree_map::Entry::Vacant(place) = self.disks.entry(disk) {
            match DataThread::start(
                disk,
                self.network.clone(),
                self.limiter.clone(),
                self.splice,
                &self.threads,
            ) {
                Ok(thread) => {
                    place.insert(thread);
                }
                Err(_) if !self.disks.is_empty() => {
                    // Where there can be no more threads, some disks share one.
                    disk = self.disks.keys().next().copied().unwrap_or(disk);
                }
                Err(error) => {
                    let message = format!(
                        "no thread could be started: {error}; try again when the machine is less busy"
                    );
                    running.send(ToCold::GiveUp(Failure::new(Code::Internal, message)));
                    return;
                }
            }
        }
        if request.options.limit.is_some() && !std::mem::replace(&mut running.limit_is_set, true) {
            // Only at its first start: what was said since holds.
            self.limiter.set_download_limit(id, request.options.limit);
        }
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let transfer = Transfer::new(id, request, found, self.seed, now);
        let transfer = match &target {
            Target::Stream(_) => transfer.going_out(),
            _ if borrowed => transfer.borrowing(),
            Target::Part { .. } | Target::Pipe { .. } | Target::Nowhere => transfer,
        };
        running.hot = Some(Hot::new(transfer, target, disk, doubts));
        self.unshared = true;
        if running.paused {
            self.hand(id, Input::Pause, now);
        } else {
            self.share_out(now);
            self.hand(id, Input::Begin, now);
        }
    }

    fn pause(&mut self, id: DownloadId, now: Instant) {
        let waits = |running: &&mut Running| !running.paused && !running.leaving;
        let Some(running) = self.downloads.get_mut(&id).filter(waits) else { return };
        running.paused = true;
        self.hand_counts(id, now);
        self.hand(id, Input::Pause, now);
        if let Some(running) = self.downloads.get_mut(&id) {
            running.send_pause();
        }
    }

    fn send_away(&mut self, id: DownloadId, message: ToCold, phase: Phase) {
        self.hand_counts(id, Instant::now());
        if let Some(running) = self.downloads.get_mut(&id) {
            running.send_away(message, phase);
            self.unshared = true;
        }
    }

    fn on_cold(&mut self, id: DownloadId, turn: u64, input: FromCold, now: Instant) {
        // An answer that comes after a pause answers what is not asked any more: since then the question
        // was put again, and the cold side will do once more what it was asked.
        let late = self.downloads.get(&id).is_none_or(|running| running.turn != turn);
        match input {
            FromCold::Prepared { target } => {
                self.borrow(id, target, late);
                if !late {
                    self.hand(id, Input::Prepared, now);
                }
            }
            FromCold::Verified { verified, target } => {
                let right = verified == Verified::Right;
                self.borrow(id, target, late);
                if !late {
                    self.hand(id, Input::Verified(verified), now);
                }
                if right && let Some(running) = self.downloads.get_mut(&id) {
                    // It has its name: no order concerns it any more.
                    running.leaving = true;
                    running.cool();
                    self.unshared = true;
                }
            }
            FromCold::MachineReady if late => {}
            FromCold::MachineReady => self.hand(id, Input::MachineReady, now),
            FromCold::Over => {
                if let Some(running) = self.downloads.get_mut(&id) {
                    running.free();
                    self.unshared = true;
                }
            }
            FromCold::Gone => {
                self.downloads.remove(&id);
                self.limiter.set_download_limit(id, None);
                self.end_idle_disks();
            }
        }
    }

    /// Takes the part that a cold side lends, or gives it back where it is not wanted any more.
    fn borrow(&mut self, id: DownloadId, target: Option<Target>, late: bool) {
        let (Some(running), Some(target)) = (self.downloads.get_mut(&id), target) else { return };
        match running.hot.as_mut().filter(|_| !late) {
            Some(hot) => hot.borrow(target),
            None => running.send(ToCold::Release { target, returned: None }),
        }
    }

    /// Ends data threads that no download uses. Those of streams are of no use to any other; of those of
    /// file systems a few are left, for the connections that they keep.
    fn end_idle_disks(&mut self) {
        let used: Vec<Disk> =
            self.downloads.values().filter_map(|d| d.hot.as_ref().map(|h| h.disk)).collect();
        let too_many = self.disks.len() > MOST_IDLE_DISKS;
        self.disks.retain(|disk, _| match disk {
            _ if used.contains(disk) => true,
            Disk::Stream(_) => false,
            Disk::Nowhere | Disk::FileSystem(_) => !too_many,
        });
    }

    fn on_report(&mut self, fetch: FetchId, report: Report, now: Instant) {
        let now_unix = unix_now();
        let FetchId { download: id, segment, launch } = fetch;
        let Some(Running { hot: Some(hot), .. }) = self.downloads.get_mut(&id) else { return };
        let Some(live) = hot.fetches.get_mut(&segment).filter(|live| live.launch == launch) else { return };
        match report {
            Report::Head { answer, verdict } => {
                self.session.take_note(&live.order.url, &answer, now_unix);
                self.hosts.hear(&live.order.url, now);
                live.verdict = Some(verdict);
                if answer.status == 401 && !live.authorized {
                    let url = live.order.url.clone();
                    if self.session.can_answer(hot.transfer.request(), &url, &answer) {
                        let order = live.order.clone();
                        self.drop_fetch(id, segment);
                        self.launch(id, order, true);
                        return;
                    }
                }
                self.hand(id, Input::Head { segment, answer }, now);
            }
            Report::Ended { end, pos, received } => {
                let end = match hot.fetches.remove(&segment) {
                    Some(live) => {
                        let known = self.hosts.has_heard(&live.order.url) || !hot.transfer.have().is_empty();
                        if known { outage(end) } else { end }
                    }
                    None => end,
                };
                if !matches!(end, End::Finished { .. }) {
                    self.hand_counts(id, now);
                }
                self.hand(id, Input::Ended { segment, end, pos, received }, now);
            }
        }
    }

    fn hot(&mut self, id: DownloadId) -> Option<&mut Hot> {
        self.downloads.get_mut(&id)?.hot.as_mut()
    }

    /// Hands an input to a transfer, and performs what it wants done.
    fn hand(&mut self, id: DownloadId, input: Input<'_>, now: Instant) {
        let Some(hot) = self.hot(id) else { return };
        let wanted = hot.transfer.wants();
        let actions = hot.transfer.handle(input, now);
        self.unshared |=
            !actions.is_empty() || self.hot(id).is_some_and(|hot| hot.transfer.wants() != wanted);
        for action in actions {
            self.perform(id, action, now);
        }
    }

    fn perform(&mut self, id: DownloadId, action: Action, now: Instant) {
        match action {
            Action::Fetch(order) => self.launch(id, order, false),
            Action::Accept { segment, body } => {
                let Some(hot) = self.hot(id) else { return };
                let (target, loan) = (hot.target.clone(), hot.loan.clone());
                let version = target.version();
                let Some(live) = hot.fetches.get_mut(&segment) else { return };
                live.accepted = true;
                live.cell.pos.store(body.offset, Ordering::Relaxed);
                live.cell.end.store(body.end, Ordering::Relaxed);
                if let Some(verdict) = live.verdict.take() {
                    let _ = verdict.send(Verdict::Accept { body, target, version, loan });
                }
            }
            Action::Drop { segment } => self.drop_fetch(id, segment),
            Action::End { segment, at } => {
                if let Some(live) = self.hot(id).and_then(|hot| hot.fetches.get(&segment)) {
                    live.cell.end.store(at, Ordering::Relaxed);
                }
            }
            Action::Prepare(preparation) => {
                let doubts = self.hot(id).map_or(0, Hot::doubts);
                if self.hot(id).is_some_and(|hot| matches!(hot.target, Target::Part { .. })) {
                    self.release(id);
                }
                self.ask(id, ToCold::Prepare { preparation, doubts });
            }
            Action::Learned(identity) => {
                let doubts = self.hot(id).map_or(0, Hot::doubts);
                self.tell(id, ToCold::Learned { identity, doubts });
            }
            Action::Verify { identity, digests, proof } => {
                let received = self.hot(id).map_or(0, |hot| hot.transfer.received());
                self.release(id);
                self.ask(id, ToCold::Verify { identity, digests, proof, received });
            }
            Action::Tell(kind) => self.tell(id, ToCold::Tell(kind)),
            Action::HostLimit { url, connections } => {
                self.hosts.learn(&url, connections, now);
                self.unshared = true;
            }
            Action::WakeAt(at) => self.wake = Some(self.wake.map_or(at, |wake| wake.min(at))),
            Action::AwaitMachine { failure, .. } => self.ask(id, ToCold::AwaitMachine(failure)),
            Action::GiveUp(failure) => {
                if let Some(hot) = self.hot(id) {
                    hot.gave_up = true;
                }
                self.release(id);
                self.tell(id, ToCold::GiveUp(failure));
            }
        }
    }

    /// Lets the cold side have what it lent. No fetch has it any more, or only to end.
    fn release(&mut self, id: DownloadId) {
        if let Some(running) = self.downloads.get_mut(&id) {
            running.release();
        }
    }

    fn tell(&mut self, id: DownloadId, message: ToCold) {
        if let Some(running) = self.downloads.get_mut(&id) {
            running.send(message);
        }
    }

    /// Tells what will be answered.
    fn ask(&mut self, id: DownloadId, question: ToCold) {
        if let Some(running) = self.downloads.get_mut(&id) {
            running.turn += 1;
            running.send(ToCold::Turn(running.turn));
            running.send(question);
        }
    }

    /// Something is known of a host from now on, for which requests may wait.
    fn meet(&mut self, host: String, cookies: CookieJar, netrc: Option<Netrc>) {
        let Some(strangers) = &mut self.strangers else { return };
        self.session.meet(cookies, netrc, unix_now());
        strangers.met.insert(host);
        let ids: Vec<DownloadId> = self.downloads.keys().copied().collect();
        for id in ids {
            let parked = self.hot(id).map(|hot| std::mem::take(&mut hot.parked)).unwrap_or_default();
            parked.into_iter().for_each(|(order, authorized)| self.launch(id, order, authorized));
        }
    }

    fn launch(&mut self, id: DownloadId, order: Order, authorized: bool) {
        let Some(Running { hot: Some(hot), .. }) = self.downloads.get_mut(&id) else { return };
        if self.strangers.as_mut().is_some_and(|strangers| !strangers.has_met(&order.url)) {
            hot.parked.push((order, authorized));
            return;
        }
        let Some(data) = self.disks.get(&hot.disk) else { return };
        let request = hot.transfer.request();
        self.launches += 1;
        let launch = self.launches;
        let cell = Arc::new(Cell::new(order.range.map_or(0, |(start, _)| start)));
        let job = Job {
            id: FetchId { download: id, segment: order.segment, launch },
            url: order.url.clone(),
            headers: self.session.headers(request, &order, unix_now()),
            connect_timeout: request.options.connect_timeout,
            max_size: request.options.max_size,
            cell: Arc::clone(&cell),
            granted: Arc::clone(&hot.granted),
            report: Arc::clone(&self.report),
        };
        let task = data.runtime.spawn(fetch::run(job, Arc::clone(&data.shared)));
        let live = Live {
            launch,
            cell,
            abort: task.abort_handle(),
            order,
            accepted: false,
            verdict: None,
            authorized,
        };
        hot.fetches.insert(live.order.segment, live);
    }

    /// Tells a transfer how far its fetches are, before something that may end them.
    fn hand_counts(&mut self, id: DownloadId, now: Instant) {
        let mut counts = std::mem::take(&mut self.scratch.1);
        counts.clear();
        if let Some(hot) = self.hot(id) {
            counts.extend(hot.counts());
        }
        self.hand(id, Input::Counts(&counts), now);
        self.scratch.1 = counts;
    }

    fn drop_fetch(&mut self, id: DownloadId, segment: SegmentId) {
        let Some(hot) = self.hot(id) else { return };
        hot.parked.retain(|(order, _)| order.segment != segment);
        if let Some(live) = hot.fetches.remove(&segment) {
            live.end();
        }
    }

    fn tick(&mut self, now: Instant) {
        self.last_tick = now;
        self.wake = None;
        // Used again in each turn: nothing is allocated while bytes flow.
        let (mut ids, mut counts) = std::mem::take(&mut self.scratch);
        ids.clear();
        ids.extend(self.downloads.keys().copied());
        for id in ids.iter().copied() {
            let Some(Running { hot: Some(hot), .. }) = self.downloads.get(&id) else { continue };
            counts.clear();
            counts.extend(hot.counts());
            let blocked = self.disks.get(&hot.disk).is_some_and(|d| d.shared.blocked_for() >= DISK_PATIENCE);
            self.hand(id, Input::Tick { counts: &counts, disk_blocked: blocked }, now);
        }
        self.scratch = (ids, counts);
        self.disks.values().for_each(|data| data.shared.reap_idle());
    }

    /// Shares the connections out: each download that wants any gets one, then one more each in turn,
    /// as long as its host and the whole allow.
    fn share_out(&mut self, now: Instant) {
        // What is handed on below may change what is wanted: then it is shared out once more, next time.
        self.unshared = false;
        let mut total = self.limits.max_connections.max(1);
        let mut claims: Vec<(DownloadId, Arc<str>, usize, usize)> = self
            .downloads
            .iter_mut()
            .filter_map(|(id, running)| {
                let hot = running.hot.as_mut()?;
                Some((*id, hot.host(), hot.transfer.wants(), 0))
            })
            .collect();
        let mut hosts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (_, host, ..) in &claims {
            let most = self.hosts.limit(host, now).unwrap_or(usize::MAX).min(self.limits.max_host.max(1));
            hosts.insert(Arc::clone(host), most);
        }
        let mut given = true;
        while given && total > 0 {
            given = false;
            for (_, host, wants, has) in &mut claims {
                let Some(room) = hosts.get_mut(host).filter(|room| **room > 0) else { continue };
                if *has < *wants && total > 0 {
                    *has += 1;
                    *room -= 1;
                    total -= 1;
                    given = true;
                }
            }
        }
        for (id, _, _, has) in claims {
            let Some(hot) = self.hot(id) else { continue };
            if hot.allowed != has {
                hot.allowed = has;
                self.hand(id, Input::Allow(has), now);
            }
        }
    }

    fn flush_backlogs(&mut self) {
        self.downloads.values_mut().for_each(Running::flush);
    }

    fn refresh(&self, snapshot: &mut Snapshot, now: Instant) {
        let Snapshot { downloads, speed } = snapshot;
        downloads.truncate(self.downloads.len());
        for (index, (id, running)) in self.downloads.iter().enumerate() {
            if downloads.len() == index {
                downloads.push(Progress::new(*id));
            }
            running.tell_progress(*id, &mut downloads[index], now);
        }
        *speed = downloads.iter().map(|p| p.speed).sum();
    }
}

/// Hosts of which nothing is known before somebody was asked.
struct Strangers {
    ask: Box<dyn Fn(&str) + Send>,
    asked: BTreeSet<String>,
    met: BTreeSet<String>,
}

impl Strangers {
    /// Whether the host of a URL was told of; asks, if nobody was asked.
    fn has_met(&mut self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        if self.met.contains(host) {
            return true;
        }
        if self.asked.insert(host.to_owned()) {
            (self.ask)(host);
        }
        false
    }
}

/// The end of a fetch from a host that was there before: that nobody is at home now is an outage.
fn outage(end: End) -> End {
    match end {
        End::Failed(failure) if matches!(failure.code, Code::ResolveFailed | Code::ConnectFailed) => {
            End::Failed(failure.with_remedy(Remedy::Retry { after: None }))
        }
        end => end,
    }
}

pub(crate) fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}
