use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECOND: u64 = 1_000_000_000;

/// A connection of the simulation: it reads as soon as it may.
#[derive(Clone, Debug)]
struct User {
    id: ConnectionId,
    download: u64,
    /// Bytes a second that arrive for it; `None` is more than it can ever get.
    demand: Option<u64>,
    since: u64,
    served: u64,
    next: u64,
    asked: Option<u64>,
    longest_wait: u64,
    /// Does not come, whatever it is told.
    frozen: bool,
}

/// Runs users against a [`FairShare`] with exact timers: a list of events is the clock.
#[derive(Default)]
struct Simulation {
    share: FairShare,
    users: Vec<User>,
    events: BTreeSet<(u64, usize)>,
    now: u64,
    polls: u64,
}

impl Simulation {
    fn with_total(limit: u64) -> Self {
        let mut simulation = Self::default();
        simulation.share.set_total_limit(Some(limit), 0);
        simulation
    }

    fn add(&mut self, download: u64, host: &str, demand: Option<u64>) -> usize {
        let id = self.share.add(DownloadId(download), host, self.now);
        let user = self.users.len();
        self.users.push(User {
            id,
            download,
            demand,
            since: self.now,
            served: 0,
            next: self.now,
            asked: None,
            longest_wait: 0,
            frozen: false,
        });
        self.events.insert((self.now, user));
        user
    }

    fn at(&mut self, user: usize, time: u64) {
        self.events.remove(&(self.users[user].next, user));
        self.users[user].next = time;
        self.events.insert((time, user));
    }

    fn run(&mut self, seconds: f64) {
        let end = self.now + (seconds * 1e9) as u64;
        while let Some(&(time, user)) = self.events.first().filter(|(time, _)| *time <= end) {
            self.now = time;
            self.step(user);
            let woken: Vec<ConnectionId> = self.share.wake(time).collect();
            for id in woken {
                if let Some(user) = self.users.iter().position(|u| u.id == id) {
                    self.at(user, time + 1);
                }
            }
        }
        self.now = end;
    }

    fn step(&mut self, user: usize) {
        let now = self.now;
        if self.users[user].frozen {
            return self.at(user, u64::MAX);
        }
        self.polls += 1;
        let me = &mut self.users[user];
        let want = match me.demand {
            None => 1 << 20,
            Some(rate) => {
                let arrived = u128::from(rate) * u128::from(now - me.since) / u128::from(SECOND);
                u64::try_from(arrived).unwrap() - me.served
            }
        };
        if want == 0 {
            return self.at(user, now + SECOND / 100);
        }
        let asked = *me.asked.get_or_insert(now);
        me.longest_wait = me.longest_wait.max(now - asked);
        match self.share.take(me.id, want, now) {
            Grant::Bytes(bytes) => {
                assert!((1..=want).contains(&bytes));
                me.served += bytes;
                me.asked = None;
                // What arrives is read as it comes, but not byte by byte.
                let rest = if bytes == want && me.demand.is_some() { SECOND / 100 } else { 1000 };
                self.at(user, now + rest);
            }
            Grant::Wait(until) => {
                assert!(until > now, "waiting must take time");
                self.at(user, until);
            }
        }
    }

    fn clear(&mut self) {
        self.users.iter_mut().for_each(|u| (u.served, u.since) = (0, self.now));
    }

    fn served(&self) -> u64 {
        self.users.iter().map(|u| u.served).sum()
    }

    fn of_download(&self, download: u64) -> u64 {
        self.users.iter().filter(|u| u.download == download).map(|u| u.served).sum()
    }
}

/// Jain's index of fairness: 1 when all are equal, 1/n when one has all.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&s| s as f64).sum();
    let squares: f64 = shares.iter().map(|&s| (s as f64).powi(2)).sum();
    sum.powi(2) / (shares.len() as f64 * squares)
}

