use super::*;
use std::cell::Cell;
use std::collections::VecDeque;
use tidegate_core::message::{Phase, Proof, Snapshot};
use tidegate_queue::contract::request;
use tidegate_queue::{Counts, MemoryStore};

thread_local! {
    /// The time of this test's thread, in milliseconds: it passes when the engine is waited for.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(NOW.get())
}

/// What the scripted engine does with a request, told by the request's length.
#[derive(Clone, Debug)]
enum Script {
    /// Completes after so many seconds, and stops when told to.
    Takes(u64),
    /// Fails at once.
    Fails(Failure),
    /// Waits at once, and stops when told to.
    Waits(Failure),
    /// Fails at first, and completes when it is started again.
    FailsOnce(Failure),
    /// Hears nothing.
    Hangs,
    /// Is refused.
    Refused(Failure),
    /// The engine ends some seconds after the start.
    EndsEngine(u64),
    /// Is paused by somebody else.
    PausedByAnother,
    /// Finds no room in the engine for so many seconds, and completes when it does.
    NoRoom(u64),
}

#[derive(Clone, Default)]
struct Engine(Arc<Mutex<Scripted>>);

#[derive(Default)]
struct Scripted {
    scripts: Vec<Script>,
    starts: Vec<u64>,
    running: BTreeMap<DownloadId, Script>,
    most_running: usize,
    due: BTreeMap<(u64, DownloadId), EventKind>,
    events: VecDeque<Event>,
    ends_at: Option<u64>,
    asked_in_vain: u32,
    last: u64,
}

impl Scripted {
    fn alive(&self) -> Result<(), Failure> {
        match self.ends_at {
            Some(time) if time <= NOW.get() => {
                Err(Failure::new(Code::EngineUnavailable, "the engine has ended"))
            }
            _ => Ok(()),
        }
    }

    fn tell(&mut self, id: DownloadId, kind: EventKind) {
        if kind.is_final() && !matches!(kind, EventKind::Paused { .. }) {
            self.running.remove(&id);
            self.due.retain(|(_, other), _| *other != id);
        }
        self.events.push_back(Event { id, kind });
    }
}

fn completed() -> EventKind {
    EventKind::Completed { path: None, length: 9, proof: Proof::Answers, already: false, received: 9 }
}

impl Engine {
    fn with(scripts: &[Script]) -> Self {
        let engine = Self::default();
        engine.scripted().scripts = scripts.to_vec();
        engine
    }

    fn scripted(&self) -> MutexGuard<'_, Scripted> {
        self.0.lock().unwrap()
    }

    fn ended() -> Self {
        let engine = Self::default();
        engine.scripted().ends_at = Some(0);
        engine
    }
}

impl Downloads for Engine {
    fn start(&self, request: Request) -> Result<DownloadId, Failure> {
        let mut scripted = self.scripted();
        scripted.alive()?;
        let file = request.length.unwrap();
        let script = scripted.scripts[usize::try_from(file).unwrap()].clone();
        match script {
            Script::Refused(failure) => return Err(failure),
            Script::NoRoom(seconds) if NOW.get() < seconds * 1000 => {
                scripted.asked_in_vain += 1;
                return Err(Failure::new(Code::EngineFull, "no room"));
            }
            _ => {}
        }
        scripted.last += 1;
        let id = DownloadId(scripted.last);
        let again = scripted.starts.contains(&file);
        scripted.starts.push(file);
        scripted.running.insert(id, script.clone());
        scripted.most_running = scripted.most_running.max(scripted.running.len());
        scripted.tell(id, EventKind::Started { resumed_from: 3 });
        match script {
            Script::Takes(seconds) => {
                scripted.due.insert((NOW.get() + seconds * 1000, id), completed());
            }
            Script::FailsOnce(_) if again => scripted.tell(id, completed()),
            Script::NoRoom(_) => scripted.tell(id, completed()),
            Script::Fails(failure) | Script::FailsOnce(failure) => {
                scripted.tell(id, EventKind::Failed { failure, kept: 4 });
            }
            Script::Waits(failure) => {
                scripted.tell(id, EventKind::Waiting { failure, retry_in: Duration::from_secs(5) });
            }
            Script::EndsEngine(seconds) => scripted.ends_at = Some(NOW.get() + seconds * 1000),
            Script::PausedByAnother => scripted.tell(id, EventKind::Paused { have: 5 }),
            Script::Hangs | Script::Refused(_) => {}
        }
        Ok(id)
    }

