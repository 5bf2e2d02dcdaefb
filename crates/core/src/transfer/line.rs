//! How well the line is used, in virtual time: model servers, a clock of a thousand turns a second, and what
//! it took beside what a client would need that knows everything.
//!
//! The lines are those of `tidegate-bench line`, and some that several connections share. Nothing here waits
//! or depends on the machine, so each figure is the same in every run and can be held to a bound.

mod lines;

use super::*;
use crate::answer::Answer;
use crate::headers::Headers;
use crate::request::{Destination, Mirror};
use std::collections::VecDeque;

const MIB: u64 = 1 << 20;

/// What an honest connection gets where each has a rate of its own, in bytes a second.
const RATE: f64 = MIB as f64;

/// Connections of one download.
const MOST: usize = 8;

/// Bytes a second on a line of 1 Gbit/s.
const GIGABIT: f64 = 118e6;

/// The first bytes of a connection before its first acknowledgement: ten segments.
const FIRST_WINDOW: f64 = 14_600.0;

/// How long a server takes to see that a client has gone.
const LEAVING: u64 = 20;

/// How often the engine looks at what runs, if nobody asks for it earlier.
const TICK: u64 = 100;

/// What the engine takes to prepare a part.
const PREPARING: u64 = 2;

/// A line and the server at its end. Times are milliseconds, rates bytes a second.
#[derive(Clone, Copy)]
struct Line {
    length: u64,
    /// What an ideal client gets from all connections together.
    all: f64,
    /// What a connection of this number gets; numbers begin at 1.
    rate: fn(u64) -> f64,
    /// What all get together.
    shared: f64,
    connect: u64,
    /// From a request to its head.
    answer: u64,
    /// A connection begins with ten segments and doubles in each such time.
    slow_start: Option<u64>,
    /// Bytes of so much time come at once, and then nothing, as some servers hold a rate.
    burst: Option<u64>,
    /// The line and the machine stutter.
    noisy: bool,
    /// So long is a byte on its way, buffers included.
    flight: f64,
    /// Further connections are answered 503.
    most: usize,
    /// Each second connection is cut after so many bytes.
    cut_after: Option<u64>,
    /// The first connection to come to the last so many bytes says nothing any more.
    silent_tail: u64,
    /// In every so many, the disk takes nothing for so many.
    freezes: Option<(u64, u64)>,
    /// Nothing can be reached from here to there, and all connections are lost.
    outage: Option<(u64, u64)>,
    /// It is our own limit that holds connections.
    limited: bool,
    /// When the engine's clock ticks.
    phase: u64,
}

impl Line {
    fn resized(self, size: f64) -> Self {
        Self { length: (self.length as f64 * size) as u64, ..self }
    }

    fn is_frozen(&self, now: u64) -> bool {
        self.freezes.is_some_and(|(every, long)| now % every >= every - long)
    }

    fn is_out(&self, now: u64) -> bool {
        self.outage.is_some_and(|(from, to)| (from..to).contains(&now))
    }

    /// What a client needs that knows everything, in milliseconds.
    fn ideal(&self) -> f64 {
        let flows = |now: &u64| !self.is_frozen(*now) && !self.is_out(*now);
        let turns = self.length as f64 / self.all * 1e3;
        (1..).filter(flows).take(turns.ceil() as usize).last().unwrap_or(1) as f64 - turns.ceil() + turns
    }
}

/// Each connection gets [`RATE`], near by, and eight of them need ten seconds.
const HONEST: Line = Line {
    length: 80 * MIB,
    all: 8.0 * RATE,
    rate: |_| RATE,
    shared: f64::INFINITY,
    connect: 1,
    answer: 1,
    slow_start: None,
    burst: None,
    noisy: false,
    flight: 1.0,
    most: usize::MAX,
    cut_after: None,
    silent_tail: 0,
    freezes: None,
    outage: None,
    limited: false,
    phase: 0,
};

struct Connection {
    number: u64,
    refused: bool,
    before_cut: Option<u64>,
    /// What it sends in a round trip, if that is less than its rate.
    window: f64,
    doubles_at: u64,
}

struct Run {
    order: Order,
    connection: Connection,
    headed_at: u64,
    headed: bool,
    body: Option<BodyPlan>,
    at: u64,
    body_end: u64,
    received: u64,
    /// Part of a byte.
    carry: f64,
    /// What it got in this turn.
    flow: f64,
    silent: bool,
}

