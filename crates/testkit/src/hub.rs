//! The one shared state of a server: counters, the log, who is connected, and whether the network is up.
//!
//! One mutex and one condition variable for all of it: a server of tests gains more from having no
//! races than from speed, and content is sent 64 KiB at a time.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::counters::{Counters, Exchanged};
use crate::request::RequestSeen;
use crate::sys;

/// Requests remembered in the log; later ones are only counted.
const LOG: usize = 65_536;
/// Paths counted by themselves.
const PATHS: usize = 1024;
/// How long an order to end is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Hub {
    state: Mutex<State>,
    changed: Condvar,
    started: Instant,
}

struct State {
    counters: Counters,
    log: Vec<Exchanged>,
    network: Network,
    seats: HashMap<u64, Entry>,
    connections: u64,
    acked_by_the_gone: u64,
    doors: Vec<Arc<Wake>>,
    listening: usize,
    waiters: usize,
}

struct Entry {
    control: Arc<Control>,
    socket: Weak<TcpStream>,
    /// The last count, once the socket is about to close.
    acked: Option<u64>,
}

/// What becomes of those who connect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Network {
    /// They are served.
    Up,
    /// They are accepted and reset.
    Down,
    /// Nobody listens: the kernel refuses them.
    Refusing,
    /// The server ends.
    Over,
}

/// What one connection is told from outside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    GoOn,
    Reset,
    Close,
}

/// A descriptor that becomes readable, for good, when it is rung.
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        // It fails only when the count is full, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn hush(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) struct Control {
    order: AtomicU8,
    wake: Wake,
}

