//! WireGuard as a protocol of a fleet: its clients' files begin sessions. Owns which files make one fleet: their gateway
//! is one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::client::Client;
use super::file::{ClientFile, GatewayEntry};
pub use super::identity::CIPHER;
use super::identity::{ClientKeys, GatewayKeys};
use crate::protocol::{Protocol, Session, Step, Token};

/// WireGuard's settings of a fleet.
pub struct WireGuard {
    gateway: Arc<GatewayKeys>,
    clients: Vec<Arc<ClientKeys>>,
}

/// Why files do not make one fleet: the number of the file, from 0, and the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The number of the file.
    pub file: usize,
    /// The fault, in one line.
    pub what: String,
}

impl WireGuard {
    /// Creates the settings of one client for each file.
    ///
    /// # Errors
    /// A file with another gateway than the first, or with the key of another one.
    pub fn new(files: &[ClientFile]) -> Result<Self, Unfit> {
        let Some(first) = files.first() else { return Err(Unfit { file: 0, what: "there is no file".to_owned() }) };
        let mut known = HashMap::new();
        for (number, file) in files.iter().enumerate() {
            let unfit = |what: String| Unfit { file: number, what };
            if file.gateway != first.gateway {
                let what = differing(&file.gateway, &first.gateway);
                return Err(unfit(format!("its {what} is not that of the first file: a fleet has one gateway")));
            }
            if let Some(other) = known.insert(file.private_key.public(), number) {
                return Err(unfit(format!(
                    "its PrivateKey is that of file {} too: a gateway knows a client by its key",
                    other + 1
                )));
            }
        }
        Ok(Self {
            gateway: Arc::new(GatewayKeys::new(first)),
            clients: files.iter().map(|file| Arc::new(ClientKeys::new(file))).collect(),
        })
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Whether the address of the first client's verification is known, or its gateway's address from its file.
    pub fn has_echo_target(&self, expected: Option<IpAddr>) -> bool {
        self.clients[0].has_echo_target(expected)
    }

    /// Whether packets to this address enter the tunnel.
    pub fn routes(&self, address: IpAddr) -> bool {
        self.gateway.allows(address)
    }
}

impl Protocol for WireGuard {
    fn begin(&self, client: u32, _token: Option<Token>, now_ns: u64) -> Box<dyn Session> {
        let own = &self.clients[client as usize % self.clients.len()];
        Box::new(Client::new(client, own, &self.gateway, now_ns))
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Answered, Step::ChildUp]
    }
}

/// The key of `[Peer]` in which two gateways differ.
fn differing(one: &GatewayEntry, other: &GatewayEntry) -> &'static str {
    if (&one.host, one.port) != (&other.host, other.port) {
        "Endpoint"
    } else if one.public_key != other.public_key {
        "PublicKey"
    } else if one.allowed != other.allowed {
        "AllowedIPs"
    } else {
        "PersistentKeepalive"
    }
}