/// What it took.
#[derive(Debug)]
struct Took {
    /// Time ÷ ideal.
    ratio: f64,
    connects: u64,
    requests: u64,
    refused: u64,
    /// Received, or sent in vain, beyond the file, in bytes.
    waste: u64,
}

struct World {
    line: Line,
    transfer: Transfer,
    begun: Instant,
    /// Milliseconds.
    now: u64,
    last_tick: u64,
    /// When the clock is to tick, if that is earlier than its next turn.
    wake: Option<u64>,
    runs: BTreeMap<SegmentId, Run>,
    idle: Vec<Connection>,
    /// When the server sees that these have gone.
    leaving: Vec<u64>,
    map: SpanSet,
    allowed: usize,
    host_limit: usize,
    prepared_at: Option<u64>,
    has_been_silent: bool,
    /// Sent to connections that were closed, and still on the line.
    ghosts: f64,
    frozen_for: u64,
    done: bool,
    connects: u64,
    numbered: u64,
    refused: u64,
    received: u64,
    vain: f64,
}

impl World {
    fn new(line: Line) -> Self {
        let begun = Instant::now();
        let mut request =
            Request::new(vec![Mirror::parse("http://h/f").unwrap()], Destination::Stdout).unwrap();
        request.options.connections = MOST;
        Self {
            line,
            transfer: Transfer::new(DownloadId(1), request, Found::Nothing, 1, begun),
            begun,
            now: 0,
            last_tick: 0,
            wake: None,
            runs: BTreeMap::new(),
            idle: Vec::new(),
            leaving: Vec::new(),
            map: SpanSet::new(),
            allowed: 0,
            host_limit: MOST,
            prepared_at: None,
            has_been_silent: false,
            ghosts: 0.0,
            frozen_for: 0,
            done: false,
            connects: 0,
            numbered: 0,
            refused: 0,
            received: 0,
            vain: 0.0,
        }
    }

    fn tell(&mut self, input: Input<'_>) {
        let now = self.begun + Duration::from_millis(self.now);
        let mut queue: VecDeque<Action> = self.transfer.handle(input, now).into();
        loop {
            while let Some(action) = queue.pop_front() {
                self.perform(action);
            }
            // As the engine shares connections out after each of its turns.
            let allowed = self.transfer.wants().min(self.host_limit);
            if allowed == self.allowed {
                break;
            }
            self.allowed = allowed;
            queue = self.transfer.handle(Input::Allow(allowed), now).into();
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Fetch(order) => {
                let kept = self.idle.pop();
                let connect = if kept.is_some() { 0 } else { self.line.connect };
                let connection = kept.unwrap_or_else(|| self.connect());
                let headed_at = self.now + connect + self.line.answer;
                let run = Run {
                    order: order.clone(),
                    connection,
                    headed_at,
                    headed: false,
                    body: None,
                    at: 0,
                    body_end: 0,
                    received: 0,
                    carry: 0.0,
                    flow: 0.0,
                    silent: false,
                };
                self.runs.insert(order.segment, run);
            }
            Action::Accept { segment, body } => self.runs.get_mut(&segment).unwrap().body = Some(body),
            Action::Drop { segment } => {
                if let Some(run) = self.runs.remove(&segment) {
                    self.close(run);
                }
            }
            Action::End { segment, at } => {
                if let Some(body) = self.runs.get_mut(&segment).and_then(|r| r.body.as_mut()) {
                    body.end = at;
                }
            }
            Action::Prepare(_) => self.prepared_at = Some(self.now + PREPARING),
            Action::Verify { .. } => self.done = true,
            Action::HostLimit { connections, .. } => self.host_limit = self.host_limit.min(connections),
            Action::WakeAt(at) => {
                let at = at.saturating_duration_since(self.begun).as_micros().div_ceil(1000) as u64;
                self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
            }
            Action::Learned(_) | Action::Tell(_) => {}
            Action::GiveUp(failure) => panic!("given up: {failure}"),
            Action::AwaitMachine { .. } => panic!("this machine lacks nothing"),
        }
    }

