//! What only the parent can find out: what names stand for, and whom the system trusts.

use super::uplink::Uplink;
use crate::connect::{Boxed, Resolve, SystemRoots};
use crate::protocol::{FromChild, Resolution, Roots};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Questions to the parent, by their numbers.
struct Calls<T> {
    uplink: Arc<Uplink>,
    state: Mutex<(u64, BTreeMap<u64, oneshot::Sender<T>>)>,
}

impl<T> Calls<T> {
    fn new(uplink: &Arc<Uplink>) -> Self {
        Self { uplink: Arc::clone(uplink), state: Mutex::new((0, BTreeMap::new())) }
    }

    async fn ask(&self, question: impl FnOnce(u64) -> FromChild) -> io::Result<T> {
        let (sender, answer) = oneshot::channel();
        let call = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody waits for any more are forgotten here.
            state.1.retain(|_, waits| !waits.is_closed());
            state.0 += 1;
            let call = state.0;
            state.1.insert(call, sender);
            call
        };
        self.uplink.send(&question(call));
        answer.await.map_err(io::Error::other)
    }

    fn answer(&self, call: u64, answer: T) {
        let waits = self.state.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&call);
        if let Some(waits) = waits {
            // Nobody may wait any more.
            let _ = waits.send(answer);
        }
    }
}

/// Finds names by asking the parent.
pub(super) struct AskParent(Calls<Resolution>);

impl AskParent {
    pub(super) fn new(uplink: &Arc<Uplink>) -> Self {
        Self(Calls::new(uplink))
    }

    pub(super) fn answer(&self, call: u64, answer: Resolution) {
        self.0.answer(call, answer);
    }
}

impl fmt::Debug for AskParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskParent")
    }
}

impl Resolve for Arc<AskParent> {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let question = |call| FromChild::Resolve { call, host: host.to_ascii_lowercase(), port };
            match self.0.ask(question).await? {
                Resolution::Found(addresses) => Ok(addresses),
                Resolution::Unknown => {
                    Err(io::Error::new(io::ErrorKind::NotFound, "there is no host of this name"))
                }
                Resolution::Failed(why) => Err(io::Error::other(why)),
            }
        })
    }
}

/// Learns whom the system trusts by asking the parent.
pub(super) struct AskRoots(Calls<Roots>);

impl AskRoots {
    pub(super) fn new(uplink: &Arc<Uplink>) -> Self {
        Self(Calls::new(uplink))
    }

    pub(super) fn answer(&self, call: u64, roots: Roots) {
        self.0.answer(call, roots);
    }
}

impl fmt::Debug for AskRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskRoots")
    }
}

impl SystemRoots for Arc<AskRoots> {
    fn certificates(&self) -> Boxed<'_, Result<Vec<CertificateDer<'static>>, String>> {
        Box::pin(async move {
            match self.0.ask(|call| FromChild::WantRoots { call }).await {
                Ok(Roots::Found(lines)) => {
                    // One that cannot be read is left out, as one that cannot be parsed is.
                    Ok(lines.lines().filter_map(|line| STANDARD.decode(line).ok()).map(Into::into).collect())
                }
                Ok(Roots::Failed(why)) => Err(why),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}
