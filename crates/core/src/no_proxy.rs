//! Which hosts are reached without a proxy: a `NO_PROXY` list.
//!
//! | entry | stands for |
//! |---|---|
//! | `*` | every host |
//! | `example.org` | that host alone |
//! | `.example.org`, `*.example.org` | every host below it, but not itself |
//! | `192.168.0.1`, `::1`, `[::1]` | that address |
//! | `192.168.0.0/16`, `2001:db8::/28` | the addresses of that network |
//! | any but a network, with `:8080` | the same, at that port |
//!
//! Entries are separated by commas or blanks. Only a host written as an address matches addresses and
//! networks: no name is looked up. An IPv4 address never matches an IPv6 network, nor the reverse.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The most entries that are kept.
pub const MAX_ENTRIES: usize = 4096;

/// The hosts that are reached without a proxy.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct NoProxy {
    rules: Vec<Rule>,
    ignored: Vec<String>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Rule {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Hosts {
    All,
    /// Lower case, without a dot at the end.
    Exactly(String),
    /// Begins with a dot.
    Below(String),
    Network {
        address: IpAddr,
        prefix: u32,
    },
}

impl NoProxy {
    /// Reads a list. The lists of environments are written for many programs, so an entry that means
    /// nothing here is not an error: see [`NoProxy::ignored`].
    pub fn parse(list: &str) -> Self {
        let mut no_proxy = Self::default();
        let entries = list.split(|c: char| c == ',' || c.is_whitespace()).filter(|e| !e.is_empty());
        for entry in entries.take(MAX_ENTRIES) {
            match rule(entry) {
                Some(rule) => no_proxy.rules.push(rule),
                None => no_proxy.ignored.push(entry.chars().take(100).collect()),
            }
        }
        no_proxy
    }

    /// Entries that mean nothing here, cut off after 100 characters, for a warning.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Whether a host is reached without a proxy. An IPv6 address may be in brackets.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        let host = unbracketed(host).trim_end_matches('.').to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        self.rules.iter().filter(|rule| rule.port.is_none_or(|p| p == port)).any(|rule| match &rule.hosts {
            Hosts::All => true,
            Hosts::Exactly(name) => *name == host,
            Hosts::Below(suffix) => {
                address.is_none() && host.len() > suffix.len() && host.ends_with(suffix.as_str())
            }
            Hosts::Network { address: network, prefix } => {
                address.is_some_and(|address| leading_bits_equal(address, *network, *prefix))
            }
        })
    }
}

impl From<String> for NoProxy {
    fn from(list: String) -> Self {
        Self::parse(&list)
    }
}

/// The list, without the entries that mean nothing here.
impl From<NoProxy> for String {
    fn from(no_proxy: NoProxy) -> Self {
        no_proxy.rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(",")
    }
}

/// As an entry of a list.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, port } = self;
        match hosts {
            Hosts::All => f.write_str("*")?,
            Hosts::Exactly(name) | Hosts::Below(name) => f.write_str(name)?,
            // A port never stands behind a network of more than one address.
            Hosts::Network { address: IpAddr::V6(address), .. } if port.is_some() => {
                write!(f, "[{address}]")?
            }
            Hosts::Network { address, .. } if port.is_some() => write!(f, "{address}")?,
            Hosts::Network { address, prefix } => write!(f, "{address}/{prefix}")?,
        }
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn rule(entry: &str) -> Option<Rule> {
    if let Some((address, prefix)) = entry.split_once('/') {
        let address: IpAddr = unbracketed(address).parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let digits = prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|&p: &u32| digits && p <= bits)?;
        return Some(Rule { hosts: Hosts::Network { address, prefix }, port: None });
    }
    if let Some(address) = single(entry) {
        return Some(Rule { hosts: address, port: None });
    }
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, Some(port.parse().ok()?)),
        Some(_) => return None,
        None => (entry, None),
    };
    if host.contains(':') && !host.starts_with('[') {
        return None;
    }
    let hosts = match single(host) {
        Some(address) => address,
        None if host == "*" => Hosts::All,
        None => {
            let below = host.strip_prefix("*.").or_else(|| host.strip_prefix('.'));
            let name = domain(below.unwrap_or(host))?;
            if below.is_some() { Hosts::Below(format!(".{name}")) } else { Hosts::Exactly(name) }
        }
    };
    Some(Rule { hosts, port })
}

fn single(text: &str) -> Option<Hosts> {
    let address: IpAddr = unbracketed(text).parse().ok()?;
    Some(Hosts::Network { address, prefix: if address.is_ipv4() { 32 } else { 128 } })
}