impl Control {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { order: AtomicU8::new(0), wake: Wake::new()? })
    }

    pub(crate) fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::GoOn,
            1 => Order::Reset,
            _ => Order::Close,
        }
    }

    fn give(&self, order: Order) {
        self.order.store(order as u8, Ordering::Release);
        self.wake.ring();
    }

    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                counters: Counters::default(),
                log: Vec::new(),
                network: Network::Up,
                seats: HashMap::new(),
                connections: 0,
                acked_by_the_gone: 0,
                doors: Vec::new(),
                listening: 0,
                waiters: 0,
            }),
            changed: Condvar::new(),
            started: Instant::now(),
        })
    }

    /// Time since the server began.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().counters.clone()
    }

    pub(crate) fn log(&self) -> Vec<Exchanged> {
        self.lock().log.clone()
    }

    pub(crate) fn network(&self) -> Network {
        self.lock().network
    }

    /// Changes the counters and tells whoever waits for them.
    pub(crate) fn count<T>(&self, change: impl FnOnce(&mut Counters) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state.counters);
        self.tell(&state);
        result
    }

    /// Notes a request, and returns its place in the log.
    pub(crate) fn note_request(&self, request: &Arc<RequestSeen>) -> usize {
        let mut state = self.lock();
        state.counters.requests += 1;
        // Methods come from outside: a bound keeps a fuzzer from filling the map.
        if state.counters.by_method.len() < PATHS || state.counters.by_method.contains_key(&request.method) {
            *state.counters.by_method.entry(request.method.clone()).or_default() += 1;
        }
        state.counters.in_flight += 1;
        state.counters.peak_in_flight = state.counters.peak_in_flight.max(state.counters.in_flight);
        let place = state.log.len();
        if place < LOG {
            state.log.push(Exchanged {
                request: request.clone(),
                status: None,
                body_bytes: 0,
                whole: false,
                over: false,
            });
        }
        self.tell(&state);
        if place < LOG { place } else { usize::MAX }
    }

    pub(crate) fn note_status(&self, place: usize, status: u16) {
        let mut state = self.lock();
        *state.counters.by_status.entry(status).or_default() += 1;
        if let Some(entry) = state.log.get_mut(place) {
            entry.status = Some(status);
        }
        self.tell(&state);
    }

    pub(crate) fn note_body(&self, place: usize, path: &str, bytes: u64) {
        let mut state = self.lock();
        state.counters.body_bytes += bytes;
        if let Some(count) = state.counters.body_bytes_by_path.get_mut(path) {
            *count += bytes;
        } else if state.counters.body_bytes_by_path.len() < PATHS {
            state.counters.body_bytes_by_path.insert(path.to_owned(), bytes);
        }
        if let Some(entry) = state.log.get_mut(place) {
            entry.body_bytes += bytes;
        }
        self.tell(&state);
    }

    pub(crate) fn note_over(&self, place: usize, whole: bool) {
        let mut state = self.lock();
        state.counters.in_flight -= 1;
        if let Some(entry) = state.log.get_mut(place) {
            entry.whole = whole;
            entry.over = true;
        }
        self.tell(&state);
    }

    /// Waits until `enough` says so of the counters and the log; `false` when the time is up first.
    pub(crate) fn wait_until(
        &self,
        within: Duration,
        enough: impl Fn(&Counters, &[Exchanged]) -> bool,
    ) -> bool {
        self.wait(within, |state| enough(&state.counters, &state.log))
    }

    /// All bytes acknowledged by the other sides of all connections, open and gone.
    pub(crate) fn bytes_acked(&self) -> u64 {
        let state = self.lock();
        let open: u64 = state
            .seats
            .values()
            .map(|entry| match (entry.acked, entry.socket.upgrade()) {
                (Some(acked), _) => acked,
                // The socket cannot close under us: its owner takes this lock first.
                (None, Some(socket)) => sys::bytes_acked(socket.as_fd()).unwrap_or(0),
                (None, None) => 0,
            })
            .sum();
        state.acked_by_the_gone + open
    }

    /// A seat for an accepted connection, if it gets one.
    pub(crate) fn admit(
        self: &Arc<Self>,
        socket: &Arc<TcpStream>,
        most: usize,
    ) -> Option<(Arc<Control>, Seat)> {
        let control = Arc::new(Control::new().ok()?);
        let mut state = self.lock();
        if state.network != Network::Up || state.seats.len() >= most {
            state.counters.refused += 1;
            self.tell(&state);
            return None;
        }
        let number = state.connections;
        state.connections += 1;
        state
            .seats
            .insert(number, Entry { control: control.clone(), socket: Arc::downgrade(socket), acked: None });
        let counters = &mut state.counters;
        counters.connects += 1;
        counters.open += 1;
        counters.peak_open = counters.peak_open.max(counters.open);
        self.tell(&state);
        Some((control, Seat { hub: self.clone(), number }))
    }

    /// Changes what becomes of those who connect, and with anything but `Up` ends those who are
    /// connected. Returns when that is done, or after 5 s.
    pub(crate) fn set_network(&self, network: Network) {
        let mut state = self.lock();
        if state.network == Network::Over {
            return;
        }
        state.network = network;
        let order = if network == Network::Over { Order::Close } else { Order::Reset };
        if network != Network::Up {
            state.seats.values().for_each(|entry| entry.control.give(order));
        }
        state.doors.iter().for_each(|door| door.ring());
        let doors = state.doors.len();
        self.changed.notify_all();
        drop(state);
        self.wait(PATIENCE, |state| match network {
            Network::Up => state.listening == doors,
            Network::Down => state.seats.is_empty() && state.listening == doors,
            Network::Refusing | Network::Over => state.seats.is_empty() && state.listening == 0,
        });
    }

    pub(crate) fn add_door(&self, door: Arc<Wake>) {
        self.lock().doors.push(door);
    }

    pub(crate) fn door_opened(&self) {
        let mut state = self.lock();
        state.listening += 1;
        self.tell(&state);
    }

    pub(crate) fn door_closed(&self) {
        let mut state = self.lock();
        state.listening -= 1;
        self.tell(&state);
    }

    fn wait(&self, within: Duration, enough: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.lock();
        loop {
            if enough(&state) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state.waiters += 1;
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state.waiters -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking predicate of a test leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: &State) {
        if state.waiters > 0 {
            self.changed.notify_all();
        }
    }
}

/// A place among the open connections, given back when it is dropped: which must be after the socket.
pub(crate) struct Seat {
    hub: Arc<Hub>,
    number: u64,
}

impl Seat {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// To be called before the socket closes, so that what it had acknowledged is not lost.
    pub(crate) fn closing(&self, acked: u64, reset: bool) {
        let mut state = self.hub.lock();
        if let Some(entry) = state.seats.get_mut(&self.number) {
            entry.acked = Some(acked);
        }
        state.counters.resets += u64::from(reset);
        state.counters.panics += u64::from(std::thread::panicking());
        self.hub.tell(&state);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        if let Some(entry) = state.seats.remove(&self.number) {
            state.acked_by_the_gone += entry.acked.unwrap_or(0);
        }
        state.counters.open -= 1;
        self.hub.tell(&state);
    }
}