fn close(is: u64, should: f64, tolerance: f64) -> bool {
    (is as f64 - should).abs() <= should * tolerance
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equal_demands_are_served_equally_and_the_limit_is_held_and_used(
        rate in prop_oneof![1000..50_000_u64, 50_000..(100_u64 << 20)],
        downloads in prop::collection::vec(1..=16_usize, 1..=5),
        same_host in any::<bool>(),
    ) {
        let mut simulation = Simulation::with_total(rate);
        for (download, &connections) in downloads.iter().enumerate() {
            for _ in 0..connections {
                let host = if same_host { "h".to_owned() } else { format!("h{download}") };
                simulation.add(download as u64, &host, None);
            }
        }
        simulation.run(10.0);
        let burst = TokenBucket::new(rate, 0).burst();
        prop_assert!(simulation.served() <= rate * 10 + burst);
        prop_assert!(simulation.served() as f64 >= rate as f64 * 9.5, "{} of {}", simulation.served(), rate * 10);
        let shares: Vec<u64> = (0..downloads.len() as u64).map(|d| simulation.of_download(d)).collect();
        prop_assert!(jain(&shares) >= 0.99, "downloads: {shares:?}");
        for download in 0..downloads.len() as u64 {
            let of = simulation.users.iter().filter(|u| u.download == download);
            let shares: Vec<u64> = of.map(|u| u.served).collect();
            prop_assert!(jain(&shares) >= 0.99, "connections: {shares:?}");
        }
        // Each comes about once for a grant, not all for every grant.
        let grants = 10 * 64_u64.max(4 * simulation.users.len() as u64).max(rate / MAX_GRANT);
        prop_assert!(simulation.polls <= grants * 4 + simulation.users.len() as u64 * 400 + 1000);
    }

    #[test]
    fn what_one_leaves_the_others_get(
        rate in 100_000..(20_u64 << 20),
        demands in prop::collection::vec(1..=200_u64, 2..=8),
    ) {
        // Demands in per cent of the rate.
        let demands: Vec<u64> = demands.into_iter().map(|percent| rate * percent / 100).collect();
        let mut simulation = Simulation::with_total(rate);
        for (download, &demand) in demands.iter().enumerate() {
            simulation.add(download as u64, "h", Some(demand));
        }
        simulation.run(2.0);
        simulation.clear();
        simulation.run(10.0);
        let level = water_level(&demands, rate);
        for (download, &demand) in demands.iter().enumerate() {
            let should = demand.min(level) as f64 * 10.0;
            let is = simulation.of_download(download as u64);
            prop_assert!(close(is, should, 0.05), "{demands:?} of {rate}: {download} got {is}, not {should}");
        }
    }

    #[test]
    fn no_token_is_made_or_lost(
        operations in prop::collection::vec((0..7_u8, 0..6_usize, 1..100_000_u64), 1..200),
    ) {
        let mut share = FairShare::new();
        share.set_total_limit(Some(10 << 20), 0);
        share.set_each_limit(Some(8 << 20), 0);
        let ids: Vec<ConnectionId> =
            (0..6).map(|n| share.add(DownloadId(n / 2), if n < 3 { "a" } else { "b" }, 0)).collect();
        let mut alive = [true; 6];
        share.wake(SECOND).for_each(drop);
        let (mut kept, mut last) = (0_u64, [0_u64; 6]);
        let there = |share: &FairShare| {
            let set_aside: u64 = share.connections.iter().flatten().map(|c| c.granted).sum();
            share.total.bucket.as_ref().unwrap().available() + set_aside
        };
        let all = there(&share);
        for (operation, n, bytes) in operations {
            match operation {
                // The time stands still, so nothing comes in.
                0..=2 => if let Grant::Bytes(got) = share.take(ids[n], bytes, SECOND) {
                    kept += got;
                    last[n] = got;
                },
                3 => share.cancel(ids[n]),
                4 => {
                    share.give_back(ids[n], bytes);
                    let back = if alive[n] { bytes.min(last[n]) } else { 0 };
                    kept -= back;
                    last[n] -= back;
                }
                5 => share.wake(SECOND).for_each(drop),
                _ => if bytes % 10 == 0 {
                    share.remove(ids[n]);
                    alive[n] = false;
                    last[n] = 0;
                } else {
                    share.set_host_limit(Some(bytes * 1000), SECOND);
                },
            }
            // A cancelled wait gives back what was set aside, and makes what was lent before final.
            for (n, id) in ids.iter().enumerate() {
                last[n] = share.find(*id).map_or(0, |c| last[n].min(c.lent));
            }
            prop_assert_eq!(there(&share) + kept, all);
            prop_assert!(share.woken.len() <= 6);
        }
    }

    #[test]
    fn limits_and_users_may_change_at_any_time(
        changes in prop::collection::vec((0..7_u8, 0..8_u64, 1..(50_u64 << 20)), 1..40),
    ) {
        let mut simulation = Simulation::with_total(1 << 20);
        let mut allowed = 0.0;
        let mut total = 1_u64 << 20;
        let mut burst = TokenBucket::new(total, 0).burst();
        for (change, n, rate) in changes {
            let now = simulation.now;
            match change {
                0 | 1 => {
                    simulation.add(n, if n % 2 == 0 { "even" } else { "odd" }, (n > 5).then_some(rate));
                }
                2 => if !simulation.users.is_empty() {
                    let user = n as usize % simulation.users.len();
                    simulation.share.remove(simulation.users[user].id);
                    simulation.users[user].frozen = true;
                },
                3 => simulation.share.set_host_limit((n > 3).then_some(rate), now),
                4 => simulation.share.set_each_limit((n > 3).then_some(rate), now),
                5 => simulation.share.set_download_limit(DownloadId(n), (n > 3).then_some(rate), now),
                _ => {
                    simulation.share.set_total_limit(Some(rate), now);
                    total = rate;
                    burst = burst.max(TokenBucket::new(rate, 0).burst());
                }
            }
            simulation.run(0.3);
            allowed += total as f64 * 0.3;
            prop_assert!(simulation.served() as f64 <= allowed + burst as f64);
        }
        // And afterwards everything is as if nothing had been.
        simulation.share.set_host_limit(None, simulation.now);
        simulation.share.set_each_limit(None, simulation.now);
        (0..8).for_each(|n| simulation.share.set_download_limit(DownloadId(n), None, simulation.now));
        simulation.users.iter().for_each(|u| simulation.share.remove(u.id));
        simulation.users.clear();
        simulation.events.clear();
        simulation.share.set_total_limit(Some(1 << 20), simulation.now);
        for n in 0..3 {
simulation.add(n, "h", None);
}
        simulation.run(10.0);
        prop_assert!(simulation.served() as f64 >= (1 << 20) as f64 * 9.5);
        let shares: Vec<u64> = (0..3).map(|d| simulation.of_download(d)).collect();
        prop_assert!(jain(&shares) >= 0.99, "{shares:?}");
    }
}

