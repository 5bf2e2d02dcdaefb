use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tidegate_core::{Code, Remedy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const OPTIONS: ConnectOptions = ConnectOptions { timeout: Duration::from_secs(20), share: None };

/// Sends every name to this machine, and remembers what was asked.
#[derive(Debug, Default, Clone)]
struct Names(Arc<std::sync::Mutex<Vec<String>>>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        self.0.lock().unwrap().push(host.to_owned());
        Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]) })
    }
}

fn network(config: NetworkConfig) -> (Network, Names) {
    let names = Names::default();
    let network = Network::simulated(config, Box::new(names.clone()), Box::new(TcpDialer)).unwrap();
    (network, names)
}

fn endpoint(https: bool, host: &str, port: u16) -> Endpoint {
    Endpoint { https, host: host.to_owned(), port }
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Reads up to and with an empty line.
async fn request(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

/// Says `hello` through a connection and expects it back.
async fn echoes(mut stream: Stream) {
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
}

async fn echo(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin) {
    let mut text = [0; 5];
    if stream.read_exact(&mut text).await.is_ok() {
        let _ = stream.write_all(&text).await;
        let _ = stream.flush().await;
    }
}

// Certificates.

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> Vec<u8> {
        self.0.pem().into_bytes()
    }

    /// A certificate for a name, and its key, in PEM.
    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        format!("{}{}", certificate.pem(), key.serialize_pem()).into_bytes()
    }

    fn roots(&self) -> Arc<rustls::RootCertStore> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }
}

fn acceptor(pem: &[u8], clients: Option<&Authority>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(authority.roots(), provider).build().unwrap(),
        ),
    };
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().unwrap();
    let mut config = builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(pem).unwrap()).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A server that echoes over TLS, for ever.
async fn tls_server(pem: &[u8], clients: Option<&Authority>) -> u16 {
    let (listener, port) = listen().await;
    let acceptor = acceptor(pem, clients);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(socket).await {
                    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
                    echo(stream).await;
                }
            });
        }
    });
    port
}

fn trusting(authority: &Authority) -> NetworkConfig {
    NetworkConfig {
        tls: TlsConfig { ca_pem: Some(authority.pem()), ..TlsConfig::default() },
        ..NetworkConfig::default()
    }
}

