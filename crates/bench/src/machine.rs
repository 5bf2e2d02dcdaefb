//! On what the figures were measured.

use serde_json::{Value, json};
use std::fs;

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':'])).to_owned()
}

/// How many tasks ran or wanted to, on average over the last minute.
fn load() -> f64 {
    first_line("/proc/loadavg").split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// For JSON.
pub(crate) fn described() -> Value {
    json!({
        "processor": processor(),
        "processors": processors(),
        "kernel": format!("Linux {}", first_line("/proc/sys/kernel/osrelease")),
        "load": load(),
    })
}

/// For people, with a warning if the machine is not calm.
pub(crate) fn sentence() -> String {
    let (count, load) = (processors(), load());
    let busy = if load > count as f64 + 1.0 {
        " (BUSY: only counts, and ratios with care, mean anything)"
    } else {
        ""
    };
    let kernel = first_line("/proc/sys/kernel/osrelease");
    format!("{count} x {}, Linux {kernel}, load {load}{busy}", processor())
}
