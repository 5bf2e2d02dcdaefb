//! How much a server may send before it is read, on connections that a limit holds back.
//!
//! A limit that is only kept where bytes are read is not kept on the line: whatever the kernel's buffer
//! takes has been sent by then, several megabytes for each connection with the kernel's own tuning. So a
//! connection that is opened under a limit gets a receive buffer for its share alone. It must be set before
//! connecting, since the largest window of a connection, its scale, is fixed by its first packet; and
//! setting it turns the kernel's tuning off for good. Without a limit it is therefore never set, and a
//! connection that was opened small and could be faster now is replaced.

use crate::sys;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::os::fd::AsFd;
use std::time::Duration;

/// The least receive buffer, in bytes.
const LEAST: u64 = 4 << 10;

/// What a program may ask for on a Linux that nobody has configured (`net.core.rmem_max`), in bytes. A share
/// that needs more is left to the kernel's tuning, which follows the pace of the reader.
const MOST: u64 = 212_992;

/// Until bytes are read that have come, in the worst case: the limiter's timers have steps of a millisecond,
/// and there are others to be served. The buffer has to last as long.
const TURN: Duration = Duration::from_millis(10);

/// The largest window without a scale (RFC 7323).
const UNSCALED: u64 = 65_535;

/// What the receive buffer must hold for `share` bytes a second, `None` if that is for the kernel to find.
fn needed(share: u64, round_trip: Duration) -> Option<u32> {
    let time = round_trip.max(TURN).as_micros();
    let bytes = u128::from(share).saturating_mul(2).saturating_mul(time) / 1_000_000;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(LEAST);
    u32::try_from(bytes).ok().filter(|_| bytes <= MOST)
}

/// The receive buffer for a connection that is to carry `share` bytes a second to a place of which nothing
/// is known; `None` leaves it to the kernel.
pub(super) fn first(share: u64) -> Option<u32> {
    needed(share, Duration::ZERO)
}

/// What a connection that was opened for `share` should have been opened with, if that is more than it can
/// have: the place is further away than was assumed. `Some(None)` leaves it to the kernel.
pub(super) fn too_small(socket: impl AsFd, share: u64) -> Option<Option<u32>> {
    let (round_trip, scale) = sys::round_trip(socket)?;
    let wanted = needed(share, round_trip);
    wanted.is_none_or(|wanted| u64::from(wanted) > largest(scale)).then_some(wanted)
}

fn largest(scale: u8) -> u64 {
    (UNSCALED << scale.min(14)).min(MOST)
}

/// How long another connection may take, where a first one took no longer than its round trip: whoever lets no
/// second one in is not waited for.
pub(super) fn patience(socket: impl AsFd) -> Duration {
    let round_trip = sys::round_trip(socket).map_or(Duration::ZERO, |(round_trip, _)| round_trip);
    round_trip * 4 + Duration::from_millis(200)
}

/// How a connection under a limit came to its receive buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Opened {
    /// With so many bytes.
    With(u32),
    /// With so many bytes, and nothing larger is to be had.
    AtMost(u32),
    /// Its share is left to the kernel's tuning.
    ByTheKernel,
}

/// The receive window of a connection that was opened under a limit.
#[derive(Clone, Debug)]
pub struct Window {
    round_trip: Duration,
    /// The largest that it can ever be, in bytes; `u64::MAX` if the kernel tunes it.
    largest: u64,
    /// The size of the buffer as it was asked for.
    size: u64,
    /// No other connection would be better.
    is_best: bool,
}

impl Window {
    /// Whether a connection that is to carry `share` bytes a second is opened small, wherever it leads.
    pub(crate) fn is_for(share: u64) -> bool {
        first(share).is_some()
    }

