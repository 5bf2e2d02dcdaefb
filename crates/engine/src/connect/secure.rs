//! TLS over another connection, by rustls's interface without buffers.
//!
//! What was received waits in a buffer that all connections of a thread share, and only while it is being
//! decrypted. A connection keeps of its own no more than the beginning of a record, and content that its
//! reader had no room for. So a hundred connections cost little more than one, and a read brings as many
//! records as the reader has room for.

use super::Stream;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{ClientConfig, Error};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that one read takes from the connection below.
const INPUT: usize = 512 << 10;

/// The longest record there can be, with its header (RFC 8446 section 5.2; older TLS allows a little more).
const LONGEST_RECORD: usize = 5 + (16 << 10) + 2048;

/// A handshake that needs more than this at once is none.
const LONGEST_HANDSHAKE: usize = 256 << 10;

/// Content that is encrypted at a time.
const WRITE_AT_ONCE: usize = 16 << 10;

thread_local! {
    /// One buffer for each TLS connection that is being read: TLS through a TLS proxy reads two at a time.
    static INPUTS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Lends one of this thread's buffers.
fn with_input<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut input = INPUTS
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| vec![0; INPUT + LONGEST_HANDSHAKE].into_boxed_slice());
    let result = f(&mut input);
    INPUTS.with_borrow_mut(|inputs| inputs.push(input));
    result
}

/// A connection that only its two ends can read and write.
pub(super) struct Secure {
    below: Stream,
    tls: UnbufferedClientConnection,
    /// Received and not decrypted yet: the beginning of a record.
    tail: Vec<u8>,
    /// The tail may hold whole records: those that came with the end of the handshake.
    unread: bool,
    /// Decrypted, and its reader had no room for it.
    rest: Vec<u8>,
    /// How much of `rest` was read since.
    rest_read: usize,
    /// Encrypted and not sent yet.
    outgoing: Vec<u8>,
    sent: usize,
    /// The other end said that it will send no more.
    ended: bool,
}