    fn connect(&mut self) -> Connection {
        let served = self.runs.values().filter(|r| !r.connection.refused).count();
        let refused = served + self.idle.len() + self.leaving.len() >= self.line.most;
        self.connects += 1;
        self.refused += u64::from(refused);
        self.numbered += u64::from(!refused);
        let number = self.numbered;
        let before_cut = self.line.cut_after.filter(|_| number.is_multiple_of(2));
        Connection { number, refused, before_cut, window: FIRST_WINDOW, doubles_at: 0 }
    }

    /// A connection is closed: what the server had sent is on its way all the same.
    fn close(&mut self, run: Run) {
        if !run.connection.refused {
            self.leaving.push(self.now + LEAVING);
        }
        let left = run.body_end.saturating_sub(run.at) as f64;
        let sent = (run.flow * self.line.flight).min(left);
        self.vain += sent;
        self.ghosts += sent;
    }

    fn head(&mut self, segment: SegmentId) {
        let run = self.runs.get_mut(&segment).unwrap();
        let mut headers = Headers::new();
        if run.connection.refused {
            headers.push("content-length", b"0");
            let answer = Answer::parse(503, false, &headers, 0);
            return self.tell(Input::Head { segment, answer: Box::new(answer) });
        }
        run.headed = true;
        run.connection.doubles_at = self.now + self.line.slow_start.unwrap_or(0);
        headers.push("etag", b"\"e\"");
        headers.push("accept-ranges", b"bytes");
        let length = self.line.length;
        let status = match run.order.range {
            Some((start, end)) => {
                let end = end.unwrap_or(length).min(length);
                (run.at, run.body_end) = (start, end);
                headers.push("content-range", format!("bytes {start}-{}/{length}", end - 1).as_bytes());
                206
            }
            None => {
                (run.at, run.body_end) = (0, length);
                200
            }
        };
        headers.push("content-length", (run.body_end - run.at).to_string().as_bytes());
        let answer = Answer::parse(status, false, &headers, 0);
        self.tell(Input::Head { segment, answer: Box::new(answer) });
    }

    /// What each connection would send in this turn.
    fn offers(&mut self) {
        let (now, line) = (self.now, self.line);
        for run in self.runs.values_mut() {
            run.flow = 0.0;
            if run.body.is_none() || run.silent || self.frozen_for > 0 {
                continue;
            }
            let connection = &mut run.connection;
            run.flow = (line.rate)(connection.number) / 1e3;
            if let Some(burst) = line.burst {
                let in_burst = (now - run.headed_at) % burst < burst / 20;
                run.flow = if in_burst { run.flow * 20.0 } else { 0.0 };
            }
            if line.noisy {
                // Each goes at half to one and a half of its speed, and now and then all stand still.
                let mut dice = crate::dice::Dice::new(now / 50 + line.phase * 1000);
                let stands = dice.below(8) == 0;
                let mut dice = crate::dice::Dice::new(dice.next_u64() ^ connection.number);
                run.flow *= if stands { 0.0 } else { (0.5 + dice.fraction()) * 8.0 / 7.0 };
            }
            let Some(round_trip) = line.slow_start else { continue };
            if now >= connection.doubles_at {
                connection.window *= 2.0;
                connection.doubles_at = now + round_trip;
            }
            run.flow = run.flow.min(connection.window / round_trip as f64);
        }
    }

    /// Divides the shared line: nobody gets more than it asks for, and what is left is shared evenly.
    fn share(&mut self) {
        let mut left = self.line.shared / 1e3;
        let ghosts = self.ghosts.min(left);
        self.ghosts = if left.is_finite() { self.ghosts - ghosts } else { 0.0 };
        left -= ghosts;
        let mut wanting: Vec<SegmentId> =
            self.runs.iter().filter(|(_, r)| r.flow > 0.0).map(|(segment, _)| *segment).collect();
        wanting.sort_by(|a, b| self.runs[a].flow.total_cmp(&self.runs[b].flow));
        let mut many = wanting.len();
        for segment in wanting {
            let run = self.runs.get_mut(&segment).unwrap();
            run.flow = run.flow.min(left / many as f64);
            left -= run.flow;
            many -= 1;
        }
    }

