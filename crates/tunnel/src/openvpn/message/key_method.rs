//! Key method 2: the first message of each end inside TLS. Owns its layout; the caller provides the random values,
//! and `keys` uses them. OpenVPN 2.5 removed key method 1.

use std::fmt;

use zeroize::Zeroize;

use super::MessageError;
use crate::openvpn::role::Role;
use crate::secret::Secret;

/// Maximum length of the options string with its NUL: OpenVPN's own limit.
const LONGEST_OPTIONS: usize = 512;
/// Maximum length of user and password with their NULs: the larger one of OpenVPN's two limits.
const LONGEST_CREDENTIAL: usize = 4096;
/// Maximum length of the peer info with its NUL: twice OpenVPN's buffer.
const LONGEST_PEER_INFO: usize = 4096;

/// One end's half of the key exchange.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct KeyMethod {
    /// The client's secret; absent in the server's half.
    pub pre_master: Option<[u8; 48]>,
    /// Random value for the master secret.
    pub random1: [u8; 32],
    /// Random value for the keys.
    pub random2: [u8; 32],
    /// The options string, see `occ`.
    pub options: String,
    /// The user name.
    pub user: Option<String>,
    /// The password; wiped when dropped.
    pub password: Option<Secret>,
    /// See `peer_info`.
    pub peer_info: Option<String>,
}

impl Drop for KeyMethod {
    fn drop(&mut self) {
        self.pre_master.zeroize();
        self.random1.zeroize();
        self.random2.zeroize();
    }
}

impl fmt::Debug for KeyMethod {
    /// Does not print secrets and random values.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KeyMethod")
            .field("options", &self.options)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("peer_info", &self.peer_info)
            .finish_non_exhaustive()
    }
}

impl KeyMethod {
    /// Appends the message as it is sent.
    ///
    /// # Errors
    /// A text is longer than the other end accepts.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), MessageError> {
        out.extend_from_slice(&[0, 0, 0, 0, 2]);
        out.extend_from_slice(self.pre_master.as_ref().map_or(&[][..], |secret| secret));
        out.extend_from_slice(&self.random1);
        out.extend_from_slice(&self.random2);
        write_text(out, Some(&self.options), "options string", LONGEST_OPTIONS)?;
        write_text(out, self.user.as_deref(), "user", LONGEST_CREDENTIAL)?;
        write_text(out, self.password.as_ref().map(Secret::expose), "password", LONGEST_CREDENTIAL)?;
        write_text(out, self.peer_info.as_deref(), "peer info", LONGEST_PEER_INFO)
    }

    /// Parses the message of `from`; returns it with its length, or `None` if it is incomplete.
    ///
    /// OpenVPN treats one read from TLS as the whole message. A server may end it after the options string, as very
    /// old servers do. Bytes that end exactly there, or after a later text of a server, are therefore complete.
    ///
    /// # Errors
    /// Another key method, or a text that is too long or invalid.
    pub fn parse(bytes: &[u8], from: Role) -> Result<Option<(Self, usize)>, MessageError> {
        let mut rest = bytes;
        // The first four bytes have no meaning, and OpenVPN ignores their value.
        let Some([_, _, _, _, method]) = take_array(&mut rest) else { return Ok(None) };
        // The upper half of the byte has flags that no implementation sets.
        if method & 0x0f != 2 {
            return Err(MessageError::KeyMethod(method));
        }
        let mut parsed = Self::default();
        if from == Role::Client {
            parsed.pre_master = take_array(&mut rest);
            if parsed.pre_master.is_none() {
                return Ok(None);
            }
        }
        let (Some(random1), Some(random2)) = (take_array(&mut rest), take_array(&mut rest)) else { return Ok(None) };
        (parsed.random1, parsed.random2) = (random1, random2);
        match take_text(&mut rest, "options string", LONGEST_OPTIONS)? {
            Taken::Text(options) => parsed.options = options.unwrap_or_default(),
            Taken::More => return Ok(None),
        }
        let may_end = from == Role::Server;
        for part in 0..3 {
            if may_end && rest.is_empty() {
                break;
            }
            let (what, most) =
                [("user", LONGEST_CREDENTIAL), ("password", LONGEST_CREDENTIAL), ("peer info", LONGEST_PEER_INFO)]
                    [part];
            match (take_text(&mut rest, what, most)?, part) {
                (Taken::More, _) => return Ok(None),
                (Taken::Text(text), 0) => parsed.user = text,
                (Taken::Text(text), 1) => parsed.password = text.map(Secret::new),
                (Taken::Text(text), _) => parsed.peer_info = text,
            }
        }
        Ok(Some((parsed, bytes.len() - rest.len())))
    }
}

/// Appends a text with its NUL after a length of two bytes; an absent text has length 0.
fn write_text(out: &mut Vec<u8>, text: Option<&str>, what: &'static str, most: usize) -> Result<(), MessageError> {
    let Some(text) = text else {
        out.extend_from_slice(&[0, 0]);
        return Ok(());
    };
    let bytes = text.len() + 1;
    match u16::try_from(bytes) {
        Ok(length) if bytes <= most => out.extend_from_slice(&length.to_be_bytes()),
        _ => return Err(MessageError::TooLong { what, bytes, most }),
    }
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

enum Taken {
    Text(Option<String>),
    More,
}

fn take_text(rest: &mut &[u8], what: &'static str, most: usize) -> Result<Taken, MessageError> {
    let Some((length, behind)) = rest.split_first_chunk::<2>() else { return Ok(Taken::More) };
    let bytes = usize::from(u16::from_be_bytes(*length));
    if bytes > most {
        return Err(MessageError::TooLong { what, bytes, most });
    }
    let Some((text, behind)) = behind.split_at_checked(bytes) else { return Ok(Taken::More) };
    *rest = behind;
    let Some((_, text)) = text.split_last() else { return Ok(Taken::Text(None)) };
    // The last byte counts as the NUL whatever its value; an earlier NUL ends the text.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| MessageError::NotText(what))?;
    Ok(Taken::Text(Some(text.to_owned())))
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*array)
}
