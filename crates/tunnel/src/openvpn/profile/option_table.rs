//! The names of options that a fleet reads, and of those that it cannot support, with advice. Owns the treatment of
//! options that are not read; `ignored` has the ignored ones, and an option in no table is unknown.

use super::ignored;

/// The support of an option that is not read.
pub(super) enum OptionSupport {
    /// It concerns the host, logs, scripts or a server: it is listed and ignored.
    Ignored,
    /// It is ignored, but OpenVPN refuses these parameters: the correct number.
    Misused(String),
    /// Only OpenVPN for Windows has it.
    OfWindows,
    /// Ignoring it would change the client's behaviour: what to do instead.
    Refused(&'static str),
    /// OpenVPN has no such option; a known one with a similar name, if any.
    Unknown(Option<&'static str>),
}

/// The support of an option that `profile` does not read.
pub(super) fn support(name: &str, parameters: usize) -> OptionSupport {
    match ignored::check(name, parameters) {
        Some(Ok(())) => return OptionSupport::Ignored,
        Some(Err(wrong)) => return OptionSupport::Misused(wrong),
        None if ignored::WINDOWS.contains(&name) => return OptionSupport::OfWindows,
        None => {}
    }
    match REFUSED.iter().find(|(names, _)| names.contains(&name)) {
        Some((_, advice)) => OptionSupport::Refused(advice),
        None => OptionSupport::Unknown(nearest(name)),
    }
}

/// A known name within an edit distance of two.
fn nearest(name: &str) -> Option<&'static str> {
    let refused = REFUSED.iter().flat_map(|(names, _)| names.iter());
    let all = READ.iter().chain(ignored::WINDOWS).chain(refused).copied().chain(ignored::names());
    // A long text is not a mistyped name.
    let candidates = all.filter(|_| name.len() < 40).map(|known| (distance(name, known), known));
    candidates.filter(|(distance, known)| *distance <= 2 && *distance < known.len() / 2).min().map(|(_, known)| known)
}

/// The edit distance of two names.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, candidate) in other.iter().enumerate() {
            let cost = diagonal + usize::from(letter != *candidate);
            diagonal = row[column + 1];
            row[column + 1] = cost.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// The options that `profile` reads, for suggestions.
const READ: &[&str] = &[
    "allow-compression",
    "auth",
    "auth-user-pass",
    "ca",
    "cert",
    "cipher",
    "client",
    "comp-lzo",
    "compat-mode",
    "compress",
    "connection",
    "data-ciphers",
    "data-ciphers-fallback",
    "dev",
    "dev-type",
    "explicit-exit-notify",
    "extra-certs",
    "hand-window",
    "ignore-unknown-option",
    "keepalive",
    "key",
    "key-direction",
    "key-method",
    "mode",
    "ncp-ciphers",
    "ns-cert-type",
    "ping",
    "ping-exit",
    "ping-restart",
    "port",
    "proto",
    "proto-force",
    "pull",
    "push-peer-info",
    "remote",
    "remote-cert-eku",
    "remote-cert-ku",
    "remote-cert-tls",
    "remote-random",
    "reneg-bytes",
    "reneg-pkts",
    "reneg-sec",
    "replay-window",
    "rport",
    "tls-auth",
    "tls-cipher",
    "tls-ciphersuites",
    "tls-client",
    "tls-crypt",
    "tls-crypt-v2",
    "tls-groups",
    "tls-timeout",
    "tls-version-max",
    "tls-version-min",
    "tun-mtu",
    "tun-mtu-max",
    "verify-x509-name",
];

/// Options that a client needs and that are not supported, or that need an interactive user.
const REFUSED: &[(&[&str], &str)] = &[
    (
        &["secret", "allow-deprecated-insecure-static-crypto"],
        "static-key mode has no handshake to measure: use TLS, with `client` and certificates",
    ),
    (&["askpass"], "keys under a passphrase are not read: write the key without one into the <key> block"),
    (
        &[
            "pkcs11-cert-private",
            "pkcs11-id",
            "pkcs11-id-management",
            "pkcs11-pin-cache",
            "pkcs11-private-mode",
            "pkcs11-protected-authentication",
            "pkcs11-providers",
            "cryptoapicert",
            "management-external-cert",
            "management-external-key",
            "pkcs12",
        ],
        "a fleet's keys are PEM: use <ca>, <cert> and <key> blocks",
    ),
    (&["capath", "peer-fingerprint"], "the server is verified by its authority: use a <ca> block"),
    (
        &["verify-hash"],
        "an authority's hash is not compared: remove this, and write only that authority into the <ca> block",
    ),
    (&["crl-verify"], "lists of revoked certificates are not read: remove this"),
    (
        &[
            "http-proxy",
            "http-proxy-option",
            "http-proxy-override",
            "http-proxy-retry",
            "http-proxy-timeout",
            "http-proxy-user-pass",
            "socks-proxy",
            "socks-proxy-retry",
        ],
        "a fleet connects without a proxy: remove this and connect to the server directly",
    ),
    (&["fragment", "mtu-dynamic"], "packets are not fragmented: remove this here and at the server"),
    (&["link-mtu", "udp-mtu", "max-packet-size"], "set the tunnel's MTU with `tun-mtu`"),
    (&["static-challenge"], "no user can answer a challenge: use `auth-user-pass` alone"),
    (&["no-replay", "no-iv"], "OpenVPN has removed this option: remove it here and at the server"),
    (&["ncp-disable"], "ciphers are always negotiated: name the one in `data-ciphers` and `data-ciphers-fallback`"),
    (&["tls-server"], "a fleet consists of clients: write `client`"),
    (
        &[
            "auth-gen-token-secret",
            "auth-user-pass-optional",
            "auth-user-pass-verify",
            "ccd-exclusive",
            "client-cert-not-required",
            "client-config-dir",
            "client-connect",
            "client-crresponse",
            "client-disconnect",
            "client-to-client",
            "connect-freq",
            "connect-freq-initial",
            "disable",
            "duplicate-cn",
            "hash-size",
            "ifconfig-ipv6-pool",
            "ifconfig-ipv6-push",
            "ifconfig-pool",
            "ifconfig-pool-linear",
            "ifconfig-pool-persist",
            "ifconfig-push",
            "ifconfig-push-constraint",
            "inetd",
            "iroute",
            "iroute-ipv6",
            "learn-address",
            "max-clients",
            "max-routes-per-client",
            "port-share",
            "push",
            "push-remove",
            "push-reset",
            "server",
            "server-bridge",
            "server-ipv6",
            "stale-routes-check",
            "tcp-queue-limit",
            "tls-crypt-v2-max-age",
            "tls-crypt-v2-verify",
            "username-as-common-name",
            "verify-client-cert",
            "vlan-accept",
            "vlan-pvid",
            "vlan-tagging",
            "x509-username-field",
        ],
        "this is a server's option: use a client's profile",
    ),
    (&["config"], "insert the other file's text here"),
    (&["gremlin"], "this is for tests of OpenVPN itself: remove it"),
    (
        &["auth-token", "auth-token-user", "peer-id", "key-derivation", "protocol-flags", "push-continuation"],
        "only a server sets this, in a push: remove it",
    ),
    (&["override-username"], "remove this: set users with `auth-user-pass`"),
    (&["force-tls-key-material-export"], "this is a server's option: remove it"),
    (
        &["genkey", "mktun", "rmtun", "show-ciphers", "show-digests", "show-tls", "test-crypto", "help", "version"],
        "this is a command and not a setting: remove it",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_in_one_table_only() {
        let refused = REFUSED.iter().flat_map(|(names, _)| names.iter());
        let mut all: Vec<_> =
            READ.iter().chain(ignored::WINDOWS).chain(refused).copied().chain(ignored::names()).collect();
        let before = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), before);
    }

    #[test]
    fn edit_distance_counts_letters() {
        for (one, other, expected) in [("", "abc", 3), ("remot", "remote", 1), ("proot", "proto", 2), ("a", "a", 0)] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }
}
