//! The lines, and what each may take.

use super::*;

/// One connection alone fills it.
fn gigabit(round_trip: u64) -> Line {
    let length = (GIGABIT * 10.0) as u64;
    Line {
        length,
        all: GIGABIT,
        rate: |_| GIGABIT,
        shared: GIGABIT,
        connect: round_trip,
        answer: round_trip,
        slow_start: Some(round_trip),
        flight: round_trip as f64 + 2.0,
        ..HONEST
    }
}

/// A line of 10 Mbit/s to one home, which one connection fills.
fn home(round_trip: u64) -> Line {
    let rate = 1.25e6;
    Line {
        length: 12_500_000,
        all: rate,
        rate: |_| 1.25e6,
        shared: rate,
        flight: 100.0,
        ..gigabit(round_trip)
    }
}

const DELAY: Line = Line { answer: 150, slow_start: Some(150), flight: 150.0, ..HONEST };

/// The worst of many courses: files of other sizes, and other phases of the clock.
fn worst(line: Line) -> Took {
    let sizes = [0.9, 1.0, 1.1];
    let courses = (0..5).flat_map(|n| sizes.map(|size| Line { phase: n * 20, ..line }.resized(size)));
    courses
        .map(|line| World::new(line).run())
        .reduce(|a, b| Took {
            ratio: a.ratio.max(b.ratio),
            connects: a.connects.max(b.connects),
            requests: a.requests.max(b.requests),
            refused: a.refused.max(b.refused),
            waste: a.waste.max(b.waste),
        })
        .unwrap()
}

/// Holds the worst course to a ratio, connections made, and bytes beyond the file.
#[track_caller]
fn holds(line: Line, ratio: f64, connects: u64, waste: u64) {
    let took = worst(line);
    assert!(took.ratio <= ratio && took.connects <= connects && took.waste <= waste, "{took:?}");
}

#[test]
fn a_connection_in_three_that_crawls_is_replaced_before_it_costs_much() {
    let rate = |n: u64| if n.is_multiple_of(3) { RATE / 64.0 } else { RATE };
    holds(Line { rate, ..HONEST }, 1.04, 12, 128 << 10);
}

#[test]
fn where_little_comes_all_connections_are_there_within_a_few_hundredths_of_a_second() {
    holds(HONEST, 1.003, 8, 64 << 10);
    // A server that holds the rate fifty times a second.
    holds(Line { burst: Some(20), ..HONEST }, 1.004, 8, 128 << 10);
    assert_eq!(worst(HONEST).requests, 8);
}

#[test]
fn a_server_that_holds_a_rate_by_bursts_is_no_full_line_and_does_not_crawl() {
    for burst in [200, 500, 1000] {
        holds(Line { burst: Some(burst), ..HONEST }, 1.025, 12, MIB);
    }
}

#[test]
fn a_line_and_a_machine_that_stutter_are_judged_no_worse() {
    holds(Line { noisy: true, ..HONEST }, 1.05, 12, 128 << 10);
    holds(
        Line { noisy: true, rate: |n| if n.is_multiple_of(3) { RATE / 64.0 } else { RATE }, ..HONEST },
        1.08,
        16,
        256 << 10,
    );
    holds(Line { noisy: true, ..gigabit(1) }, 1.2, 12, MIB);
}

#[test]
fn a_slow_line_that_one_connection_fills_is_not_harmed_by_more() {
    for round_trip in [1, 10, 20] {
        holds(home(round_trip), 1.02, 8, 256 << 10);
        assert_eq!(worst(home(round_trip)).requests, 8);
    }
}

#[test]
fn a_server_that_takes_two_connections_is_asked_for_more_once() {
    let two = Line { rate: |_| 4.0 * RATE, most: 2, ..HONEST };
    holds(two, 1.02, 4, 256 << 10);
    assert_eq!(worst(two).refused, 2);
    // Also where it holds its rate fifty times a second.
    assert_eq!(worst(Line { burst: Some(20), ..two }).refused, 2);
    // From afar all are asked for at once, and those that are accepted count however the answers fall.
    holds(Line { most: 2, rate: |_| 4.0 * RATE, ..DELAY }, 1.12, 8, 2 * MIB);
}

