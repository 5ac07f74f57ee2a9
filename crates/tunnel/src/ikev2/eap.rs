//! EAP inside IKE_AUTH (RFC 7296, section 2.16) as the authenticating end: identity, and the method MSCHAPv2
//! (draft-kamath-pppext-eap-mschapv2). Other methods are declined.

use super::mschap::{Challenge, PasswordHash, Response};
use super::secret_bytes::SecretBytes;
use crate::secret::Secret;

const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const SUCCESS: u8 = 3;
const TYPE_IDENTITY: u8 = 1;
const TYPE_NOTIFICATION: u8 = 2;
const TYPE_NAK: u8 = 3;
const TYPE_MSCHAPV2: u8 = 26;
const OP_CHALLENGE: u8 = 1;
const OP_RESPONSE: u8 = 2;
const OP_SUCCESS: u8 = 3;
const OP_FAILURE: u8 = 4;

/// The state of one authentication.
pub struct Eap {
    user: String,
    hash: PasswordHash,
    /// Our challenge and response, and what the gateway has to prove, once it has sent its challenge.
    answer: Option<(Response, String)>,
    is_peer_proven: bool,
    is_succeeded: bool,
}

/// What follows from a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this packet.
    Respond(Vec<u8>),
    /// Both ends have succeeded; the key is known.
    Succeeded(SecretBytes),
}

/// The user is refused, the gateway does not know the password, or its packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("EAP has failed")]
pub struct EapFailed;

impl Eap {
    /// Begins an authentication.
    #[must_use]
    pub fn new(user: &str, password: &Secret) -> Self {
        let hash = PasswordHash::new(password.expose());
        Self { user: user.to_owned(), hash, answer: None, is_peer_proven: false, is_succeeded: false }
    }

    /// Handles a packet of the gateway; `challenge` is unpredictable.
    ///
    /// # Errors
    /// The authentication is over.
    pub fn handle(&mut self, packet: &[u8], challenge: Challenge) -> Result<Step, EapFailed> {
        let (&[code, identifier, high, low], rest) = packet.split_first_chunk::<4>().ok_or(EapFailed)?;
        if usize::from(u16::from_be_bytes([high, low])) != packet.len() {
            return Err(EapFailed);
        }
        if code == SUCCESS {
            let (response, _) = self.answer.as_ref().filter(|_| self.is_peer_proven).ok_or(EapFailed)?;
            self.is_succeeded = true;
            return Ok(Step::Succeeded(self.hash.derive_session_key(response)));
        }
        let (&kind, data) = rest.split_first().filter(|_| code == REQUEST).ok_or(EapFailed)?;
        let body = match kind {
            TYPE_IDENTITY => [&[TYPE_IDENTITY], self.user.as_bytes()].concat(),
            TYPE_NOTIFICATION => vec![TYPE_NOTIFICATION],
            TYPE_MSCHAPV2 => self.handle_mschap(data, challenge)?,
            _ => vec![TYPE_NAK, TYPE_MSCHAPV2],
        };
        let length = 4 + body.len() as u16;
        let header = [&[RESPONSE, identifier][..], &length.to_be_bytes()].concat();
        Ok(Step::Respond([header, body].concat()))
    }

    fn handle_mschap(&mut self, data: &[u8], challenge: Challenge) -> Result<Vec<u8>, EapFailed> {
        let (&[operation, identifier, _, _], value) = data.split_first_chunk::<4>().ok_or(EapFailed)?;
        match operation {
            OP_CHALLENGE => {
                let (&size, value) = value.split_first().ok_or(EapFailed)?;
                let authenticator = value.first_chunk::<16>().filter(|_| size == 16).ok_or(EapFailed)?;
                let response = self.hash.respond(authenticator, &challenge, &self.user);
                let proof = self.hash.compute_authenticator_response(authenticator, &challenge, &self.user, &response);
                self.answer = Some((response, proof));
                let length = (4 + 1 + 49 + self.user.len()) as u16;
                let mut body = vec![TYPE_MSCHAPV2, OP_RESPONSE, identifier];
                body.extend_from_slice(&length.to_be_bytes());
                body.push(49);
                body.extend_from_slice(&challenge);
                body.extend_from_slice(&[0; 8]);
                body.extend_from_slice(&response);
                body.push(0);
                body.extend_from_slice(self.user.as_bytes());
                Ok(body)
            }
            OP_SUCCESS => {
                let (_, proof) = self.answer.as_ref().ok_or(EapFailed)?;
                // The gateway proves that it knows the password, too: it would otherwise be anybody.
                let shown = value.get(..proof.len()).ok_or(EapFailed)?;
                if !shown.eq_ignore_ascii_case(proof.as_bytes()) {
                    return Err(EapFailed);
                }
                self.is_peer_proven = true;
                Ok(vec![TYPE_MSCHAPV2, OP_SUCCESS])
            }
            OP_FAILURE => Err(EapFailed),
            _ => Err(EapFailed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u8, body: &[u8]) -> Vec<u8> {
        let length = (4 + body.len()) as u16;
        [&[code, 7][..], &length.to_be_bytes(), body].concat()
    }

    fn challenge() -> Vec<u8> {
        let value = [&[16][..], &[9; 16], b"gw"].concat();
        let length = (4 + value.len()) as u16;
        packet(REQUEST, &[&[TYPE_MSCHAPV2, OP_CHALLENGE, 1][..], &length.to_be_bytes(), &value].concat())
    }

    #[test]
    fn user_and_gateway_prove_the_password_before_success() {
        let mut eap = Eap::new("user", &Secret::from("password"));
        let identity = eap.handle(&packet(REQUEST, &[TYPE_IDENTITY]), [1; 16]);
        assert_eq!(identity, Ok(Step::Respond(packet(RESPONSE, b"\x01user"))));
        assert_eq!(eap.handle(&packet(REQUEST, &[13, 0]), [1; 16]), Ok(Step::Respond(packet(RESPONSE, &[3, 26]))));
        assert_eq!(eap.handle(&packet(SUCCESS, &[]), [1; 16]), Err(EapFailed), "nothing is proven yet");
        let Ok(Step::Respond(response)) = eap.handle(&challenge(), [1; 16]) else { panic!("a response") };
        assert_eq!(response.len(), 4 + 1 + 4 + 1 + 49 + 4);
        let success = |proof: &str| {
            let length = (4 + proof.len()) as u16;
            let body = [&[TYPE_MSCHAPV2, OP_SUCCESS, 1][..], &length.to_be_bytes(), proof.as_bytes()].concat();
            packet(REQUEST, &body)
        };
        assert_eq!(eap.handle(&success("S=0000000000000000000000000000000000000000 M=ok"), [1; 16]), Err(EapFailed));
        let hash = PasswordHash::new("password");
        let nt_response = hash.respond(&[9; 16], &[1; 16], "user");
        let proof = hash.compute_authenticator_response(&[9; 16], &[1; 16], "user", &nt_response);
        let confirmed = eap.handle(&success(&format!("{proof} M=ok")), [1; 16]);
        assert_eq!(confirmed, Ok(Step::Respond(packet(RESPONSE, &[TYPE_MSCHAPV2, OP_SUCCESS]))));
        assert_eq!(
            eap.handle(&packet(SUCCESS, &[]), [1; 16]),
            Ok(Step::Succeeded(hash.derive_session_key(&nt_response)))
        );
    }

    #[test]
    fn short_and_lying_packets_end_it() {
        let whole = challenge();
        for len in 0..whole.len() {
            assert_eq!(Eap::new("user", &Secret::from("p")).handle(&whole[..len], [1; 16]), Err(EapFailed));
        }
    }
}
