//! What an engine is told once, at its start.

use crate::connect::NetworkConfig;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_confine::Layer;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::Limits;
use tidegate_core::netrc::Netrc;
use tidegate_core::request::{Credentials, Mirror};
use tidegate_core::{DownloadId, Failure};
use url::Url;

/// Settings of an engine. Nothing here is read from files, environment or arguments: whoever starts
/// the engine has read them.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Limits at the start; [`crate::EngineHandle::set_limits`] changes them later.
    pub limits: Limits,
    /// How to reach the network: address family, proxies, TLS.
    pub network: NetworkConfig,
    /// Cookies at the start; [`crate::EngineHandle::cookies`] tells those of later.
    pub cookies: CookieJar,
    /// Passwords by host: for places that the user named, and over checked https for hosts that answers and
    /// documents lead to.
    pub netrc: Option<Netrc>,
    /// Another user agent than ours.
    pub user_agent: Option<String>,
    /// The page that a download is said to come from. Never sent from https to http.
    pub referer: Option<Url>,
    /// Whom to ask when a download lacks a password or its link has expired.
    pub ask: Option<Arc<dyn Ask>>,
    /// Every body passes through memory, where plain ones would go from the socket into the file within the
    /// kernel. The outcome is the same: for tests and comparisons.
    pub buffered: bool,
    /// Decides whatever is left to chance; `None` takes a new seed. For tests.
    pub seed: Option<u64>,
    /// Where the engine runs.
    pub mode: Mode,
}

/// Where an engine runs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// On threads of this process.
    #[default]
    InProcess,
    /// In a process of its own, which cannot touch the machine's files and is started again when it ends. Whatever is
    /// called here is called in this process all the same.
    Child {
        /// The program to run, whose `main` begins with [`run_if_child`](crate::run_if_child); `None` is this one.
        program: Option<PathBuf>,
        /// Refuse to start where a layer of the isolation cannot be had.
        whole: bool,
    },
}

/// What the engine's process has given up.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Isolation {
    /// The names of the layers that are in force, at least in part.
    pub layers: Vec<String>,
    /// Those that this system does not have, or not whole.
    pub missing: Vec<String>,
}

impl Isolation {
    /// Whether what talks to the network is apart from the user's files: each layer that alone refuses something is in
    /// force. The others refuse once more what these do.
    pub fn holds(&self) -> bool {
        let needed = [Layer::NoNewPrivileges, Layer::Limits, Layer::Capabilities, Layer::Files, Layer::Calls];
        needed.into_iter().all(|layer| self.layers.iter().any(|name| name == layer.word()))
    }
}

/// Answers what a download cannot know by itself. Called on a thread that is lent for it, so it may take
/// its time (a person may have to type); the download waits, and nobody else does.
pub trait Ask: Send + Sync + fmt::Debug {
    /// The server at `url` wants a user and password. `None` lets the download fail.
    fn credentials(&self, id: DownloadId, url: &Url) -> Option<Credentials> {
        let _ = (id, url);
        None
    }

    /// The link is dead, as `failure` says; a fresh link to the same file goes on where it stopped.
    /// `None` lets the download fail.
    fn fresh_link(&self, id: DownloadId, failure: &Failure) -> Option<Mirror> {
        let _ = (id, failure);
        None
    }
}
