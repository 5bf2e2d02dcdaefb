//! TLS 1.2 and 1.3 by rustls with ring: no C parses what a stranger sends.

use super::secure::Secure;
use super::{Boxed, Stream};
use crate::failure::FetchError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::sync::Arc;
use tidegate_core::{Code, Failure, Remedy};
use tokio::sync::OnceCell;

/// What TLS trusts and shows. PEM as read by the caller.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// Certificates to trust *instead of* the system's, one or more.
    #[serde(with = "in_base64")]
    pub ca_pem: Option<Vec<u8>>,
    /// Our certificate, those between it and its root, and its private key, in one text. It is shown
    /// to every origin that asks for one, never to a proxy.
    #[serde(with = "in_base64")]
    pub client_cert_pem: Option<Vec<u8>>,
    /// Believe any certificate of an origin: whoever is between can then read and change everything.
    pub insecure: bool,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ca_pem, client_cert_pem, insecure } = self;
        f.debug_struct("TlsConfig")
            .field("ca_pem", &ca_pem.as_ref().map(|_| "…"))
            .field("client_cert_pem", &client_cert_pem.as_ref().map(|_| "…"))
            .field("insecure", insecure)
            .finish()
    }
}

/// Bytes that are no JSON: files of PEM may have comments in any encoding.
mod in_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let decode =
            |text| STANDARD.decode(text).map_err(|_| D::Error::custom("certificates are not in base64"));
        text.map(decode).transpose()
    }
}

/// Whom a handshake is with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum With {
    /// The server of a URL.
    Origin,
    /// A proxy: always verified, and never shown our certificate.
    Proxy,
}

/// Makes secure connections.
pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    /// Given by the configuration; the system's are read when they are first needed.
    roots: Option<Arc<RootCertStore>>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    insecure: bool,
    system: Box<dyn SystemRoots>,
    for_origins: OnceCell<Arc<ClientConfig>>,
    for_proxies: OnceCell<Arc<ClientConfig>>,
    system_roots: OnceCell<Arc<RootCertStore>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("insecure", &self.insecure).finish_non_exhaustive()
    }
}

impl Tls {
    pub(super) fn new(config: TlsConfig, system: Box<dyn SystemRoots>) -> Result<Self, Failure> {
        let refused = |why: String| Failure::new(Code::CertificateRefused, why).with_remedy(Remedy::GiveUp);
        let roots = match &config.ca_pem {
            None => None,
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    certificate
                        .map_err(|e| e.to_string())
                        .and_then(|c| roots.add(c).map_err(|e| e.to_string()))
                        .map_err(|e| refused(format!("a certificate to trust cannot be used: {e}")))?;
                }
                if roots.is_empty() {
                    return Err(refused("the file of certificates to trust has none in PEM".to_owned()));
                }
                Some(Arc::new(roots))
            }
        };
        let identity = match &config.client_cert_pem {
            None => None,
            Some(pem) => {
                let chain = CertificateDer::pem_slice_iter(pem)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|e| refused(format!("the client certificate cannot be read: {e}")))?;
                if chain.is_empty() {
                    return Err(refused("the client certificate's file has none in PEM".to_owned()));
                }
                let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| {
                    refused(format!(
                        "the client certificate's private key (PEM, not encrypted) cannot be read: {e}"
                    ))
                })?;
                Some((chain, key))
            }
        };
        let tls = Self {
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            roots,
            identity,
            insecure: config.insecure,
            system,
            for_origins: OnceCell::new(),
            for_proxies: OnceCell::new(),
            system_roots: OnceCell::new(),
        };
        if tls.identity.is_some() {
            // A key that does not belong to its certificate is the user's mistake, told at once.
            tls.connector(Arc::new(RootCertStore::empty()), true, true)
                .map_err(|e| refused(format!("the client certificate cannot be used: {e}")))?;
        }
        Ok(tls)
    }

    /// Shakes hands over `stream`, so that what is read and written is with `host` alone.
    pub(super) async fn secure(&self, stream: Stream, host: &str, with: With) -> Result<Stream, FetchError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| FetchError::Tls {
            host: host.to_owned(),
            why: "TLS cannot name this host".to_owned(),
        })?;
        let failed = |error: io::Error| {
            classify(&error, host).unwrap_or_else(|| FetchError::Tls {
                host: host.to_owned(),
                why: format!("the connection ended during the handshake: {error}"),
            })
        };
        let config = Arc::clone(self.ready(with, host).await?);
        let secured = Secure::connect(stream, config, name).await.map_err(failed)?;
        Ok(Stream::secured(secured))
    }

    async fn ready(&self, with: With, host: &str) -> Result<&Arc<ClientConfig>, FetchError> {
        let failed = |why: String| FetchError::Tls { host: host.to_owned(), why };
        let (cell, insecure, identify) = match with {
            With::Origin => (&self.for_origins, self.insecure, true),
            With::Proxy => (&self.for_proxies, false, false),
        };
        cell.get_or_try_init(async || {
            let roots = match &self.roots {
                Some(roots) => Arc::clone(roots),
                None if insecure => Arc::new(RootCertStore::empty()),
                None => {
                    let read = async || self.system_roots().await;
                    Arc::clone(self.system_roots.get_or_try_init(read).await.map_err(failed)?)
                }
            };
            self.connector(roots, insecure, identify).map_err(|e| failed(e.to_string()))
        })
        .await
    }

    async fn system_roots(&self) -> Result<Arc<RootCertStore>, String> {
        let mut roots = RootCertStore::empty();
        // Bundles hold certificates that no one can parse; the others still count.
        roots.add_parsable_certificates(self.system.certificates().await?);
        if roots.is_empty() {
            return Err(no_roots(""));
        }
        Ok(Arc::new(roots))
    }

    fn connector(
        &self,
        roots: Arc<RootCertStore>,
        insecure: bool,
        identify: bool,
    ) -> Result<Arc<ClientConfig>, rustls::Error> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .dangerous();
        let builder = if insecure {
            builder.with_custom_certificate_verifier(Arc::new(Anyone(Arc::clone(&self.provider))))
        } else {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&self.provider))
                .build()
                .map_err(|e| rustls::Error::General(e.to_string()))?;
            builder.with_custom_certificate_verifier(verifier)
        };
        let mut config = match self.identity.as_ref().filter(|_| identify) {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key())?,
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Knows which certificates the system trusts. Asked when the first of them is needed.
pub(crate) trait SystemRoots: Send + Sync + fmt::Debug {
    /// All of them; those that cannot be parsed too.
    fn certificates(&self) -> Boxed<'_, Result<Vec<CertificateDer<'static>>, String>>;
}

