//! One file, one run: lies about ranges and lengths, busy servers, slow ones, and ones that go away.

use crate::common::{LONG, N, Place, USUAL, b, played};
use std::time::Instant;
use tidegate_testkit::pace::{Pace, Rate};
use tidegate_testkit::recipes::{self, Given};
use tidegate_testkit::resource::Ranges;
use tidegate_testkit::{Answer, Body, Ending, Framing, Origin, Resource, Site};

const FILE: &str = "/file.bin";

/// The recipe, with each connection held to this rate: so that more than one is worth having.
fn paced(name: &str, rate: Rate) -> Origin {
    let builder = recipes::find(name).unwrap().builder(&Given::default());
    let slow = |site: Site| {
        let file = site.get(FILE).unwrap().clone();
        site.with(FILE, file.pace(Pace::Connection(rate)))
    };
    builder.each_site(slow).start().unwrap()
}

/// Fetches the file of this Origin, which must come whole.
#[track_caller]
fn comes_whole(origin: &Origin) -> Place {
    let place = Place::new();
    let ended = place.get(&[&origin.entry_url()]).done();
    println!("{:?}, {:?}", ended.took, origin.counters());
    place.holds_only("file.bin", &origin.right()[0]);
    place
}

#[test]
fn tc_01_a_200_to_a_range_is_never_written_at_an_offset() {
    let origin = played("tc-01");
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.body_bytes <= 2 * N, "{counters:?}");
    assert!(counters.requests <= 1 + 2 * 8, "{counters:?}");
}

#[test]
fn tc_01_ranges_ignored_on_slow_connections_cost_no_more() {
    let origin = paced("tc-01", Rate::mib(3));
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.body_bytes <= 2 * N && counters.requests <= 1 + 2 * 8, "{counters:?}");
}

#[test]
fn tc_04_a_206_that_begins_elsewhere_is_refused_before_a_byte_is_written() {
    let origin = paced("tc-04", Rate::mib(3));
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.body_bytes <= 2 * N && counters.requests <= 1 + 2 * 8, "{counters:?}");
}

#[test]
fn tc_06_a_file_that_grows_is_one_of_its_versions_or_nothing() {
    let origin = paced("tc-06", Rate::mib(3));
    let place = Place::new();
    let ended = place.get(&[&origin.entry_url()]);
    println!("{ended:?}");
    if ended.code == 0 {
        assert_eq!(place.names(), ["file.bin"]);
        assert!(origin.right().iter().any(|version| place.holds("file.bin", version)));
    } else {
        ended.failed(1, "[changed]");
        place.holds_nothing_whole();
    }
}

#[test]
fn tc_07_content_range_on_a_200_means_nothing() {
    let origin = paced("tc-07", Rate::mib(4));
    comes_whole(&origin);
    assert!(origin.counters().body_bytes <= 2 * N, "{:?}", origin.counters());
}

#[test]
fn tc_08_a_total_that_is_not_told_is_not_zero() {
    let origin = paced("tc-08", Rate::mib(2));
    comes_whole(&origin);
    assert!(origin.counters().body_bytes <= 2 * N, "{:?}", origin.counters());
}

#[test]
fn tc_09_a_size_told_only_by_content_range_is_learned_and_used() {
    let origin = paced("tc-09", Rate::mib(2));
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.body_bytes <= 2 * N, "{counters:?}");
    assert!(counters.peak_in_flight >= 2, "one connection only: {counters:?}");
}

#[test]
fn chunks_beyond_the_part_that_was_announced_are_no_part_of_the_file() {
    let origin = paced("range-chunked-beyond", Rate::mib(2));
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.status(206) > 0, "the probe is blind: {counters:?}");
    // What else such a server may say is not waited for.
    assert!(counters.connects > counters.status(206), "a connection was used again: {counters:?}");
}

#[test]
fn a_server_that_gives_4_kib_for_each_range_is_not_asked_for_each_4_kib() {
    let origin = paced("range-capped-4-kib", Rate::mib(2));
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.status(206) >= 8, "the probe is blind: {counters:?}");
    assert!(counters.requests <= 40 && counters.body_bytes <= 2 * N, "{counters:?}");
}

#[test]
fn tc_10_chunked_wins_over_content_length() {
    comes_whole(&played("tc-10"));
}

