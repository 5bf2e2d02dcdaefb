//! Servers that misbehave in one named way each, for tests.
//!
//! [`Origin`] is an HTTP/1.1 server over real sockets that writes its bytes itself, so it can tell
//! any lie: about lengths, ranges, validators, codings, names, or about when a body ends. A
//! [`Resource`] is an honest file until rules and hooks are put on it; a [`Site`] is what one Origin
//! serves, and can be exchanged while connections are open (*phases*). [`recipes`] names more than
//! a hundred such sites, so that a test and `tidegate-origin --behaviour NAME` mean the same server.
//!
//! The crate depends on nothing of ours and shares no code with what it tests. Its threads are plain
//! `std` threads, one for each connection; dropping an [`Origin`] closes its sockets and waits for
//! them. Nothing in it waits by turning round: pacing is a timetable, and tests wait with
//! [`Origin::wait_until`].
//!
//! ```
//! use std::{io::{Read, Write}, net::TcpStream};
//! use tidegate_testkit::{Body, Origin, Resource};
//!
//! let origin = Origin::builder().resource("/hello", Resource::new(Body::bytes("hello"))).start()?;
//! let mut client = TcpStream::connect(origin.address())?;
//! client.write_all(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"));
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod auth;
pub mod body;
pub mod coding;
pub mod counters;
pub mod exchange;
mod hub;
mod listen;
pub mod nginx;
pub mod origin;
pub mod pace;
pub mod proxy;
pub mod recipes;
pub mod request;
pub mod resource;
pub mod site;
mod sys;
pub mod tls;
mod wire;

pub use body::Body;
pub use counters::{Counters, Exchanged};
pub use exchange::{Answer, Ending, Exchange, Framing};
pub use nginx::Nginx;
pub use origin::{Builder, Origin};
pub use pace::Rate;
pub use proxy::Proxy;
pub use request::{RangeAsked, RequestSeen};
pub use resource::Resource;
pub use site::Site;
pub use tls::{Authority, Tls};