/// The level of a max-min share: each gets the lesser of its demand and this.
fn water_level(demands: &[u64], rate: u64) -> u64 {
    let mut sorted = demands.to_vec();
    sorted.sort_unstable();
    let mut left = rate;
    for (index, &demand) in sorted.iter().enumerate() {
        let level = left / (sorted.len() - index) as u64;
        if demand >= level {
            return level;
        }
        left -= demand;
    }
    u64::MAX
}

#[test]
fn sixteen_connections_get_no_more_than_two() {
    for rate in [2_000, 100_000, 1 << 20, 200 << 20] {
        let mut simulation = Simulation::with_total(rate);
        for _ in 0..16 {
            simulation.add(1, "a", None);
        }
        for _ in 0..2 {
            simulation.add(2, "a", None);
        }
        simulation.run(10.0);
        assert!(close(simulation.of_download(1), rate as f64 * 5.0, 0.05), "{}", simulation.of_download(1));
        assert!(close(simulation.of_download(2), rate as f64 * 5.0, 0.05), "{}", simulation.of_download(2));
    }
}

#[test]
fn the_least_of_the_limits_holds_and_leaves_its_rest_to_the_others() {
    let mut simulation = Simulation::with_total(600_000);
    // Downloads 1 and 2 share a slow host, 3 has a limit of its own, 4 takes what is left.
    for _ in 0..16 {
        simulation.add(1, "slow", None);
    }
    for _ in 0..2 {
        simulation.add(2, "slow", None);
    }
    simulation.add(3, "b", None);
    simulation.add(4, "c", None);
    simulation.share.set_host_limit(Some(300_000), 0);
    simulation.share.set_download_limit(DownloadId(1), Some(50_000), 0);
    simulation.share.set_download_limit(DownloadId(2), Some(40_000), 0);
    simulation.share.set_download_limit(DownloadId(3), Some(100_000), 0);
    simulation.run(10.0);
    for (download, rate) in [(1, 50_000.0), (2, 40_000.0), (3, 100_000.0), (4, 300_000.0)] {
        let is = simulation.of_download(download);
        assert!(close(is, rate * 10.0, 0.05), "{download} got {is} in 10 s");
    }
}

