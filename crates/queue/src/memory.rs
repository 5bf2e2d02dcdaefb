//! A queue that lives as long as the process.

use crate::error::QueueError;
use crate::job::{Claimed, Counts, Job, JobId, Kind, Lease, NewJob, Outcome, Page, State};
use crate::store::Store;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tidegate_core::Request;

/// How many jobs a [`MemoryStore`] holds unless told otherwise.
const LIMIT: usize = 1_000_000;

/// A queue in memory.
#[derive(Debug)]
pub struct MemoryStore {
    limit: usize,
    inner: Mutex<Inner>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty queue for up to a million jobs.
    pub fn new() -> Self {
        Self::with_limit(LIMIT)
    }

    /// An empty queue for up to `limit` jobs, the ended ones included.
    pub fn with_limit(limit: usize) -> Self {
        Self { limit, inner: Mutex::default() }
    }

    /// Operations check first and change then, so a poisoned lock guards a whole queue.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<JobId, Entry>,
    keys: HashMap<String, JobId>,
    /// Jobs that are not done, in their order.
    open: Vec<JobId>,
    /// Jobs that are, in the order in which they ended.
    done: Vec<JobId>,
    last: u64,
}

#[derive(Debug)]
struct Entry {
    request: Request,
    key: Option<String>,
    state: State,
    attempts: u32,
    added: SystemTime,
    fence: u64,
}

impl Inner {
    fn entry(&mut self, job: JobId) -> Result<&mut Entry, QueueError> {
        self.entries.get_mut(&job).ok_or(QueueError::NotFound { job })
    }

    /// The entry of a job whose last lease this is.
    fn leased(&mut self, lease: &Lease) -> Result<&mut Entry, QueueError> {
        let job = lease.job;
        let entry = self.entry(job)?;
        if entry.fence != lease.fence || entry.state.kind() != Kind::Leased {
            return Err(QueueError::Fenced { job, fence: lease.fence, current: entry.fence });
        }
        Ok(entry)
    }

    fn not_ended(&mut self, job: JobId) -> Result<&mut Entry, QueueError> {
        let entry = self.entry(job)?;
        if entry.state.kind() == Kind::Done {
            return Err(QueueError::Ended { job });
        }
        Ok(entry)
    }

    fn take_out(&mut self, job: JobId) {
        for list in [&mut self.open, &mut self.done] {
            if let Some(place) = list.iter().position(|&other| other == job) {
                list.remove(place);
                return;
            }
        }
    }

    fn view(&self, id: JobId, position: Option<usize>) -> Option<Job> {
        let entry = self.entries.get(&id)?;
        Some(Job {
            id,
            request: entry.request.clone(),
            state: entry.state.clone(),
            attempts: entry.attempts,
            position,
            added: entry.added,
        })
    }
}

impl Store for MemoryStore {
    fn add_all(&self, jobs: Vec<NewJob>, now: SystemTime) -> Result<Vec<JobId>, QueueError> {
        let mut inner = self.lock();
        let new = |job: &&NewJob| !job.key.as_ref().is_some_and(|key| inner.keys.contains_key(key));
        if inner.entries.len() + jobs.iter().filter(new).count() > self.limit {
            return Err(QueueError::Full { limit: self.limit });
        }
        let mut ids = Vec::with_capacity(jobs.len());
        for NewJob { request, key } in jobs {
            if let Some(known) = key.as_ref().and_then(|key| inner.keys.get(key)) {
                ids.push(*known);
                continue;
            }
            inner.last += 1;
            let id = JobId(inner.last);
            if let Some(key) = &key {
                inner.keys.insert(key.clone(), id);
            }
            let state = State::Waiting { not_before: None };
            inner.entries.insert(id, Entry { request, key, state, attempts: 0, added: now, fence: 0 });
            inner.open.push(id);
            ids.push(id);
        }
        Ok(ids)
    }

    fn claim(
        &self,
        worker: &str,
        now: SystemTime,
        lease_for: Duration,
    ) -> Result<Option<Claimed>, QueueError> {
        let mut inner = self.lock();
        let claimable = |state: &State| match state {
            State::Waiting { not_before } => not_before.is_none_or(|time| time <= now),
            State::Leased { until, .. } => *until <= now,
            State::Paused | State::Done(_) => false,
        };
        let is_claimable = |id: &JobId| inner.entries.get(id).is_some_and(|entry| claimable(&entry.state));
        let Some(position) = inner.open.iter().position(is_claimable) else { return Ok(None) };
        let job = inner.open[position];
        let entry = inner.entry(job)?;
        let until = now + lease_for;
        entry.fence += 1;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.state = State::Leased { worker: worker.to_owned(), until };
        let lease = Lease { job, fence: entry.fence, until };
        Ok(inner.view(job, Some(position)).map(|job| Claimed { job, lease }))
    }

