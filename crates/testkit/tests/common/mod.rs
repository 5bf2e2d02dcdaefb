//! A client that is as plain as can be: it writes what it is told and shows what came.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses its part, and a failure here is a test's"
)]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub const SOON: Duration = Duration::from_secs(20);

/// A response as it came.
#[derive(Debug)]
pub struct Response {
    pub head: String,
    pub body: Vec<u8>,
    /// How the stream ended, when the client read it to its end.
    pub error: Option<io::ErrorKind>,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(is, _)| is.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn is_reset(&self) -> bool {
        self.error == Some(io::ErrorKind::ConnectionReset)
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

pub fn request(method: &str, path: &str, fields: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Asks on a connection of its own and reads until the stream ends.
pub fn fetch(address: SocketAddr, method: &str, path: &str, fields: &str) -> Response {
    let mut stream = connect(address);
    stream.write_all(request(method, path, &format!("{fields}Connection: close\r\n")).as_bytes()).unwrap();
    read_to_end(&mut stream)
}

pub fn get(address: SocketAddr, path: &str) -> Response {
    fetch(address, "GET", path, "")
}

pub fn get_range(address: SocketAddr, path: &str, range: &str) -> Response {
    fetch(address, "GET", path, &format!("Range: bytes={range}\r\n"))
}

pub fn read_to_end(stream: &mut impl Read) -> Response {
    let (bytes, error) = drain(stream);
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    Response {
        head: String::from_utf8_lossy(&bytes[..split]).into_owned(),
        body: bytes[split..].to_vec(),
        error,
    }
}

/// All bytes up to the end, and the error that it ended with.
pub fn drain(stream: &mut impl Read) -> (Vec<u8>, Option<io::ErrorKind>) {
    let mut bytes = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return (bytes, None),
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(error) => return (bytes, Some(error.kind())),
        }
    }
}

/// Reads one response with a Content-Length from a connection that stays open.
pub fn read_one(stream: &mut impl Read) -> Response {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let mut response =
        Response { head: String::from_utf8_lossy(&head).into_owned(), body: Vec::new(), error: None };
    let len: usize = response.field("content-length").unwrap().parse().unwrap();
    response.body = vec![0; len];
    stream.read_exact(&mut response.body).unwrap();
    response
}