/// A name as it stands in a URL: lower case, in ASCII.
fn domain(name: &str) -> Option<String> {
    match url::Host::parse(name.trim_end_matches('.')) {
        Ok(url::Host::Domain(name)) => Some(name),
        _ => None,
    }
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

fn leading_bits_equal(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            (a.to_bits() ^ b.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_match_what_they_stand_for_and_nothing_else() {
        for (list, host, port, matches) in [
            // B36.
            (".example.org", "www.example.org", 80, true),
            (".example.org", "example.org", 80, false),
            ("example.org", "example.org", 80, true),
            ("example.org", "www.example.org", 80, false),
            ("192.168.0.0/16", "192.168.3.4", 80, true),
            ("192.168.0.0/16", "192.169.0.1", 80, false),
            ("192.168.0.0/16", "www.example.org", 80, false),
            ("2001:db8::/28", "2001:db8:ffff::1", 80, true),
            ("2001:db8::/28", "[2001:db8:ffff::1]", 80, true),
            ("2001:db8::/28", "2001:dc8::1", 80, false),
            ("0.0.0.0/0", "::1", 80, false),
            ("::/0", "127.0.0.1", 80, false),
            ("::/0", "::ffff:127.0.0.1", 80, true),
            ("0.0.0.0/0", "::ffff:127.0.0.1", 80, false),
            // More.
            ("", "example.org", 80, false),
            ("*", "example.org", 80, true),
            ("*", "::1", 80, true),
            ("*:8080", "example.org", 8080, true),
            ("*:8080", "example.org", 80, false),
            ("*.example.org", "www.example.org", 80, true),
            ("*.example.org", "example.org", 80, false),
            (".example.org", "badexample.org", 80, false),
            ("EXAMPLE.org.", "Example.ORG", 80, true),
            ("example.org", "example.org.", 80, true),
            ("a, b example.org\t,", "example.org", 80, true),
            ("example.org:8080", "example.org", 8080, true),
            ("example.org:8080", "example.org", 80, false),
            (".example.org:8080", "a.example.org", 8080, true),
            ("127.0.0.1:80", "127.0.0.1", 80, true),
            ("127.0.0.1:80", "127.0.0.1", 81, false),
            ("::1", "[::1]", 80, true),
            ("0:0::1", "::1", 80, true),
            ("[::1]:80", "::1", 80, true),
            ("[::1]:80", "::1", 81, false),
            ("10.0.0.0/32", "10.0.0.0", 80, true),
            ("10.0.0.0/32", "10.0.0.1", 80, false),
            (".0.1", "192.168.0.1", 80, false),
            ("bücher.example", "xn--bcher-kva.example", 80, true),
        ] {
            assert_eq!(NoProxy::parse(list).matches(host, port), matches, "{list} {host}:{port}");
        }
    }

    #[test]
    fn what_means_nothing_is_told_and_matches_nothing() {
        let list = "10.0.0.0/33,10.0.0/8,::/129,1.2.3.4/+8,a:b,h:65536,<local>,.,*.,a:b:1,10.0.0.0/8:80,fe80::1%eth0";
        let no_proxy = NoProxy::parse(list);
        assert_eq!(no_proxy.ignored().join(","), list);
        assert!(no_proxy.rules.is_empty());
    }

    proptest! {
        #[test]
        fn a_list_is_written_as_it_would_be_read(list in "([0-9a-f:./*%\\[\\],é-]|example|\\PC){0,60}") {
            let read = NoProxy { ignored: Vec::new(), ..NoProxy::parse(&list) };
            prop_assert_eq!(NoProxy::from(String::from(read.clone())), read);
        }

        #[test]
        fn no_text_is_too_strange(list in "([0-9a-f:./*%\\[\\],é-]|\\PC){0,40}", host in "\\PC{0,20}") {
            let _ = NoProxy::parse(&list).matches(&host, 80);
        }

        #[test]
        fn a_network_holds_exactly_the_addresses_of_its_prefix(network: u32, prefix in 0u32..=32, other: u32) {
            let list = format!("{}/{prefix}", std::net::Ipv4Addr::from_bits(network));
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            for address in [other, network & mask | other & !mask] {
                let host = std::net::Ipv4Addr::from_bits(address).to_string();
                prop_assert_eq!(NoProxy::parse(&list).matches(&host, 1), network & mask == address & mask);
            }
        }
    }
}
