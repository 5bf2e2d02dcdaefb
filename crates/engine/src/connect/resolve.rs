//! Names to addresses, by the system.

use super::{Boxed, Resolve};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Most names looked up at once. A look-up that nobody waits for any more still holds a thread until
/// the name servers answer or it times out, so the bound is on those too.
const AT_ONCE: usize = 8;

/// Asks the system (getaddrinfo), which knows hosts files, name servers and local names, on threads
/// of the runtime's blocking pool.
#[derive(Debug)]
pub struct SystemResolver {
    permits: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
            let host = host.to_owned();
            let lookup = tokio::task::spawn_blocking(move || {
                let _until_answered = permit;
                (host.as_str(), port).to_socket_addrs().map(Iterator::collect)
            });
            match lookup.await {
                Ok(found) => found,
                Err(stopped) => Err(io::Error::other(stopped)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_systems_resolver_knows_localhost() {
        let found = SystemResolver::default().resolve("localhost", 80).await.unwrap();
        assert!(found.iter().any(|a| a.ip().is_loopback() && a.port() == 80), "{found:?}");
    }
}
