//! The login of iperf3's tests: a user with a password at a client, and the users that a server knows.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// How RSA pads what it encrypts; both ends need the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RsaPadding {
    /// OAEP with SHA-1 (RFC 8017, section 7.1): iperf3 3.17 and newer.
    #[default]
    Oaep,
    /// PKCS #1 version 1.5 (RFC 8017, section 7.2): before iperf3 3.17.
    Pkcs1,
}

/// A client's login at an iperf3 server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iperf3Login {
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
    /// The server's public RSA key, PEM.
    pub key_pem: String,
    /// The padding.
    pub padding: RsaPadding,
}

/// The users that a server lets measure with iperf3.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iperf3Users {
    /// The server's private RSA key, PEM.
    pub key_pem: String,
    /// iperf3's file of users: a name, a comma, and SHA-256 of `{name}password` in hexadecimal digits on each line.
    pub users: String,
    /// The padding.
    pub padding: RsaPadding,
    /// How far a client's clock may be off, s.
    pub skew_s: u32,
}

impl std::fmt::Debug for Iperf3Login {
    /// Omits the password.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Iperf3Login({}, ..)", self.user)
    }
}

impl std::fmt::Debug for Iperf3Users {
    /// Omits the key and the users.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Iperf3Users(..)")
    }
}
