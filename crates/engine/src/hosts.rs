//! What hosts taught us: how many connections they take, and that they are there at all.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use url::Url;

/// How long a host's limit is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Hosts remembered, at most; the oldest is forgotten first.
const MOST_HOSTS: usize = 1024;

/// The limits that hosts showed, and who answered.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    limits: BTreeMap<String, (usize, Instant)>,
    heard: BTreeMap<String, Instant>,
}

impl Hosts {
    /// What names a host here: scheme, name and port.
    pub(crate) fn key(url: &Url) -> String {
        url.origin().ascii_serialization()
    }

    /// A host refused more than this many connections.
    pub(crate) fn learn(&mut self, url: &Url, connections: usize, now: Instant) {
        make_room(&mut self.limits, |(_, at)| *at);
        self.limits.insert(Self::key(url), (connections.max(1), now));
    }

    /// A host answered, whatever it said.
    pub(crate) fn hear(&mut self, url: &Url, now: Instant) {
        make_room(&mut self.heard, |at| *at);
        self.heard.insert(Self::key(url), now);
    }

    /// Whether a host has answered, as far as is remembered.
    pub(crate) fn has_heard(&self, url: &Url) -> bool {
        self.heard.contains_key(&Self::key(url))
    }

    /// The most connections that a host takes, if it showed that lately.
    pub(crate) fn limit(&self, host: &str, now: Instant) -> Option<usize> {
        let (limit, at) = self.limits.get(host)?;
        (now.saturating_duration_since(*at) < REMEMBERED).then_some(*limit)
    }
}

/// Forgets the oldest when there are as many as may be.
fn make_room<T>(known: &mut BTreeMap<String, T>, since: impl Fn(&T) -> Instant) {
    if known.len() < MOST_HOSTS {
        return;
    }
    if let Some(oldest) = known.iter().min_by_key(|(_, what)| since(what)).map(|(host, _)| host.clone()) {
        known.remove(&oldest);
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

    #[test]
    fn of_those_who_answered_the_last_are_remembered_and_no_more_than_a_bound() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        let url = |n: usize| Url::parse(&format!("http://h{n}/a")).unwrap();
        for n in 0..=MOST_HOSTS {
            hosts.hear(&url(n), now + Duration::from_secs(n as u64));
        }
        assert_eq!(hosts.heard.len(), MOST_HOSTS);
        assert!(!hosts.has_heard(&url(0)) && hosts.has_heard(&url(1)) && hosts.has_heard(&url(MOST_HOSTS)));
    }
}