/// The reason for which a certificate is refused.
async fn refused(config: NetworkConfig, host: &str, port: u16) -> String {
    let (network, _) = network(config);
    match connect(&network, &endpoint(true, host, port), OPTIONS).await {
        Err(FetchError::Certificate { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tls_with_a_trusted_certificate_connects() {
    let authority = Authority::new("a");
    let port = tls_server(&authority.issue("files.example", |_| {}), None).await;
    let (network, _) = network(trusting(&authority));
    for _ in 0..2 {
        let connected = connect(&network, &endpoint(true, "files.example", port), OPTIONS).await.unwrap();
        assert!(connected.stream.is_tls() && connected.stream.tcp().is_none());
        assert_eq!(connected.peer.unwrap().port(), port);
        assert_eq!(connected.form, Form::Origin);
        echoes(connected.stream).await;
    }
}

#[tokio::test]
async fn a_certificate_is_refused_with_the_reason() {
    let authority = Authority::new("a");
    let good = tls_server(&authority.issue("files.example", |_| {}), None).await;
    let why = refused(trusting(&authority), "other.example", good).await;
    assert!(why.contains("another name"), "{why}");
    let why = refused(trusting(&authority), "127.0.0.1", good).await;
    assert!(why.contains("another name"), "{why}");
    let why = refused(trusting(&Authority::new("b")), "files.example", good).await;
    assert!(why.contains("nobody"), "{why}");
    let old = authority.issue("files.example", |p| {
        p.not_before = date_time_ymd(2000, 1, 1);
        p.not_after = date_time_ymd(2001, 1, 1);
    });
    let why = refused(trusting(&authority), "files.example", tls_server(&old, None).await).await;
    assert!(why.contains("expired"), "{why}");
    let young = authority.issue("files.example", |p| {
        p.not_before = date_time_ymd(3000, 1, 1);
        p.not_after = date_time_ymd(3001, 1, 1);
    });
    let why = refused(trusting(&authority), "files.example", tls_server(&young, None).await).await;
    assert!(why.contains("not valid yet"), "{why}");
}

#[tokio::test]
async fn the_systems_certificates_do_not_count_when_others_are_named_nor_others_when_not() {
    // The authority of the test is not among the system's, if the system has any.
    let authority = Authority::new("a");
    let port = tls_server(&authority.issue("files.example", |_| {}), None).await;
    let (network, _) = network(NetworkConfig::default());
    let error = connect(&network, &endpoint(true, "files.example", port), OPTIONS).await.unwrap_err();
    match error {
        FetchError::Certificate { why, .. } => assert!(why.contains("nobody"), "{why}"),
        FetchError::Tls { why, .. } => assert!(why.contains("ca-certificates"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn insecure_believes_any_certificate() {
    let port = tls_server(&Authority::new("a").issue("files.example", |_| {}), None).await;
    let tls = TlsConfig { insecure: true, ..TlsConfig::default() };
    let (network, _) = network(NetworkConfig { tls, ..NetworkConfig::default() });
    let connected = connect(&network, &endpoint(true, "other.example", port), OPTIONS).await.unwrap();
    echoes(connected.stream).await;
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_whoever_asks() {
    let authority = Authority::new("a");
    let port = tls_server(&authority.issue("files.example", |_| {}), Some(&authority)).await;
    let mut config = trusting(&authority);
    config.tls.client_cert_pem = Some(authority.issue("me", |_| {}));
    let (with, _) = network(config);
    let connected = connect(&with, &endpoint(true, "files.example", port), OPTIONS).await.unwrap();
    echoes(connected.stream).await;

    // Without it the server's refusal comes after the handshake, in TLS 1.3, and is still told.
    let (without, _) = network(trusting(&authority));
    let mut stream = connect(&without, &endpoint(true, "files.example", port), OPTIONS).await.unwrap().stream;
    let error = stream.read_u8().await.unwrap_err();
    let error = FetchError::from_io(error, "files.example", false, true);
    assert!(error.to_string().contains("client certificate"), "{error}");
    assert_eq!(error.code(), Code::TlsFailed);
}

#[test]
fn certificates_that_cannot_be_used_are_told_at_the_start() {
    let authority = Authority::new("a");
    let one = String::from_utf8(authority.issue("me", |_| {})).unwrap();
    let other = String::from_utf8(authority.issue("me", |_| {})).unwrap();
    let key = &other[other.find("-----BEGIN PRIVATE KEY").unwrap()..];
    let chain = &one[..one.find("-----BEGIN PRIVATE KEY").unwrap()];
    let ca = |pem: &str| TlsConfig { ca_pem: Some(pem.into()), ..TlsConfig::default() };
    let client = |pem: String| TlsConfig { client_cert_pem: Some(pem.into_bytes()), ..TlsConfig::default() };
    for tls in [
        ca(""),
        ca("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        client(chain.to_owned()),
        client(key.to_owned()),
        client(format!("{chain}{key}")),
    ] {
        let failure = Network::new(NetworkConfig { tls, ..NetworkConfig::default() }).unwrap_err();
        assert_eq!(failure.code, Code::CertificateRefused);
        assert_eq!(failure.remedy, Remedy::GiveUp);
    }
}

#[tokio::test]
async fn the_end_of_tls_without_its_farewell_is_no_clean_end() {
    let authority = Authority::new("a");
    let (listener, port) = listen().await;
    let acceptor = acceptor(&authority.issue("files.example", |_| {}), None);
    let server = tokio::spawn(async move {
        for farewell in [true, false] {
            let (socket, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(socket).await.unwrap();
            stream.write_all(b"part").await.unwrap();
            stream.flush().await.unwrap();
            match farewell {
                true => stream.shutdown().await.unwrap(),
                // A FIN below TLS, as anyone on the way can send.
                false => stream.get_mut().0.shutdown().await.unwrap(),
            }
            let _ = stream.read_u8().await;
        }
    });
    let (network, _) = network(trusting(&authority));
    for farewell in [true, false] {
        let mut stream =
            connect(&network, &endpoint(true, "files.example", port), OPTIONS).await.unwrap().stream;
        let mut text = Vec::new();
        let result = stream.read_to_end(&mut text).await;
        assert_eq!(text, b"part");
        match farewell {
            true => assert_eq!(result.unwrap(), 4),
            false => assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
        }
    }
    server.await.unwrap();
}

#[tokio::test]
async fn a_plain_server_on_a_tls_port_is_told_as_such() {
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = socket.read_to_end(&mut Vec::new()).await;
    });
    let (network, _) = network(trusting(&Authority::new("a")));
    let error = connect(&network, &endpoint(true, "h", port), OPTIONS).await.unwrap_err();
    assert!(error.to_string().contains("is not TLS"), "{error}");
    server.await.unwrap();
}

// Without TLS.

#[tokio::test]
async fn a_plain_connection_is_a_bare_socket() {
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move { echo(listener.accept().await.unwrap().0).await });
    let (network, names) = network(NetworkConfig::default());
    let connected = connect(&network, &endpoint(false, "127.0.0.1", port), OPTIONS).await.unwrap();
    assert!(connected.stream.tcp().unwrap().nodelay().unwrap());
    assert!(connected.window.is_none());
    echoes(connected.stream).await;
    assert!(names.0.lock().unwrap().is_empty(), "an address is no name");
    server.await.unwrap();
}

#[tokio::test]
async fn a_closed_port_and_a_missing_family_are_told() {
    let (listener, port) = listen().await;
    drop(listener);
    let (any, _) = network(NetworkConfig::default());
    let error = connect(&any, &endpoint(false, "h", port), OPTIONS).await.unwrap_err();
    assert_eq!(error.code(), Code::ConnectFailed);
    assert!(error.to_string().contains("127.0.0.1"), "{error}");

    let (v6, _) = network(NetworkConfig { family: Family::V6, ..NetworkConfig::default() });
    let error = connect(&v6, &endpoint(false, "h", port), OPTIONS).await.unwrap_err();
    assert_eq!(error.code(), Code::ResolveFailed);
    assert!(error.to_string().contains("no IPv6 address"), "{error}");
}

/// Dials nothing, for ever.
#[derive(Debug)]
struct Silence;

impl Dial for Silence {
    fn dial(&self, _: SocketAddr, _: Option<u32>) -> Boxed<'_, io::Result<Stream>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_given_up_in_time_and_the_step_is_told() {
    let config = NetworkConfig::default();
    let network = Network::simulated(config, Box::new(Names::default()), Box::new(Silence)).unwrap();
    let options = ConnectOptions { timeout: Duration::from_secs(3), share: None };
    let error = connect(&network, &endpoint(false, "h", 80), options).await.unwrap_err();
    assert!(matches!(error, FetchError::ConnectTimeout { during: Step::Connecting, .. }), "{error:?}");
}

/// Connects to one end of a pipe, whose other end has the answer in it already.
#[derive(Debug)]
struct Scripted(&'static [u8]);

impl Dial for Scripted {
    fn dial(&self, _: SocketAddr, _: Option<u32>) -> Boxed<'_, io::Result<Stream>> {
        let answer = self.0;
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(async move {
                let _ = theirs.write_all(answer).await;
                let _ = theirs.read_to_end(&mut Vec::new()).await;
            });
            Ok(Stream::simulated(ours))
        })
    }
}

/// The error when a proxy answers a request for an `https` URL like this.
async fn proxy_says(proxy: &str, answer: &'static [u8]) -> FetchError {
    let proxies = Proxies::parse(None, Some(proxy), None, None).unwrap();
    let config = NetworkConfig { proxies, ..NetworkConfig::default() };
    let network = Network::simulated(config, Box::new(Names::default()), Box::new(Scripted(answer))).unwrap();
    let options = ConnectOptions { timeout: Duration::from_secs(3), share: None };
    connect(&network, &endpoint(true, "files.example", 443), options).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn an_http_proxy_that_does_not_connect_is_told_with_what_it_said() {
    let error = proxy_says("proxy", b"HTTP/1.1 403 Not for you\r\n\r\n<html>").await;
    assert_eq!(error.code(), Code::ProxyFailed);
    assert!(error.to_string().contains("http://proxy:80 answered 403 Not for you"), "{error}");
    let error = proxy_says("proxy", b"HTTP/1.1 407 No\r\n\r\n").await;
    assert_eq!(error.code(), Code::AuthRequired);
    for answer in [&b"SSH-2.0-x\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01", &[b'x'; 100_000]] {
        assert_eq!(proxy_says("proxy", answer).await.code(), Code::ProxyFailed);
    }
    // One that says nothing is given up in time.
    let error = proxy_says("proxy", b"").await;
    assert!(matches!(error, FetchError::ConnectTimeout { during: Step::AskingProxy, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_socks_proxy_that_does_not_connect_is_told_with_what_it_said() {
    let said = |answer| proxy_says("socks5h://proxy", answer);
    assert_eq!(said(b"\x05\xff").await.code(), Code::AuthRequired);
    assert_eq!(said(b"HTTP/1.1").await.code(), Code::ProxyFailed);
    let error = said(b"\x05\x00\x05\x02\x00\x01").await.to_string();
    assert!(error.contains("does not allow"), "{error}");
    let error = said(b"\x05\x00\x05\x00\x00\x09").await.to_string();
    assert!(error.contains("unknown kind of address"), "{error}");
    let error = proxy_says("socks5://me:pw@proxy", b"\x05\x02\x01\x01").await;
    assert_eq!(error.code(), Code::AuthRequired);
    let error = proxy_says("socks5://proxy", b"\x05\x00\x05\x05\x00\x01").await.to_string();
    assert!(error.contains("refused the connection"), "{error}");
}

#[tokio::test]
async fn http_through_an_http_proxy_is_asked_in_absolute_form_with_credentials_for_it() {
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move { echo(listener.accept().await.unwrap().0).await });
    let proxies = Proxies::parse(Some(&format!("me:pw@proxy.example:{port}")), None, None, None).unwrap();
    let (network, names) = network(NetworkConfig { proxies, ..NetworkConfig::default() });
    let connected = connect(&network, &endpoint(false, "files.example", 80), OPTIONS).await.unwrap();
    assert!(connected.form.is_absolute());
    assert_eq!(connected.form.proxy_authorization(), Some("Basic bWU6cHc="));
    assert!(!format!("{connected:?}").contains("bWU6cHc="), "{connected:?}");
    assert_eq!(*names.0.lock().unwrap(), ["proxy.example"]);
    echoes(connected.stream).await;
    server.await.unwrap();
}

#[tokio::test]
async fn https_through_http_and_https_proxies_is_tunnelled() {
    let authority = Authority::new("a");
    let origin = tls_server(&authority.issue("files.example", |_| {}), None).await;
    for secure in [false, true] {
        let (listener, port) = listen().await;
        let acceptor = acceptor(&authority.issue("proxy.example", |_| {}), None);
        let server = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            match secure {
                true => connect_proxy(acceptor.accept(socket).await.unwrap(), origin).await,
                false => connect_proxy(socket, origin).await,
            }
        });
        let scheme = if secure { "https" } else { "http" };
        let proxy = format!("{scheme}://me:pw@proxy.example:{port}");
        let mut config = trusting(&authority);
        config.proxies = Proxies::parse(None, Some(&proxy), None, None).unwrap();
        let (network, names) = network(config);
        let connected = connect(&network, &endpoint(true, "files.example", origin), OPTIONS).await.unwrap();
        assert_eq!(connected.form, Form::Origin);
        assert_eq!(*names.0.lock().unwrap(), ["proxy.example"]);
        echoes(connected.stream).await;
        let asked = server.await.unwrap();
        assert!(asked.starts_with(&format!("CONNECT files.example:{origin} HTTP/1.1\r\n")), "{asked}");
        assert!(asked.contains("\r\nProxy-Authorization: Basic bWU6cHc=\r\n"), "{asked}");
    }
}

/// Answers one CONNECT by connecting to a port of this machine, and carries bytes until an end.
async fn connect_proxy(mut client: impl AsyncReadExt + AsyncWriteExt + Unpin, port: u16) -> String {
    let asked = request(&mut client).await;
    let mut origin = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await.unwrap();
    client.flush().await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut origin).await;
    asked
}

#[tokio::test]
async fn socks_names_are_looked_up_where_the_scheme_says() {
    for (scheme, by_proxy) in [("socks5", false), ("socks5h", true)] {
        let (listener, port) = listen().await;
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut hello = [0; 4];
            socket.read_exact(&mut hello).await.unwrap();
            assert_eq!(hello, [5, 2, 0, 2]);
            socket.write_all(&[5, 2]).await.unwrap();
            let mut login = [0; 7];
            socket.read_exact(&mut login).await.unwrap();
            assert_eq!(&login, b"\x01\x02me\x02pw");
            socket.write_all(&[1, 0]).await.unwrap();
            let mut asked = vec![0; if by_proxy { 4 + 1 + 13 + 2 } else { 4 + 4 + 2 }];
            socket.read_exact(&mut asked).await.unwrap();
            // A name as the bound address, which is rare but allowed.
            socket.write_all(b"\x05\x00\x00\x03\x04host\x00\x50").await.unwrap();
            echo(socket).await;
            asked
        });
        let proxy = format!("{scheme}://me:pw@127.0.0.1:{port}");
        let proxies = Proxies::parse(None, None, Some(&proxy), None).unwrap();
        let (network, names) = network(NetworkConfig { proxies, ..NetworkConfig::default() });
        let connected = connect(&network, &endpoint(false, "files.example", 80), OPTIONS).await.unwrap();
        assert_eq!(connected.form, Form::Origin);
        echoes(connected.stream).await;
        let asked = server.await.unwrap();
        if by_proxy {
            assert_eq!(asked, b"\x05\x01\x00\x03\x0dfiles.example\x00\x50");
            assert!(names.0.lock().unwrap().is_empty());
        } else {
            assert_eq!(asked, b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50");
            assert_eq!(*names.0.lock().unwrap(), ["files.example"]);
        }
    }
}

#[tokio::test]
async fn a_host_that_needs_no_proxy_is_reached_without() {
    let (listener, port) = listen().await;
    let server = tokio::spawn(async move { echo(listener.accept().await.unwrap().0).await });
    let proxies = Proxies::parse(Some("127.0.0.1:1"), None, None, Some(".example")).unwrap();
    let (network, _) = network(NetworkConfig { proxies, ..NetworkConfig::default() });
    let connected = connect(&network, &endpoint(false, "files.example", port), OPTIONS).await.unwrap();
    assert_eq!(connected.form, Form::Origin);
    echoes(connected.stream).await;
    server.await.unwrap();
    let error = connect(&network, &endpoint(false, "files.other", port), OPTIONS).await.unwrap_err();
    assert_eq!(error.code(), Code::ProxyFailed);
    assert!(error.to_string().contains("http://127.0.0.1:1 cannot be reached"), "{error}");
}

#[test]
fn an_endpoint_is_the_scheme_host_and_port_of_a_url() {
    let of = |url: &str| Endpoint::of(&Url::parse(url).unwrap());
    assert_eq!(of("https://User:pw@H.example/a#b").unwrap(), endpoint(true, "h.example", 443));
    assert_eq!(of("http://[::1]:8080/").unwrap(), endpoint(false, "::1", 8080));
    assert_eq!(of("http://[::1]:8080/").unwrap().authority(), "[::1]:8080");
    assert_eq!(of("http://0x7f.1/").unwrap().authority(), "127.0.0.1:80");
    assert!(of("ftp://h/").is_err() && of("data:x").is_err());
}