    fn stop(&self, id: DownloadId) -> Result<(), Failure> {
        let mut scripted = self.scripted();
        scripted.alive()?;
        if !matches!(scripted.running.get(&id), None | Some(Script::Hangs)) {
            scripted.tell(id, EventKind::Stopped { kept: 5 });
        }
        Ok(())
    }

    fn cancel(&self, _: DownloadId) -> Result<(), Failure> {
        panic!("the manager removes no files that it was not told to remove")
    }

    fn next_event(&self, patience: Duration) -> Result<Option<Event>, Failure> {
        let mut scripted = self.scripted();
        if let Some(event) = scripted.events.pop_front() {
            return Ok(Some(event));
        }
        scripted.alive()?;
        NOW.set(NOW.get() + u64::try_from(patience.as_millis()).unwrap());
        if let Some(entry) = scripted.due.first_entry().filter(|entry| entry.key().0 <= NOW.get()) {
            let ((_, id), kind) = entry.remove_entry();
            scripted.tell(id, kind);
        }
        Ok(None)
    }

    fn refresh(&self, snapshot: &mut Snapshot) -> Result<(), Failure> {
        let scripted = self.scripted();
        scripted.alive()?;
        let progress = |(id, _): (&DownloadId, &Script)| Progress {
            phase: Phase::Fetching,
            have: id.0,
            connections: 1,
            requests: 1,
            ..Progress::new(*id)
        };
        *snapshot = Snapshot { downloads: scripted.running.iter().map(progress).collect(), speed: 0 };
        Ok(())
    }
}

struct House {
    engine: Engine,
    store: Arc<MemoryStore>,
    manager: Manager,
    jobs: Vec<JobId>,
}

/// A manager with a job for each script.
fn house(engine: Engine, settings: Settings) -> House {
    let store = Arc::new(MemoryStore::new());
    let mut manager = Manager::new(engine.clone(), Arc::clone(&store) as Arc<dyn Store>, settings);
    manager.clock = now;
    let count = engine.scripted().scripts.len() as u64;
    let jobs = (0..count.max(1)).map(|n| manager.add(request(n)).unwrap()).collect();
    House { engine, store, manager, jobs }
}

fn with(scripts: &[Script]) -> House {
    house(Engine::with(scripts), Settings::default())
}

impl House {
    fn run(&self) -> Summary {
        self.manager.run(&mut |_| {})
    }

    /// Runs, and calls `then` once at the first tick after so many seconds.
    fn run_and(&self, seconds: u64, then: impl Fn()) -> Summary {
        let mut then = Some(then);
        let at = NOW.get() + seconds * 1000;
        self.manager.run(&mut |notice| {
            if notice == Notice::Tick
                && NOW.get() >= at
                && let Some(then) = then.take()
            {
                then();
            }
        })
    }

    fn state(&self, n: usize) -> State {
        self.store.get(self.jobs[n]).unwrap().state
    }

    fn waits(&self, n: usize) -> bool {
        self.state(n) == State::Waiting { not_before: None }
    }

    fn starts(&self) -> Vec<u64> {
        self.engine.scripted().starts.clone()
    }
}

fn done() -> Outcome {
    Outcome::Completed { path: None, length: 9, proof: Proof::Answers, already: false, received: 9 }
}

fn disk_full() -> Failure {
    Failure::new(Code::DiskFull, "no space left")
}

fn not_found() -> Failure {
    Failure::new(Code::NotFound, "404").with_remedy(Remedy::GiveUp)
}

fn code(outcome: &Outcome) -> Option<Code> {
    match outcome {
        Outcome::Completed { .. } => None,
        Outcome::Failed { failure, .. } => Some(failure.code),
        Outcome::Incomplete { failure, .. } => failure.as_ref().map(|failure| failure.code),
    }
}

#[test]
fn every_job_is_run_and_recorded_no_more_than_allowed_at_a_time() {
    let scripts: Vec<Script> = (0..10).map(|n| Script::Takes(n % 3)).collect();
    let house = house(Engine::with(&scripts), Settings { jobs: 3, ..Settings::default() });
    let summary = house.run();
    assert_eq!(summary.outcomes.len(), 10);
    assert!(summary.outcomes.iter().all(|(_, outcome)| *outcome == done()));
    assert_eq!((summary.interrupted, summary.failure), (false, None));
    assert_eq!(house.engine.scripted().most_running, 3);
    assert_eq!(house.starts(), (0..10).collect::<Vec<_>>());
    assert_eq!(house.store.counts().unwrap(), Counts { done: 10, ..Counts::default() });
    assert_eq!(house.run(), Summary::default(), "nothing is left to do");
}

