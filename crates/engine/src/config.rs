//! What an engine is told once, at its start.

use crate::connect::NetworkConfig;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::Limits;
use tidegate_core::netrc::Netrc;
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
    /// Passwords by host, sent to hosts that a request names.
    pub netrc: Option<Netrc>,
    /// Another user agent than ours.
    pub user_agent: Option<String>,
    /// The page that a download is said to come from. Never sent from https to http.
    pub referer: Option<Url>,
    /// Decides whatever is left to chance; `None` takes a new seed. For tests.
    pub seed: Option<u64>,
}
