//! Certificates made on the spot, good ones and bad ones.

use std::io;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// The names for which a good certificate is made. More are made to resolve by a [`crate::Proxy`].
const NAMES: [&str; 6] = ["localhost", "origin.test", "*.origin.test", "other.test", "127.0.0.1", "::1"];

/// A certificate authority of its own, which nobody trusts until told to.
#[derive(Clone)]
pub struct Authority {
    inner: Arc<Inner>,
}

struct Inner {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

/// A certificate and its key, both in PEM.
#[derive(Clone, Debug)]
pub struct PemIdentity {
    /// The certificate.
    pub certificate: String,
    /// Its private key, PKCS #8.
    pub key: String,
}

impl Authority {
    /// # Errors
    /// When no key can be made.
    pub fn new() -> io::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = name("Testkit authority");
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Ok(Self { inner: Arc::new(Inner { issuer: Issuer::new(params, key), pem, der }) })
    }

    /// The authority's certificate in PEM, to be trusted by a client.
    pub fn pem(&self) -> &str {
        &self.inner.pem
    }

    /// The same in DER.
    pub fn der(&self) -> &[u8] {
        &self.inner.der
    }

    /// A certificate with which a client can show who it is.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn client_identity(&self) -> io::Result<PemIdentity> {
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.distinguished_name = name("Testkit client");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.inner.issuer).map_err(io::Error::other)?;
        Ok(PemIdentity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn server(
        &self,
        kind: Certificate,
    ) -> io::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let names: Vec<String> = match kind {
            Certificate::WrongName => vec!["elsewhere.invalid".to_owned()],
            _ => NAMES.iter().map(|&name| name.to_owned()).collect(),
        };
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        params.distinguished_name = name("Testkit origin");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        match kind {
            Certificate::Expired => {
                (params.not_before, params.not_after) =
                    (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
            }
            Certificate::NotYetValid => {
                (params.not_before, params.not_after) =
                    (date_time_ymd(3000, 1, 1), date_time_ymd(3001, 1, 1));
            }
            Certificate::Good
            | Certificate::SelfSigned
            | Certificate::UnknownAuthority
            | Certificate::WrongName => {}
        }
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let chain = match kind {
            Certificate::SelfSigned => {
                vec![params.self_signed(&key).map_err(io::Error::other)?.der().clone()]
            }
            Certificate::UnknownAuthority => {
                let other = Self::new()?;
                let leaf = params.signed_by(&key, &other.inner.issuer).map_err(io::Error::other)?;
                vec![leaf.der().clone(), other.inner.der.clone()]
            }
            _ => {
                let leaf = params.signed_by(&key, &self.inner.issuer).map_err(io::Error::other)?;
                vec![leaf.der().clone(), self.inner.der.clone()]
            }
        };
        Ok((chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
    }
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// What is the matter with a server's certificate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Certificate {
    /// Nothing: for `localhost`, `origin.test`, `*.origin.test`, `other.test`, 127.0.0.1 and ::1.
    #[default]
    Good,
    /// Signed by itself.
    SelfSigned,
    /// Signed by an authority that nobody knows.
    UnknownAuthority,
    /// Valid until 2002.
    Expired,
    /// Valid from the year 3000 on.
    NotYetValid,
    /// For `elsewhere.invalid`.
    WrongName,
}

/// How a listener speaks TLS. TLS 1.2 and 1.3, unless said otherwise, and no ALPN.
#[derive(Clone, Default)]
pub struct Tls {
    authority: Option<Authority>,
    certificate: Certificate,
    client_certificate: bool,
    only_12: bool,
}

impl Tls {
    /// With a good certificate of the Origin's own authority.
    pub fn new() -> Self {
        Self::default()
    }

    /// With another certificate.
    pub fn certificate(mut self, certificate: Certificate) -> Self {
        self.certificate = certificate;
        self
    }

    /// By an authority that other Origins share.
    pub fn authority(mut self, authority: &Authority) -> Self {
        self.authority = Some(authority.clone());
        self
    }

    /// Only for clients that show a certificate of the authority ([`Authority::client_identity`]).
    pub fn requires_client_certificate(mut self) -> Self {
        self.client_certificate = true;
        self
    }

    /// TLS 1.2 only.
    pub fn only_tls12(mut self) -> Self {
        self.only_12 = true;
        self
    }

    pub(crate) fn own_authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    pub(crate) fn config(&self, authority: &Authority) -> io::Result<Arc<ServerConfig>> {
        let (chain, key) = authority.server(self.certificate)?;
        let provider = Arc::new(ring::default_provider());
        let versions: &[&rustls::SupportedProtocolVersion] = match self.only_12 {
            true => &[&rustls::version::TLS12],
            false => rustls::DEFAULT_VERSIONS,
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(io::Error::other)?;
        let builder = if self.client_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(authority.inner.der.clone()).map_err(io::Error::other)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(io::Error::other)?;
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        Ok(Arc::new(builder.with_single_cert(chain, key).map_err(io::Error::other)?))
    }
}