#[test]
fn a_connection_that_was_cut_is_replaced_at_once() {
    for cut_after in [MIB, 2 * MIB] {
        holds(Line { cut_after: Some(cut_after), ..HONEST }, 1.004, 16, 64 << 10);
    }
}

#[test]
fn a_tail_whose_connection_goes_silent_is_fetched_by_others() {
    for tail in [5 * MIB, 2 * MIB, MIB, MIB / 4, MIB / 16] {
        holds(Line { silent_tail: tail, ..HONEST }, 1.08, 11, 64 << 10);
    }
}

#[test]
fn far_away_all_connections_are_asked_for_with_the_first_answer() {
    holds(DELAY, 1.08, 8, 512 << 10);
    // Connections have to be made over the distance too.
    holds(Line { connect: 150, ..DELAY }, 1.115, 8, 512 << 10);
}

#[test]
fn a_disk_that_freezes_is_no_reason_to_replace_connections() {
    let disk = Line { shared: 8.0 * RATE, rate: |_| f64::INFINITY, flight: 10.0, ..HONEST };
    holds(disk, 1.02, 5, MIB);
    // Less than what the engine calls blocked, and more.
    for freeze in [400, 700, 1500] {
        holds(Line { freezes: Some((2_500, freeze)), ..disk }, 1.03, 8, MIB);
    }
}

#[test]
fn where_one_connection_fills_the_line_four_are_tried_and_no_more() {
    holds(gigabit(1), 1.01, 5, MIB);
    // One more now and then, more and more seldom, in case the line has changed.
    let long = World::new(gigabit(1).resized(6.0)).run();
    assert!(long.connects <= 7 && long.ratio <= 1.01, "{long:?}");
    holds(gigabit(20), 1.03, 5, 4 * MIB);
}

#[test]
fn a_line_as_fast_as_the_machine_itself_is_not_divided_near_the_end() {
    // The client is what is full; buffers hold what is cut off.
    let all = 2e9;
    let loopback = Line { length: 1 << 30, shared: all, all, rate: |_| 2e9, flight: 5.0, ..HONEST };
    holds(loopback, 1.02, 5, 16 * MIB);
}

#[test]
fn connections_are_added_where_each_gets_only_a_part_of_a_shared_line() {
    let windowed = Line {
        length: 500 * MIB,
        shared: 50.0 * RATE,
        all: 50.0 * RATE,
        rate: |_| 10.0 * RATE,
        connect: 10,
        answer: 10,
        slow_start: Some(10),
        flight: 10.0,
        ..HONEST
    };
    holds(windowed, 1.04, 9, 2 * MIB);
}

#[test]
fn connections_of_unlike_speeds_are_done_together() {
    // Who comes later may be luckier than the first eight, and the ideal is of those.
    let mixed = Line { rate: |n| if n.is_multiple_of(2) { 0.4 * RATE } else { 1.6 * RATE }, ..HONEST };
    holds(mixed, 1.01, 12, 128 << 10);
}

#[test]
fn after_an_outage_as_many_connections_come_back() {
    holds(Line { outage: Some((3_000, 3_500)), ..HONEST }, 1.09, 26, 64 << 10);
}

#[test]
fn our_own_limit_is_neither_a_full_line_nor_a_crawling_connection() {
    let limited = Line {
        rate: |n| if n == 2 { RATE / 64.0 } else { RATE / 4.0 },
        all: 2.0 * RATE,
        limited: true,
        ..HONEST
    };
    let took = World::new(Line { length: 10 * MIB, ..limited }).run();
    assert!(took.connects <= 3, "{took:?}");
}
