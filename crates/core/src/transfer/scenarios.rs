//! Single courses of events, told step by step.

use super::*;
use crate::answer::Answer;
use crate::headers::Headers;
use crate::id::MirrorId;
use crate::request::{Destination, Mirror};

/// Bytes of a file that is worth several connections.
const LONG: u64 = 100 << 20;

/// A transfer and what it wants done, with the time it is.
struct Course {
    transfer: Transfer,
    now: Instant,
    actions: Vec<Action>,
}

impl Course {
    fn begin(found: Found, shape: impl FnOnce(&mut Request)) -> Self {
        Self::begin_with(&["http://h/f"], found, shape)
    }

    fn begin_with(links: &[&str], found: Found, shape: impl FnOnce(&mut Request)) -> Self {
        let now = Instant::now();
        let mirrors = links.iter().map(|link| Mirror::parse(link).unwrap()).collect();
        let mut request = Request::new(mirrors, Destination::Stdout).unwrap();
        request.options.retry_wait = Duration::from_millis(50);
        shape(&mut request);
        let transfer = Transfer::new(DownloadId(1), request, found, 1, now);
        let mut course = Self { transfer, now, actions: Vec::new() };
        course.tell(Input::Allow(8));
        course.tell(Input::Begin);
        course
    }

    /// One input; what it wants done replaces what it wanted before.
    fn tell(&mut self, input: Input<'_>) {
        self.actions = self.transfer.handle(input, self.now);
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.tell(Input::Tick { counts: &[], disk_blocked: false });
    }

    fn asked(&self) -> Vec<Order> {
        let order = |a: &Action| if let Action::Fetch(order) = a { Some(order.clone()) } else { None };
        self.actions.iter().filter_map(order).collect()
    }

    fn accepted(&self) -> Option<&BodyPlan> {
        self.actions.iter().find_map(|a| if let Action::Accept { body, .. } = a { Some(body) } else { None })
    }

    fn verifies(&self) -> Option<Proof> {
        let proof = |a: &Action| if let Action::Verify { proof, .. } = a { Some(*proof) } else { None };
        self.actions.iter().find_map(proof)
    }

    fn is_preparing(&self) -> bool {
        self.actions.iter().any(|a| matches!(a, Action::Prepare(_)))
    }

    fn answer(&mut self, segment: SegmentId, status: u16, fields: &[(&str, &str)]) {
        let mut headers = Headers::default();
        fields.iter().for_each(|(name, value)| headers.push(name, value.as_bytes()));
        self.tell(Input::Head { segment, answer: Box::new(Answer::parse(status, false, &headers, 0)) });
    }

    /// The server gives the part that was asked for; tells where it begins.
    fn answer_part(&mut self, order: &Order) -> u64 {
        let (start, end) = order.range.map(|(start, end)| (start, end.unwrap())).unwrap();
        let range = format!("bytes {start}-{}/{LONG}", end - 1);
        self.answer(order.segment, 206, &[("content-range", &range), ("etag", "\"a\"")]);
        start
    }

    fn breaks(&mut self, segment: SegmentId, pos: u64) {
        let end = End::Failed(Failure::new(Code::ConnectionLost, "reset"));
        self.tell(Input::Ended { segment, end, pos, received: pos });
    }
}

fn waits_with(actions: &[Action]) -> Option<(&Failure, Duration)> {
    actions.iter().find_map(|a| match a {
        Action::Tell(EventKind::Waiting { failure, retry_in }) => Some((failure, *retry_in)),
        _ => None,
    })
}

#[test]
fn what_a_broken_answer_brought_is_here_and_is_told() {
    let mut course = Course::begin(Found::Nothing, |request| request.options.retries = 1);
    // Each answer brings ten bytes more than the last, and the network then breaks: no attempt is in vain.
    for round in 1..=6 {
        let segment = course.asked().first().expect("it asks again").segment;
        course.answer(segment, 200, &[("content-length", "100"), ("accept-ranges", "none")]);
        if course.is_preparing() {
            course.tell(Input::Prepared);
        }
        course.breaks(segment, 10 * round);
        assert_eq!(course.transfer.have().total(), 10 * round);
        let told = format!("ended early, {} of 100 bytes are here: reset", 10 * round);
        let said = waits_with(&course.actions).map(|(failure, _)| failure.message.clone());
        assert_eq!(said, Some(told));
        course.wait(5);
    }
}