/// Reads the system's files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemFiles;

impl SystemRoots for SystemFiles {
    fn certificates(&self) -> Boxed<'_, Result<Vec<CertificateDer<'static>>, String>> {
        // It takes milliseconds and touches files: not on the thread that moves data.
        Box::pin(async { tokio::task::spawn_blocking(read_system_roots).await.map_err(|e| e.to_string())? })
    }
}

/// The certificates that the system trusts, from its files.
///
/// # Errors
/// When there are none; in words.
pub(crate) fn read_system_roots() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err(no_roots(&found.errors.first().map_or_else(String::new, |e| format!(" ({e})"))));
    }
    Ok(found.certs)
}

fn no_roots(why: &str) -> String {
    format!(
        "this system has no certificates to trust{why}; install the package ca-certificates, or name a file of them"
    )
}

/// Believes any certificate, but not that someone has its key who has not: the handshake's signatures
/// are still checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What an error of a TLS connection means; `None` if TLS has no part in it.
pub(crate) fn classify(error: &io::Error, host: &str) -> Option<FetchError> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let host = host.to_owned();
    Some(match tls {
        rustls::Error::InvalidCertificate(why) => FetchError::Certificate { why: reason(why), host },
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied),
        ) => FetchError::Tls {
            why: format!("the server wants a client certificate that it accepts (it said {alert:?})"),
            host,
        },
        rustls::Error::AlertReceived(alert) => {
            FetchError::Tls { why: format!("the server refused: it said {alert:?}"), host }
        }
        rustls::Error::InvalidMessage(why) => {
            FetchError::Tls { why: format!("what it sent is not TLS ({why:?})"), host }
        }
        other => FetchError::Tls { why: other.to_string(), host },
    })
}

fn reason(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired (or this machine's clock is ahead)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet (or this machine's clock is behind)".to_owned()
        }
        CertificateError::UnknownIssuer => "nobody that this system trusts has issued it".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it was issued for another name".to_owned()
        }
        CertificateError::Revoked => "it was revoked".to_owned(),
        CertificateError::BadSignature => "its signature is wrong".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it was not issued for a server".to_owned()
        }
        CertificateError::BadEncoding => "it cannot be read".to_owned(),
        other => other.to_string(),
    }
}
