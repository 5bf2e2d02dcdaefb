//! What every store must do, as tests. A store proves itself with [`contract_tests!`](crate::contract_tests).
//!
//! Each function makes stores of its own and panics when one does not keep the contract.

#![allow(
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "these are tests, for stores in other crates too"
)]

use crate::{Claimed, Counts, JobId, Kind, NewJob, Outcome, Page, QueueError, State, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};
use tidegate_core::message::Proof;
use tidegate_core::request::Destination;
use tidegate_core::{Code, Failure, Mirror, Request};

/// Makes a test of each sentence of the contract, for the empty stores that an expression of type
/// `Fn() -> Box<dyn Store>` makes.
#[macro_export]
macro_rules! contract_tests {
    ($make:expr) => {
        $crate::contract_tests!($make;
            jobs_are_claimed_in_their_order,
            a_moved_job_is_claimed_in_its_new_place,
            what_was_asked_for_comes_back_unchanged,
            a_lease_that_ran_out_can_be_claimed_with_a_higher_fence,
            a_stale_fence_changes_nothing,
            a_renewed_lease_lasts_longer,
            a_released_job_waits_in_its_place_and_not_before_its_time,
            a_paused_job_is_not_claimed_until_it_is_resumed,
            pausing_or_removing_a_leased_job_ends_its_lease,
            what_has_ended_stays_so_unless_it_may_go_on,
            the_same_key_adds_nothing_until_its_job_is_removed,
            pages_make_up_the_whole_list,
            names_are_not_used_again,
            many_workers_claim_each_job_once,
            no_sequence_of_operations_loses_a_job_or_lets_two_workers_end_it,
        );
    };
    ($make:expr; $($sentence:ident,)*) => {
        $(#[test] fn $sentence() { $crate::contract::$sentence(&$make); })*
    };
}

/// Makes empty stores.
type Make<'a> = &'a dyn Fn() -> Box<dyn Store>;

const LEASE: Duration = Duration::from_secs(60);

/// A request for the n-th of some files.
pub fn request(n: u64) -> Request {
    let mirror = good(Mirror::parse(&format!("https://user:secret@example.org/{n}?token=x")));
    let name = Some(PathBuf::from(format!("file {n}")));
    let destination = Destination::File { dir: PathBuf::from("downloads"), name, adopt: None };
    let mut request = good(Request::new(vec![mirror], destination));
    request.length = Some(n);
    request
}

/// A job's outcome when it went well.
pub fn completed(n: u64) -> Outcome {
    let path = Some(PathBuf::from("downloads/file"));
    Outcome::Completed { path, length: n, proof: Proof::Validator, already: false, received: n }
}

/// See its name.
pub fn jobs_are_claimed_in_their_order(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 5);
    let claimed: Vec<JobId> = (0..5).map(|_| claim(&*store, "w", at(0)).job.id).collect();
    assert_eq!(claimed, ids);
    assert!(good(store.claim("w", at(0), LEASE)).is_none(), "all are claimed");
}

/// See its name.
pub fn a_moved_job_is_claimed_in_its_new_place(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 4);
    good(store.move_to(ids[3], 0));
    good(store.move_to(ids[0], usize::MAX));
    good(store.move_to(ids[1], 1));
    let order = [ids[3], ids[1], ids[2], ids[0]];
    assert_eq!(listed(&*store), order);
    for (position, id) in order.into_iter().enumerate() {
        assert_eq!(good(store.get(id)).position, Some(position));
        assert_eq!(claim(&*store, "w", at(0)).job.id, id);
    }
}

/// See its name.
pub fn what_was_asked_for_comes_back_unchanged(make: Make<'_>) {
    let store = make();
    let id = good(store.add(NewJob::from(request(7)), at(3)));
    let job = good(store.get(id));
    assert_eq!((job.id, job.attempts, job.position, job.added), (id, 0, Some(0), at(3)));
    assert_eq!((&job.request, &job.state), (&request(7), &State::Waiting { not_before: None }));
    let claimed = claim(&*store, "me", at(5));
    let leased = State::Leased { worker: "me".to_owned(), until: at(5) + LEASE };
    assert_eq!((&claimed.job.state, claimed.job.attempts), (&leased, 1));
    assert_eq!((claimed.lease.job, claimed.lease.until), (id, at(5) + LEASE));
    let failure = Failure::new(Code::DiskFull, "no space left in \"downloads\"");
    for outcome in [
        completed(7),
        Outcome::Failed { failure: failure.clone(), kept: 3 },
        Outcome::Incomplete { failure: Some(failure), kept: u64::MAX / 2 },
        Outcome::Incomplete { failure: None, kept: 0 },
    ] {
        let store = make();
        let id = good(store.add(NewJob::from(request(7)), at(3)));
        good(store.record(&claim(&*store, "me", at(5)).lease, outcome.clone()));
        let job = good(store.get(id));
        assert_eq!((job.request, job.position, job.state), (request(7), None, State::Done(outcome)));
    }
}