    fn renew(&self, lease: &Lease, now: SystemTime, lease_for: Duration) -> Result<Lease, QueueError> {
        let mut inner = self.lock();
        let renewed = Lease { until: now + lease_for, ..*lease };
        if let State::Leased { until, .. } = &mut inner.leased(lease)?.state {
            *until = renewed.until;
        }
        Ok(renewed)
    }

    fn record(&self, lease: &Lease, outcome: Outcome) -> Result<(), QueueError> {
        let mut inner = self.lock();
        inner.leased(lease)?.state = State::Done(outcome);
        inner.take_out(lease.job);
        inner.done.push(lease.job);
        Ok(())
    }

    fn release(&self, lease: &Lease, not_before: Option<SystemTime>) -> Result<(), QueueError> {
        self.lock().leased(lease)?.state = State::Waiting { not_before };
        Ok(())
    }

    fn pause(&self, job: JobId) -> Result<(), QueueError> {
        let mut inner = self.lock();
        let entry = inner.not_ended(job)?;
        entry.fence += 1;
        entry.state = State::Paused;
        Ok(())
    }

    fn resume(&self, job: JobId) -> Result<(), QueueError> {
        let mut inner = self.lock();
        let entry = inner.entry(job)?;
        match &entry.state {
            State::Leased { .. } => {}
            State::Waiting { .. } | State::Paused => entry.state = State::Waiting { not_before: None },
            State::Done(Outcome::Completed { .. }) => return Err(QueueError::Ended { job }),
            State::Done(Outcome::Failed { .. } | Outcome::Incomplete { .. }) => {
                entry.state = State::Waiting { not_before: None };
                inner.take_out(job);
                inner.open.push(job);
            }
        }
        Ok(())
    }

    fn remove(&self, job: JobId) -> Result<(), QueueError> {
        let mut inner = self.lock();
        let entry = inner.entries.remove(&job).ok_or(QueueError::NotFound { job })?;
        if let Some(key) = entry.key {
            inner.keys.remove(&key);
        }
        inner.take_out(job);
        Ok(())
    }

    fn move_to(&self, job: JobId, position: usize) -> Result<(), QueueError> {
        let mut inner = self.lock();
        inner.not_ended(job)?;
        inner.take_out(job);
        let position = position.min(inner.open.len());
        inner.open.insert(position, job);
        Ok(())
    }

    fn get(&self, job: JobId) -> Result<Job, QueueError> {
        let inner = self.lock();
        let position = inner.open.iter().position(|&other| other == job);
        inner.view(job, position).ok_or(QueueError::NotFound { job })
    }

    fn list(&self, kind: Option<Kind>, page: Page) -> Result<Vec<Job>, QueueError> {
        let inner = self.lock();
        let open = inner.open.iter().enumerate().map(|(position, &id)| (id, Some(position)));
        let all = open.chain(inner.done.iter().map(|&id| (id, None)));
        let wanted = all.filter(|(id, _)| {
            let is = inner.entries.get(id).map(|entry| entry.state.kind());
            kind.is_none() || is == kind
        });
        let page = wanted.skip(page.first).take(page.limit);
        Ok(page.filter_map(|(id, position)| inner.view(id, position)).collect())
    }

    fn counts(&self) -> Result<Counts, QueueError> {
        let inner = self.lock();
        let mut counts = Counts { done: inner.done.len(), ..Counts::default() };
        for entry in inner.open.iter().filter_map(|id| inner.entries.get(id)) {
            match entry.state.kind() {
                Kind::Waiting => counts.waiting += 1,
                Kind::Leased => counts.leased += 1,
                Kind::Paused => counts.paused += 1,
                Kind::Done => {}
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::contract_tests!(|| Box::new(MemoryStore::new()) as Box<dyn Store>);

    #[test]
    fn a_full_queue_takes_all_of_an_addition_or_nothing() {
        let store = MemoryStore::with_limit(3);
        let now = SystemTime::UNIX_EPOCH;
        let jobs = |n: usize| vec![NewJob { request: crate::contract::request(0), key: None }; n];
        store.add_all(jobs(2), now).unwrap();
        assert!(matches!(store.add_all(jobs(2), now), Err(QueueError::Full { limit: 3 })));
        assert_eq!(store.counts().unwrap().total(), 2);
        store.add_all(jobs(1), now).unwrap();
    }
}
