//! SOCKS5 (RFC 1928) with user name and password (RFC 1929).

use super::proxy::{Proxy, reach};
use super::{Attempt, Endpoint, Stream};
use crate::failure::{FetchError, Step};
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Most addresses of a host that a proxy is asked for, each on a connection of its own.
const MOST: usize = 4;
const VERSION: u8 = 5;
const NO_AUTH: u8 = 0;
const PASSWORD: u8 = 2;

/// Where the proxy shall connect to.
#[derive(Clone, Copy)]
enum Target<'a> {
    Name(&'a str, u16),
    Address(SocketAddr),
}

/// A connection to the endpoint through a SOCKS proxy.
pub(super) async fn reach_endpoint(
    attempt: &Attempt<'_>,
    proxy: &Proxy,
    endpoint: &Endpoint,
) -> Result<Stream, FetchError> {
    if proxy.resolves() && endpoint.host.parse::<IpAddr>().is_err() {
        return ask(attempt, proxy, Target::Name(&endpoint.host, endpoint.port)).await.map_err(|(e, _)| e);
    }
    attempt.at(Step::Resolving);
    let addresses = attempt.network.addresses(&endpoint.host, endpoint.port).await?;
    let mut failed = None;
    for address in addresses.into_iter().take(MOST) {
        match ask(attempt, proxy, Target::Address(address)).await {
            Ok(stream) => return Ok(stream),
            Err((error, true)) => failed = Some(error),
            Err((error, false)) => return Err(error),
        }
    }
    // There is at least one address: `failed` is set.
    Err(failed.unwrap_or_else(|| proxy.failed("was not asked", None)))
}

/// Connects to the proxy and asks it. The flag says whether another address may fare better.
async fn ask(attempt: &Attempt<'_>, proxy: &Proxy, target: Target<'_>) -> Result<Stream, (FetchError, bool)> {
    let mut stream = reach(attempt, proxy).await.map_err(|e| (e, false))?;
    attempt.at(Step::AskingProxy);
    match handshake(&mut stream, proxy, target).await {
        Ok(()) => Ok(stream),
        Err(Refusal::Io(error)) => Err((proxy.failed(format!("was lost: {error}"), None), false)),
        Err(Refusal::Said(why)) => Err((proxy.failed(why, None), false)),
        Err(Refusal::Auth(why)) => Err((proxy.failed(why, Some(407)), false)),
        Err(Refusal::Reply(code)) => {
            let (why, another) = match code {
                1 => ("failed", false),
                2 => ("does not allow this connection", false),
                3 => ("says that the network is unreachable", true),
                4 => ("says that the host is unreachable", true),
                5 => ("says that the host refused the connection", true),
                6 => ("says that the connection took too long", true),
                7 => ("does not know how to connect", false),
                8 => ("does not know this kind of address", true),
                _ => ("refused for a reason that SOCKS does not name", false),
            };
            Err((proxy.failed(format!("{why} (SOCKS reply {code})"), None), another))
        }
    }
}

enum Refusal {
    Io(io::Error),
    Said(&'static str),
    /// As HTTP's 407: credentials are missing or wrong.
    Auth(&'static str),
    Reply(u8),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Every answer has a length that the protocol bounds (at most 262 bytes), and no byte beyond it is read.
async fn handshake(stream: &mut Stream, proxy: &Proxy, target: Target<'_>) -> Result<(), Refusal> {
    let credentials = proxy.credentials();
    let hello: &[u8] =
        if credentials.is_some() { &[VERSION, 2, NO_AUTH, PASSWORD] } else { &[VERSION, 1, NO_AUTH] };
    send(stream, hello).await?;
    let mut choice = [0; 2];
    stream.read_exact(&mut choice).await?;
    match (choice, credentials) {
        ([VERSION, NO_AUTH], _) => {}
        ([VERSION, PASSWORD], Some((user, password))) => {
            let mut login = vec![1];
            for text in [user, password] {
                // `Proxy` has seen to it that both fit.
                login.push(text.len().min(255) as u8);
                login.extend_from_slice(&text.as_bytes()[..text.len().min(255)]);
            }
            send(stream, &login).await?;
            let mut verdict = [0; 2];
            stream.read_exact(&mut verdict).await?;
            if verdict[1] != 0 {
                return Err(Refusal::Auth("does not accept the user name and password"));
            }
        }
        ([VERSION, 0xff], None) => return Err(Refusal::Auth("wants a user name and a password")),
        ([VERSION, _], _) => return Err(Refusal::Said("wants a kind of login that is not known here")),
        _ => return Err(Refusal::Said("does not speak SOCKS5")),
    }

    let mut request = vec![VERSION, 1, 0];
    let port = match target {
        Target::Name(name, port) => {
            let Ok(length) = u8::try_from(name.len()) else {
                return Err(Refusal::Said("cannot be told so long a name"));
            };
            request.extend_from_slice(&[3, length]);
            request.extend_from_slice(name.as_bytes());
            port
        }
        Target::Address(address) => {
            match address.ip() {
                IpAddr::V4(ip) => {
                    request.push(1);
                    request.extend_from_slice(&ip.octets());
                }
                IpAddr::V6(ip) => {
                    request.push(4);
                    request.extend_from_slice(&ip.octets());
                }
            }
            address.port()
        }
    };
    request.extend_from_slice(&port.to_be_bytes());
    send(stream, &request).await?;

    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    if reply[0] != VERSION {
        return Err(Refusal::Said("does not speak SOCKS5"));
    }
    if reply[1] != 0 {
        return Err(Refusal::Reply(reply[1]));
    }
    // The address that the proxy connects from, of no interest, and its port.
    let length = match reply[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(Refusal::Said("answered with an unknown kind of address")),
    };
    let mut bound = [0; 257];
    stream.read_exact(&mut bound[..length + 2]).await?;
    Ok(())
}

async fn send(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}