/// See its name.
pub fn a_lease_that_ran_out_can_be_claimed_with_a_higher_fence(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 2);
    let first = claim(&*store, "a", at(0));
    let just_before = at(0) + LEASE - Duration::from_secs(1);
    assert_eq!(claim(&*store, "b", just_before).job.id, ids[1], "the first is still leased");
    let second = claim(&*store, "b", at(0) + LEASE);
    assert_eq!((second.job.id, second.job.attempts), (ids[0], 2));
    assert!(second.lease.fence > first.lease.fence);
}

/// See its name.
pub fn a_stale_fence_changes_nothing(make: Make<'_>) {
    let store = make();
    let id = fill(&*store, 1)[0];
    let old = claim(&*store, "a", at(0)).lease;
    let new = claim(&*store, "b", at(100)).lease;
    let before = good(store.get(id));
    assert!(is_fenced(store.record(&old, completed(1))));
    assert!(is_fenced(store.renew(&old, at(100), LEASE)));
    assert!(is_fenced(store.release(&old, None)));
    assert_eq!(good(store.get(id)), before);
    good(store.record(&new, completed(2)));
    // Not even twice with the right one.
    assert!(is_fenced(store.record(&new, completed(3))));
    assert_eq!(good(store.get(id)).state, State::Done(completed(2)));
}

/// See its name.
pub fn a_renewed_lease_lasts_longer(make: Make<'_>) {
    let store = make();
    fill(&*store, 1);
    let lease = claim(&*store, "a", at(0)).lease;
    let renewed = good(store.renew(&lease, at(50), LEASE));
    assert_eq!((renewed.fence, renewed.until), (lease.fence, at(50) + LEASE));
    assert!(good(store.claim("b", at(100), LEASE)).is_none());
    // Late, but nobody else has come.
    good(store.renew(&renewed, at(500), LEASE));
    assert!(good(store.claim("b", at(510), LEASE)).is_none());
    good(store.record(&lease, completed(1)));
}

/// See its name.
pub fn a_released_job_waits_in_its_place_and_not_before_its_time(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 2);
    let lease = claim(&*store, "a", at(0)).lease;
    good(store.release(&lease, Some(at(30))));
    assert!(is_fenced(store.renew(&lease, at(1), LEASE)));
    assert_eq!(good(store.get(ids[0])).position, Some(0));
    let second = claim(&*store, "a", at(29));
    assert_eq!(second.job.id, ids[1]);
    good(store.release(&second.lease, None));
    assert_eq!(claim(&*store, "a", at(30)).job.id, ids[0]);
}

/// See its name.
pub fn a_paused_job_is_not_claimed_until_it_is_resumed(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 2);
    good(store.pause(ids[0]));
    good(store.pause(ids[0]));
    assert_eq!(good(store.get(ids[0])).state, State::Paused);
    assert_eq!(claim(&*store, "a", at(0)).job.id, ids[1]);
    assert!(good(store.claim("a", at(1), LEASE)).is_none());
    good(store.resume(ids[0]));
    assert_eq!(claim(&*store, "a", at(1)).job.id, ids[0]);
    good(store.resume(ids[0]));
    assert_eq!(good(store.get(ids[0])).state.kind(), Kind::Leased, "resuming takes nothing away");
}

/// See its name.
pub fn pausing_or_removing_a_leased_job_ends_its_lease(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 2);
    let (first, second) = (claim(&*store, "a", at(0)).lease, claim(&*store, "a", at(0)).lease);
    good(store.pause(ids[0]));
    assert!(is_fenced(store.renew(&first, at(1), LEASE)));
    good(store.resume(ids[0]));
    assert!(is_fenced(store.record(&first, completed(1))));
    assert!(claim(&*store, "b", at(1)).lease.fence > first.fence);
    good(store.remove(ids[1]));
    assert!(is_gone(store.renew(&second, at(1), LEASE)));
    assert!(is_gone(store.record(&second, completed(1))));
    assert!(is_gone(store.release(&second, None)));
    assert!(is_gone(store.get(ids[1])));
    assert!(is_gone(store.remove(ids[1])));
    assert_eq!(listed(&*store), [ids[0]]);
}

