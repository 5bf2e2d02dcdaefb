//! Several addresses, one connection: Happy Eyeballs (RFC 8305).

use super::{Boxed, Dial, Stream};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Most addresses tried; a hostile name may have thousands.
const MOST: usize = 16;
/// How long an attempt has before the next begins beside it (section 5 recommends 250 ms).
const STAGGER: Duration = Duration::from_millis(250);

/// The addresses in the order to try: families alternate, beginning with the first one's, and within
/// a family the order is kept. Without repetitions.
pub(super) fn interleave(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let (mut first, mut second): (Vec<SocketAddr>, Vec<SocketAddr>) = (Vec::new(), Vec::new());
    for address in addresses.take(64 * MOST) {
        let family = match first.first() {
            Some(f) if f.is_ipv4() != address.is_ipv4() => &mut second,
            _ => &mut first,
        };
        if family.len() < MOST && !family.contains(&address) {
            family.push(address);
        }
    }
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut order = Vec::new();
    while order.len() < MOST {
        let before = order.len();
        order.extend(first.next());
        order.extend(second.next());
        if order.len() == before {
            break;
        }
    }
    order.truncate(MOST);
    order
}

/// The first connection that is made; the others are dropped. The next address is tried when the one
/// before has failed, or has not connected in time.
///
/// # Errors
/// The last address to fail and its error, when all have failed. `addresses` must not be empty.
pub(super) async fn race(
    dialer: &dyn Dial,
    addresses: &[SocketAddr],
    receive_buffer: Option<u32>,
) -> Result<Stream, (SocketAddr, io::Error)> {
    let mut waiting = addresses.iter().copied();
    let mut attempts: Vec<(SocketAddr, Boxed<'_, io::Result<Stream>>)> = Vec::with_capacity(1);
    let mut failed = None;
    loop {
        match waiting.next() {
            Some(address) => attempts.push((address, dialer.dial(address, receive_buffer))),
            None if attempts.is_empty() => {
                return Err(failed.unwrap_or_else(|| {
                    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
                    (nowhere, io::Error::new(io::ErrorKind::AddrNotAvailable, "no address"))
                }));
            }
            None => {}
        }
        let more = waiting.len() > 0;
        let mut next = pin!(sleep_until(Instant::now() + STAGGER));
        // Ready with a stream, or without one when it is time to try the next address.
        let connected = poll_fn(|cx| {
            let mut i = 0;
            let before = attempts.len();
            while let Some((address, attempt)) = attempts.get_mut(i) {
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Some(stream)),
                    Poll::Ready(Err(error)) => {
                        failed = Some((*address, error));
                        drop(attempts.swap_remove(i));
                    }
                    Poll::Pending => i += 1,
                }
            }
            let failed_now = attempts.len() < before;
            if attempts.is_empty() || more && (failed_now || next.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        if let Some(stream) = connected {
            return Ok(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn v4(n: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, n], 80))
    }
    fn v6(n: u16) -> SocketAddr {
        SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], 80))
    }

    /// What a simulated address does, and after how many milliseconds.
    #[derive(Clone, Copy, Debug)]
    enum Does {
        Connects(u64),
        Refuses(u64),
        Nothing,
    }

    #[derive(Debug)]
    struct Net {
        behaviour: Vec<(SocketAddr, Does)>,
        began: Instant,
        dialled: Mutex<Vec<(SocketAddr, u64)>>,
    }

    impl Dial for Net {
        fn dial(&self, address: SocketAddr, _: Option<u32>) -> Boxed<'_, io::Result<Stream>> {
            let at = self.began.elapsed().as_millis() as u64;
            self.dialled.lock().unwrap().push((address, at));
            let does = self.behaviour.iter().find(|(a, _)| *a == address).unwrap().1;
            Box::pin(async move {
                match does {
                    Does::Connects(ms) => {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        Ok(Stream::simulated(tokio::io::duplex(1).0))
                    }
                    Does::Refuses(ms) => {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        Err(io::ErrorKind::ConnectionRefused.into())
                    }
                    Does::Nothing => std::future::pending().await,
                }
            })
        }
    }

    /// Which addresses were dialled and when (ms), when it was over, and whether it connected.
    async fn run(behaviour: &[(SocketAddr, Does)]) -> (Vec<(SocketAddr, u64)>, u64, bool) {
        let net = Net { behaviour: behaviour.to_vec(), began: Instant::now(), dialled: Mutex::default() };
        let addresses: Vec<_> = behaviour.iter().map(|(a, _)| *a).collect();
        let connected = race(&net, &addresses, None).await.is_ok();
        let took = net.began.elapsed().as_millis() as u64;
        (net.dialled.into_inner().unwrap(), took, connected)
    }

    #[test]
    fn families_alternate_and_the_preferred_one_is_first() {
        let order = interleave([v6(1), v6(2), v6(3), v4(1), v6(1), v4(2)].into_iter());
        assert_eq!(order, [v6(1), v4(1), v6(2), v4(2), v6(3)]);
        assert_eq!(interleave((0..200).map(v4)).len(), MOST);
        assert!(interleave(std::iter::empty()).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_costs_a_quarter_of_a_second() {
        let (dialled, took, connected) = run(&[(v6(1), Does::Nothing), (v4(1), Does::Connects(20))]).await;
        assert!(connected);
        assert_eq!(dialled, [(v6(1), 0), (v4(1), 250)]);
        assert_eq!(took, 270);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_costs_nothing() {
        let (dialled, took, connected) = run(&[(v6(1), Does::Refuses(10)), (v4(1), Does::Connects(5))]).await;
        assert!(connected);
        assert_eq!(dialled, [(v6(1), 0), (v4(1), 10)]);
        assert_eq!(took, 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_first_address_can_still_win() {
        let (dialled, took, connected) =
            run(&[(v6(1), Does::Connects(300)), (v4(1), Does::Connects(100)), (v4(2), Does::Nothing)]).await;
        assert!(connected);
        assert_eq!(dialled, [(v6(1), 0), (v4(1), 250)]);
        assert_eq!(took, 300);
    }

    #[tokio::test(start_paused = true)]
    async fn when_every_address_refuses_the_last_error_is_told() {
        let (dialled, _, connected) = run(&[(v6(1), Does::Refuses(700)), (v4(1), Does::Refuses(1))]).await;
        assert!(!connected);
        assert_eq!(dialled.len(), 2);
    }
}
