//! A world in a for-loop: server, network, disk and clock are this file, and every run is decided
//! by one seed, so a failure can be repeated.

use super::*;
use crate::answer::Answer;
use crate::headers::{Headers, format_http_date};
use crate::id::MirrorId;
use crate::request::{Destination, Mirror};
use proptest::prelude::*;

const KIB: u64 = 1024;

/// How a server says which version it serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Says {
    StrongTag,
    WeakTag,
    Date,
    /// Another tag for each answer, the same date.
    NodeTags,
    Nothing,
}

#[derive(Clone, Debug)]
struct Server {
    length: u64,
    says: Says,
    ranges: bool,
    /// Length told on a plain answer.
    tells_length: bool,
    /// One in so many steps cuts a connection; 0 never does.
    cut_every: u64,
    /// At most this many connections; others get 503.
    most: usize,
    /// A range is answered with no more than this.
    cap: u64,
    /// After this many requests another version is served.
    changes_after: u64,
    /// A range is answered from the first byte instead, with the range of that.
    lies: bool,
    /// In the block of 4 KiB from here on its bytes are others than those of the first server.
    differs_at: Option<u64>,
    /// After this many requests to it the file is gone; 0 never.
    dies_after: u64,
}

impl Server {
    fn byte(&self, version: u64, offset: u64) -> u8 {
        let other = self.differs_at.is_some_and(|at| (at..at + 4 * KIB).contains(&offset));
        byte(version, offset) ^ u8::from(other)
    }
}

