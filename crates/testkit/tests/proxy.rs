//! The proxies carry what they should, refuse what they should, and tell what they were asked.
#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use common::{SOON, connect, drain, read_one, read_to_end, request};
use tidegate_testkit::proxy::{Asked, AskedBy};
use tidegate_testkit::{Body, Ending, Origin, Proxy, Resource};

const PATH: &str = "/file.bin";

fn origin(body: &Body) -> Origin {
    Origin::serve(Resource::new(body.clone())).unwrap()
}

fn ask(proxy: &Proxy, text: &str) -> TcpStream {
    let mut stream = connect(proxy.address());
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Speaks SOCKS5 up to the reply to its request, and returns the reply's code.
fn socks(stream: &mut TcpStream, credentials: Option<(&str, &str)>, address: &[u8], port: u16) -> u8 {
    let method = if credentials.is_some() { 2 } else { 0 };
    stream.write_all(&[5, 1, method]).unwrap();
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).unwrap();
    if chosen[1] != method {
        return chosen[1];
    }
    if let Some((user, password)) = credentials {
        let mut words = vec![1, user.len() as u8];
        words.extend_from_slice(user.as_bytes());
        words.push(password.len() as u8);
        words.extend_from_slice(password.as_bytes());
        stream.write_all(&words).unwrap();
        let mut verdict = [0; 2];
        stream.read_exact(&mut verdict).unwrap();
        if verdict[1] != 0 {
            return 0xfe;
        }
    }
    stream.write_all(&[&[5, 1, 0], address, &port.to_be_bytes()].concat()).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    reply[1]
}

fn name(host: &str) -> Vec<u8> {
    [&[3, host.len() as u8], host.as_bytes()].concat()
}

#[test]
fn an_absolute_target_is_fetched_for_the_client() {
    let body = Body::random(1, 300_000);
    let origin = origin(&body);
    let proxy = Proxy::http().map("origin.test", origin.address()).start().unwrap();
    let mut stream = ask(
        &proxy,
        "GET http://Origin.Test/file.bin HTTP/1.1\r\nHost: origin.test\r\nProxy-Connection: keep-alive\r\n\r\n",
    );
    assert_eq!(read_to_end(&mut stream).body, body.to_vec());
    let seen = &origin.requests()[0];
    assert_eq!((seen.target.as_str(), seen.field("via")), (PATH, Some("1.1 testkit")));
    assert!(!seen.has("proxy-connection"));
    assert_eq!(
        proxy.counters().asked,
        [Asked {
            by: AskedBy::AbsoluteTarget,
            host: "Origin.Test".to_owned(),
            port: 80,
            user: None,
            answer: 200
        }]
    );
    assert!(proxy.counters().bytes_down > 300_000);
}

#[test]
fn a_tunnel_carries_bytes_both_ways_and_a_reset_too() {
    let body = Body::random(1, 2_000_000);
    let origin = origin(&body);
    let proxy = Proxy::http().map("origin.test", origin.address()).start().unwrap();
    let connect = "CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n";
    // The request comes right behind the CONNECT, as an eager client sends it.
    let mut stream = ask(&proxy, &format!("{connect}{}", request("GET", PATH, "Connection: close\r\n")));
    let mut head = [0; 39];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 Connection established\r\n\r\n");
    assert_eq!(read_to_end(&mut stream).body, body.to_vec());

    origin.set(PATH, Resource::new(body.clone()).cut_after(100_000, Ending::Reset));
    let mut stream = ask(&proxy, connect);
    stream.read_exact(&mut head).unwrap();
    stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    assert!(read_to_end(&mut stream).is_reset());
}

#[test]
fn credentials_are_asked_for_and_checked() {
    let origin = origin(&Body::bytes("abc"));
    let proxy = Proxy::http().credentials("user", "pass word").start().unwrap();
    let target = format!("GET {} HTTP/1.1\r\nHost: x\r\n", origin.url(PATH));
    let mut stream = ask(&proxy, &format!("{target}\r\n"));
    let refused = read_one(&mut stream);
    assert_eq!(refused.status(), 407);
    assert!(refused.field("proxy-authenticate").unwrap().starts_with("Basic "));
    stream
        .write_all(format!("{target}Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n\r\n").as_bytes())
        .unwrap();
    assert_eq!(read_one(&mut stream).body, b"abc");
    assert!(!origin.requests()[0].has("proxy-authorization"), "they are not passed on");
    let counters = proxy.counters();
    assert_eq!((counters.unauthorised, counters.asked[1].user.as_deref()), (1, Some("user")));
}

