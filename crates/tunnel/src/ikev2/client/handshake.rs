//! What a client remembers until both ends have proven their identities; freed when the IKE SA is up.

use super::ike_sa::NONCE_BYTES;
use super::output::Cause;
use crate::ikev2::dh::KeyPair;
use crate::ikev2::eap::Eap;
use crate::ikev2::secret_bytes::SecretBytes;

/// How long a right answer may still arrive after an error that anybody could have sent, ns.
const GRACE_NS: u64 = 1_000_000_000;

/// The state of the first exchange.
pub(super) struct SaInit {
    pub spi: u64,
    pub nonce: [u8; NONCE_BYTES],
    pub key_pair: KeyPair,
    pub cookie: Vec<u8>,
    pub nat_source: [u8; 20],
    /// The last request, byte for byte: AUTH signs it.
    pub request: Vec<u8>,
    pub repeats: u32,
    pub due_ns: u64,
    pub restarts: u32,
    /// The last error, and when it ends the attempt.
    pub suspect: Option<(Cause, u64)>,
}

impl SaInit {
    pub fn deadline_ns(&self) -> u64 {
        self.suspect.map_or(self.due_ns, |(_, end_ns)| end_ns.min(self.due_ns))
    }

    /// Remembers an error; it ends the attempt unless a right answer follows soon.
    pub fn suspect(&mut self, now_ns: u64, cause: Cause) {
        let end_ns = self.suspect.map_or(now_ns.saturating_add(GRACE_NS), |(_, end_ns)| end_ns);
        self.suspect = Some((cause, end_ns));
    }
}

/// What is needed until both ends have proven their identities.
pub(super) struct Authentication {
    /// The last SA_INIT request, which the client's proof covers.
    pub request: Vec<u8>,
    /// The SA_INIT response, which the gateway's proof covers.
    pub response: Vec<u8>,
    pub nonce_i: [u8; NONCE_BYTES],
    pub nonce_r: Vec<u8>,
    pub sk_pi: SecretBytes,
    pub sk_pr: SecretBytes,
    /// The hashes that the gateway supports in signatures; empty if it has not said.
    pub hashes: Vec<u8>,
    /// The SPI that the first child SA receives by.
    pub child_spi: u32,
    pub eap: Option<Box<EapRounds>>,
    pub rounds: u32,
}

/// The state of EAP after the first round.
pub(super) struct EapRounds {
    pub eap: Eap,
    /// The body of the gateway's identity, which its last proof covers again.
    pub peer_id: Vec<u8>,
    pub key: Option<SecretBytes>,
}
