//! The Origin over TLS: seen by a client of its own, with certificates good and bad.

#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

mod common;

use std::io::{self, Write as _};
use std::sync::Arc;

use common::{SOON, connect, drain, request};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate_testkit::tls::{Certificate, PemIdentity};
use tidegate_testkit::{Body, Ending, Origin, Resource, Tls};

const PATH: &str = "/file.bin";

fn start(tls: Tls, resource: Resource) -> Origin {
    Origin::builder().tls(tls).resource(PATH, resource).start().unwrap()
}

fn ask(
    origin: &Origin,
    name: &str,
    identity: Option<&PemIdentity>,
) -> io::Result<(Vec<u8>, Option<io::ErrorKind>)> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(origin.authority().unwrap().pem().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(session, connect(origin.address()));
    stream.write_all(request("GET", PATH, "Connection: close\r\n").as_bytes())?;
    Ok(drain(&mut stream))
}

#[test]
fn a_trusted_client_gets_the_file_and_a_proper_end() {
    let body = Body::random(1, 1_000_000);
    let origin = start(Tls::new(), Resource::new(body.clone()));
    assert!(origin.url(PATH).starts_with("https://127.0.0.1:"));
    for name in ["localhost", "127.0.0.1", "origin.test", "a.origin.test"] {
        let (bytes, error) = ask(&origin, name, None).unwrap();
        assert_eq!(error, None);
        assert!(bytes.ends_with(&body.to_vec()));
    }
    let seen = origin.requests()[0].tls.clone().unwrap();
    assert_eq!((seen.server_name.as_deref(), seen.client_certificate), (Some("localhost"), false));
    let (_, error) = ask(&start(Tls::new().only_tls12(), Resource::new(body)), "localhost", None).unwrap();
    assert_eq!(error, None);
}

#[test]
fn an_end_without_notice_can_be_told_from_a_proper_one() {
    let body = Body::random(1, 1000);
    let origin = start(Tls::new(), Resource::new(body.clone()).cut_after(400, Ending::FinWithoutNotice));
    let (bytes, error) = ask(&origin, "localhost", None).unwrap();
    assert!(bytes.ends_with(&body.bytes_of(0..400)));
    assert_eq!(error, Some(io::ErrorKind::UnexpectedEof));
    origin.set(PATH, Resource::new(body.clone()).cut_after(400, Ending::Fin));
    assert_eq!(ask(&origin, "localhost", None).unwrap().1, None);
    origin.set(PATH, Resource::new(body.clone()).cut_after(400, Ending::Reset));
    let (bytes, error) = ask(&origin, "localhost", None).unwrap();
    assert!(bytes.ends_with(&body.bytes_of(0..400)));
    assert_eq!(error, Some(io::ErrorKind::ConnectionReset));
}

#[test]
fn every_bad_certificate_is_refused_by_a_careful_client() {
    for certificate in [
        Certificate::SelfSigned,
        Certificate::UnknownAuthority,
        Certificate::Expired,
        Certificate::NotYetValid,
        Certificate::WrongName,
    ] {
        let origin = start(Tls::new().certificate(certificate), Resource::new(Body::zeros(1)));
        let error = ask(&origin, "localhost", None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{certificate:?}");
        assert!(origin.wait_until(SOON, |counters| counters.tls_failures == 1), "{certificate:?}");
        assert_eq!(origin.counters().requests, 0);
    }
}

#[test]
fn a_client_certificate_can_be_required_and_had() {
    let origin = start(Tls::new().requires_client_certificate(), Resource::new(Body::bytes("secret")));
    let refused = match ask(&origin, "localhost", None) {
        Err(_) => true,
        Ok((bytes, error)) => bytes.is_empty() && error.is_some(),
    };
    assert!(refused);
    let identity = origin.authority().unwrap().client_identity().unwrap();
    let (bytes, _) = ask(&origin, "localhost", Some(&identity)).unwrap();
    assert!(bytes.ends_with(b"secret"));
    assert!(origin.requests()[0].tls.as_ref().unwrap().client_certificate);
}

#[test]
fn a_plain_client_at_a_tls_port_is_no_request() {
    let origin = start(Tls::new(), Resource::new(Body::zeros(1)));
    let mut stream = connect(origin.address());
    stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    let _ = drain(&mut stream);
    assert!(origin.wait_until(SOON, |counters| counters.tls_failures == 1 && counters.open == 0));
}