    /// Of a connection that was opened so; `None` if the kernel tells nothing of it.
    pub(super) fn of(socket: impl AsFd, opened: Opened) -> Option<Self> {
        let (round_trip, scale) = sys::round_trip(socket)?;
        Some(match opened {
            Opened::With(size) | Opened::AtMost(size) => Self {
                round_trip,
                largest: largest(scale),
                size: size.into(),
                is_best: matches!(opened, Opened::AtMost(_)),
            },
            Opened::ByTheKernel => Self { round_trip, largest: u64::MAX, size: u64::MAX, is_best: true },
        })
    }

    /// Lets it grow to what a share in bytes a second needs, as far as that can be had, and tells whether that is
    /// as good as another connection would be. `None` is no limit, for which none that was opened small is.
    ///
    /// It never shrinks: a sender waits until half of the largest window that it has ever seen is open (RFC 1122,
    /// 4.2.3.4), and would from then on send by its timers only, a fifth of a second apart.
    pub(crate) fn fit(&mut self, socket: impl AsFd, share: Option<u64>) -> bool {
        if self.largest == u64::MAX {
            return true;
        }
        let wanted = share.and_then(|share| needed(share, self.round_trip)).map_or(u64::MAX, u64::from);
        let size = wanted.min(self.largest);
        // Not for every connection that comes and goes.
        if size > self.size + self.size / 4 {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            // If it cannot be set, what was set before still holds.
            if set_socket_recv_buffer_size(socket, bytes).is_ok() {
                self.size = size;
            }
        }
        // Round trips differ from one moment to the next: what is nearly enough is enough.
        share.is_some() && (self.is_best || wanted <= self.largest.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_buffer_holds_two_round_trips_of_its_share_and_at_least_a_page() {
        let ms = Duration::from_millis;
        assert_eq!(needed(1, ms(1)), Some(4096));
        assert_eq!(needed(128 << 10, ms(100)), Some(26_214));
        assert_eq!(needed(MIB, ms(100)), Some(209_715));
        assert_eq!(first(MIB), needed(MIB, ms(10)));
        // More than any program may ask for.
        assert_eq!(needed(2 * MIB, ms(100)), None);
        assert_eq!(needed(u64::MAX, Duration::MAX), None);
    }

    #[test]
    fn a_window_grows_with_its_share_as_far_as_its_scale_allows_and_never_shrinks() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let round_trip = Duration::from_millis(100);
        let mut window = Window { round_trip, largest: 65_535, size: 4096, is_best: false };
        assert!(window.fit(&socket, Some(1000)));
        assert_eq!(window.size, 4096);
        assert!(window.fit(&socket, Some(128 << 10)));
        assert_eq!(window.size, 26_214);
        assert!(!window.fit(&socket, Some(MIB)));
        assert!(!window.fit(&socket, None));
        assert_eq!(window.size, 65_535);
        // Where no other connection would be better, it is not given up for another until the limit is lifted.
        let mut best = Window { is_best: true, ..window.clone() };
        assert!(best.fit(&socket, Some(MIB)) && !best.fit(&socket, None));
        let mut tuned = Window::of(&socket, Opened::ByTheKernel).unwrap();
        assert!(tuned.fit(&socket, Some(1)) && tuned.fit(&socket, None));
        assert!(window.fit(&socket, Some(1000)));
        assert_eq!(window.size, 65_535);
    }

    #[test]
    fn a_connection_opened_too_small_for_its_distance_is_noticed_by_its_scale() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = |size| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
            runtime.block_on(async {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.set_recv_buffer_size(size).unwrap();
                socket.connect(listener.local_addr().unwrap()).await.unwrap().into_std().unwrap()
            })
        };
        let small = open(4096);
        assert_eq!(too_small(&small, MIB), None);
        assert_eq!(too_small(&small, 8 * MIB), Some(first(8 * MIB)));
        assert_eq!(too_small(&small, 100 * MIB), Some(None));
        let scaled = open(first(8 * MIB).unwrap());
        assert_eq!(too_small(&scaled, 8 * MIB), None);
        let window = Window::of(&scaled, Opened::With(4096)).unwrap();
        assert!(window.largest > UNSCALED, "{window:?}");
    }
}
