//! A client and a server in one process without a network, to measure the cost of a handshake. Owns the certificates
//! and settings of both, and carries their packets between them; no packet is lost and no time passes.

use std::sync::Arc;

use leadline_tls::TemporaryAuthority;

use super::client::{Client, Event, Output, Received};
use super::config::{ClientConfig, Identity};
use super::data::{DataCipher, Framing};
use super::message::peer_info::Protocols;
use super::profile;
use super::random;
use super::role::Role;
use super::server::{Peer, PeerEvent, PeerOutput, ServerConfig};
use super::tls::{self, Trust};
use super::wrap::{StaticKey, WrapKeys};

/// Description of the handshakes: the strongest default settings of 2.6.
pub const DESCRIPTION: &str = "TLS 1.3, ECDSA P-256 certificates both ways, tls-crypt, AES-256-GCM";

/// Maximum number of packets of a handshake; about ten are usual.
const MAX_PACKETS: usize = 200;

/// Settings of both ends, created once.
pub struct HandshakeBench {
    client: Arc<ClientConfig>,
    identity: Identity,
    server: Arc<ServerConfig>,
}

/// Both ends of a running tunnel.
pub struct Connected {
    /// The client.
    pub client: Client,
    /// The server.
    pub server: Peer,
}

impl HandshakeBench {
    /// Creates certificates and keys.
    ///
    /// # Errors
    /// One line on what could not be created.
    pub fn new() -> Result<Self, String> {
        let refused = |error| format!("making certificates: {error}");
        let authority = TemporaryAuthority::new().map_err(refused)?;
        let (client_pem, client_key_pem) = authority.issue_client().map_err(refused)?;
        let (server_pem, server_key_pem) = authority.issue_server().map_err(refused)?;
        let key: [u8; StaticKey::LEN] = random::bytes();
        let profile =
            profile::parse(&profile_text(&authority.certificate_pem, &key)).map_err(|error| error.to_string())?;
        let client = ClientConfig::new(&profile, 0)?;
        let identity = client.identity(Some((&client_pem, &client_key_pem)), None)?;
        let server = ServerConfig {
            tls: Arc::new(tls::server_config(&Trust::of(&profile), (&server_pem, &server_key_pem), true)?),
            wrap: WrapKeys::crypt(&StaticKey::from_bytes(key), Role::Server),
            ciphers: vec![DataCipher::Aes256Gcm],
            digest: profile.auth,
            framing: Framing::None,
            push: vec!["topology subnet".to_owned(), "route-gateway 10.8.0.1".to_owned()],
            protocols: Protocols::ALL.without(Protocols::DATA_EPOCH),
            users: Vec::new(),
            unix_base_s: 0,
        };
        Ok(Self { client: Arc::new(client), identity, server: Arc::new(server) })
    }

    /// Performs one handshake, from the first reset until both ends can send data. Calls `on_handover` with the end
    /// that has just finished its turn, so that the caller can measure the time of each.
    ///
    /// # Errors
    /// The name of the failure.
    pub fn connect(&self, on_handover: &mut dyn FnMut(Role)) -> Result<Connected, String> {
        const NOW_NS: u64 = 0;
        let (mut up, mut down): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
        let mut out = Vec::new();
        let mut client = Client::new(&self.client, &self.identity, NOW_NS);
        let mut server: Option<Peer> = None;
        let (mut client_is_up, mut server_is_up) = (false, false);
        let mut carried = 0;
        loop {
            for mut packet in down.drain(..) {
                let _: Received<'_> = client.handle(NOW_NS, &mut packet);
            }
            while let output @ (Output::Send | Output::Event(_)) = client.poll(NOW_NS, &mut out) {
                match output {
                    Output::Send => up.push(out.clone()),
                    Output::Event(Event::Up) => client_is_up = true,
                    Output::Event(Event::Failed(failure)) => return Err(failure.name.to_owned()),
                    _ => {}
                }
            }
            on_handover(Role::Client);
            carried += up.len();
            if up.is_empty() || carried > MAX_PACKETS {
                break;
            }
            for mut packet in up.drain(..) {
                match &mut server {
                    Some(server) => drop(server.handle(NOW_NS, &mut packet)),
                    None => {
                        let options = vec!["ifconfig 10.8.0.2 255.255.255.0".to_owned()];
                        server = Peer::accept(&self.server, options, 0, NOW_NS, &mut packet);
                    }
                }
            }
            let Some(server) = &mut server else { break };
            while let output @ (PeerOutput::Send | PeerOutput::Event(_)) = server.poll(NOW_NS, &mut out) {
                match output {
                    PeerOutput::Send => down.push(out.clone()),
                    PeerOutput::Event(PeerEvent::Up) => server_is_up = true,
                    PeerOutput::Event(PeerEvent::Failed(name)) => return Err(name.to_owned()),
                    _ => {}
                }
            }
            on_handover(Role::Server);
        }
        match server {
            Some(server) if client_is_up && server_is_up => Ok(Connected { client, server }),
            _ => Err("the handshake makes no progress".to_owned()),
        }
    }
}

/// The profile of a client of the benchmark. No packet is sent to its remote.
fn profile_text(authority: &str, key: &[u8; StaticKey::LEN]) -> String {
    let lines: Vec<String> =
        key.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>()).collect();
    format!(
        "client\ndev tun\nremote 192.0.2.1 1194 udp\nremote-cert-tls server\ntls-version-min 1.3\n\
         data-ciphers AES-256-GCM\nauth SHA256\n<ca>\n{authority}</ca>\n<tls-crypt>\n\
         -----BEGIN OpenVPN Static key V1-----\n{}\n-----END OpenVPN Static key V1-----\n</tls-crypt>\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmark_handshake_yields_a_tunnel_with_data_both_ways() {
        let bench = HandshakeBench::new().expect("settings");
        for _ in 0..3 {
            let mut handovers = Vec::new();
            let mut connected = bench.connect(&mut |role| handovers.push(role)).expect("a tunnel");
            assert!(handovers.len() > 4 && handovers.windows(2).all(|pair| pair[0] != pair[1]), "{handovers:?}");
            let mut packet = Vec::new();
            connected.client.send(0, b"to the server", &mut packet).expect("the tunnel is up");
            assert_eq!(connected.server.handle(0, &mut packet), Received::Payload(&mut b"to the server".to_owned()));
            packet.clear();
            connected.server.send(b"to the client", &mut packet).expect("the tunnel is up");
            assert_eq!(connected.client.handle(0, &mut packet), Received::Payload(&mut b"to the client".to_owned()));
        }
    }
}