#[test]
fn a_wait_that_a_second_connection_was_asked_for_is_bounded_and_told() {
    let mut course = Course::begin(Found::Nothing, |_| {});
    let first = course.asked()[0].segment;
    let whole = [("content-length", "10000000"), ("accept-ranges", "bytes"), ("etag", "\"a\"")];
    course.answer(first, 200, &whole);
    course.tell(Input::Prepared);
    let second = course.asked()[0].segment;
    course.answer(second, 503, &[("retry-after", "86400")]);
    course.wait(1);
    // The first brought its part; what was left for the second must wait.
    let end = End::Finished { pos: 5_000_000, whole_body: false, flat: false };
    course.tell(Input::Ended { segment: first, end, pos: 5_000_000, received: 5_000_000 });
    assert!(course.asked().is_empty());
    let (_, wait) = waits_with(&course.actions).expect("the wait is told");
    assert!(wait <= Duration::from_secs(15 * 60), "{wait:?}");
    course.wait(15 * 60);
    assert_eq!(course.asked().len(), 1);
}

fn found(length: u64) -> Found {
    let identity = Identity { length: Some(length), last_modified: Some(1000), ..Identity::default() };
    Found::Recorded { identity, spans: Span::new(0, length).into_iter().collect() }
}

#[test]
fn bytes_from_before_that_were_not_reached_by_the_comparing_answer_are_not_done() {
    let mut course = Course::begin(found(100_000), |_| {});
    // No ranges: the whole comes, is compared, and breaks off half way.
    for round in 0..3 {
        let asked = course.asked();
        let segment = asked.first().expect("it asks again").segment;
        course.answer(segment, 200, &[("content-length", "100000")]);
        assert!(course.is_preparing(), "round {round}: {:?}", course.actions);
        course.tell(Input::Prepared);
        assert!(course.accepted().is_some_and(|body| body.doubtful), "round {round}: {:?}", course.actions);
        if round < 2 {
            course.breaks(segment, 50_000);
            assert_eq!(course.verifies(), None, "round {round}");
            for input in [Input::Pause, Input::Resume] {
                course.tell(input);
                assert_eq!(course.verifies(), None, "round {round}");
            }
            if course.asked().is_empty() {
                course.wait(5);
            }
            assert_eq!(course.verifies(), None, "round {round}");
        } else {
            let end = End::Finished { pos: 100_000, whole_body: true, flat: false };
            course.tell(Input::Ended { segment, end, pos: 100_000, received: 100_000 });
        }
    }
    assert_eq!(course.verifies(), Some(Proof::Answers));
}

#[test]
fn an_answer_that_is_coded_in_another_way_is_decoded_or_not_taken() {
    let mut course = Course::begin(Found::Nothing, |_| {});
    let first = course.asked()[0].segment;
    course.answer(first, 200, &[("content-length", "100"), ("accept-ranges", "none")]);
    course.tell(Input::Prepared);
    course.breaks(first, 0);
    course.wait(5);
    let second = course.asked()[0].segment;
    course.answer(second, 200, &[("content-length", "40"), ("content-encoding", "gzip")]);
    if course.is_preparing() {
        course.tell(Input::Prepared);
    }
    let accepted = course.accepted();
    assert!(accepted.is_none_or(|body| body.codings == [Coding::Gzip]), "{accepted:?}");
    assert!(accepted.is_some() || !course.asked().is_empty(), "it does not go on");
}

#[test]
fn a_pause_while_proved_bytes_are_prepared_for_loses_none_of_them() {
    let length = 10_000_000;
    let spans: SpanSet = Span::new(0, 5_000_000).into_iter().collect();
    let identity = Identity { length: Some(length), last_modified: Some(1000), ..Identity::default() };
    let mut course = Course::begin(Found::Recorded { identity, spans }, |_| {});
    for _ in 0..2 {
        // Window after window is found equal, until the cold side is asked to take the bytes as proved.
        let mut prepared = 0;
        while prepared < 2 {
            if course.is_preparing() {
                prepared += 1;
                if prepared == 1 {
                    course.tell(Input::Prepared);
                }
                continue;
            }
            let order = course.asked().first().cloned();
            let order = order.or_else(|| {
                course.transfer.fetches.iter().next().map(|(segment, f)| Order {
                    segment: *segment,
                    mirror: MirrorId(0),
                    url: f.url.clone(),
                    range: f.range,
                    if_range: None,
                })
            });
            let Order { segment, range, .. } = order.expect("something is asked");
            let (start, end) = range.map(|(start, end)| (start, end.unwrap_or(length))).unwrap();
            if !course.transfer.fetches[&segment].accepted {
                let range = format!("bytes {start}-{}/{length}", end - 1);
                course.answer(
                    segment,
                    206,
                    &[("content-range", &range), ("last-modified", "Thu, 01 Jan 1970 00:16:40 GMT")],
                );
                if course.is_preparing() {
                    continue;
                }
            }
            let ended = End::Finished { pos: end, whole_body: true, flat: false };
            course.tell(Input::Ended { segment, end: ended, pos: end, received: end - start });
        }
        course.tell(Input::Pause);
        course.tell(Input::Resume);
        assert_eq!(course.transfer.have().total(), 5_000_000);
        assert!(course.asked().iter().all(|order| order.range.is_some()), "{:?}", course.asked());
    }
}

