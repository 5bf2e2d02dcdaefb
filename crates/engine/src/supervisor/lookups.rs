//! What the child cannot find out itself is found out here: by a few threads, since it may take long.

use crate::connect::tls::read_system_roots;
use crate::protocol::{Resolution, Roots};
use crate::threads::Threads;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Threads that look something up at a time, at most.
const MOST: usize = 8;

/// Questions that wait, at most.
const MOST_WAITING: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The threads, which are started when they are wanted.
pub(super) struct Lookups {
    threads: Arc<Threads>,
    jobs: SyncSender<Job>,
    waiting: Arc<Mutex<Receiver<Job>>>,
    /// How many threads there are, and how many have nothing to do.
    count: Arc<Mutex<(usize, usize)>>,
    roots: Arc<Mutex<Option<Roots>>>,
}

impl Lookups {
    pub(super) fn new(threads: &Arc<Threads>) -> Self {
        let (jobs, waiting) = sync_channel(MOST_WAITING);
        Self {
            threads: Arc::clone(threads),
            jobs,
            waiting: Arc::new(Mutex::new(waiting)),
            count: Arc::default(),
            roots: Arc::default(),
        }
    }

    /// Finds what a name stands for, as this system has it now.
    pub(super) fn resolve(&self, host: String, port: u16, tell: impl FnOnce(Resolution) + Send + 'static) {
        self.run(Box::new(move || {
            let found = (host.as_str(), port).to_socket_addrs().map_err(crate::connect::in_our_words);
            tell(match found {
                Ok(addresses) => Resolution::Found(addresses.take(Resolution::MOST).collect()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Resolution::Unknown,
                Err(error) => Resolution::Failed(error.to_string()),
            });
        }));
    }

    /// Reads which certificates the system trusts; once.
    pub(super) fn roots(&self, tell: impl FnOnce(Roots) + Send + 'static) {
        let roots = Arc::clone(&self.roots);
        self.run(Box::new(move || {
            let mut known = roots.lock().unwrap_or_else(PoisonError::into_inner);
            let roots = known.get_or_insert_with(|| match read_system_roots() {
                Ok(certificates) => {
                    let lines: Vec<String> =
                        certificates.iter().map(|certificate| STANDARD.encode(certificate)).collect();
                    Roots::Found(lines.join("\n"))
                }
                Err(why) => Roots::Failed(why),
            });
            tell(roots.clone());
            if matches!(roots, Roots::Failed(_)) {
                // They may be installed meanwhile.
                *known = None;
            }
        }));
    }

    /// Does something that takes a moment, or waits for the child.
    pub(super) fn run_now(&self, job: impl FnOnce() + Send + 'static) {
        self.run(Box::new(job));
    }

    fn run(&self, job: Job) {
        {
            let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
            if count.1 == 0 && count.0 < MOST {
                let (waiting, idle) = (Arc::clone(&self.waiting), Arc::clone(&self.count));
                let work = move || loop {
                    idle.lock().unwrap_or_else(PoisonError::into_inner).1 += 1;
                    let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    idle.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
                    match job {
                        Ok(job) => job(),
                        Err(_) => return,
                    }
                };
                if self.threads.spawn(format!("look-up-{}", count.0), work).is_ok() {
                    count.0 += 1;
                }
            }
        }
        match self.jobs.try_send(job) {
            // The child waits with more than it can have asked for in earnest, and is answered by nobody.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}
