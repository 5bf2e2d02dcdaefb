//! Listening: one thread for each address, one more for each connection.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{self as net, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::hub::{Hub, Network, Wake};
use crate::wire::Wire;

/// The stack of a connection's thread. Buffers are on the heap; TLS in an unoptimised build is not small.
const STACK: usize = 1 << 20;

/// What a server does with its connections.
pub(crate) trait Service: Send + Sync + 'static {
    /// How many connections may be open at once; the others are reset as they come.
    fn most_connections(&self) -> usize;

    /// The kernel's send buffer of each connection, in bytes; it doubles the figure.
    fn send_buffer(&self) -> Option<usize> {
        None
    }

    /// Serves one connection to its end, on its own thread.
    fn serve(&self, wire: Wire);
}

/// An address that is listened at until this is dropped.
pub(crate) struct Door {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// # Errors
    /// Those of making sockets and threads.
    pub(crate) fn open(ip: IpAddr, port: u16, hub: &Arc<Hub>, service: Arc<dyn Service>) -> io::Result<Self> {
        // Bound but never listening: it keeps the port ours while connections are being refused.
        let keeper = bound(SocketAddr::new(ip, port))?;
        let address = TcpListener::from(keeper.try_clone()?).local_addr()?;
        let listener = listening(address)?;
        let wake = Arc::new(Wake::new()?);
        let (hub, door) = (hub.clone(), wake.clone());
        hub.add_door(wake);
        hub.door_opened();
        let thread = thread::Builder::new().name("origin-listen".to_owned()).spawn(move || {
            watch(&hub, &door, &service, address, listener);
            drop(keeper);
        })?;
        Ok(Self { address, thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Door {
    /// The hub must have been told that all is over.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

fn watch(
    hub: &Arc<Hub>,
    wake: &Wake,
    service: &Arc<dyn Service>,
    address: SocketAddr,
    listener: TcpListener,
) {
    let mut listener = Some(listener);
    loop {
        wake.hush();
        match hub.network() {
            Network::Over => break,
            Network::Refusing => {
                if listener.take().is_some() {
                    hub.door_closed();
                }
            }
            Network::Up | Network::Down if listener.is_none() => match listening(address) {
                Ok(open) => {
                    listener = Some(open);
                    hub.door_opened();
                }
                // The keeper holds the port, so this is a want of descriptors: ask again soon.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            },
            Network::Up | Network::Down => {}
        }
        let Some(open) = &listener else {
            if hub.network() == Network::Refusing {
                let _ = poll(&mut [PollFd::new(wake, PollFlags::IN)], None);
            }
            continue;
        };
        let mut fds = [PollFd::new(wake, PollFlags::IN), PollFd::new(open, PollFlags::IN)];
        let _ = poll(&mut fds, None);
        match open.accept() {
            Ok((socket, _)) => receive(hub, service, socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors, most likely: the connection stays in the queue, so do not turn round.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
    if listener.is_some() {
        drop(listener);
        hub.door_closed();
    }
}

fn receive(hub: &Arc<Hub>, service: &Arc<dyn Service>, socket: TcpStream) {
    let socket = Arc::new(socket);
    let Some((control, seat)) = hub.admit(&socket, service.most_connections()) else {
        let _ = sockopt::set_socket_linger(&*socket, Some(Duration::ZERO));
        return;
    };
    if let Some(bytes) = service.send_buffer() {
        // Refused only for absurd sizes; the kernel's default stays then.
        let _ = sockopt::set_socket_send_buffer_size(&*socket, bytes);
    }
    let Ok(wire) = Wire::new(socket, control, seat) else { return };
    let service = service.clone();
    // Without a thread the wire is dropped, which closes it.
    let _ = thread::Builder::new()
        .name("origin-connection".to_owned())
        .stack_size(STACK)
        .spawn(move || service.serve(wire));
}

fn bound(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &address)?;
    Ok(socket)
}

fn listening(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bound(address)?;
    net::listen(&socket, 1024)?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}