fn byte(version: u64, offset: u64) -> u8 {
    let mut z =
        (offset / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (version + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (z >> (8 * (offset % 8))) as u8
}

struct Running {
    order: Order,
    version: u64,
    headed: bool,
    body: Option<BodyPlan>,
    /// Where the body lies in the file, and how far it was received.
    at: u64,
    body_end: u64,
    received: u64,
}

struct World {
    server: Server,
    /// The other mirrors, if there are any.
    others: Vec<Server>,
    version: u64,
    requests: u64,
    asked: Vec<u64>,
    disk: Vec<u8>,
    map: SpanSet,
    /// What the checkpoint says of the version, as the cold side keeps it.
    recorded: Identity,
    prepared: bool,
    pause_at: u64,
    running: BTreeMap<SegmentId, Running>,
    now: Instant,
    dice: Dice,
    verified: Option<Proof>,
    failed: Option<Failure>,
    waiting: bool,
    bytes: u64,
}

impl World {
    fn new(server: Server, seed: u64) -> Self {
        Self {
            disk: vec![0; server.length as usize + 64],
            server,
            others: Vec::new(),
            version: 1,
            requests: 0,
            asked: vec![0; 4],
            map: SpanSet::new(),
            recorded: Identity::default(),
            prepared: false,
            pause_at: u64::MAX,
            running: BTreeMap::new(),
            now: Instant::now(),
            dice: Dice::new(seed),
            verified: None,
            failed: None,
            waiting: false,
            bytes: 0,
        }
    }

    fn server(&self, mirror: MirrorId) -> &Server {
        let other = (mirror.0 as usize).checked_sub(1);
        other.map_or(&self.server, |other| &self.others[other])
    }

    fn do_all(&mut self, actions: Vec<Action>, transfer: &mut Transfer) {
        let mut queue: std::collections::VecDeque<Action> = actions.into();
        while let Some(action) = queue.pop_front() {
            match action {
                Action::Fetch(order) => {
                    self.requests += 1;
                    if self.requests == self.server.changes_after {
                        self.version += 1;
                    }
                    let run = Running {
                        order: order.clone(),
                        version: self.version,
                        headed: false,
                        body: None,
                        at: 0,
                        body_end: 0,
                        received: 0,
                    };
                    assert!(self.running.insert(order.segment, run).is_none(), "a segment id is used twice");
                }
                Action::Accept { segment, body } => {
                    let run = self.running.get_mut(&segment).expect("only held answers are accepted");
                    assert!(run.headed && run.body.is_none());
                    assert_eq!(run.at, body.offset, "the body is put where it belongs");
                    if body.doubtful {
                        self.recorded = self.recorded.weakened();
                    }
                    run.body = Some(body);
                }
                Action::Drop { segment } => {
                    self.running.remove(&segment);
                }
                Action::End { segment, at } => {
                    if let Some(body) = self.running.get_mut(&segment).and_then(|r| r.body.as_mut()) {
                        body.end = at;
                    }
                }
                Action::Prepare(preparation) => {
                    if preparation.restart.is_some() {
                        self.map = SpanSet::new();
                    }
                    match (self.prepared, preparation.unproved) {
                        (true, true) if preparation.restart.is_none() => {}
                        (false, true) => self.recorded = self.recorded.weakened(),
                        _ => self.recorded = preparation.identity,
                    }
                    self.prepared = true;
                    queue.extend(transfer.handle(Input::Prepared, self.now));
                }
                Action::Verify { proof, .. } => {
                    self.verified = Some(proof);
                    queue.extend(transfer.handle(Input::Verified(Verified::Right), self.now));
                }
                Action::GiveUp(failure) => self.failed = Some(failure),
                Action::Tell(EventKind::Waiting { .. }) => self.waiting = true,
                Action::Learned(identity) => self.recorded = identity,
                Action::Tell(_) | Action::HostLimit { .. } | Action::WakeAt(_) => {}
                Action::AwaitMachine { .. } => panic!("this machine lacks nothing"),
            }
        }
    }

    fn answer(&mut self, segment: SegmentId) -> Answer {
        let busy = self.running.values().filter(|r| r.headed).count() >= self.server.most;
        let mirror = self.running[&segment].order.mirror;
        let server = self.server(mirror).clone();
        self.asked[mirror.0 as usize] += 1;
        let run = self.running.get_mut(&segment).unwrap();
        let (server, length, version) = (&server, server.length, run.version);
        if server.dies_after > 0 && self.asked[mirror.0 as usize] > server.dies_after {
            return Answer::parse(404, false, &Headers::new(), 0);
        }
        if busy {
            let mut headers = Headers::new();
            headers.push("retry-after", b"1");
            headers.push("content-length", b"0");
            return Answer::parse(503, false, &headers, 0);
        }
        run.headed = true;
        let tag = match server.says {
            Says::StrongTag => Some(format!("\"v{version}\"")),
            Says::WeakTag => Some(format!("W/\"v{version}\"")),
            Says::NodeTags => Some(format!("\"v{version}n{}\"", segment.0)),
            Says::Date | Says::Nothing => None,
        };
        let mut headers = Headers::new();
        if matches!(server.says, Says::Date | Says::NodeTags) {
            let date = format_http_date(1_000_000 + version as i64).unwrap();
            headers.push("last-modified", date.as_bytes());
        }
        let changed = run.order.if_range.as_ref().is_some_and(|sent| Some(sent) != tag.as_ref());
        if let Some(tag) = tag {
            headers.push("etag", tag.as_bytes());
        }
        match run.order.range.filter(|_| server.ranges && !changed) {
            Some((start, _)) if start >= length => {
                headers.push("content-range", format!("bytes */{length}").as_bytes());
                Answer::parse(416, false, &headers, 0)
            }
            Some((start, end)) => {
                let start = if server.lies { 0 } else { start };
                let end = end.unwrap_or(length).min(length).min(start + server.cap);
                (run.at, run.body_end) = (start, end);
                headers.push("content-range", format!("bytes {start}-{}/{length}", end - 1).as_bytes());
                headers.push("content-length", (end - start).to_string().as_bytes());
                Answer::parse(206, false, &headers, 0)
            }
            None => {
                (run.at, run.body_end) = (0, length);
                if server.tells_length {
                    headers.push("content-length", length.to_string().as_bytes());
                }
                Answer::parse(200, false, &headers, 0)
            }
        }
    }

    /// One step of one connection, as the data thread does it.
    fn flow(&mut self, segment: SegmentId) -> Option<Input<'static>> {
        let mirror = self.running.get(&segment)?.order.mirror;
        let server = self.server(mirror).clone();
        let cut = server.cut_every > 0 && self.dice.below(server.cut_every) == 0;
        let amount = 1 + self.dice.below(48 * KIB);
        let run = self.running.get_mut(&segment)?;
        if cut {
            let (pos, received) = (run.at, run.received);
            self.running.remove(&segment);
            let failure = Failure::new(Code::ConnectionLost, "reset");
            return Some(Input::Ended { segment, end: End::Failed(failure), pos, received });
        }
        if !run.headed {
            let answer = self.answer(segment);
            return Some(Input::Head { segment, answer: Box::new(answer) });
        }
        let body = run.body.clone()?;
        let to = (run.at + amount).min(run.body_end).min(body.end.saturating_add(body.seam));
        let mut done = run.at;
        while done < to {
            let known = self.map.run_end(done).min(to);
            if known > done {
                if let Some(at) =
                    (done..known).find(|at| self.disk[*at as usize] != server.byte(run.version, *at))
                {
                    let received = run.received;
                    self.running.remove(&segment);
                    return Some(Input::Ended { segment, end: End::Differs { at }, pos: at, received });
                }
                done = known;
                continue;
            }
            // Beyond the end nothing is there to compare with.
            let Some(fresh) = Span::new(done, to.min(body.end)).filter(|_| body.write) else { break };
            let fresh = self.map.gaps(fresh).next().unwrap();
            for at in fresh.start()..fresh.end() {
                self.disk[at as usize] = server.byte(run.version, at);
            }
            self.map.insert(fresh);
            done = fresh.end();
        }
        let to = done;
        run.received += to.saturating_sub(run.at);
        self.bytes += to.saturating_sub(run.at);
        run.at = to.max(run.at);
        let whole_body = run.at >= run.body_end;
        let stop = run.at >= body.end
            && (run.at >= body.end.saturating_add(body.seam)
                || !self.map.covers(Span::new(run.at, run.at + 1).unwrap()));
        if whole_body || stop {
            let (pos, received) = (run.at, run.received);
            self.running.remove(&segment);
            return Some(Input::Ended {
                segment,
                end: End::Finished { pos, whole_body, flat: false },
                pos,
                received,
            });
        }
        None
    }

    fn run(&mut self, transfer: &mut Transfer, steps: u64, kill_at: u64) {
        let actions = transfer.handle(Input::Allow(8), self.now);
        self.do_all(actions, transfer);
        let actions = transfer.handle(Input::Begin, self.now);
        self.do_all(actions, transfer);
        for step in 0..steps {
            if self.verified.is_some() || self.failed.is_some() || step == kill_at {
                return;
            }
            if step == self.pause_at {
                for input in [Input::Pause, Input::Resume] {
                    let actions = transfer.handle(input, self.now);
                    self.do_all(actions, transfer);
                }
            }
            self.now += Duration::from_millis(20);
            let ids: Vec<SegmentId> = self.running.keys().copied().collect();
            if !ids.is_empty() {
                let segment = ids[self.dice.below(ids.len() as u64) as usize];
                if let Some(input) = self.flow(segment) {
                    let actions = transfer.handle(input, self.now);
                    self.do_all(actions, transfer);
                }
            }
            if step % 3 > 0 {
                // Counts come only now and then: what a fetch wrote since the last is told to nobody if it is
                // dropped.
                continue;
            }
            let counts: Vec<Count> = self
                .running
                .iter()
                .filter(|(_, r)| r.body.is_some())
                .map(|(segment, r)| Count {
                    segment: *segment,
                    pos: r.at,
                    received: r.received,
                    limited: false,
                    outgrown: false,
                })
                .collect();
            let actions = transfer.handle(Input::Tick { counts: &counts, disk_blocked: false }, self.now);
            self.do_all(actions, transfer);
        }
        panic!("the schedule does not end: {transfer:?}");
    }

    fn is_whole(&self, version: u64) -> bool {
        self.is_whole_of(&self.server, version)
    }

    fn is_whole_of(&self, server: &Server, version: u64) -> bool {
        (0..server.length).all(|offset| self.disk[offset as usize] == server.byte(version, offset))
    }

    /// Whether every byte is of one version of one server.
    fn is_one_file(&self) -> bool {
        let servers = || std::iter::once(&self.server).chain(&self.others);
        (1..=self.version).any(|version| servers().any(|server| self.is_whole_of(server, version)))
    }

    /// The process is killed, and another goes on from the disk.
    fn restart(&mut self, transfer: Request, seed: u64) -> Transfer {
        self.running.clear();
        self.prepared = false;
        self.pause_at = u64::MAX;
        // Who was dead may be back.
        self.asked = vec![0; 4];
        let found = Found::Recorded { identity: self.recorded.clone(), spans: self.map.clone() };
        Transfer::new(DownloadId(2), transfer, found, seed, self.now)
    }
}

fn request(connections: usize, resume: Resume) -> Request {
    request_of(1, connections, resume)
}

fn request_of(mirrors: usize, connections: usize, resume: Resume) -> Request {
    let mirrors = (0..mirrors).map(|n| Mirror::parse(&format!("http://h{n}/f")).unwrap()).collect();
    let mut request = Request::new(mirrors, Destination::Stdout).unwrap();
    request.options.connections = connections;
    request.options.min_split = 64 * KIB;
    request.options.resume = resume;
    request.options.retries = 60;
    request.options.retry_wait = Duration::from_millis(50);
    request
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        Just(Says::StrongTag),
        Just(Says::WeakTag),
        Just(Says::Date),
        Just(Says::NodeTags),
        Just(Says::Nothing)
    ]
}

