//! The options string of the key exchange: each end's own settings, for the other end to compare. The server only
//! warns about differences, and takes the fallback cipher from it. The text is that of 2.6.

use std::fmt::Write;

use super::compression::Compression;
use crate::openvpn::digest::Digest;
use crate::openvpn::role::Role;

/// The settings in the string.
#[derive(Clone, Debug)]
pub struct OptionsString<'a> {
    /// The end that sends the string.
    pub role: Role,
    /// Whether the transport is TCP.
    pub tcp: bool,
    /// The tunnel's MTU, bytes.
    pub tun_mtu: u16,
    /// The option `cipher`; if absent, OpenVPN assumes BF-CBC.
    pub cipher: Option<&'a str>,
    /// Whether that cipher is in `data-ciphers`: otherwise the string does not name it.
    pub cipher_is_offered: bool,
    /// The option `auth`.
    pub auth: Option<Digest>,
    /// The compression framing.
    pub compression: Option<Compression>,
    /// Whether `tls-auth` is used.
    pub tls_auth: bool,
    /// `key-direction`, 0 or 1, of `tls-auth`.
    pub key_direction: Option<u8>,
}

impl OptionsString<'_> {
    /// The encoded string.
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
            // "comp-lzo" means any framing, whatever its name.
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

    /// The MTU of the link as OpenVPN 2.4 computed it; later versions use it for this string only.
    fn link_mtu(&self, cipher: &CipherSizes) -> usize {
        let framing = usize::from(self.compression.is_some_and(Compression::always_has_a_byte));
        let digest = self.auth.filter(|_| !cipher.aead).map_or(0, Digest::len);
        let stream = if self.tcp { 2 } else { 0 };
        let (opcode, packet_id) = (1, 4);
        usize::from(self.tun_mtu) + framing + opcode + packet_id + stream + cipher.overhead + digest
    }
}

/// The cipher in a peer's string.
#[must_use]
pub fn cipher(text: &str) -> Option<&str> {
    text.split(',').find_map(|option| option.strip_prefix("cipher ")).filter(|name| !name.is_empty())
}

struct CipherSizes {
    aead: bool,
    key_bits: u16,
    /// Length of IV, block and tag, bytes, whether or not each is sent.
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
            // OpenSSL defines the block of a stream cipher as one byte.
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

    /// The exact "Local Options String" of Debian's OpenVPN 2.6.14 with these settings.
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
