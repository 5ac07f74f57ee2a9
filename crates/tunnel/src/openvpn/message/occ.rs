//! The options string of the key exchange: what each end believes of its own settings, for the other to compare. The server only
//! warns where it differs, and takes the name of a fallback cipher from it; what 2.6 writes is written.

use std::fmt::Write;

use super::compression::Compression;
use crate::openvpn::digest::Digest;
use crate::openvpn::role::Role;

/// What the string tells.
#[derive(Clone, Debug)]
pub struct OptionsString<'a> {
    /// Whose it is.
    pub role: Role,
    /// Over TCP.
    pub tcp: bool,
    /// The tunnel's MTU, bytes.
    pub tun_mtu: u16,
    /// The option `cipher`; OpenVPN thinks of BF-CBC where it is absent.
    pub cipher: Option<&'a str>,
    /// Whether that cipher is among `data-ciphers`: only then it is named.
    pub cipher_is_offered: bool,
    /// The option `auth`.
    pub auth: Option<Digest>,
    /// Framing for compression.
    pub compression: Option<Compression>,
    /// Under `tls-auth`.
    pub tls_auth: bool,
    /// `key-direction`, 0 or 1, of `tls-auth`.
    pub key_direction: Option<u8>,
}

impl OptionsString<'_> {
    /// The string.
    #[must_use]
    pub fn text(&self) -> String {
        let cipher = CipherSizes::of(self.cipher);
        let proto = match (self.tcp, self.role) {
            (false, _) => "UDPv4",
            (true, Role::Client) => "TCPv4_CLIENT",
            (true, Role::Server) => "TCPv4_SERVER",
        };
        let mut text =
            format!("V4,dev-type tun,link-mtu {},tun-mtu {},proto {proto}", self.link_mtu(&cipher), self.tun_mtu);
        if self.compression.is_some() {
            // "comp-lzo" stands for any framing, whatever its name.
            text.push_str(",comp-lzo");
        }
        // Writing to a String cannot fail.
        if let Some(direction) = self.key_direction {
            let _ = write!(text, ",keydir {direction}");
        }
        if let Some(name) = self.cipher.filter(|_| self.cipher_is_offered) {
            let _ = write!(text, ",cipher {}", name.to_ascii_uppercase());
        }
        let auth = self.auth.filter(|_| !cipher.aead).map_or("[null-digest]", Digest::name);
        let _ = write!(text, ",auth {auth},keysize {}", cipher.key_bits);
        if self.tls_auth {
            text.push_str(",tls-auth");
        }
        text.push_str(match self.role {
            Role::Client => ",key-method 2,tls-client",
            Role::Server => ",key-method 2,tls-server",
        });
        text
    }

    /// The MTU of the link as OpenVPN 2.4 reckoned it; later ones keep the figure for this string alone.
    fn link_mtu(&self, cipher: &CipherSizes) -> usize {
        let framing = usize::from(self.compression.is_some_and(Compression::always_has_a_byte));
        let digest = self.auth.filter(|_| !cipher.aead).map_or(0, Digest::len);
        let stream = if self.tcp { 2 } else { 0 };
        let (opcode, packet_id) = (1, 4);
        usize::from(self.tun_mtu) + framing + opcode + packet_id + stream + cipher.overhead + digest
    }
}

/// The cipher that a peer's string names.
#[must_use]
pub fn cipher(text: &str) -> Option<&str> {
    text.split(',').find_map(|option| option.strip_prefix("cipher ")).filter(|name| !name.is_empty())
}

struct CipherSizes {
    aead: bool,
    key_bits: u16,
    /// IV, block and tag, bytes, each counted whether or not it is sent.
    overhead: usize,
}

impl CipherSizes {
    fn of(cipher: Option<&str>) -> Self {
        let name = cipher.unwrap_or("BF-CBC").to_ascii_uppercase();
        let key_bits = match name.as_str() {
            "BF-CBC" | "AES-128-GCM" | "AES-128-CBC" => 128,
            "AES-192-GCM" | "AES-192-CBC" => 192,
            "NONE" => 0,
            _ => 256,
        };
        let (aead, overhead) = match name.as_str() {
            "BF-CBC" => (false, 8 + 8),
            "NONE" => (false, 0),
            // OpenSSL says that the block of a stream cipher is one byte.
            "CHACHA20-POLY1305" => (true, 12 + 1 + 16),
            name if name.ends_with("-GCM") => (true, 12 + 16 + 16),
            _ => (false, 16 + 16),
        };
        Self { aead, key_bits, overhead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Word for word what Debian's OpenVPN 2.6.14 prints as its "Local Options String" with these settings.
    #[test]
    fn options_string_matches_openvpn_2_6() {
        let usual = OptionsString {
            role: Role::Client,
            tcp: false,
            tun_mtu: 1500,
            cipher: None,
            cipher_is_offered: false,
            auth: Some(Digest::Sha1),
            compression: None,
            tls_auth: false,
            key_direction: None,
        };
        assert_eq!(
            usual.text(),
            "V4,dev-type tun,link-mtu 1541,tun-mtu 1500,proto UDPv4,auth SHA1,keysize 128,key-method 2,tls-client"
        );
        let gcm = OptionsString { cipher: Some("AES-256-GCM"), cipher_is_offered: true, ..usual.clone() };
        assert_eq!(
            gcm.text(),
            "V4,dev-type tun,link-mtu 1549,tun-mtu 1500,proto UDPv4,cipher AES-256-GCM,auth [null-digest],keysize 256,\
             key-method 2,tls-client"
        );
        let cbc = OptionsString {
            tcp: true,
            cipher: Some("AES-128-CBC"),
            cipher_is_offered: false,
            auth: Some(Digest::Sha256),
            compression: Some(Compression::Lzo),
            tls_auth: true,
            key_direction: Some(1),
            ..usual
        };
        assert_eq!(
            cbc.text(),
            "V4,dev-type tun,link-mtu 1572,tun-mtu 1500,proto TCPv4_CLIENT,comp-lzo,keydir 1,auth SHA256,keysize 128,tls-auth,\
             key-method 2,tls-client"
        );
    }
}