#[test]
fn a_host_that_is_the_bottleneck_is_shared_fairly_whatever_the_others_get() {
    let mut simulation = Simulation::default();
    for _ in 0..16 {
        simulation.add(1, "a", None);
    }
    simulation.add(2, "a", None);
    for d in 3..6 {
        simulation.add(d, "b", None);
    }
    simulation.share.set_host_limit(Some(1 << 20), 0);
    simulation.share.set_total_limit(Some(16 << 20), 0);
    simulation.run(10.0);
    for (download, parts) in [(1, 2.0), (2, 2.0), (3, 3.0), (4, 3.0), (5, 3.0)] {
        let is = simulation.of_download(download);
        assert!(close(is, 10.0 * f64::from(1 << 20) / parts, 0.05), "{download} got {is}");
    }
}

#[test]
fn nobody_waits_without_bound_even_if_its_download_gets_enough_elsewhere() {
    let mut simulation = Simulation::default();
    simulation.share.set_host_limit(Some(100_000), 0);
    simulation.share.set_download_limit(DownloadId(2), Some(10_000), 0);
    simulation.share.set_download_limit(DownloadId(3), Some(10_000), 0);
    // The first gets 100 000 a second from one host, so on the other it comes after all others.
    simulation.add(1, "fast", None);
    simulation.add(1, "crowded", None);
    for d in 2..40 {
        simulation.add(d, "crowded", None);
    }
    simulation.run(60.0);
    for user in &simulation.users {
        let waits = user.asked.map_or(0, |asked| simulation.now - asked).max(user.longest_wait);
        assert!(user.served > 0 && waits < 12 * SECOND, "{user:?}");
    }
}

#[test]
fn a_byte_a_second_is_shared_too() {
    let mut simulation = Simulation::with_total(1);
    for d in 0..5 {
        simulation.add(d, "h", None);
    }
    for _ in 0..5 {
        simulation.add(5, "h", None);
    }
    simulation.run(600.0);
    assert!((598..=601).contains(&simulation.served()), "{}", simulation.served());
    let shares: Vec<u64> = (0..6).map(|d| simulation.of_download(d)).collect();
    assert!(shares.iter().all(|s| (95..=105).contains(s)), "{shares:?}");
}

#[test]
fn new_connections_over_and_over_gain_nothing() {
    let mut simulation = Simulation::with_total(1 << 20);
    let old = simulation.add(1, "h", None);
    let mut churning = simulation.add(2, "h", None);
    let mut churned = 0;
    for _ in 0..1000 {
        simulation.run(0.01);
        if simulation.users[churning].served > 0 {
            churned += simulation.users[churning].served;
            simulation.users[churning].served = 0;
            simulation.share.remove(simulation.users[churning].id);
            simulation.users[churning].frozen = true;
            churning = simulation.add(2, "h", None);
        }
    }
    let steady = simulation.users[old].served as f64;
    assert!(churned as f64 <= steady * 1.05, "{churned} against {steady}");
}