prop_compose! {
    fn server()(
        length in prop_oneof![Just(0), 1..64 * KIB, 64 * KIB..512 * KIB],
        says in says(),
        ranges in prop::bool::weighted(0.8),
        tells_length in prop::bool::weighted(0.8),
        cut_every in prop_oneof![Just(0u64), 15u64..200],
        most in prop_oneof![Just(8usize), 1usize..4],
        cap in prop_oneof![Just(u64::MAX / 4), 20 * KIB..200 * KIB],
        lies in prop::bool::weighted(0.1),
    ) -> Server {
        let hopeless = !ranges && length > 256 * KIB;
        Server { length, says, ranges, tells_length, cut_every: if hopeless || lies { 0 } else { cut_every }, most, cap, changes_after: 0, lies, differs_at: None, dies_after: 0 }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 300, ..ProptestConfig::default() })]

    /// Honest about its version or not at all: what is called right is the file, every byte of it.
    #[test]
    fn every_schedule_ends_with_the_file(server in server(), connections in 1usize..9, seed in any::<u64>()) {
        let mut world = World::new(server, seed);
        let mut transfer = Transfer::new(DownloadId(1), request(connections, Resume::Auto), Found::Nothing, seed, world.now);
        world.run(&mut transfer, 30_000, u64::MAX);
        if world.verified.is_some() {
            prop_assert!(world.is_whole(1));
        } else {
            prop_assert!(world.server.cut_every > 0, "{:?}", world.failed);
        }
    }

    /// Killed anywhere and started again from the map on the disk: the same file, and little twice.
    #[test]
    fn a_resume_ends_with_the_same_file(server in server(), kill in 1u64..400, seed in any::<u64>(), strict in any::<bool>()) {
        let resume = if strict { Resume::Strict } else { Resume::Auto };
        let mut world = World::new(server, seed);
        let mut transfer = Transfer::new(DownloadId(1), request(8, resume), Found::Nothing, seed, world.now);
        world.run(&mut transfer, 30_000, kill);
        if world.verified.is_none() && world.failed.is_none() && transfer.identity.is_some() {
            let mut second = world.restart(request(8, resume), seed);
            world.run(&mut second, 30_000, u64::MAX);
        }
        if world.verified.is_some() {
            prop_assert!(world.is_whole(1));
        } else if world.failed.is_some() {
            prop_assert!(world.server.cut_every > 0, "{:?}", world.failed);
        }
    }

    /// Another version between two runs is never spliced with the first.
    #[test]
    fn another_version_after_a_kill_is_never_spliced(server in server(), kill in 1u64..400, seed in any::<u64>(), strict in any::<bool>()) {
        let resume = if strict { Resume::Strict } else { Resume::Auto };
        let mut world = World::new(server, seed);
        let mut transfer = Transfer::new(DownloadId(1), request(8, resume), Found::Nothing, seed, world.now);
        world.run(&mut transfer, 30_000, kill);
        if world.verified.is_some() || world.failed.is_some() { return Ok(()); }
        if transfer.identity.is_none() { return Ok(()) }
        world.version = 2;
        let mut second = world.restart(request(8, resume), seed);
        world.run(&mut second, 30_000, u64::MAX);
        if world.verified.is_some() {
            prop_assert!(world.is_whole(2));
        }
    }

    /// Two mirrors that differ in one block, pauses, a death, a kill: what is not called sampled is one
    /// file of one of them, to the last run.
    #[test]
    fn what_mirrors_gave_is_one_file_or_is_called_sampled(
        server in server(), other in server(), at in 0..512 * KIB, dies in (0u64..20, 0u64..20),
        pause in 1u64..400, kill in 1u64..800, seed in any::<u64>(), strict in any::<bool>(),
    ) {
        let resume = if strict { Resume::Strict } else { Resume::Auto };
        let mut world = World::new(Server { dies_after: dies.0, ..server.clone() }, seed);
        let differs_at = Some(at % server.length.max(1));
        world.others.push(Server { length: server.length, lies: false, differs_at, dies_after: dies.1, ..other });
        world.pause_at = pause;
        let mut transfer =
            Transfer::new(DownloadId(1), request_of(2, 8, resume), Found::Nothing, seed, world.now);
        world.run(&mut transfer, 60_000, kill);
        if world.verified.is_none() && world.failed.is_none() && transfer.identity.is_some() {
            let mut second = world.restart(request_of(2, 8, resume), seed);
            world.run(&mut second, 60_000, u64::MAX);
        }
        if let Some(proof) = world.verified {
            let one = world.is_one_file();
            prop_assert!(one || (proof == Proof::Sampled && !strict), "{proof:?}");
        }
    }

    /// Ranges of a few bytes each would take requests without number: the whole is taken instead.
    #[test]
    fn ranges_that_bring_crumbs_are_given_up(says in says(), cap in 1..CRUMB, seed in any::<u64>()) {
        let server = Server { length: 512 * KIB, says, ranges: true, tells_length: true, cut_every: 0, most: 8, cap, changes_after: 0, lies: false, differs_at: None, dies_after: 0 };
        let mut world = World::new(server, seed);
        let mut transfer = Transfer::new(DownloadId(1), request(8, Resume::Auto), Found::Nothing, seed, world.now);
        world.run(&mut transfer, 30_000, u64::MAX);
        prop_assert!(world.verified.is_some() && world.is_whole(1));
        prop_assert!(world.requests <= 64, "{} requests", world.requests);
    }

    /// A change in the middle is seen wherever the server says anything of its versions.
    #[test]
    fn a_change_in_the_middle_is_never_spliced(mut server in server(), after in 2u64..12, seed in any::<u64>()) {
        server.changes_after = after;
        let told = server.says != Says::Nothing && server.says != Says::WeakTag;
        let mut world = World::new(server, seed);
        let mut transfer = Transfer::new(DownloadId(1), request(8, Resume::Auto), Found::Nothing, seed, world.now);
        world.run(&mut transfer, 30_000, u64::MAX);
        if let Some(proof) = world.verified {
            let whole = world.is_whole(1) || world.is_whole(2);
            prop_assert!(whole || (!told && proof == Proof::Sampled), "{proof:?}");
        }
    }
}
