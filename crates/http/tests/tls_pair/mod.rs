//! A client and a server of TLS in memory, for the tests: options with names for what most tests want, and a carrier
//! that moves bytes between both in pieces of any size. Refuses to lose or reorder bytes.

#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part, and these are tests

use leadline_http::tls::{
    made_certificate, ClientTls, MadeCertificate, ServerOptions, ServerTls, TlsClient, TlsFailure, TlsOptions,
    TlsServer, TlsVersion,
};

pub const NO_STRINGS: &[String] = &[];

pub fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

pub fn certificate() -> MadeCertificate {
    made_certificate(&strings(&["example.test"])).unwrap()
}

/// A server with everything.
pub fn server_options(certificate: &MadeCertificate) -> ServerOptions<'_> {
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

/// A client that trusts `ca_pem` and wants `example.test`.
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

/// Both ends of a connection and what has come out of them.
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

    /// Carries bytes until none are under way, in pieces whose sizes come from `sizes` in turn.
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
                // Each way of receiving in its turn, which shows that they can be mixed.
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

    /// Carries all at once.
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