#[test]
fn what_is_not_on_this_machine_is_never_reached() {
    let proxy = Proxy::http().start().unwrap();
    for target in ["http://example.com/", "http://8.8.8.8/", "http://[2001:db8::1]:80/"] {
        let mut stream = ask(&proxy, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(read_one(&mut stream).status(), 502, "{target}");
    }
    let proxy = Proxy::socks5().start().unwrap();
    let mut stream = connect(proxy.address());
    assert_eq!(socks(&mut stream, None, &name("example.com"), 80), 4);
}

#[test]
fn refusals_are_as_told() {
    for status in [403, 407, 502] {
        let proxy = Proxy::http().refuses(status).start().unwrap();
        let mut stream = ask(&proxy, "CONNECT localhost:1 HTTP/1.1\r\n\r\n");
        assert_eq!(read_one(&mut stream).status(), status);
        assert_eq!(proxy.counters().asked[0].answer, status);
    }
    let proxy = Proxy::socks5().refuses(2).start().unwrap();
    let mut stream = connect(proxy.address());
    assert_eq!(socks(&mut stream, None, &name("localhost"), 1), 2);
}

#[test]
fn socks_reaches_names_and_addresses() {
    let body = Body::random(1, 100_000);
    let four = origin(&body);
    let six = Origin::builder().ipv6().resource(PATH, Resource::new(body.clone())).start().unwrap();
    let proxy = Proxy::socks5().map("origin.test", four.address()).start().unwrap();
    let mut v6 = vec![4];
    v6.extend_from_slice(&std::net::Ipv6Addr::LOCALHOST.octets());
    for (address, port) in [
        (name("origin.test"), 80),
        (vec![1, 127, 0, 0, 1], four.address().port()),
        (v6, six.address().port()),
    ] {
        let mut stream = connect(proxy.address());
        assert_eq!(socks(&mut stream, None, &address, port), 0);
        stream.write_all(request("GET", PATH, "Connection: close\r\n").as_bytes()).unwrap();
        assert_eq!(read_to_end(&mut stream).body, body.to_vec());
    }
    let asked: Vec<_> = proxy.counters().asked.into_iter().map(|asked| (asked.by, asked.host)).collect();
    assert_eq!(
        asked,
        [
            (AskedBy::SocksName, "origin.test".to_owned()),
            (AskedBy::SocksV4, "127.0.0.1".to_owned()),
            (AskedBy::SocksV6, "::1".to_owned())
        ]
    );
}

#[test]
fn socks_wants_its_password() {
    let origin = origin(&Body::bytes("abc"));
    let proxy =
        Proxy::socks5().credentials("user", "word").map("origin.test", origin.address()).start().unwrap();
    let try_with = |credentials| socks(&mut connect(proxy.address()), credentials, &name("origin.test"), 80);
    assert_eq!(try_with(None), 0xff);
    assert_eq!(try_with(Some(("user", "wrong"))), 0xfe);
    assert_eq!(try_with(Some(("user", "word"))), 0);
    assert_eq!(proxy.counters().unauthorised, 2);
    assert_eq!(proxy.counters().asked.len(), 1);
}

#[test]
fn a_dead_target_and_a_dead_proxy_are_told_apart() {
    let gone: SocketAddr = {
        let origin = origin(&Body::bytes("abc"));
        origin.address()
    };
    let proxy = Proxy::socks5().map("gone.test", gone).start().unwrap();
    let mut stream = connect(proxy.address());
    assert_eq!(socks(&mut stream, None, &name("gone.test"), 80), 5);
    proxy.refuse_connects();
    assert!(TcpStream::connect(proxy.address()).is_err());
    proxy.restore();
    let silent = Proxy::http().silent().start().unwrap();
    let mut stream = ask(&silent, "CONNECT x:1 HTTP/1.1\r\n\r\n");
    stream.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert_eq!(drain(&mut stream).1, Some(std::io::ErrorKind::WouldBlock));
    drop(silent);
    assert!(proxy.wait_until(SOON, |counters| counters.asked.len() == 1));
}
