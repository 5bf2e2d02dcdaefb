//! Claim, transfer, record.
//!
//! A [`Manager`] is one worker of a queue and the only reader of its engine's events. It holds a lease
//! for each job that runs and renews it; a job whose lease is lost (it was paused or removed, or another
//! worker has it) is stopped and nothing is recorded for it.

use crate::downloads::Downloads;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tidegate_core::message::{Event, EventKind, Progress, Snapshot};
use tidegate_core::{Code, DownloadId, Failure, Remedy, Request};
use tidegate_queue::{Claimed, JobId, Lease, NewJob, Outcome, QueueError, State, Store};

/// How long a lease lasts, and how long before its end it is renewed.
const LEASE: Duration = Duration::from_secs(60);
const RENEW_BEFORE: Duration = Duration::from_secs(40);
/// How often the loop looks around when nothing happens, and the shortest time between two ticks.
const TICK: Duration = Duration::from_millis(100);
/// How long running downloads have to save what they have, when the manager is stopped. A disk that
/// hangs for longer keeps nobody here; what is in its part file is found again.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// How long a job waits that needs the machine to change, before it is tried again.
const HOLD: Duration = Duration::from_secs(10);

/// How a manager behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Files at a time; 0 counts as 1.
    pub jobs: usize,
    /// What to do with a job that waits for the machine to change.
    pub wait: WaitPolicy,
    /// After a job has failed, start no other. What runs is finished.
    pub stop_after_failure: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { jobs: 4, wait: WaitPolicy::Fail, stop_after_failure: false }
    }
}

/// What to do with a job that can only go on when the machine has changed (a full disk, a missing
/// permission).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitPolicy {
    /// End it as incomplete, keeping its bytes.
    Fail,
    /// Go on waiting.
    Hold,
}

/// What the caller of [`Manager::run`] is told meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Something happened to a job. The end of a job is told after it was recorded.
    Event {
        /// Which job.
        job: JobId,
        /// What happened.
        event: EventKind,
    },
    /// Time to show progress: at most every 100 ms, while something runs.
    Tick,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// How each job ended that was started in this run, in the order in which they ended.
    pub outcomes: Vec<(JobId, Outcome)>,
    /// The run was asked to stop before all was done.
    pub interrupted: bool,
    /// Why the run ended before all was done, if the engine or the queue failed.
    pub failure: Option<Failure>,
}

/// Asks a [`Manager::run`] to stop, from another thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    asked: Arc<AtomicBool>,
}

impl Stopper {
    /// Asks the run, now or when it is next called, to stop all, wait until it is saved, and return.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Release);
    }
}

/// Runs the jobs of a queue on an engine.
pub struct Manager {
    engine: Box<dyn Downloads>,
    store: Arc<dyn Store>,
    settings: Settings,
    worker: String,
    asked: Arc<AtomicBool>,
    /// Changed by `run` alone, and never locked while others' code runs.
    running: Mutex<BTreeMap<DownloadId, Running>>,
    /// What was shown last, to be used again.
    seen: Mutex<Snapshot>,
    clock: fn() -> SystemTime,
}

