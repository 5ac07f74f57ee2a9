//! An authority for the certificates of one measurement or test: both ends of a tunnel trust it. Owns its key; stores
//! nothing. Certificates of a fleet's clients, from an existing authority, are in `crates/tunnel`.

use rcgen::{
    BasicConstraints, CertificateParams, Error, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// An authority that exists in memory only.
pub struct TemporaryAuthority {
    /// Its certificate, PEM.
    pub certificate_pem: String,
    /// Its key, PEM.
    pub key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TemporaryAuthority {
    /// Creates a key and a certificate.
    ///
    /// # Errors
    ///
    /// The library has no random bytes.
    pub fn new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok(Self { certificate_pem, key_pem: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// Issues a certificate that `describe` sets up; returns it and its key, PEM.
    ///
    /// # Errors
    ///
    /// The description is not one of a valid certificate.
    pub fn issue(&self, describe: impl FnOnce(&mut CertificateParams)) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        describe(&mut params);
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// Issues a certificate for a TLS server; returns it and its key, PEM.
    ///
    /// # Errors
    ///
    /// The library has no random bytes.
    pub fn issue_server(&self) -> Result<(String, String), Error> {
        self.issue(|params| use_for(params, ExtendedKeyUsagePurpose::ServerAuth))
    }

    /// Issues a certificate for a TLS client; returns it and its key, PEM.
    ///
    /// # Errors
    ///
    /// The library has no random bytes.
    pub fn issue_client(&self) -> Result<(String, String), Error> {
        self.issue(|params| use_for(params, ExtendedKeyUsagePurpose::ClientAuth))
    }
}

fn use_for(params: &mut CertificateParams, usage: ExtendedKeyUsagePurpose) {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
}