#[test]
fn no_files_at_a_time_means_one() {
    let scripts = [Script::Takes(1), Script::Takes(1)];
    let house = house(Engine::with(&scripts), Settings { jobs: 0, ..Settings::default() });
    assert_eq!(house.run().outcomes.len(), 2);
    assert_eq!(house.engine.scripted().most_running, 1);
}

#[test]
fn one_failure_is_recorded_and_keeps_nobody_from_going_on() {
    let refused = Failure::new(Code::BadUrl, "no");
    let house = with(&[Script::Fails(not_found()), Script::Refused(refused.clone()), Script::Takes(1)]);
    let mut events = Vec::new();
    let summary = house.manager.run(&mut |notice| {
        if let Notice::Event { job, event: EventKind::Failed { .. } } = notice {
            let recorded = house.store.get(job).unwrap().state;
            assert_eq!(recorded.kind(), tidegate_queue::Kind::Done, "recorded before it is told");
            events.push(job);
        }
    });
    assert_eq!(events.len(), 2);
    assert_eq!(house.state(0), State::Done(Outcome::Failed { failure: not_found(), kept: 4 }));
    assert_eq!(house.state(1), State::Done(Outcome::Failed { failure: refused, kept: 0 }));
    assert_eq!(house.state(2), State::Done(done()));
    assert_eq!(summary.outcomes.len(), 3);
}

#[test]
fn after_a_failure_nothing_more_is_started_if_so_wished() {
    let scripts = [Script::Takes(5), Script::Fails(not_found()), Script::Takes(1), Script::Takes(1)];
    let settings = Settings { jobs: 2, stop_after_failure: true, ..Settings::default() };
    let house = house(Engine::with(&scripts), settings);
    let summary = house.run();
    assert_eq!(house.starts(), [0, 1]);
    assert_eq!(house.state(0), State::Done(done()), "what ran was finished");
    assert!(house.waits(2) && house.waits(3));
    assert_eq!(summary.outcomes.len(), 2);
}

#[test]
fn a_lease_is_renewed_for_as_long_as_its_job_runs() {
    let house = with(&[Script::Takes(600)]);
    let mut tried = 0;
    let summary = house.manager.run(&mut |_| {
        tried += 1;
        assert_eq!(house.store.claim("another", now(), LEASE).unwrap(), None);
    });
    assert!(tried > 1000);
    assert_eq!(summary.outcomes, [(house.jobs[0], done())]);
    assert_eq!(house.store.get(house.jobs[0]).unwrap().attempts, 1);
}

#[test]
fn a_machine_that_slept_goes_on_with_what_ran() {
    let house = with(&[Script::Takes(5000)]);
    let summary = house.run_and(1, || NOW.set(NOW.get() + 3_600_000));
    assert_eq!(house.starts(), [0], "not started a second time beside the first");
    assert_eq!(summary.outcomes, [(house.jobs[0], done())]);
}

#[test]
fn a_job_that_is_lost_and_won_again_is_started_only_when_it_has_stopped() {
    let house = with(&[Script::Hangs, Script::Takes(600)]);
    let stopper = house.manager.stopper();
    let mut again = Some(());
    let summary = house.manager.run(&mut |_| {
        if NOW.get() > 1000 && again.take().is_some() {
            for job in &house.jobs {
                house.store.pause(*job).unwrap();
                house.store.resume(*job).unwrap();
            }
        }
        if NOW.get() > 200_000 {
            stopper.stop();
        }
    });
    assert_eq!(house.starts(), [0, 1, 1], "the one that hangs is not started beside itself");
    let first_end = Outcome::Incomplete { failure: None, kept: 5 };
    assert_eq!(summary.outcomes[0], (house.jobs[1], first_end));
    assert!(house.waits(1), "{:?}", house.state(1));
}

#[test]
fn a_job_paused_or_removed_in_the_queue_is_stopped_and_nothing_recorded() {
    let house = with(&[Script::Takes(600), Script::Takes(600), Script::Takes(100)]);
    let summary = house.run_and(1, || {
        house.store.pause(house.jobs[0]).unwrap();
        house.store.remove(house.jobs[1]).unwrap();
    });
    assert!(NOW.get() < 150_000);
    assert_eq!(house.state(0), State::Paused);
    assert!(matches!(house.store.get(house.jobs[1]), Err(QueueError::NotFound { .. })));
    let paused = (house.jobs[0], Outcome::Incomplete { failure: None, kept: 5 });
    assert!(summary.outcomes.contains(&paused), "{summary:?}");
    let removed = summary.outcomes.iter().find(|(job, _)| *job == house.jobs[1]).unwrap();
    assert_eq!(code(&removed.1), Some(Code::Cancelled));
    assert_eq!(summary.outcomes[2], (house.jobs[2], done()));
}

