//! A connection, whatever it is made of.

use super::secure::Secure;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Anything that bytes go both ways through; for simulated networks.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection: TCP, TLS over another one, or simulated.
///
/// Has no buffer of its own. TLS has what its records need (up to one record of 16 KiB each way while
/// it is incomplete); a read on it fills as much of the buffer given as whole records have arrived for.
/// The end of TLS without its close_notify is an error (`UnexpectedEof`), never a clean end, so that
/// nobody between can cut a body short.
pub struct Stream(Inner);

enum Inner {
    Tcp(TcpStream),
    Tls(Box<Secure>),
    Simulated(Box<dyn Duplex>),
}

impl Stream {
    /// A simulated connection.
    pub fn simulated(stream: impl Duplex + 'static) -> Self {
        Self(Inner::Simulated(Box::new(stream)))
    }

    pub(super) fn secured(stream: Secure) -> Self {
        Self(Inner::Tls(Box::new(stream)))
    }

    /// The socket, if what is read from the socket is what a read here gives: no TLS, not simulated.
    /// For `splice` and socket options that concern reading.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match &self.0 {
            Inner::Tcp(stream) => Some(stream),
            Inner::Tls(_) | Inner::Simulated(_) => None,
        }
    }

    /// The socket below everything, if there is one. For socket options and statistics only: under TLS
    /// what can be read from it is not content.
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.0 {
            Inner::Tcp(stream) => Some(stream),
            Inner::Tls(stream) => stream.below().socket(),
            Inner::Simulated(_) => None,
        }
    }

    /// Whether it is TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self.0, Inner::Tls(_))
    }

    /// The other end of the socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket().and_then(|s| s.peer_addr().ok())
    }

    fn pin(self: Pin<&mut Self>) -> Pin<&mut dyn Duplex> {
        match &mut self.get_mut().0 {
            Inner::Tcp(stream) => Pin::new(stream),
            Inner::Tls(stream) => Pin::new(&mut **stream),
            Inner::Simulated(stream) => Pin::new(&mut **stream),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self(Inner::Tcp(stream))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Inner::Tcp(_) => "tcp",
            Inner::Tls(_) => "tls",
            Inner::Simulated(_) => "simulated",
        };
        write!(f, "Stream({kind}, {:?})", self.peer())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.pin().poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.pin().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin().poll_shutdown(cx)
    }
}
