//! What hosts taught us about how many connections they take.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use url::Url;

/// How long a host's limit is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Hosts remembered, at most; the oldest is forgotten first.
const MOST_HOSTS: usize = 1024;

/// The limits that hosts showed.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    limits: BTreeMap<String, (usize, Instant)>,
}

impl Hosts {
    /// What names a host here: scheme, name and port.
    pub(crate) fn key(url: &Url) -> String {
        url.origin().ascii_serialization()
    }

    /// A host refused more than this many connections.
    pub(crate) fn learn(&mut self, url: &Url, connections: usize, now: Instant) {
        if self.limits.len() >= MOST_HOSTS
            && let Some(oldest) =
                self.limits.iter().min_by_key(|(_, (_, at))| *at).map(|(host, _)| host.clone())
        {
            self.limits.remove(&oldest);
        }
        self.limits.insert(Self::key(url), (connections.max(1), now));
    }

    /// The most connections that a host takes, if it showed that lately.
    pub(crate) fn limit(&self, host: &str, now: Instant) -> Option<usize> {
        let (limit, at) = self.limits.get(host)?;
        (now.saturating_duration_since(*at) < REMEMBERED).then_some(*limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_remembered_for_a_day_and_for_that_host_alone() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        let url = |text: &str| Url::parse(text).unwrap();
        hosts.learn(&url("http://h/a"), 2, now);
        assert_eq!(hosts.limit(&Hosts::key(&url("http://h/b")), now), Some(2));
        assert_eq!(hosts.limit(&Hosts::key(&url("http://h:81/b")), now), None);
        assert_eq!(hosts.limit(&Hosts::key(&url("http://h/b")), now + REMEMBERED), None);
    }
}