/// A first answer without a length, of which so many bytes came.
fn of_unknown_length(bytes: u64) -> (Course, SegmentId) {
    let mut course = Course::begin(Found::Nothing, |_| {});
    let first = course.asked()[0].segment;
    course.answer(first, 200, &[("transfer-encoding", "chunked"), ("accept-ranges", "bytes")]);
    course.tell(Input::Prepared);
    let counts = [Count { segment: first, pos: bytes, received: bytes, limited: false, outgrown: false }];
    course.tell(Input::Tick { counts: &counts, disk_blocked: false });
    (course, first)
}

#[test]
fn a_length_that_is_told_in_passing_does_not_cut_what_has_come() {
    let bytes = 10 << 20;
    let (mut course, first) = of_unknown_length(bytes);
    let asked = course.asked().first().map(|order| order.segment).expect("the length is asked for");
    course.answer(asked, 416, &[("content-range", "bytes */5")]);
    assert_eq!(course.verifies(), None);
    let end = End::Finished { pos: bytes, whole_body: true, flat: false };
    course.tell(Input::Ended { segment: first, end, pos: bytes, received: bytes });
    assert_eq!(course.transfer.length(), Some(bytes));
    assert!(course.verifies().is_some());
}

#[test]
fn what_a_dropped_fetch_wrote_uncounted_is_not_vouched_for_by_another_servers_tag() {
    let mut course = Course::begin_with(&["http://a/f", "http://b/f"], Found::Nothing, |_| {});
    let plain = [("content-length", "10000000"), ("accept-ranges", "bytes")];
    let tagged = [("content-length", "10000000"), ("accept-ranges", "bytes"), ("etag", "\"t\"")];
    // The first server is busy, and the second begins.
    let first = course.asked()[0].segment;
    course.answer(first, 503, &[("retry-after", "1")]);
    let order = course.asked().first().cloned().expect("the other is asked");
    assert_eq!(order.mirror, MirrorId(1));
    course.answer(order.segment, 200, &plain);
    course.tell(Input::Prepared);
    assert!(course.accepted().is_some());
    // It writes, and before anything is counted there is a pause.
    course.tell(Input::Pause);
    course.now += Duration::from_secs(5);
    course.tell(Input::Resume);
    for _ in 0..4 {
        let Some(order) = course.asked().first().cloned() else { break };
        match order.mirror {
            MirrorId(1) => course.answer(order.segment, 404, &[]),
            _ => {
                course.answer(order.segment, 200, &tagged);
                if course.is_preparing() {
                    course.tell(Input::Prepared);
                }
                break;
            }
        }
    }
    let says_so = |a: &Action| matches!(a, Action::Learned(identity) if identity.etag.is_some());
    assert!(!course.actions.iter().any(says_so), "{:?}", course.actions);
    let restarted = course.transfer.must_restart.is_some() || !course.transfer.wrote;
    assert!(restarted || course.accepted().is_none_or(|body| body.doubtful), "{:?}", course.actions);
}

/// Two connections at work on a file of `LONG` bytes: the whole, and the part that begins at the last of these.
fn two_at_work() -> (Course, SegmentId, SegmentId, u64) {
    let mut course = Course::begin(Found::Nothing, |request| request.options.min_split = 1 << 20);
    let first = course.asked()[0].segment;
    let length = LONG.to_string();
    let fields = [("content-length", length.as_str()), ("accept-ranges", "bytes"), ("etag", "\"a\"")];
    course.answer(first, 200, &fields);
    course.tell(Input::Prepared);
    let second = course.asked()[0].clone();
    let start = course.answer_part(&second);
    (course, first, second.segment, start)
}

