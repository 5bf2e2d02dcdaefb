//! A server certificate, made on the spot by an authority that nobody else trusts.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The authority's certificate, in the folder of an identity: what clients are told to trust.
pub(crate) const AUTHORITY: &str = "authority.pem";
/// The server's certificate and those between it and the authority.
pub(crate) const CHAIN: &str = "chain.pem";
/// The server's private key.
pub(crate) const KEY: &str = "key.pem";

/// Writes an identity for `addresses` into a folder.
///
/// # Errors
/// When no key can be made, or no file.
pub(crate) fn make_identity(folder: &Path, addresses: &[String]) -> io::Result<()> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "tidegate-bench authority");
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let authority = params.self_signed(&key).map_err(io::Error::other)?;
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(addresses.to_vec()).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, "tidegate-bench server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let server = params.signed_by(&key, &issuer).map_err(io::Error::other)?;

    fs::write(folder.join(AUTHORITY), authority.pem())?;
    fs::write(folder.join(CHAIN), server.pem() + &authority.pem())?;
    fs::write(folder.join(KEY), key.serialize_pem())
}

/// How the server with the identity in `folder` speaks TLS.
///
/// # Errors
/// When a file is missing or is not what it should be.
pub(crate) fn server_config(folder: &Path) -> io::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(folder.join(CHAIN))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(io::Error::other)?;
    Ok(Arc::new(config))
}
