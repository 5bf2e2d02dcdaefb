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
                Ok(found) => found.map_err(in_our_words),
                Err(stopped) => Err(io::Error::other(stopped)),
            }
        })
    }
}

/// Tells a name that does not exist from name servers that do not answer. The standard library gives no
/// number for that but the words of the C library, so these are known by heart: those of glibc and of musl.
/// Whatever else they say is taken for a fault that may pass.
pub(crate) fn in_our_words(error: io::Error) -> io::Error {
    const UNKNOWN: [&str; 4] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
    ];
    let said = error.to_string();
    if UNKNOWN.iter().any(|words| said.ends_with(words)) {
        return io::Error::new(io::ErrorKind::NotFound, "there is no host of this name");
    }
    // "failed to lookup address information: Try again": only the end says something.
    match said.rsplit_once("address information: ") {
        Some((_, why)) => io::Error::new(error.kind(), why.to_lowercase()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_exist_is_told_from_servers_that_do_not_answer() {
        let told = |said: &str| {
            in_our_words(io::Error::other(format!("failed to lookup address information: {said}")))
        };
        for said in ["Name or service not known", "Name does not resolve"] {
            assert_eq!(told(said).kind(), io::ErrorKind::NotFound);
        }
        let silence = told("Temporary failure in name resolution");
        assert_eq!(silence.to_string(), "temporary failure in name resolution");
        assert_ne!(silence.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn the_systems_resolver_knows_localhost() {
        let found = SystemResolver::default().resolve("localhost", 80).await.unwrap();
        assert!(found.iter().any(|a| a.ip().is_loopback() && a.port() == 80), "{found:?}");
    }
}