impl Secure {
    /// Shakes hands as `config` has it, with a server of this name.
    ///
    /// # Errors
    /// Those of the connection below, `UnexpectedEof` when it ends, and a [`rustls::Error`] as the source
    /// of what is wrong with the other end.
    pub(super) async fn connect(
        below: Stream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let tls = UnbufferedClientConnection::new(config, name).map_err(refused)?;
        let mut secure = Self {
            below,
            tls,
            tail: Vec::new(),
            unread: false,
            rest: Vec::new(),
            rest_read: 0,
            outgoing: Vec::new(),
            sent: 0,
            ended: false,
        };
        poll_fn(|cx| secure.poll_handshake(cx)).await?;
        Ok(secure)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if let Err(error) = self.process_tail() {
                // The other end is told why, if it still listens.
                let _ = self.poll_send(cx);
                return Poll::Ready(Err(error));
            }
            if self.sent < self.outgoing.len() {
                continue;
            }
            if !self.tls.is_handshaking() {
                self.unread = !self.tail.is_empty();
                self.tail.shrink_to_fit();
                return Poll::Ready(Ok(()));
            }
            let more = with_input(|input| {
                let mut room = ReadBuf::new(&mut input[..INPUT]);
                ready!(Pin::new(&mut self.below).poll_read(cx, &mut room))?;
                self.tail.extend_from_slice(room.filled());
                Poll::Ready(io::Result::Ok(room.filled().len()))
            });
            if ready!(more)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Takes the whole records at the front of `input`: content to `room`, and what finds none to `rest`.
    /// What is to be answered is left in `outgoing`. Returns how much of `input` is done with.
    fn process(&mut self, input: &mut [u8], room: &mut ReadBuf<'_>) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.tls.process_tls_records(&mut input[used..]);
            let mut waits = false;
            let mut failed = None;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                let fits = record.payload.len().min(room.remaining());
                                let (now, later) = record.payload.split_at(fits);
                                room.put_slice(now);
                                self.rest.extend_from_slice(later);
                            }
                            Err(error) => failed = Some(error),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let encoded = append(&mut self.outgoing, |into| {
                        data.encode(into).map_err(|error| match error {
                            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                                Needs(required_size)
                            }
                            // It has nothing more to say.
                            EncodeError::AlreadyEncoded => Needs(0),
                        })
                    });
                    failed = encoded.err();
                }
                // What was encoded is in `outgoing`, which is sent in order and before anything else.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::Closed) => {
                    self.ended = true;
                    waits = true;
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => waits = true,
                Ok(_) => failed = Some(Error::General("TLS is in a state that a client has not".to_owned())),
                Err(error) => failed = Some(error),
            }
            used += discard;
            if let Some(error) = failed {
                self.encode_alert(&mut input[used..]);
                return Err(refused(error));
            }
            if waits {
                return Ok(used);
            }
        }
    }

    /// After an error rustls may have a last word for the other end. (It must be shown what it was shown
    /// before even then: it remembers places in it.)
    fn encode_alert(&mut self, input: &mut [u8]) {
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = self.tls.process_tls_records(input).state {
            let mut alert = [0; 256];
            if let Ok(count) = data.encode(&mut alert) {
                self.outgoing.extend_from_slice(&alert[..count]);
            }
        }
    }

    /// Takes the whole records in the tail, if there are any, and gets ready to encrypt.
    fn process_tail(&mut self) -> io::Result<()> {
        let mut tail = std::mem::take(&mut self.tail);
        let used = self.process(&mut tail, &mut ReadBuf::new(&mut []))?;
        tail.drain(..used);
        self.tail = tail;
        self.unread = false;
        // Whatever arrives: there is always room for the tail and a read in the shared buffer.
        if self.tail.len() > LONGEST_HANDSHAKE {
            return Err(refused(Error::General("a record or a handshake without end".to_owned())));
        }
        Ok(())
    }

    /// Sends what is encrypted. Pending while the connection takes no more.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.outgoing.len() {
            let count = ready!(Pin::new(&mut self.below).poll_write(cx, &self.outgoing[self.sent..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        if self.sent > 0 {
            // A request is small and rare beside its answer: nothing is kept for the next.
            self.outgoing = Vec::new();
            self.sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from below once, and takes what whole records there are then.
    fn poll_take(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with_input(|input| {
            let kept = self.tail.len();
            if kept > LONGEST_HANDSHAKE {
                return Poll::Ready(Err(refused(Error::General("a record without end".to_owned()))));
            }
            input[..kept].copy_from_slice(&self.tail);
            let mut filled = kept;
            if !std::mem::take(&mut self.unread) {
                // No more than there is room for once it is decrypted, but a record at least.
                let most = room.remaining().clamp(LONGEST_RECORD, INPUT);
                let mut below = ReadBuf::new(&mut input[kept..kept + most]);
                ready!(Pin::new(&mut self.below).poll_read(cx, &mut below))?;
                let count = below.filled().len();
                if count == 0 {
                    // Without its farewell anybody between could have cut it here.
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                filled += count;
            }
            let used = self.process(&mut input[..filled], room)?;
            // Never more than a record, and the room for it is kept: nothing is allocated for each read.
            self.tail.clear();
            self.tail.reserve_exact(filled - used);
            self.tail.extend_from_slice(&input[used..filled]);
            if self.tail.len() > LONGEST_HANDSHAKE {
                return Poll::Ready(Err(refused(Error::General("a record without end".to_owned()))));
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncRead for Secure {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let secure = self.get_mut();
        let before = room.filled().len();
        if room.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if secure.rest_read < secure.rest.len() {
                let rest = &secure.rest[secure.rest_read..];
                let now = rest.len().min(room.remaining());
                room.put_slice(&rest[..now]);
                secure.rest_read += now;
                if secure.rest_read == secure.rest.len() {
                    secure.rest.clear();
                    secure.rest_read = 0;
                }
            }
            if room.filled().len() > before || secure.ended {
                return Poll::Ready(Ok(()));
            }
            let taken = secure.poll_take(cx, room);
            // An answer to a change of keys, or why the connection ends here. It is no reason to wait.
            if secure.sent < secure.outgoing.len()
                && let Poll::Ready(Err(error)) = secure.poll_send(cx)
                && matches!(taken, Poll::Ready(Ok(())))
            {
                return Poll::Ready(Err(error));
            }
            ready!(taken)?;
        }
    }
}

impl AsyncWrite for Secure {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let secure = self.get_mut();
        ready!(secure.poll_send(cx))?;
        secure.process_tail()?;
        let now = &data[..data.len().min(WRITE_AT_ONCE)];
        let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            secure.tls.process_tls_records(&mut secure.tail).state
        else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        append(&mut secure.outgoing, |into| {
            traffic.encrypt(now, into).map_err(|error| match error {
                EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                    Needs(required_size)
                }
                EncryptError::EncryptExhausted => Needs(usize::MAX),
            })
        })
        .map_err(refused)?;
        // What the connection does not take at once goes out with the next write or flush.
        if let Poll::Ready(Err(error)) = secure.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(now.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let secure = self.get_mut();
        ready!(secure.poll_send(cx))?;
        Pin::new(&mut secure.below).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let secure = self.get_mut();
        secure.process_tail()?;
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            secure.tls.process_tls_records(&mut secure.tail).state
        {
            let mut farewell = [0; 256];
            if let Ok(count) = traffic.queue_close_notify(&mut farewell) {
                secure.outgoing.extend_from_slice(&farewell[..count]);
            }
        }
        ready!(secure.poll_send(cx))?;
        Pin::new(&mut secure.below).poll_shutdown(cx)
    }
}

impl Secure {
    /// The connection below.
    pub(super) fn below(&self) -> &Stream {
        &self.below
    }
}

/// How much room rustls needs; `usize::MAX` if none would do.
struct Needs(usize);

/// Appends to `buffer` what `write` puts into the room that it is given, which grows until that fits.
fn append(
    buffer: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Needs>,
) -> Result<(), Error> {
    let start = buffer.len();
    loop {
        match write(&mut buffer[start..]) {
            Ok(count) => {
                buffer.truncate(start + count);
                return Ok(());
            }
            Err(Needs(0)) => {
                buffer.truncate(start);
                return Ok(());
            }
            Err(Needs(room)) if room <= LONGEST_HANDSHAKE => buffer.resize(start + room, 0),
            Err(Needs(_)) => {
                buffer.truncate(start);
                return Err(Error::EncryptError);
            }
        }
    }
}

/// A TLS error as the source of an error of input and output, as callers look for it.
fn refused(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
    use std::io::{Read, Write};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    fn configs(version: &'static SupportedProtocolVersion) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let made = rcgen::generate_simple_self_signed(vec!["h".to_owned()]).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (Arc::new(client), Arc::new(server))
    }

    /// A connection that brings and takes at most so many bytes at a time, and changes one that it brings.
    struct Chopped(DuplexStream, usize, Option<usize>);

    impl AsyncRead for Chopped {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let most = self.1.min(room.remaining());
            let mut some = vec![0; most];
            let mut some = ReadBuf::new(&mut some);
            ready!(Pin::new(&mut self.0).poll_read(cx, &mut some))?;
            let count = some.filled().len();
            if let Some(at) = self.2 {
                if let Some(byte) = some.filled_mut().get_mut(at) {
                    *byte ^= 1;
                }
                self.2 = at.checked_sub(count);
            }
            room.put_slice(some.filled());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Chopped {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            let most = self.1.min(data.len());
            Pin::new(&mut self.0).poll_write(cx, &data[..most])
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    /// As much as a socket buffers.
    const SOCKET: usize = 256 << 10;

    /// A server by rustls's other interface: echoes, and changes its keys on the way.
    async fn echo(mut socket: DuplexStream, config: Arc<ServerConfig>, changes_keys: bool) -> io::Result<()> {
        let mut tls = rustls::ServerConnection::new(config).unwrap();
        let (mut wire, mut text) = (vec![0; 4096], vec![0; 4096]);
        loop {
            let mut out = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut out)?;
            }
            socket.write_all(&out).await?;
            let count = socket.read(&mut wire).await?;
            if count == 0 {
                return Ok(());
            }
            let mut received = &wire[..count];
            while !received.is_empty() {
                tls.read_tls(&mut received)?;
                let state = tls.process_new_packets().map_err(io::Error::other)?;
                if state.peer_has_closed() {
                    tls.send_close_notify();
                }
            }
            while let Ok(count @ 1..) = tls.reader().read(&mut text) {
                tls.writer().write_all(&text[..count])?;
                if changes_keys {
                    tls.refresh_traffic_keys().map_err(io::Error::other)?;
                }
            }
        }
    }

    async fn through(
        version: &'static SupportedProtocolVersion,
        chop: usize,
        changed: Option<usize>,
        sent: Vec<u8>,
        room: usize,
    ) -> (Vec<u8>, io::Result<()>) {
        let mut back = Vec::new();
        let outcome = talk(version, Chopping { chop, changed, room }, sent, &mut back).await;
        (back, outcome)
    }

    struct Chopping {
        chop: usize,
        changed: Option<usize>,
        room: usize,
    }

    async fn talk(
        version: &'static SupportedProtocolVersion,
        Chopping { chop, changed, room }: Chopping,
        sent: Vec<u8>,
        back: &mut Vec<u8>,
    ) -> io::Result<()> {
        let (client, server) = configs(version);
        let (here, there) = duplex(SOCKET);
        let changes_keys = version.version == rustls::ProtocolVersion::TLSv1_3;
        let server = tokio::spawn(echo(there, server, changes_keys));
        let name = ServerName::try_from("h").unwrap();
        let below = Stream::simulated(Chopped(here, chop, changed));
        let secure = Secure::connect(below, client, name).await?;
        let (mut reader, mut writer) = tokio::io::split(secure);
        let length = sent.len();
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await?;
            writer.flush().await?;
            io::Result::Ok(writer)
        });
        let mut buffer = vec![0; room];
        while back.len() < length {
            match reader.read(&mut buffer).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => back.extend_from_slice(&buffer[..count]),
            }
        }
        let mut writer = writing.await.unwrap()?;
        writer.shutdown().await?;
        assert_eq!(reader.read(&mut buffer).await?, 0, "more came back than was sent");
        server.await.unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_is_sent_comes_back_however_it_is_chopped(
            old in any::<bool>(), chop in prop_oneof![1usize..64, 64usize..40_000],
            sent in prop::collection::vec(any::<u8>(), 1..60_000), room in prop_oneof![1usize..100, 100usize..100_000],
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let version = if old { &rustls::version::TLS12 } else { &rustls::version::TLS13 };
            let (back, outcome) = runtime.block_on(through(version, chop, None, sent.clone(), room));
            prop_assert!(back == sent && outcome.is_ok(), "{outcome:?}");
        }

        #[test]
        fn a_byte_that_was_changed_on_the_way_is_never_taken(
            old in any::<bool>(), chop in 64usize..40_000, changed in 0usize..20_000,
            sent in prop::collection::vec(any::<u8>(), 20_000..40_000), room in 1usize..100_000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let version = if old { &rustls::version::TLS12 } else { &rustls::version::TLS13 };
            let (back, outcome) = runtime.block_on(through(version, chop, Some(changed), sent.clone(), room));
            // The versions in the heads of records and the record that is only there for the sake of old machines on
            // the way say nothing (RFC 8446, 5.1 and appendix D.4), so they may change and all is well.
            prop_assert!(outcome.is_err() || back == sent, "nobody saw it");
            prop_assert!(sent.starts_with(&back));
        }

        #[test]
        fn a_stranger_who_sends_anything_gets_an_error_and_no_more(
            bytes in prop::collection::vec(any::<u8>(), 0..4000), as_record in any::<bool>(), chop in 1usize..5000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let shaken = runtime.block_on(async {
                let (client, _) = configs(&rustls::version::TLS13);
                let (here, mut there) = duplex(SOCKET);
                let stranger = tokio::spawn(async move {
                    if as_record {
                        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
                        let _ = there.write_all(&[22, 3, 3, length[0], length[1]]).await;
                    }
                    let _ = there.write_all(&bytes).await;
                    let _ = there.shutdown().await;
                    let _ = there.read_to_end(&mut Vec::new()).await;
                });
                let name = ServerName::try_from("h").unwrap();
                let below = Stream::simulated(Chopped(here, chop, None));
                let shaken = Secure::connect(below, client, name).await.map(|_| ());
                stranger.abort();
                shaken
            });
            prop_assert!(shaken.is_err());
        }
    }
}