#[test]
fn tc_19_a_coding_that_nobody_asked_for_is_undone() {
    let origin = played("tc-19");
    let place = comes_whole(&origin);
    assert_eq!(place.names(), ["file.bin"]);

    // And stopped in the middle and gone on with, which a decoded body cannot be: it begins anew.
    let origin = paced("tc-19", Rate::kib(512));
    let place = Place::new();
    let mut most = 0;
    let words = [origin.entry_url()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    place.stop_at(&words, |event| event["event"] == "progress" && event["have"].as_u64() > Some(64 << 10));
    let ended = place.get_json(&words).done();
    for event in ended.events() {
        if let (Some(have), Some(length)) = (event["have"].as_u64(), event["length"].as_u64()) {
            most = most.max(have * 100 / length.max(1));
        }
    }
    assert!(most <= 100, "{most} %");
    place.holds_only("file.bin", &origin.right()[0]);
}

#[test]
fn tc_21_a_body_that_always_ends_early_is_never_complete() {
    let origin = played("tc-21");
    let place = Place::new();
    place.get(&[&origin.entry_url()]).failed(1, "ended early, 3355443 of 8388608");
    place.holds_nothing_whole();
    assert!(origin.counters().requests <= 6, "{:?}", origin.counters());
}

#[test]
fn tc_23_the_page_of_a_busy_server_is_no_part_of_the_file() {
    let origin = paced("tc-23", Rate::mib(2));
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.requests <= 24, "{counters:?}");

    let origin = played("429-at-first");
    comes_whole(&origin);
    let requests = origin.requests();
    let pause = requests[1].at - requests[0].at;
    assert!(pause.as_millis() >= 1000, "asked again after {pause:?}, but Retry-After was 1 s");
}

#[test]
fn tc_25_a_crawling_connection_holds_nothing_up() {
    let origin = played("tc-25");
    comes_whole(&origin);
    let log = origin.log();
    let crawling: Vec<u64> = log.iter().filter(|e| e.request.hit % 3 == 0).map(|e| e.body_bytes).collect();
    println!("{} requests; crawling ones gave {crawling:?}", log.len());
    assert!(!crawling.is_empty(), "no connection crawled");
    // At 16 KiB/s that would be 16 s for one of them.
    assert!(crawling.iter().all(|bytes| *bytes <= 256 << 10), "{crawling:?}");
    assert!(log.len() <= 100 && origin.counters().body_bytes <= 2 * N, "{:?}", origin.counters());
}

#[test]
fn tc_27_a_limit_of_connections_is_found_and_kept_to() {
    let origin = played("tc-27");
    comes_whole(&origin);
    let counters = origin.counters();
    assert!(counters.status(503) <= 12, "{counters:?}");

    // Three files at once from one host: the limit is the host's.
    let bodies: Vec<Body> = (10..13).map(|seed| Body::random(seed, 3 << 20)).collect();
    let busy = Answer::new(503, Body::bytes("")).with("Retry-After", "1");
    let mut site = Site::new().most_in_flight(2, busy);
    for (index, body) in bodies.iter().enumerate() {
        let file = Resource::new(body.clone()).pace(Pace::Connection(Rate::mib(2)));
        site.put(&format!("/{index}.bin"), file);
    }
    let origin = Origin::builder().site(site).start().unwrap();
    let place = Place::new();
    let urls: Vec<String> = (0..3).map(|index| origin.url(&format!("/{index}.bin"))).collect();
    let ended = place.get(&urls.iter().map(String::as_str).collect::<Vec<_>>()).done();
    println!("{:?}, {:?}", ended.took, origin.counters());
    assert_eq!(place.names(), ["0.bin", "1.bin", "2.bin"]);
    for (index, body) in bodies.iter().enumerate() {
        assert!(place.holds(&format!("{index}.bin"), body), "{index}");
    }
    assert!(origin.counters().status(503) <= 12, "{:?}", origin.counters());
}

#[test]
fn tc_29_a_link_that_is_good_once_is_used_for_the_file() {
    let origin = paced("tc-29", Rate::mib(4));
    comes_whole(&origin);
    assert_eq!(origin.log()[0].status, Some(200), "the first request was no download");
    assert!(origin.counters().requests <= 9, "{:?}", origin.counters());
}

#[test]
fn tc_31_a_refused_head_costs_nothing() {
    for name in ["tc-31", "head-403", "head-501"] {
        let origin = paced(name, Rate::mib(2));
        comes_whole(&origin);
        assert!(
            origin.counters().peak_in_flight >= 2,
            "{name}: one connection only: {:?}",
            origin.counters()
        );
    }
}

