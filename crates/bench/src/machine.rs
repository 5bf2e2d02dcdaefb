//! On what the figures were measured.

use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

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

/// How much time all processors had so far, and how much of it nobody used, in the kernel's ticks.
fn ticks() -> (u64, u64) {
    let line = first_line("/proc/stat");
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // User, nice, system, idle, waiting for disks, interrupts of two kinds, stolen; what follows is counted in user.
    let idle = ticks.iter().skip(3).take(2).sum();
    (ticks.iter().take(8).sum(), idle)
}

/// Waits until nine tenths of a second are nobody's, at most for `patience`. Tells whether they are.
pub(crate) fn wait_until_calm(patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let (all, idle) = ticks();
        std::thread::sleep(Duration::from_secs(1));
        let (all_now, idle_now) = ticks();
        if (idle_now.saturating_sub(idle)) * 10 >= all_now.saturating_sub(all) * 9 {
            return true;
        }
        if Instant::now() >= until || crate::interrupt::is_asked() {
            return false;
        }
    }
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