/// See its name.
pub fn what_has_ended_stays_so_unless_it_may_go_on(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 3);
    let failure = Failure::new(Code::NotFound, "404");
    let outcomes =
        [completed(1), Outcome::Failed { failure, kept: 1 }, Outcome::Incomplete { failure: None, kept: 1 }];
    let mut fences = Vec::new();
    for outcome in outcomes {
        let lease = claim(&*store, "a", at(0)).lease;
        fences.push(lease.fence);
        good(store.record(&lease, outcome));
    }
    assert!(good(store.claim("a", at(1000), LEASE)).is_none());
    for id in &ids {
        assert!(matches!(store.pause(*id), Err(QueueError::Ended { .. })));
        assert!(matches!(store.move_to(*id, 0), Err(QueueError::Ended { .. })));
    }
    assert!(matches!(store.resume(ids[0]), Err(QueueError::Ended { .. })));
    good(store.resume(ids[2]));
    good(store.resume(ids[1]));
    assert_eq!(listed(&*store), [ids[2], ids[1], ids[0]]);
    let again = claim(&*store, "a", at(1000));
    assert!(again.job.id == ids[2] && again.lease.fence > fences[2]);
}

/// See its name.
pub fn the_same_key_adds_nothing_until_its_job_is_removed(make: Make<'_>) {
    let store = make();
    let keyed = |n, key: &str| NewJob { request: request(n), key: Some(key.to_owned()) };
    let first = good(store.add(keyed(1, "k"), at(0)));
    assert_eq!(good(store.add(keyed(2, "k"), at(1))), first);
    let both = good(store.add_all(vec![keyed(3, "new"), keyed(4, "k"), keyed(5, "new")], at(1)));
    assert_eq!((both[1], both[0]), (first, both[2]));
    assert_eq!(good(store.counts()).total(), 2);
    assert_eq!(good(store.get(first)).request, request(1));
    good(store.remove(first));
    assert_ne!(good(store.add(keyed(2, "k"), at(2))), first);
}

/// See its name.
pub fn pages_make_up_the_whole_list(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 10);
    for _ in 0..3 {
        good(store.record(&claim(&*store, "a", at(0)).lease, completed(1)));
    }
    claim(&*store, "a", at(0));
    good(store.pause(ids[5]));
    let page = |kind, first, limit| {
        let jobs = good(store.list(kind, Page { first, limit }));
        jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let order: Vec<JobId> = ids[3..].iter().chain(&ids[..3]).copied().collect();
    for size in 1..12 {
        let pages = (0..12).flat_map(|n| page(None, n * size, size));
        assert_eq!(pages.collect::<Vec<_>>(), order, "in pages of {size}");
    }
    assert_eq!(page(Some(Kind::Done), 1, 9), ids[1..3]);
    assert_eq!(page(Some(Kind::Leased), 0, 9), [ids[3]]);
    assert_eq!(page(Some(Kind::Paused), 0, 9), [ids[5]]);
    assert_eq!(page(Some(Kind::Waiting), 0, 2), [ids[4], ids[6]]);
    assert_eq!(page(None, 0, 0), []);
    assert_eq!(page(None, usize::MAX, usize::MAX), []);
    assert_eq!(good(store.counts()), Counts { waiting: 5, leased: 1, paused: 1, done: 3 });
}

/// See its name.
pub fn names_are_not_used_again(make: Make<'_>) {
    let store = make();
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        for id in fill(&*store, 3) {
            assert!(seen.insert(id), "{id} was used before");
            good(store.remove(id));
        }
    }
}

/// See its name.
pub fn many_workers_claim_each_job_once(make: Make<'_>) {
    let store = make();
    let ids = fill(&*store, 200);
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (store, ended) = (&*store, &ended);
            scope.spawn(move || {
                while let Some(claimed) = good(store.claim(&format!("worker {worker}"), at(0), LEASE)) {
                    good(store.record(&claimed.lease, completed(1)));
                    good(ended.lock()).push(claimed.job.id);
                }
            });
        }
    });
    let mut ended = good(ended.into_inner());
    ended.sort_unstable();
    assert_eq!(ended, ids);
    assert_eq!(good(store.counts()), Counts { done: 200, ..Counts::default() });
}

/// See its name.
pub fn no_sequence_of_operations_loses_a_job_or_lets_two_workers_end_it(make: Make<'_>) {
    for seed in 1..=40 {
        random_sequence(&*make(), seed);
    }
}