#[test]
fn tc_32_where_ranges_are_refused_one_plain_request_does() {
    for rate in [Rate::mib(1000), Rate::mib(3)] {
        let origin = paced("tc-32", rate);
        comes_whole(&origin);
        let counters = origin.counters();
        assert!(counters.requests <= 9 && counters.status(200) == 1, "{counters:?}");
        assert_eq!(counters.body_bytes / N, 1, "{counters:?}");
    }
}

#[test]
fn tc_40_a_network_that_goes_away_and_comes_back_costs_no_file() {
    let origin = played("tc-40");
    let place = Place::new();
    let running = place.start(&[&["get"], &USUAL[..], &[&origin.entry_url()]].concat());
    assert!(origin.wait_until(LONG, |counters| counters.body_bytes > 1 << 20));
    origin.drop_network();
    let (gone, before) = (Instant::now(), origin.counters().refused);
    assert!(origin.wait_until(LONG, |counters| counters.refused >= before + 3));
    let (gap, attempts) = (gone.elapsed(), origin.counters().refused - before);
    origin.restore_network();
    let back = Instant::now();
    let ended = running.end().done();
    println!("{attempts} attempts in {gap:?}; whole {:?} after its return, {ended:?}", back.elapsed());
    assert!(attempts as f64 <= 2.0 * gap.as_secs_f64() + 1.0, "{attempts} attempts in {gap:?}");
    place.holds_only("file.bin", &b());
}

#[test]
fn tc_40_connects_that_are_refused_are_no_end_either() {
    let origin = played("tc-40");
    let place = Place::new();
    let mut running = place.start(&[&["get", "--json"], &USUAL[..], &[&origin.entry_url()]].concat());
    assert!(origin.wait_until(LONG, |counters| counters.body_bytes > 1 << 20));
    origin.refuse_connects();
    for _ in 0..2 {
        running.until(|event| event["event"] == "waiting");
    }
    origin.restore_network();
    running.end().done();
    place.holds_only("file.bin", &b());
}

#[test]
fn tc_41_nothing_is_a_whole_file_of_no_bytes() {
    let origin = played("tc-41");
    comes_whole(&origin);
    assert!(origin.counters().requests <= 2, "{:?}", origin.counters());
    comes_whole(&played("empty-chunked"));
}

#[test]
fn one_byte_is_a_whole_file() {
    for framing in [Framing::Length, Framing::Chunked(1), Framing::UntilClose] {
        let origin = Origin::serve(Resource::new(Body::bytes("x")).framing(framing)).unwrap();
        comes_whole(&origin);
    }
}

#[test]
fn a_close_ends_a_body_of_unknown_length_and_a_reset_does_not() {
    comes_whole(&played("until-close"));

    let origin = played("until-close-reset");
    let place = Place::new();
    let ended = place.get(&["--retry-wait", "100ms", &origin.entry_url()]);
    ended.failed(1, "[connection-lost]");
    place.holds_nothing_whole();
    assert!(origin.counters().requests <= 6, "{:?}", origin.counters());
}

#[test]
fn standard_output_gets_the_right_bytes_in_order_or_an_error() {
    let place = Place::new();
    for name in ["honest", "tc-01", "cut-once", "until-close", "chunked", "tc-19"] {
        let origin = played(name);
        let ended = place.get(&["-o", "-", &origin.entry_url()]).done();
        let difference = origin.right()[0].first_difference(&ended.out[..]).unwrap();
        assert_eq!(difference, None, "{name}");
    }
    for name in ["tc-21", "until-close-reset", "web-page", "digest-wrong"] {
        let origin = played(name);
        let ended = place.get(&["-o", "-", "--retries", "1", "--retry-wait", "100ms", &origin.entry_url()]);
        // What went out cannot be taken back, so the exit code is all that tells.
        assert!(
            name == "web-page" && ended.code == 0 || ended.code == 1 || ended.code == 4,
            "{name}: {ended:?}"
        );
    }
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test]
fn zeros_everywhere_are_fetched_like_anything_else() {
    comes_whole(&played("zeros"));
    let file = Resource::new(Body::zeros(N)).no_validators().cut_after(3 << 20, Ending::Reset);
    comes_whole(&Origin::serve(file).unwrap());
    comes_whole(&Origin::serve(Resource::new(Body::zeros(N)).ranges(Ranges::Denied)).unwrap());
}
