//! A line of its own: two network namespaces, a pair of virtual cards, and a queue that lets 1 Gbit/s through.

use crate::trouble::Trouble;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

/// How fast the line is.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Speed {
    /// 1 Gbit/s, each packet with the 24 bytes that Ethernet adds to it
    #[value(name = "1gbit")]
    Gigabit,
}

/// A line that is there until this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    namespace: String,
    card: String,
}

impl Link {
    /// The address of the far end.
    pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 77, 2));
    /// Ours. From the network that is set aside for measurements (RFC 2544).
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 77, 1));

    /// Makes the line.
    ///
    /// # Errors
    /// Without the privilege, or without `ip` and `tc` of iproute2.
    pub(crate) fn make(speed: Speed) -> Result<Self, Trouble> {
        let Speed::Gigabit = speed;
        let id = std::process::id();
        let link = Self { namespace: format!("tidegate-bench-{id}"), card: format!("tgb{id}") };
        let (space, near, far) = (link.namespace.as_str(), link.card.as_str(), "far0");
        let (client, server) = (format!("{}/30", Self::CLIENT), format!("{}/30", Self::SERVER));
        // Dropped on any failure, which takes away what was made.
        sys("ip", &["netns", "add", space])?;
        sys("ip", &["link", "add", near, "type", "veth", "peer", "name", far, "netns", space])?;
        sys("ip", &["addr", "add", &client, "dev", near])?;
        sys("ip", &["link", "set", near, "up"])?;
        sys("ip", &["-n", space, "addr", "add", &server, "dev", far])?;
        sys("ip", &["-n", space, "link", "set", far, "up"])?;
        sys("ip", &["-n", space, "link", "set", "lo", "up"])?;
        let queue = ["root", "tbf", "rate", "1gbit", "burst", "128kb", "latency", "20ms", "overhead", "24"];
        let args = ["netns", "exec", space, "tc", "qdisc", "add", "dev", far];
        sys("ip", &[&args[..], &queue[..]].concat())?;
        Ok(link)
    }

    /// Where the server is to run.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Its end in the namespace goes with it, and the namespace may have been all that was made.
        let _ = sys("ip", &["link", "del", &self.card]);
        let _ = sys("ip", &["netns", "del", &self.namespace]);
    }
}

fn sys(program: &str, args: &[&str]) -> Result<(), Trouble> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let said = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Trouble::new(format!(
        "a line of its own needs root, and `ip` and `tc` of iproute2: `{program} {}`: {said}",
        args.join(" ")
    )))
}