#[test]
fn a_job_that_another_worker_has_taken_is_left_to_it() {
    let house = with(&[Script::Takes(600)]);
    let summary = house.run_and(1, || {
        // As after a pause of this machine: the lease has run out and another has claimed the job.
        house.store.pause(house.jobs[0]).unwrap();
        house.store.resume(house.jobs[0]).unwrap();
        house.store.claim("another", now(), LEASE * 100).unwrap().unwrap();
    });
    assert_eq!(code(&summary.outcomes[0].1), Some(Code::LeaseLost));
    assert!(matches!(house.state(0), State::Leased { worker, .. } if worker == "another"));
}

#[test]
fn a_stop_pauses_all_and_another_run_goes_on() {
    let house = with(&[Script::Takes(600), Script::Takes(600), Script::Takes(1)]);
    let stopper = house.manager.stopper();
    let summary = house.run_and(10, || stopper.stop());
    assert!(summary.interrupted && NOW.get() < 11_000);
    let left = |n: usize| (house.jobs[n], Outcome::Incomplete { failure: None, kept: 5 });
    assert_eq!(summary.outcomes, [(house.jobs[2], done()), left(0), left(1)]);
    assert!(house.waits(0) && house.waits(1));
    let summary = house.run();
    assert!(!summary.interrupted);
    assert_eq!(house.store.counts().unwrap(), Counts { done: 3, ..Counts::default() });
}

#[test]
fn a_stop_after_the_end_interrupts_nothing() {
    let house = with(&[Script::Takes(1)]);
    let stopper = house.manager.stopper();
    let summary = house.manager.run(&mut |notice| {
        if matches!(notice, Notice::Event { event: EventKind::Completed { .. }, .. }) {
            stopper.stop();
        }
    });
    assert!(!summary.interrupted);
}

#[test]
fn a_download_that_does_not_answer_keeps_nobody_from_leaving() {
    let house = with(&[Script::Hangs, Script::Takes(600)]);
    let stopper = house.manager.stopper();
    let summary = house.run_and(1, || stopper.stop());
    assert!(summary.interrupted && NOW.get() < 40_000);
    assert_eq!(summary.outcomes[0], (house.jobs[1], Outcome::Incomplete { failure: None, kept: 5 }));
    assert_eq!(summary.outcomes[1], (house.jobs[0], Outcome::Incomplete { failure: None, kept: 3 }));
    assert!(house.waits(0) && house.waits(1));
}

#[test]
fn an_engine_that_ends_loses_no_job() {
    let scripts = [Script::EndsEngine(5), Script::Takes(600), Script::Takes(1), Script::Takes(1)];
    let house = house(Engine::with(&scripts), Settings { jobs: 2, ..Settings::default() });
    let summary = house.run();
    assert_eq!(summary.outcomes.len(), 2);
    for (_, outcome) in &summary.outcomes {
        assert!(matches!(outcome, Outcome::Incomplete { kept: 3, .. }));
        assert_eq!(code(outcome), Some(Code::EngineUnavailable));
    }
    assert!((0..4).all(|n| house.waits(n)));
    assert!(!summary.interrupted);
}

#[test]
fn an_engine_that_never_ran_loses_no_job_either() {
    let house = house(Engine::ended(), Settings::default());
    let summary = house.run();
    assert_eq!(code(&summary.outcomes[0].1), Some(Code::EngineUnavailable));
    assert_eq!(summary.failure.map(|failure| failure.code), Some(Code::EngineUnavailable));
    assert!(house.waits(0));
}

#[test]
fn a_full_disk_ends_a_job_as_incomplete() {
    let house = with(&[Script::Waits(disk_full()), Script::Fails(disk_full())]);
    let summary = house.run();
    assert_eq!(summary.outcomes.len(), 2);
    for (n, kept) in [(0, 5), (1, 4)] {
        let outcome = Outcome::Incomplete { failure: Some(disk_full()), kept };
        assert!(summary.outcomes.contains(&(house.jobs[n], outcome.clone())));
        assert_eq!(house.state(n), State::Done(outcome));
    }
}

#[test]
fn a_full_disk_is_waited_for_if_so_wished() {
    let settings = Settings { wait: WaitPolicy::Hold, ..Settings::default() };
    let house = house(Engine::with(&[Script::FailsOnce(disk_full()), Script::Waits(disk_full())]), settings);
    let stopper = house.manager.stopper();
    let summary = house.run_and(60, || stopper.stop());
    assert_eq!(house.starts(), [0, 1, 0]);
    assert_eq!(summary.outcomes[0], (house.jobs[0], done()));
    assert_eq!(summary.outcomes[1], (house.jobs[1], Outcome::Incomplete { failure: None, kept: 5 }));
}

