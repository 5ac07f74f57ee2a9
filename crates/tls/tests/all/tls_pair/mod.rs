//! A TLS client and server in memory, for the tests: options with the names of the test cases, and a loop that moves
//! bytes between both in pieces of any size, without loss or reordering.

use std::io::{Read, Write};
use std::sync::Arc;

use leadline_tls::{
    self_signed_certificate, ClientTls, SelfSignedCertificate, ServerOptions, ServerTls, TlsClient, TlsFailure,
    TlsOptions, TlsServer, TlsVersion,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub const NO_STRINGS: &[String] = &[];

pub fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

pub fn certificate() -> SelfSignedCertificate {
    self_signed_certificate(&strings(&["example.test"])).unwrap()
}

/// Returns the options of a server with all features.
pub fn server_options(certificate: &SelfSignedCertificate) -> ServerOptions<'_> {
    ServerOptions {
        certificate_pem: &certificate.certificate_pem,
        key_pem: &certificate.key_pem,
        oldest: TlsVersion::V1_2,
        newest: TlsVersion::V1_3,
        cipher_suites: NO_STRINGS,
        alpn: NO_STRINGS,
        client_ca_pem: None,
        resumption: true,
        early_data_bytes: 0,
    }
}

/// Returns the options of a client that trusts `ca_pem` and expects `example.test`.
pub fn client_options(ca_pem: &str) -> TlsOptions<'_> {
    TlsOptions {
        verify: true,
        ca_pem: Some(ca_pem),
        identity: None,
        oldest: TlsVersion::V1_2,
        newest: TlsVersion::V1_3,
        cipher_suites: NO_STRINGS,
        alpn: NO_STRINGS,
        server_name: "example.test",
        resumption: true,
        connections: 16,
        early_data: false,
    }
}

/// Both ends of a connection and their received plaintext.
pub struct Pair {
    pub client: TlsClient,
    pub server: TlsServer,
    pub at_client: Vec<u8>,
    pub at_server: Vec<u8>,
    pub client_failed: Option<TlsFailure>,
    pub server_failed: Option<TlsFailure>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl Pair {
    pub fn new(client: &ClientTls, server: &ServerTls) -> Self {
        Self {
            client: TlsClient::new(client).unwrap(),
            server: TlsServer::new(server).unwrap(),
            at_client: Vec::new(),
            at_server: Vec::new(),
            client_failed: None,
            server_failed: None,
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    /// Moves bytes until none are in transit, in pieces whose sizes are those of `sizes` in turn.
    pub fn carry(&mut self, sizes: &[usize]) -> &mut Self {
        let mut sizes = sizes.iter().copied().cycle();
        loop {
            self.client.take_output(&mut self.to_server);
            self.server.take_output(&mut self.to_client);
            if self.to_server.is_empty() && self.to_client.is_empty() {
                return self;
            }
            let size = sizes.next().unwrap();
            let piece: Vec<u8> = self.to_server.drain(..size.min(self.to_server.len())).collect();
            if !piece.is_empty() {
                self.server_failed = self.server.receive(&piece).err();
                drain(&mut self.at_server, |buffer| self.server.read(buffer));
            }
            let mut piece: Vec<u8> = self.to_client.drain(..size.min(self.to_client.len())).collect();
            if !piece.is_empty() {
                let at_client = &mut self.at_client;
                // Uses each way of receiving in turn, which shows that they can be mixed.
                self.client_failed = match size % 3 {
                    0 => self.client.receive(&piece),
                    1 => self.client.receive_with(&piece, |bytes| at_client.extend_from_slice(bytes)),
                    _ => self.client.receive_in_place(&mut piece, |bytes| at_client.extend_from_slice(bytes)),
                }
                .err();
                drain(&mut self.at_client, |buffer| self.client.read(buffer));
            }
        }
    }

    /// Moves all bytes in one piece.
    pub fn settle(&mut self) -> &mut Self {
        self.carry(&[1 << 20])
    }
}

fn drain(into: &mut Vec<u8>, mut read: impl FnMut(&mut [u8]) -> Result<usize, TlsFailure>) {
    let mut buffer = [0; 1000];
    while let Ok(count @ 1..) = read(&mut buffer) {
        into.extend_from_slice(&buffer[..count]);
    }
}

/// Returns a certificate for clients.
pub fn client_certificate() -> SelfSignedCertificate {
    special_certificate("client.test", |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    })
}

/// Returns a self-signed certificate that may issue others.
pub fn authority_certificate(name: &str) -> SelfSignedCertificate {
    special_certificate(name, |params| params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained))
}

pub fn special_certificate(name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> SelfSignedCertificate {
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    change(&mut params);
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    SelfSignedCertificate { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
}

/// Returns the configuration of a plain rustls server, for behaviour that this crate's server does not have.
pub fn raw_server_config(generated: &SelfSignedCertificate) -> rustls::ServerConfig {
    raw_server_config_with(generated, rustls::crypto::aws_lc_rs::default_provider())
}

pub fn raw_server_config_with(generated: &SelfSignedCertificate, provider: CryptoProvider) -> rustls::ServerConfig {
    let chain = CertificateDer::pem_slice_iter(generated.certificate_pem.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(generated.key_pem.as_bytes()).unwrap();
    rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// A plain rustls server.
pub struct RawServer {
    pub connection: rustls::ServerConnection,
    pub at_server: Vec<u8>,
    pub at_client: Vec<u8>,
}

impl RawServer {
    pub fn new(config: Arc<rustls::ServerConfig>) -> Self {
        let connection = rustls::ServerConnection::new(config).unwrap();
        Self { connection, at_server: Vec::new(), at_client: Vec::new() }
    }

    pub fn write(&mut self, data: &[u8]) {
        self.connection.writer().write_all(data).unwrap();
    }

    /// Returns the server's output.
    pub fn output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut out).unwrap();
        }
        out
    }

    /// Moves bytes until none are in transit.
    pub fn carry(&mut self, client: &mut TlsClient) -> Result<(), TlsFailure> {
        loop {
            let mut to_server = Vec::new();
            client.take_output(&mut to_server);
            let mut input = to_server.as_slice();
            while !input.is_empty() {
                self.connection.read_tls(&mut input).unwrap();
                self.connection.process_new_packets().unwrap();
                let mut reader = self.connection.reader();
                let mut buffer = [0; 1000];
                while let Ok(count @ 1..) = reader.read(&mut buffer) {
                    self.at_server.extend_from_slice(&buffer[..count]);
                }
            }
            let to_client = self.output();
            if to_client.is_empty() && to_server.is_empty() {
                return Ok(());
            }
            let at_client = &mut self.at_client;
            client.receive_with(&to_client, |bytes| at_client.extend_from_slice(bytes))?;
        }
    }
}
