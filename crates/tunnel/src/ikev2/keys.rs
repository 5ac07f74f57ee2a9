//! Keys of an IKE SA and of its child SAs (RFC 7296, sections 2.14, 2.17, 2.18).

use super::prf::Prf;
use super::proposal::{EspSuite, IkeSuite};
use super::secret_bytes::SecretBytes;
use crate::esp::cipher::{BadKey, Direction, PacketCipher};

/// SKEYSEED of a first key exchange: prf(Ni | Nr, g^ir).
#[must_use]
pub fn derive_first_seed(prf: Prf, nonce_i: &[u8], nonce_r: &[u8], shared: &SecretBytes) -> SecretBytes {
    prf.compute(&[nonce_i, nonce_r].concat(), &[shared.expose()])
}

/// SKEYSEED of a rekeyed IKE SA: prf(SK_d (old), g^ir (new) | Ni | Nr), by the old SA's function.
#[must_use]
pub fn derive_rekey_seed(
    prf: Prf,
    old_sk_d: &SecretBytes,
    shared: &SecretBytes,
    nonce_i: &[u8],
    nonce_r: &[u8],
) -> SecretBytes {
    prf.compute(old_sk_d.expose(), &[shared.expose(), nonce_i, nonce_r])
}

/// The keys of an IKE SA, each cut from prf+(SKEYSEED, Ni | Nr | SPIi | SPIr).
#[derive(Debug)]
pub struct IkeKeys {
    /// For the keys of children and of the next IKE SA.
    pub sk_d: SecretBytes,
    /// Integrity and encryption of the initiator's messages, in a cipher's order: encryption first.
    pub from_initiator: SecretBytes,
    /// The same of the responder's messages.
    pub from_responder: SecretBytes,
    /// For the initiator's AUTH.
    pub sk_pi: SecretBytes,
    /// For the responder's AUTH.
    pub sk_pr: SecretBytes,
}

impl IkeKeys {
    /// Derives the keys.
    #[must_use]
    pub fn derive(suite: &IkeSuite, seed: &SecretBytes, nonces: (&[u8], &[u8]), spis: (u64, u64)) -> Self {
        let prf_bytes = suite.prf.output_bytes();
        let integrity = suite.cipher.integrity.map_or(0, |integrity| integrity.key_bytes());
        let encryption = suite.cipher.encryption.key_bytes();
        let length = 3 * prf_bytes + 2 * integrity + 2 * encryption;
        let (spi_i, spi_r) = (spis.0.to_be_bytes(), spis.1.to_be_bytes());
        let material = suite.prf.expand(seed.expose(), &[nonces.0, nonces.1, &spi_i, &spi_r], length);
        let mut rest = material.expose();
        let mut cut = |length: usize| {
            let (key, after) = rest.split_at(length);
            rest = after;
            key
        };
        let sk_d = cut(prf_bytes);
        let (sk_ai, sk_ar) = (cut(integrity), cut(integrity));
        let (sk_ei, sk_er) = (cut(encryption), cut(encryption));
        let (sk_pi, sk_pr) = (cut(prf_bytes), cut(prf_bytes));
        Self {
            sk_d: sk_d.into(),
            from_initiator: SecretBytes::new([sk_ei, sk_ai].concat()),
            from_responder: SecretBytes::new([sk_er, sk_ar].concat()),
            sk_pi: sk_pi.into(),
            sk_pr: sk_pr.into(),
        }
    }

    /// The ciphers of one end: sealing, opening.
    ///
    /// # Errors
    /// The suite is not valid.
    pub fn ciphers(&self, suite: &IkeSuite, is_initiator: bool) -> Result<(PacketCipher, PacketCipher), BadKey> {
        let (own, peers) = match is_initiator {
            true => (&self.from_initiator, &self.from_responder),
            false => (&self.from_responder, &self.from_initiator),
        };
        Ok((
            PacketCipher::new(suite.cipher, Direction::Seal, own.expose())?,
            PacketCipher::new(suite.cipher, Direction::Open, peers.expose())?,
        ))
    }
}

/// The keys of a child SA: prf+(SK_d, [g^ir |] Ni | Nr), those of the exchange's initiator first.
#[derive(Debug)]
pub struct ChildKeys {
    /// Of the packets that the exchange's initiator sends.
    pub from_initiator: SecretBytes,
    /// Of the packets that the exchange's responder sends.
    pub from_responder: SecretBytes,
}

impl ChildKeys {
    /// Derives the keys; `shared` is the secret of the exchange's own key exchange, if it has one.
    #[must_use]
    pub fn derive(
        prf: Prf,
        sk_d: &SecretBytes,
        suite: &EspSuite,
        shared: Option<&SecretBytes>,
        nonces: (&[u8], &[u8]),
    ) -> Self {
        let length = suite.cipher.key_bytes();
        let shared = shared.map_or(&[][..], SecretBytes::expose);
        let material = prf.expand(sk_d.expose(), &[shared, nonces.0, nonces.1], 2 * length);
        let (from_initiator, from_responder) = material.expose().split_at(length);
        Self { from_initiator: from_initiator.into(), from_responder: from_responder.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::auth::{build_signed_octets, compute_shared_key_proof};
    use super::super::proposal::Offer;
    use super::*;

    fn starts(key: &[u8], digits: &str) {
        let start: String = key[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(start, digits);
    }

    /// The numbers come from the formulas of RFC 7296, sections 2.14, 2.15, 2.17 and 2.18, in another language.
    #[test]
    fn keys_are_cut_in_the_order_of_rfc_7296() {
        let suite = Offer::parse_ike("aes128-sha256-x25519").expect("an offer").ike_proposal(1, &[]).ike_suite();
        let (suite, nonces) = (suite.expect("a suite"), (&[0x11; 32][..], &[0x22; 16][..]));
        let shared = SecretBytes::new((0..32).collect());
        let seed = derive_first_seed(suite.prf, nonces.0, nonces.1, &shared);
        let keys = IkeKeys::derive(&suite, &seed, nonces, (1, 2));
        starts(keys.sk_d.expose(), "6182d936736359d4");
        starts(keys.from_initiator.expose(), "1205919eb78bb346");
        starts(&keys.from_initiator.expose()[16..], "983a850bf0f6b2ae");
        starts(keys.from_responder.expose(), "04beefb7b6518d1b");
        starts(&keys.from_responder.expose()[16..], "224de79e5b684403");
        starts(keys.sk_pi.expose(), "388a7e4e9946cc6f");
        starts(keys.sk_pr.expose(), "c5f6743ed94c3fa3");
        let esp = Offer::parse_esp("aes128-sha256").expect("an offer").esp_proposal(1, 256, false).esp_suite();
        let child = ChildKeys::derive(suite.prf, &keys.sk_d, &esp.expect("a suite"), Some(&shared), nonces);
        starts(child.from_initiator.expose(), "059227da36174de1");
        starts(&child.from_initiator.expose()[16..], "f02412f91853f1f5");
        starts(child.from_responder.expose(), "cefee198ef429c8a");
        starts(derive_rekey_seed(suite.prf, &keys.sk_d, &shared, nonces.0, nonces.1).expose(), "6ec48e2f3f538f6c");
        let octets = build_signed_octets(suite.prf, b"message", nonces.1, &keys.sk_pi, b"\x02\0\0\0id");
        starts(compute_shared_key_proof(suite.prf, b"secret", &octets).expose(), "6a4ce2428de98e11");
    }
}