fn random_sequence(store: &dyn Store, seed: u64) {
    let mut dice = Dice(seed);
    let mut now = 0;
    let mut ids: BTreeSet<JobId> = BTreeSet::new();
    let mut ended: BTreeMap<JobId, u64> = BTreeMap::new();
    let mut fences: BTreeMap<JobId, u64> = BTreeMap::new();
    // What each of three workers believes to have; it forgets nothing, however long ago.
    let mut held: Vec<Claimed> = Vec::new();
    for step in 0..150 {
        let some = ids.iter().nth(dice.roll(ids.len())).copied();
        let lease = held.get(dice.roll(held.len())).map(|claimed| claimed.lease);
        match (dice.roll(12), some, lease) {
            (0 | 1, _, _) => ids.extend(fill(store, 1 + dice.roll(3))),
            (2..=4, _, _) => {
                let worker = format!("worker {}", dice.roll(3));
                if let Some(claimed) = good(store.claim(&worker, at(now), LEASE)) {
                    let id = claimed.job.id;
                    assert!(ids.contains(&id) && !ended.contains_key(&id), "seed {seed}, step {step}");
                    let before = fences.insert(id, claimed.lease.fence);
                    assert!(before < Some(claimed.lease.fence), "seed {seed}, step {step}: fences rise");
                    held.push(claimed);
                }
            }
            (5 | 6, _, Some(lease)) => {
                let recorded = store.record(&lease, completed(lease.fence));
                if recorded.is_ok() {
                    let before = ended.insert(lease.job, lease.fence);
                    assert_eq!(before, None, "seed {seed}, step {step}: ended twice");
                    assert_eq!(fences.get(&lease.job), Some(&lease.fence), "seed {seed}, step {step}");
                }
            }
            (7, _, Some(lease)) => drop(store.renew(&lease, at(now), LEASE)),
            (8, _, Some(lease)) => drop(store.release(&lease, Some(at(now + 20)))),
            (9, Some(id), _) => drop(store.pause(id)),
            (10, Some(id), _) => drop(store.resume(id)),
            (11, Some(id), _) if dice.roll(3) == 0 => {
                good(store.remove(id));
                ids.remove(&id);
                ended.remove(&id);
            }
            (11, Some(id), _) => drop(store.move_to(id, dice.roll(5))),
            _ => {}
        }
        now += u64::try_from(dice.roll(30)).unwrap_or(0);
        let there: BTreeSet<JobId> = listed(store).into_iter().collect();
        assert_eq!(there, ids, "seed {seed}, step {step}");
    }
    // Whatever has happened, all can be brought to an end, and what had ended is as it was left.
    for id in ids.iter().filter(|id| !ended.contains_key(id)) {
        good(store.resume(*id));
    }
    now += 1000;
    while let Some(claimed) = good(store.claim("last", at(now), LEASE)) {
        good(store.record(&claimed.lease, completed(claimed.lease.fence)));
        ended.insert(claimed.job.id, claimed.lease.fence);
    }
    assert_eq!(ids.iter().collect::<Vec<_>>(), ended.keys().collect::<Vec<_>>(), "seed {seed}");
    for (id, fence) in ended {
        assert_eq!(good(store.get(id)).state, State::Done(completed(fence)), "seed {seed}");
    }
}

/// A small xorshift generator: the same rolls for the same seed.
struct Dice(u64);

impl Dice {
    /// A number below `sides`; 0 if that is 0.
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let sides = u64::try_from(sides).unwrap_or(u64::MAX).max(1);
        usize::try_from((self.0 >> 11) % sides).unwrap_or(0)
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn fill(store: &dyn Store, count: usize) -> Vec<JobId> {
    let jobs = (0..count).map(|n| NewJob::from(request(u64::try_from(n).unwrap_or(0)))).collect();
    good(store.add_all(jobs, at(0)))
}

fn claim(store: &dyn Store, worker: &str, now: SystemTime) -> Claimed {
    match good(store.claim(worker, now, LEASE)) {
        Some(claimed) => claimed,
        None => panic!("there is a job to claim"),
    }
}

fn listed(store: &dyn Store) -> Vec<JobId> {
    let jobs = good(store.list(None, Page { first: 0, limit: usize::MAX }));
    jobs.into_iter().map(|job| job.id).collect()
}

fn is_fenced<T>(result: Result<T, QueueError>) -> bool {
    matches!(result, Err(QueueError::Fenced { .. }))
}

fn is_gone<T>(result: Result<T, QueueError>) -> bool {
    matches!(result, Err(QueueError::NotFound { .. }))
}

fn good<T, E: Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the store works: {error:?}"),
    }
}