#[test]
fn a_held_job_is_not_forgotten_when_the_run_is_stopped() {
    let settings = Settings { wait: WaitPolicy::Hold, ..Settings::default() };
    let house = house(Engine::with(&[Script::FailsOnce(disk_full())]), settings);
    let mut told = Vec::new();
    let stopper = house.manager.stopper();
    let summary = house.manager.run(&mut |notice| {
        if let Notice::Event { event: EventKind::Waiting { failure, .. }, .. } = notice {
            told.push(failure);
            stopper.stop();
        }
    });
    assert_eq!(told, [disk_full()]);
    assert!(summary.interrupted);
    let held = Outcome::Incomplete { failure: Some(disk_full()), kept: 4 };
    assert_eq!(summary.outcomes, [(house.jobs[0], held)]);
}

#[test]
fn what_another_has_paused_is_not_started_again() {
    let house = with(&[Script::PausedByAnother]);
    let summary = house.run();
    assert_eq!(summary.outcomes, [(house.jobs[0], Outcome::Incomplete { failure: None, kept: 5 })]);
    assert_eq!(house.state(0), State::Paused);
}

#[test]
fn a_full_engine_is_asked_again_after_a_while_and_no_job_loses_its_place() {
    let scripts = [Script::NoRoom(25), Script::Takes(1), Script::Takes(1)];
    let house = house(Engine::with(&scripts), Settings { jobs: 2, ..Settings::default() });
    let mut told = 0;
    let summary = house.manager.run(&mut |notice| {
        if let Notice::Event { job, event: EventKind::Waiting { failure, .. } } = notice {
            assert_eq!((job, failure.code), (house.jobs[0], Code::EngineFull));
            told += 1;
        }
    });
    assert_eq!(house.starts(), [0, 1, 2], "nobody overtakes who waits for room");
    assert_eq!((told, house.engine.scripted().asked_in_vain), (3, 3));
    assert_eq!(summary.outcomes.len(), 3);
    assert!(summary.outcomes.iter().all(|(_, outcome)| *outcome == done()), "{summary:?}");
}

#[test]
fn room_that_an_ended_download_leaves_is_used_at_once() {
    let scripts = [Script::Takes(3), Script::NoRoom(2), Script::Takes(1)];
    let house = house(Engine::with(&scripts), Settings { jobs: 2, ..Settings::default() });
    assert_eq!(house.run().outcomes.len(), 3);
    assert_eq!(house.engine.scripted().asked_in_vain, 1);
    assert!(NOW.get() < 5000, "{}", NOW.get());
}

#[test]
fn a_job_that_finds_no_room_waits_in_the_queue_when_the_run_is_stopped() {
    let house = with(&[Script::NoRoom(600)]);
    let stopper = house.manager.stopper();
    let summary = house.manager.run(&mut |_| stopper.stop());
    assert!(summary.interrupted && house.waits(0));
    assert_eq!(summary.outcomes.len(), 1);
    assert_eq!(code(&summary.outcomes[0].1), Some(Code::EngineFull));
    assert_eq!(summary.failure, None);
}

#[test]
fn ticks_come_at_most_every_100_ms_and_progress_can_be_asked_for_meanwhile() {
    let house = with(&[Script::Takes(2), Script::Takes(3)]);
    let mut ticks: Vec<u64> = Vec::new();
    house.manager.run(&mut |notice| {
        let mut jobs: Vec<JobId> = Vec::new();
        house.manager.look(&mut |job, _| jobs.push(job)).unwrap();
        if notice == Notice::Tick {
            ticks.push(NOW.get());
            assert!(jobs.iter().all(|job| house.jobs.contains(job)));
            assert!(NOW.get() > 1900 || jobs == house.jobs);
        }
    });
    assert!((25..=31).contains(&ticks.len()), "{ticks:?}");
    assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] >= 100));
}

#[test]
fn events_of_downloads_that_are_not_ours_are_left_alone() {
    let house = with(&[Script::Takes(1)]);
    house.engine.scripted().tell(DownloadId(77), completed());
    let mut strange = 0;
    let summary = house.manager.run(&mut |notice| {
        strange += usize::from(matches!(notice, Notice::Event { job, .. } if job != house.jobs[0]));
    });
    assert_eq!((strange, summary.outcomes.len()), (0, 1));
}