impl Manager {
    /// A manager that is the only reader of this engine's events. Nothing is started yet.
    pub fn new(engine: impl Downloads + 'static, store: Arc<dyn Store>, settings: Settings) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            engine: Box::new(engine),
            store,
            settings,
            worker: format!("{}-{count}", std::process::id()),
            asked: Arc::default(),
            running: Mutex::default(),
            seen: Mutex::default(),
            clock: SystemTime::now,
        }
    }

    /// Adds a job to the end of the queue.
    ///
    /// # Errors
    /// `queue-full`, `queue-failed`.
    pub fn add(&self, request: Request) -> Result<JobId, Failure> {
        Ok(self.store.add(NewJob::from(request), (self.clock)())?)
    }

    /// Works on the calling thread until no job of the queue waits and none runs here, or until a
    /// [`Stopper`] was used; each notice is handed to `watch` in order.
    ///
    /// When the engine ends before, the jobs that ran wait in the queue again and their outcome is
    /// incomplete with `engine-unavailable`. To be called by one thread at a time.
    pub fn run(&self, watch: &mut dyn FnMut(Notice)) -> Summary {
        let mut run = Run {
            manager: self,
            watch,
            summary: Summary::default(),
            stop_by: None,
            failed: false,
            held: BTreeMap::new(),
            last_tick: (self.clock)(),
            full_until: None,
        };
        while run.turn() {}
        let held = std::mem::take(&mut run.held);
        run.summary.outcomes.extend(held);
        run.summary
    }

    /// Stops [`run`](Self::run) from elsewhere, for example when the user interrupts.
    pub fn stopper(&self) -> Stopper {
        Stopper { asked: Arc::clone(&self.asked) }
    }

    /// Shows what each running job is doing right now, in the order in which they were started. However often
    /// this is asked, nothing is allocated while bytes flow and nothing else changes.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn look(&self, show: &mut dyn FnMut(JobId, &Progress)) -> Result<(), Failure> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.refresh(&mut seen)?;
        let running = self.running();
        for progress in &seen.downloads {
            if let Some(running) = running.get(&progress.id) {
                show(running.lease.job, progress);
            }
        }
        Ok(())
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<DownloadId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("worker", &self.worker).field("settings", &self.settings).finish()
    }
}

/// A job in the hands of the engine.
#[derive(Clone, Debug)]
struct Running {
    lease: Lease,
    /// Bytes known to be kept.
    kept: u64,
    /// Why it was told to stop, if it was.
    stopping: Option<Stopping>,
}

#[derive(Clone, Debug)]
enum Stopping {
    /// The run is to stop.
    Stop,
    /// It waits for the machine, and is not to.
    Wait(Failure),
    /// Its lease is lost; `None` if it was paused in the queue.
    Lost(Option<Failure>),
    /// Somebody else with a handle of the engine has paused it.
    Paused,
}

/// One call of [`Manager::run`].
struct Run<'a> {
    manager: &'a Manager,
    watch: &'a mut dyn FnMut(Notice),
    summary: Summary,
    /// Set once the run is stopping: when to stop waiting for what runs.
    stop_by: Option<SystemTime>,
    failed: bool,
    /// Jobs that wait in the queue for the machine to change, and their outcome should they wait still
    /// at the end of the run.
    held: BTreeMap<JobId, Outcome>,
    last_tick: SystemTime,
    /// The engine had no room for another download: when to ask again, unless one ends before.
    full_until: Option<SystemTime>,
}