#[test]
fn a_connection_that_brought_something_before_it_was_cut_is_replaced_at_once() {
    for (brought, at_once) in [(1 << 20, true), (1 << 10, false)] {
        let (mut course, _, second, start) = two_at_work();
        let end = End::Failed(Failure::new(Code::ConnectionLost, "reset"));
        let ended = Input::Ended { segment: second, end, pos: start + brought, received: brought };
        course.tell(ended);
        assert_eq!(!course.asked().is_empty(), at_once, "{brought} bytes: {:?}", course.actions);
    }
}

/// Two connections that could be faster, and the newcomer for the first works or not.
fn outgrown(works: bool) {
    let (mut course, first, second, start) = two_at_work();
    let count = |segment, pos, received, outgrown| Count { segment, pos, received, limited: true, outgrown };
    let dropped = |course: &Course| {
        let drops = course.actions.iter().filter(|a| matches!(a, Action::Drop { .. })).count();
        (drops, course.asked().first().cloned())
    };
    let at = 1 << 16;
    let slow = |outgrown| [count(first, at, at, outgrown), count(second, start + at, at, outgrown)];
    let tick = |course: &mut Course, millis, counts: &[Count]| {
        course.now += Duration::from_millis(millis);
        course.tell(Input::Tick { counts, disk_blocked: false });
    };
    tick(&mut course, 3000, &slow(false));
    assert_eq!(dropped(&course).0, 0);
    tick(&mut course, 100, &slow(true));
    // It goes on from where the other stopped.
    let (drops, asked) = dropped(&course);
    let newcomer = asked.unwrap();
    let from = newcomer.range.unwrap().0;
    assert_eq!((drops, from), (1, at));
    // As long as nobody knows whether that works, the other stays.
    tick(&mut course, 100, &slow(true)[1..]);
    assert_eq!(dropped(&course).0, 0);
    assert_eq!(course.answer_part(&newcomer), from);
    let fine = |more| count(newcomer.segment, from + more, more, false);
    tick(&mut course, 100, &[slow(true)[1], fine(at)]);
    assert_eq!(dropped(&course).0, 0);
    if works {
        tick(&mut course, 3000, &[slow(true)[1], fine(2 * at)]);
        let (drops, asked) = dropped(&course);
        assert_eq!((drops, asked.and_then(|o| o.range).map(|(from, _)| from)), (1, Some(start + at)));
    } else {
        course.breaks(newcomer.segment, from + at);
        for _ in 0..100 {
            tick(&mut course, 1000, &slow(true)[1..]);
            let gone = course.actions.contains(&Action::Drop { segment: second });
            assert!(!gone, "the last one that delivers");
        }
    }
}

#[test]
fn connections_opened_under_a_limit_are_replaced_one_after_the_other_once_they_could_be_faster() {
    outgrown(true);
}

#[test]
fn once_a_newcomer_failed_connections_opened_under_a_limit_are_kept() {
    outgrown(false);
}

#[test]
fn what_was_written_since_the_last_turn_is_counted_before_fetches_are_dropped() {
    let (mut course, first, second, start) = two_at_work();
    let count = |segment, pos, received| Count { segment, pos, received, limited: false, outgrown: false };
    let before = course.transfer.have().total();
    course.tell(Input::Counts(&[count(first, 3000, 3000), count(second, start + 2000, 2000)]));
    let end = End::Failed(Failure::new(Code::DiskFull, "full"));
    course.tell(Input::Ended { segment: first, end, pos: 3000, received: 3000 });
    assert!(matches!(course.transfer.state, State::Machine { .. }));
    assert_eq!(course.transfer.have().total(), before + 5000);
    // When there is room again, or seems to be, one connection finds out.
    course.tell(Input::MachineReady);
    assert_eq!(course.asked().len(), 1);
    assert_eq!(course.transfer.wants(), 1);
}

#[test]
fn counts_between_the_turns_of_the_clock_change_no_speed() {
    let run = |between: bool| {
        let (mut course, first, ..) = two_at_work();
        let at =
            |received| Count { segment: first, pos: received, received, limited: false, outgrown: false };
        for turn in 1..=20u64 {
            course.now += Duration::from_millis(60);
            if between {
                course.tell(Input::Counts(&[at(turn * 1000 - 400)]));
            }
            course.now += Duration::from_millis(40);
            course.tell(Input::Tick { counts: &[at(turn * 1000)], disk_blocked: false });
        }
        course.transfer.fetches[&first].speed
    };
    assert!((run(true) - 1e4).abs() < 1.0 && (run(false) - 1e4).abs() < 1.0, "{} {}", run(true), run(false));
}
