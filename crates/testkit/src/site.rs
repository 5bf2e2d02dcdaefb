//! What an Origin serves at one time: resources by path, and what holds for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::exchange::{Answer, Ending, Exchange};
use crate::origin::ENTRY;
use crate::request::RequestSeen;
use crate::resource::{Gate, Resource};

/// What an Origin serves at one time.
#[derive(Clone, Default)]
pub struct Site {
    resources: BTreeMap<String, Resource>,
    gates: Vec<Gate>,
    limit: Option<Limit>,
    pub(crate) most_connections: Option<usize>,
    pub(crate) send_buffer: Option<usize>,
}

#[derive(Clone)]
struct Limit {
    most: usize,
    refusal: Answer,
    served: Arc<AtomicUsize>,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("resources", &self.resources).finish_non_exhaustive()
    }
}

impl Site {
    /// Nothing: every request gets 404.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only this file, at [`ENTRY`].
    pub fn file(resource: Resource) -> Self {
        Self::new().with(ENTRY, resource)
    }

    /// And this one, at a path as it is written in requests (`/a%20b`), without a query. The path `*`
    /// means all others.
    pub fn with(mut self, path: &str, resource: Resource) -> Self {
        self.put(path, resource);
        self
    }

    /// Puts a resource in place; its counts begin anew.
    pub fn put(&mut self, path: &str, resource: Resource) {
        self.resources.insert(path.to_owned(), resource.fresh());
    }

    /// The resource that answers for this path.
    pub fn get(&self, path: &str) -> Option<&Resource> {
        self.resources.get(path).or_else(|| self.resources.get("*"))
    }

    /// The paths at which there is something.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.resources.keys().map(String::as_str)
    }

    /// Asked for each request to any path whether it answers instead.
    pub fn gate(mut self, gate: impl Fn(&RequestSeen) -> Option<Answer> + Send + Sync + 'static) -> Self {
        self.gates.push(Arc::new(gate));
        self
    }

    /// Serves at most this many requests at once; the others get `refusal` meanwhile.
    pub fn most_in_flight(mut self, most: usize, refusal: Answer) -> Self {
        self.limit = Some(Limit { most, refusal, served: Arc::default() });
        self
    }

    /// Serves at most this many connections at once ([`crate::origin::MOST_CONNECTIONS`] otherwise); the others are reset
    /// as they come.
    pub fn most_connections(mut self, most: usize) -> Self {
        self.most_connections = Some(most);
        self
    }

    /// The kernel's send buffer for connections to come, in bytes (SO_SNDBUF: the kernel takes double).
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }

    pub(crate) fn serve(
        &self,
        resource: Option<&Resource>,
        exchange: &mut Exchange<'_>,
    ) -> io::Result<Ending> {
        if let Some(answer) = self.gates.iter().find_map(|gate| gate(exchange.request())) {
            return exchange.send(&answer);
        }
        let _turn = match &self.limit {
            None => None,
            Some(limit) => match Turn::take(limit) {
                Some(turn) => Some(turn),
                None => return exchange.send(&limit.refusal),
            },
        };
        match resource {
            Some(resource) => resource.serve(exchange),
            None => exchange.send(&Answer::status(404)),
        }
    }
}

/// One of the places of a [`Limit`].
struct Turn<'a>(&'a AtomicUsize);

impl<'a> Turn<'a> {
    fn take(limit: &'a Limit) -> Option<Self> {
        limit
            .served
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |served| {
                (served < limit.most).then_some(served + 1)
            })
            .ok()
            .map(|_| Self(&limit.served))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