impl Run<'_> {
    /// Does one round; tells whether there is another.
    fn turn(&mut self) -> bool {
        let now = (self.manager.clock)();
        // The wish is used up, so that the manager can run again.
        if self.manager.asked.swap(false, Ordering::AcqRel) {
            self.begin_to_stop(now);
        }
        if self.stop_by.is_some_and(|by| by <= now) {
            self.abandon_all(None);
        }
        // Before any claim: this machine may have slept, and what ran out meanwhile is ours still.
        self.renew(now);
        let may_start = self.stop_by.is_none() && !(self.failed && self.manager.settings.stop_after_failure);
        let more = if may_start { self.fill(now) } else { Ok(false) };
        let idle = self.manager.running().is_empty();
        if idle && matches!(more, Ok(false)) {
            return false;
        }
        match more.and_then(|_| self.manager.engine.next_event(TICK)) {
            Ok(Some(event)) => self.on_event(event),
            Ok(None) => {}
            // The engine has ended: nothing that runs will be heard of again.
            Err(failure) => {
                self.summary.failure = Some(failure.clone());
                self.abandon_all(Some(failure));
                return false;
            }
        }
        let now = (self.manager.clock)();
        // A clock that went back is no reason to stop drawing.
        let due = now.duration_since(self.last_tick).map_or(true, |passed| passed >= TICK);
        if due && !self.manager.running().is_empty() {
            self.last_tick = now;
            (self.watch)(Notice::Tick);
        }
        true
    }

    fn begin_to_stop(&mut self, now: SystemTime) {
        let waiting = self.manager.store.counts().map_or(0, |counts| counts.waiting);
        self.summary.interrupted |= waiting > 0 || !self.manager.running().is_empty();
        self.stop_by.get_or_insert(now + STOP_PATIENCE);
        let running: Vec<DownloadId> = {
            let running = self.manager.running();
            running.iter().filter(|(_, r)| r.stopping.is_none()).map(|(id, _)| *id).collect()
        };
        running.into_iter().for_each(|id| self.stop_one(id, Stopping::Stop));
    }

    /// Starts jobs while there is room. Tells whether any may be waiting still.
    ///
    /// # Errors
    /// When the engine has ended.
    fn fill(&mut self, now: SystemTime) -> Result<bool, Failure> {
        let most = self.manager.settings.jobs.max(1);
        if self.full_until.is_some_and(|until| now < until) {
            return Ok(true);
        }
        while self.manager.running().len() < most {
            let claimed = match self.manager.store.claim(&self.manager.worker, now, LEASE) {
                Ok(Some(claimed)) => claimed,
                Ok(None) => {
                    // Those that may not be tried yet are waited for.
                    let counts = self.manager.store.counts();
                    return Ok(counts.is_ok_and(|counts| counts.waiting > 0));
                }
                // What runs goes on, and each end of a job is an occasion to ask again.
                Err(error) => {
                    self.summary.failure = Some(error.into());
                    return Ok(false);
                }
            };
            let runs = |(id, running): (&DownloadId, &Running)| {
                (running.lease.job == claimed.job.id).then_some((*id, running.stopping.is_some()))
            };
            let still = self.manager.running().iter().find_map(runs);
            if let Some((id, told)) = still {
                // Its lease was lost and it is ours again; but first the one that runs has to stop.
                if !told {
                    self.stop_one(id, Stopping::Lost(None));
                }
                // If the release fails, the lease runs out.
                let _ = self.manager.store.release(&claimed.lease, Some(now + TICK));
                continue;
            }
            self.start(claimed, now)?;
            if self.full_until.is_some() {
                return Ok(true);
            }
            if self.failed && self.manager.settings.stop_after_failure {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn start(&mut self, Claimed { job, lease }: Claimed, now: SystemTime) -> Result<(), Failure> {
        self.summary.failure = None;
        self.full_until = None;
        self.held.remove(&job.id);
        match self.manager.engine.start(job.request) {
            Ok(id) => {
                self.manager.running().insert(id, Running { lease, kept: 0, stopping: None });
                Ok(())
            }
            Err(failure) if failure.code == Code::EngineUnavailable => {
                let outcome = Outcome::Incomplete { failure: Some(failure.clone()), kept: 0 };
                self.let_go(&lease, outcome);
                Err(failure)
            }
            Err(failure) if failure.code == Code::EngineFull => {
                // Others use the engine too. It keeps its place in the queue, and the others wait with it.
                self.full_until = Some(now + HOLD);
                self.hold(&lease, failure.clone(), 0, None);
                let event = EventKind::Waiting { failure, retry_in: HOLD };
                (self.watch)(Notice::Event { job: job.id, event });
                Ok(())
            }
            Err(failure) => {
                self.end(&lease, Outcome::Failed { failure: failure.clone(), kept: 0 });
                (self.watch)(Notice::Event { job: job.id, event: EventKind::Failed { failure, kept: 0 } });
                Ok(())
            }
        }
    }

    fn on_event(&mut self, Event { id, kind }: Event) {
        let Some(running) = self.manager.running().get(&id).cloned() else { return };
        let Running { lease, stopping, .. } = running;
        let holds = self.manager.settings.wait == WaitPolicy::Hold;
        if kind.is_final() {
            self.full_until = None;
        }
        let mut event = kind.clone();
        match kind {
            EventKind::Completed { path, length, proof, already, received } => {
                self.manager.running().remove(&id);
                self.end(&lease, Outcome::Completed { path, length, proof, already, received });
            }
            EventKind::Failed { failure, kept } => {
                self.manager.running().remove(&id);
                if !matches!(failure.remedy, Remedy::Wait { .. }) {
                    self.end(&lease, Outcome::Failed { failure, kept });
                } else if holds && stopping.is_none() {
                    // For this engine it has ended; for the queue it has not.
                    let not_before = (self.manager.clock)() + HOLD;
                    self.hold(&lease, failure.clone(), kept, Some(not_before));
                    event = EventKind::Waiting { failure, retry_in: HOLD };
                } else {
                    self.end(&lease, Outcome::Incomplete { failure: Some(failure), kept });
                }
            }
            EventKind::Stopped { kept } => {
                self.manager.running().remove(&id);
                self.on_stopped(&lease, stopping, kept);
            }
            // It would keep its place here and its files there, and nobody here would resume it.
            EventKind::Paused { .. } if stopping.is_none() => self.stop_one(id, Stopping::Paused),
            EventKind::Paused { .. } => {}
            EventKind::Waiting { failure, .. } => {
                if matches!(failure.remedy, Remedy::Wait { .. }) && !holds && stopping.is_none() {
                    self.stop_one(id, Stopping::Wait(failure));
                }
            }
            EventKind::Started { resumed_from: kept } | EventKind::Checkpointed { durable: kept } => {
                if let Some(running) = self.manager.running().get_mut(&id) {
                    running.kept = kept;
                }
            }
            EventKind::Restarted { .. } => {
                if let Some(running) = self.manager.running().get_mut(&id) {
                    running.kept = 0;
                }
            }
            EventKind::Identified { .. } | EventKind::Named { .. } | EventKind::Notice { .. } => {}
        }
        (self.watch)(Notice::Event { job: lease.job, event });
    }

    fn on_stopped(&mut self, lease: &Lease, stopping: Option<Stopping>, kept: u64) {
        match stopping {
            Some(Stopping::Stop) => {
                self.let_go(lease, Outcome::Incomplete { failure: None, kept });
            }
            Some(Stopping::Wait(failure)) => {
                self.end(lease, Outcome::Incomplete { failure: Some(failure), kept });
            }
            Some(Stopping::Lost(failure)) => self.tell(lease, Outcome::Incomplete { failure, kept }),
            // Somebody else wanted it so: then it is not to be started again at once.
            Some(Stopping::Paused) | None => {
                let outcome = Outcome::Incomplete { failure: None, kept };
                match self.manager.store.pause(lease.job) {
                    Ok(()) => self.tell(lease, outcome),
                    Err(error) => self.lose(lease, error, kept),
                }
            }
        }
    }

    /// Puts a job back until it can go on.
    fn hold(&mut self, lease: &Lease, failure: Failure, kept: u64, not_before: Option<SystemTime>) {
        match self.manager.store.release(lease, not_before) {
            Err(error) if error.is_lease_lost() => self.lose(lease, error, kept),
            // Without a release it waits until its lease runs out.
            Ok(()) | Err(_) => {
                self.held.insert(lease.job, Outcome::Incomplete { failure: Some(failure), kept });
            }
        }
    }

    /// Renews leases whose end comes near, and stops the jobs whose lease is lost.
    fn renew(&mut self, now: SystemTime) {
        let ends_soon = |running: &Running| {
            running.lease.until <= now + RENEW_BEFORE && !matches!(running.stopping, Some(Stopping::Lost(_)))
        };
        let due: Vec<(DownloadId, Lease)> = {
            let running = self.manager.running();
            running.iter().filter(|(_, r)| ends_soon(r)).map(|(id, r)| (*id, r.lease)).collect()
        };
        for (id, lease) in due {
            match self.manager.store.renew(&lease, now, LEASE) {
                Ok(renewed) => {
                    if let Some(running) = self.manager.running().get_mut(&id) {
                        running.lease = renewed;
                    }
                }
                // A store that does not answer takes nothing away before the lease has run out.
                Err(error) if !error.is_lease_lost() && now < lease.until => {}
                Err(error) => {
                    let why = self.why_lost(lease.job, error);
                    self.stop_one(id, Stopping::Lost(why));
                }
            }
        }
    }

    /// What to say of a lost lease; nothing if the job was paused in the queue.
    fn why_lost(&self, job: JobId, error: QueueError) -> Option<Failure> {
        match (self.manager.store.get(job), error) {
            (Ok(job), _) if job.state == State::Paused => None,
            (Err(QueueError::NotFound { .. }), _) => {
                Some(Failure::new(Code::Cancelled, format!("job {job} was removed from the queue")))
            }
            (_, error) => Some(error.into()),
        }
    }

    fn stop_one(&mut self, id: DownloadId, why: Stopping) {
        if let Some(running) = self.manager.running().get_mut(&id) {
            running.stopping = Some(why);
        }
        // If the engine has ended, the next event tells.
        let _ = self.manager.engine.stop(id);
    }

    /// Lets go of all that runs: the engine has ended, or does not answer.
    fn abandon_all(&mut self, failure: Option<Failure>) {
        let all = std::mem::take(&mut *self.manager.running());
        for Running { lease, kept, stopping } in all.into_values() {
            match stopping {
                Some(Stopping::Lost(why)) => self.tell(&lease, Outcome::Incomplete { failure: why, kept }),
                Some(Stopping::Wait(why)) => {
                    self.end(&lease, Outcome::Incomplete { failure: Some(why), kept });
                }
                Some(Stopping::Stop | Stopping::Paused) | None => {
                    self.let_go(&lease, Outcome::Incomplete { failure: failure.clone(), kept });
                }
            }
        }
    }

    /// Records how a job ended.
    fn end(&mut self, lease: &Lease, outcome: Outcome) {
        match self.manager.store.record(lease, outcome.clone()) {
            Err(error) if error.is_lease_lost() => {
                let (Outcome::Completed { length: kept, .. }
                | Outcome::Failed { kept, .. }
                | Outcome::Incomplete { kept, .. }) = outcome;
                self.lose(lease, error, kept);
            }
            // If the store could not write it down, the caller is told the truth all the same, and the
            // next who claims the job finds the file as it is.
            Ok(()) | Err(_) => self.tell(lease, outcome),
        }
    }

    /// Gives a job back to the queue; the outcome is this run's only.
    fn let_go(&mut self, lease: &Lease, outcome: Outcome) {
        match self.manager.store.release(lease, None) {
            Err(error) if error.is_lease_lost() => {
                let Outcome::Incomplete { kept, .. } = outcome else { return self.tell(lease, outcome) };
                self.lose(lease, error, kept);
            }
            // Without a release the lease runs out by itself.
            Ok(()) | Err(_) => self.tell(lease, outcome),
        }
    }

    fn lose(&mut self, lease: &Lease, error: QueueError, kept: u64) {
        let failure = self.why_lost(lease.job, error);
        self.tell(lease, Outcome::Incomplete { failure, kept });
    }

    fn tell(&mut self, lease: &Lease, outcome: Outcome) {
        self.failed |=
            matches!(outcome, Outcome::Failed { .. } | Outcome::Incomplete { failure: Some(_), .. });
        self.summary.outcomes.push((lease.job, outcome));
    }
}

#[cfg(test)]
mod tests;