#[test]
fn one_that_hangs_with_its_grant_holds_nobody_up() {
    let mut simulation = Simulation::with_total(1 << 20);
    let users: Vec<usize> = (0..4).map(|d| simulation.add(d, "h", None)).collect();
    simulation.run(1.0);
    simulation.users[users[0]].frozen = true;
    simulation.clear();
    simulation.run(10.0);
    assert!(simulation.served() as f64 >= 9.5 * f64::from(1 << 20), "{}", simulation.served());
}

#[test]
fn one_that_comes_back_is_owed_for_a_moment_only() {
    let mut simulation = Simulation::with_total(1 << 20);
    simulation.add(1, "h", None);
    simulation.run(30.0);
    simulation.clear();
    simulation.add(2, "h", None);
    simulation.run(2.0);
    assert!(close(simulation.of_download(1), f64::from(1 << 20), 0.1), "{}", simulation.of_download(1));
}

#[test]
fn a_lifted_limit_lets_the_waiting_go() {
    let mut share = FairShare::new();
    share.set_total_limit(Some(1), 0);
    let id = share.add(DownloadId(1), "h", 0);
    assert_eq!(share.take(id, 1000, 0), Grant::Wait(SECOND));
    share.set_total_limit(None, 1);
    assert!(!share.is_limited());
    assert_eq!(share.wake(1).collect::<Vec<_>>(), [id]);
    assert_eq!(share.take(id, 1000, 1), Grant::Bytes(1000));
}

#[test]
fn bytes_lent_before_a_limit_was_set_cannot_be_given_back_to_it() {
    let mut share = FairShare::new();
    let id = share.add(DownloadId(1), "h", 0);
    assert_eq!(share.take(id, 1000, 0), Grant::Bytes(1000));
    share.set_total_limit(Some(1 << 20), 0);
    share.give_back(id, 1000);
    assert!(matches!(share.take(id, 1, 0), Grant::Wait(_)));
}

#[test]
fn a_connection_that_was_removed_gets_nothing() {
    let mut share = FairShare::new();
    let id = share.add(DownloadId(1), "h", 0);
    share.remove(id);
    share.remove(id);
    assert_eq!(share.take(id, 1, 0), Grant::Wait(u64::MAX));
    let next = share.add(DownloadId(1), "h", 0);
    assert_ne!(id, next);
    assert_eq!(share.total.users, 1);
}

#[test]
fn what_a_connection_may_expect_is_its_part_of_the_least_limit() {
    let mut share = FairShare::new();
    let first = share.add(DownloadId(1), "h", 0);
    assert_eq!(share.share_of(first), None);
    share.set_total_limit(Some(1200), 0);
    assert_eq!(share.share_of(first), Some(1200));
    let second = share.add(DownloadId(1), "h", 0);
    let other = share.add(DownloadId(2), "h", 0);
    assert_eq!((share.share_of(second), share.share_of(other)), (Some(300), Some(600)));
    share.set_download_limit(DownloadId(1), Some(100), 0);
    assert_eq!((share.share_of(second), share.share_of(other)), (Some(50), Some(600)));
    share.set_host_limit(Some(30), 0);
    assert_eq!((share.share_of(second), share.share_of(other)), (Some(10), Some(10)));
    share.remove(first);
    assert_eq!((share.share_of(first), share.share_of(second)), (None, Some(15)));
}

#[test]
fn downloads_and_hosts_that_are_gone_leave_nothing_behind() {
    let mut share = FairShare::new();
    share.set_total_limit(Some(1 << 20), 0);
    for n in 0..1000 {
        let now = n * 60 * SECOND;
        let id = share.add(DownloadId(n), &format!("host{n}"), now);
        share.take(id, 1000, now);
        share.remove(id);
    }
    assert!(share.downloads.len() < 4 && share.hosts.len() < 4 && share.connections.len() < 4);
}
