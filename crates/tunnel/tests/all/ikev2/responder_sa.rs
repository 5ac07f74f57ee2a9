//! An IKE SA of the tests' gateway: its keys, its window, and what its requests are for.

use leadline_tunnel::esp::cipher::PacketCipher;
use leadline_tunnel::ikev2::dh::{Group, KeyPair};
use leadline_tunnel::ikev2::fragments::Reassembly;
use leadline_tunnel::ikev2::keys::IkeKeys;
use leadline_tunnel::ikev2::message::{
    find_payload, payload, push_key_exchange, read_key_exchange, Header, Payload, PayloadWriter, FLAG_INITIATOR,
};
use leadline_tunnel::ikev2::proposal::{write_proposals, IkeSuite, Proposal};
use leadline_tunnel::ikev2::protected;
use leadline_tunnel::ikev2::secret_bytes::SecretBytes;

pub struct Sa {
    pub spis: (u64, u64),
    pub is_initiator: bool,
    pub suite: IkeSuite,
    pub sk_d: SecretBytes,
    pub seal: PacketCipher,
    pub open: PacketCipher,
    pub next_id: u32,
    pub peer_next_id: u32,
    pub answered: Vec<Vec<u8>>,
    pub outstanding: Option<(Vec<Vec<u8>>, u64, Purpose)>,
    pub tasks: Vec<Task>,
    pub reassembly: Reassembly,
    /// When it is forgotten, ns: it lost a collision, and the client may never have heard of it.
    pub end_ns: Option<u64>,
}

pub enum Purpose {
    DeleteIke,
    DeleteChild(u32),
    RekeyChild {
        replaces: u32,
        spi: u32,
        nonce: [u8; 32],
        key_pair: Option<KeyPair>,
        collision: Option<(u32, Vec<u8>)>,
    },
    RekeyIke {
        spi: u64,
        nonce: [u8; 32],
        key_pair: KeyPair,
        collision: Option<(Box<Sa>, Vec<u8>)>,
    },
    Probe,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Task {
    DeleteIke,
    DeleteChild(u32),
    RekeyChild,
    RekeyIke,
    Probe,
}

impl Sa {
    pub fn new(suite: IkeSuite, keys: IkeKeys, spis: (u64, u64), is_initiator: bool) -> Self {
        let (seal, open) = keys.ciphers(&suite, is_initiator).unwrap();
        Self {
            spis,
            is_initiator,
            suite,
            sk_d: keys.sk_d,
            seal,
            open,
            next_id: 0,
            peer_next_id: 0,
            answered: Vec::new(),
            outstanding: None,
            tasks: Vec::new(),
            reassembly: Reassembly::default(),
            end_ns: None,
        }
    }

    pub fn sealed(
        &mut self,
        exchange: u8,
        message_id: u32,
        response: u8,
        chain: &PayloadWriter,
        limit: Option<usize>,
    ) -> Vec<Vec<u8>> {
        let flags = response | if self.is_initiator { FLAG_INITIATOR } else { 0 };
        let (spi_i, spi_r) = self.spis;
        let header = Header { spi_i, spi_r, next: 0, exchange, flags, message_id };
        protected::seal(&mut self.seal, header, chain.first(), chain.bytes(), limit).unwrap()
    }
}

pub fn agree(payloads: &[Payload<'_>]) -> (KeyPair, SecretBytes) {
    let (group, public) = find_payload(payloads, payload::KE).and_then(read_key_exchange).unwrap();
    let key_pair = KeyPair::generate(Group::from_number(group).unwrap()).unwrap();
    let shared = key_pair.agree(public).unwrap();
    (key_pair, shared)
}

pub fn write_answer(chosen: &Proposal, nonce: &[u8], key_pair: Option<&KeyPair>, chain: &mut PayloadWriter) {
    chain.push_with(payload::SA, |out| write_proposals(std::slice::from_ref(chosen), out));
    chain.push(payload::NONCE, nonce);
    if let Some(key_pair) = key_pair {
        push_key_exchange(chain, key_pair.group().number(), key_pair.public());
    }
}
