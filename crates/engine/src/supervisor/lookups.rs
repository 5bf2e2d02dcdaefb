//! What the child cannot find out itself is found out here: by a few threads, since it may take long.
//!
//! Nobody waits for these threads: a name server that does not answer is not to hold up the end of an engine.

use crate::connect::tls::read_system_roots;
use crate::protocol::{Resolution, Roots};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::VecDeque;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that look something up at a time, at most.
const MOST: usize = 8;

/// Questions that wait, at most.
const MOST_WAITING: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The threads, which are started when they are wanted, and end when this is closed.
#[derive(Default)]
pub(super) struct Lookups {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
    roots: Mutex<Option<Roots>>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Lookups {
    /// Finds what a name stands for, as this system has it now.
    pub(super) fn resolve(
        &self,
        host: String,
        port: u16,
        tell: impl Fn(Resolution) + Clone + Send + 'static,
    ) {
        let answer = tell.clone();
        let job = move || {
            let found = (host.as_str(), port).to_socket_addrs().map_err(crate::connect::in_our_words);
            answer(match found {
                Ok(addresses) => Resolution::Found(addresses.take(Resolution::MOST).collect()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Resolution::Unknown,
                Err(error) => Resolution::Failed(error.to_string()),
            });
        };
        if !self.run(Box::new(job)) {
            tell(Resolution::Failed("too many names are being looked up".to_owned()));
        }
    }

    /// Reads which certificates the system trusts; once.
    pub(super) fn roots(&self, tell: impl Fn(Roots) + Clone + Send + 'static) {
        let (shared, answer) = (Arc::clone(&self.shared), tell.clone());
        let job = move || {
            let mut known = shared.roots.lock().unwrap_or_else(PoisonError::into_inner);
            let roots = known.get_or_insert_with(|| match read_system_roots() {
                Ok(certificates) => {
                    let lines: Vec<String> =
                        certificates.iter().map(|certificate| STANDARD.encode(certificate)).collect();
                    Roots::Found(lines.join("\n"))
                }
                Err(why) => Roots::Failed(why),
            });
            answer(roots.clone());
            if matches!(roots, Roots::Failed(_)) {
                // They may be installed meanwhile.
                *known = None;
            }
        };
        if !self.run(Box::new(job)) {
            tell(Roots::Failed("too many things are being looked up".to_owned()));
        }
    }

    /// Whoever asked is no more.
    pub(super) fn forget(&self) {
        self.shared.lock().jobs.clear();
    }

    /// Nothing is looked up any more, and the threads end when what they are at has come to its end.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.jobs.clear();
        self.shared.news.notify_all();
    }

    /// Does something on one of the threads; `false` if too much waits.
    fn run(&self, job: Job) -> bool {
        let mut state = self.shared.lock();
        if state.closed || state.jobs.len() >= MOST_WAITING {
            return false;
        }
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.threads < MOST {
            let shared = Arc::clone(&self.shared);
            let name = format!("look-up-{}", state.threads);
            if std::thread::Builder::new().name(name).spawn(move || shared.work()).is_ok() {
                state.threads += 1;
            } else if state.threads == 0 {
                state.jobs.clear();
                return false;
            }
        }
        self.shared.news.notify_one();
        true
    }
}

impl Drop for Lookups {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let job = {
                let mut state = self.lock();
                state.idle += 1;
                while state.jobs.is_empty() && !state.closed {
                    state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.idle -= 1;
                state.jobs.pop_front()
            };
            match job {
                Some(job) => job(),
                None => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