    /// One turn of one connection, as the data thread does it.
    fn flow(&mut self, segment: SegmentId) -> Option<Input<'static>> {
        let silent_from = self.line.length - self.line.silent_tail;
        let run = self.runs.get_mut(&segment)?;
        let body = run.body.as_ref()?;
        run.carry += run.flow;
        let mut most = run.carry as u64;
        run.carry -= most as f64;
        if let Some(left) = &mut run.connection.before_cut {
            most = most.min(*left);
            *left -= most;
        }
        if run.at < silent_from {
            most = most.min(silent_from - run.at);
        } else if self.line.silent_tail > 0 && !std::mem::replace(&mut self.has_been_silent, true) {
            run.silent = true;
            return None;
        }
        let to = (run.at + most).min(run.body_end);
        let own = to.min(body.end);
        Span::new(run.at, own).into_iter().for_each(|span| self.map.insert(span));
        // Beyond its end it compares what its neighbour has written.
        let to = self.map.run_end(run.at.max(own)).min(body.end.saturating_add(body.seam)).min(to).max(own);
        let to = to.max(run.at);
        run.received += to - run.at;
        self.received += to - run.at;
        run.at = to;
        let whole_body = run.at >= run.body_end;
        let compared = run.at >= body.end.saturating_add(body.seam) || self.map.run_end(run.at) == run.at;
        let cut = run.connection.before_cut == Some(0) && !whole_body;
        if !(whole_body || run.at >= body.end && compared || cut) {
            return None;
        }
        let mut run = self.runs.remove(&segment)?;
        let (pos, received) = (run.at, run.received);
        if cut {
            self.leaving.push(self.now);
            let end = End::Failed(Failure::new(Code::EndedEarly, "cut"));
            return Some(Input::Ended { segment, end, pos, received });
        }
        if run.body_end - run.at <= 64 << 10 {
            // What little is left is read, and the connection kept.
            self.received += run.body_end - run.at;
            run.at = run.body_end;
            self.idle.push(run.connection);
        } else {
            self.close(run);
        }
        let end = End::Finished { pos, whole_body, flat: false };
        Some(Input::Ended { segment, end, pos, received })
    }

    fn turn(&mut self) {
        self.now += 1;
        let now = self.now;
        self.leaving.retain(|at| *at > now);
        if self.prepared_at.is_some_and(|at| at <= now) {
            self.prepared_at = None;
            self.tell(Input::Prepared);
        }
        let due: Vec<SegmentId> =
            self.runs.iter().filter(|(_, r)| !r.headed && r.headed_at <= now).map(|(s, _)| *s).collect();
        for segment in due {
            if self.runs.contains_key(&segment) {
                self.head(segment);
            }
        }
        self.frozen_for = if self.line.is_frozen(now) { self.frozen_for + 1 } else { 0 };
        self.offers();
        self.share();
        let ids: Vec<SegmentId> = self.runs.keys().copied().collect();
        if self.line.is_out(now) {
            self.idle.clear();
            for segment in ids {
                let Some(run) = self.runs.remove(&segment) else { continue };
                let code = if run.headed { Code::ConnectionLost } else { Code::ConnectFailed };
                let end = End::Failed(Failure::new(code, "nothing can be reached"));
                self.tell(Input::Ended { segment, end, pos: run.at, received: run.received });
            }
            return self.tick();
        }
        for segment in ids {
            if let Some(input) = self.flow(segment) {
                self.tell(input);
            }
        }
        self.tick();
    }

    fn tick(&mut self) {
        let first = self.last_tick == 0 && self.now == TICK - self.line.phase;
        let due = first || self.last_tick > 0 && self.now >= self.last_tick + TICK;
        if (due || self.wake.is_some_and(|at| self.now >= at)) && !self.done {
            self.last_tick = self.now;
            self.wake = None;
            let counts: Vec<Count> = self
                .runs
                .iter()
                .filter(|(_, r)| r.body.is_some())
                .map(|(s, r)| Count {
                    segment: *s,
                    pos: r.at,
                    received: r.received,
                    limited: self.line.limited,
                    outgrown: false,
                })
                .collect();
            self.tell(Input::Tick { counts: &counts, disk_blocked: self.frozen_for >= 500 });
        }
    }

    fn run(mut self) -> Took {
        self.tell(Input::Begin);
        while !self.done {
            self.turn();
            assert!(self.now < 200_000, "it does not end");
        }
        Took {
            ratio: self.now as f64 / self.line.ideal(),
            connects: self.connects,
            requests: self.transfer.requests,
            refused: self.refused,
            waste: self.received + self.vain as u64 - self.line.length,
        }
    }
}
