//! Serves any behaviour of the testkit by hand, to be tried with any client.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a tool for a terminal")]

use std::io::{self, BufRead as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate_testkit::Origin;
use tidegate_testkit::recipes::{self, Given};

const HELP: &str = "\
Serves one behaviour of the testkit over HTTP on this machine.

Usage: tidegate-origin --behaviour NAME [--size N] [--seed N] [--ip IP] [--port N] [--ca FILE]
       tidegate-origin --list

  --behaviour NAME   one of those that --list tells
  --size N           length of the file, with K, M or G (default 8M)
  --seed N           seed of its content (default 1)
  --ip IP            address to listen on (default 127.0.0.1)
  --port N           port to listen on (default 0: a free one)
  --ca FILE          write the authority's certificate there (behaviours with TLS)
  --list             list the behaviours

While it runs, these lines on its input do things:
  phase N   drop   refuse   restore   stats   log   quit
";

struct Wanted {
    behaviour: String,
    given: Given,
    ip: IpAddr,
    port: u16,
    ca: Option<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tidegate-origin: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let Some(wanted) = read_arguments(std::env::args().skip(1))? else { return Ok(()) };
    let recipe = recipes::find(&wanted.behaviour)
        .ok_or_else(|| format!("no behaviour is called {}; --list tells them", wanted.behaviour))?;
    let builder = recipe.builder(&wanted.given).listen_on(wanted.ip, wanted.port);
    let origin = Arc::new(builder.start().map_err(|error| format!("cannot start: {error}"))?);
    if let Some(path) = &wanted.ca {
        let authority = origin.authority().ok_or("this behaviour has no TLS")?;
        std::fs::write(path, authority.pem()).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    println!("{}", origin.entry_url());
    for body in origin.right() {
        println!("right: {} bytes, sha256 {}", body.len(), body.sha256_hex());
    }
    if origin.right().is_empty() {
        println!("right: nothing; every success is a lie");
    }
    io::stdout().flush().map_err(|error| error.to_string())?;
    if let Some((after, length)) = origin.outage() {
        let origin = origin.clone();
        thread::spawn(move || {
            while !origin.wait_until(Duration::from_secs(3600), |counters| counters.requests > 0) {}
            thread::sleep(after);
            origin.drop_network();
            eprintln!("the network is down");
            thread::sleep(length);
            origin.restore_network();
            eprintln!("the network is up");
        });
    }
    obey(&origin)
}

/// Obeys the input; without any, serves until it is killed.
fn obey(origin: &Origin) -> Result<(), String> {
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (None, _) => {}
            (Some("phase"), Some(number)) => match number.parse().map(|number| origin.enter_phase(number)) {
                Ok(Ok(())) => eprintln!("phase {number} of {}", origin.phases()),
                _ => eprintln!("there are {} phases", origin.phases()),
            },
            (Some("drop"), _) => origin.drop_network(),
            (Some("refuse"), _) => origin.refuse_connects(),
            (Some("restore"), _) => origin.restore_network(),
            (Some("stats"), _) => {
                eprintln!("{:#?}\nacknowledged: {}", origin.counters(), origin.bytes_acked())
            }
            (Some("log"), _) => {
                for entry in origin.log() {
                    let request = &entry.request;
                    eprintln!(
                        "{:>8.3} s  #{:<4} {} {}  {}  -> {:?}, {} bytes{}",
                        request.at.as_secs_f64(),
                        request.connection,
                        request.method,
                        request.target,
                        request.field("range").unwrap_or("-"),
                        entry.status,
                        entry.body_bytes,
                        if entry.whole { "" } else { ", not whole" }
                    );
                }
            }
            (Some("quit"), _) => return Ok(()),
            _ => eprintln!("phase N, drop, refuse, restore, stats, log, quit"),
        }
    }
    loop {
        thread::park();
    }
}

fn read_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Option<Wanted>, String> {
    let mut wanted = Wanted {
        behaviour: String::new(),
        given: Given::default(),
        ip: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        ca: None,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let bad = |value: &str| format!("{value} is no value for {argument}");
        match argument.as_str() {
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(None);
            }
            "--list" => {
                for recipe in recipes::all() {
                    println!("{:<28} {}", recipe.name, recipe.about);
                }
                return Ok(None);
            }
            "--behaviour" => wanted.behaviour = value()?,
            "--size" => {
                let text = value()?;
                wanted.given.size = size(&text).ok_or_else(|| bad(&text))?;
            }
            "--seed" => {
                let text = value()?;
                wanted.given.seed = text.parse().map_err(|_| bad(&text))?;
            }
            "--ip" => {
                let text = value()?;
                wanted.ip = text.parse().map_err(|_| bad(&text))?;
            }
            "--port" => {
                let text = value()?;
                wanted.port = text.parse().map_err(|_| bad(&text))?;
            }
            "--ca" => wanted.ca = Some(value()?),
            _ => return Err(format!("{argument} is no option\n\n{HELP}")),
        }
    }
    match wanted.behaviour.is_empty() {
        true => Err(format!("--behaviour is needed\n\n{HELP}")),
        false => Ok(Some(wanted)),
    }
}

fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
