//! Names of options that a fleet of clients needs nothing of, of those it cannot obey, and what to do about these. Owns the two
//! tables; an option in neither, and not read by `profile`, is unknown.

/// What becomes of an option that is not read.
pub(super) enum Fate {
    /// It concerns the host, logs, scripts or a server: listed, and passed over.
    Ignored,
    /// A client that passed over it would be another client: what to do instead.
    Refused(&'static str),
    /// OpenVPN has no such option; a known one with nearly that name.
    Unknown(Option<&'static str>),
}

/// The fate of an option that `profile` does not read.
pub(super) fn fate(name: &str) -> Fate {
    if IGNORED.contains(&name) {
        return Fate::Ignored;
    }
    match REFUSED.iter().find(|(names, _)| names.contains(&name)) {
        Some((_, advice)) => Fate::Refused(advice),
        None => Fate::Unknown(nearest(name)),
    }
}

/// A known name that is at most two letters away.
fn nearest(name: &str) -> Option<&'static str> {
    let refused = REFUSED.iter().flat_map(|(names, _)| names.iter());
    let all = READ.iter().chain(IGNORED).chain(refused);
    // A long text is no mistyped name, and not worth the reckoning.
    let candidates = all.filter(|_| name.len() < 40).map(|known| (distance(name, known), *known));
    candidates.filter(|(distance, known)| *distance <= 2 && *distance < known.len() / 2).min().map(|(_, known)| known)
}

/// How many letters must be put in, left out or replaced.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, found) in other.iter().enumerate() {
            let cost = diagonal + usize::from(letter != *found);
            diagonal = row[column + 1];
            row[column + 1] = cost.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// What `profile` reads; for suggestions.
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

/// They change nothing of what a server sees of a client, or a fleet decides it by its own settings.
const IGNORED: &[&str] = &[
    "allow-nonadmin",
    "allow-pull-fqdn",
    "allow-recursive-routing",
    "auth-gen-token",
    "auth-nocache",
    "auth-retry",
    "bcast-buffers",
    "bind",
    "bind-dev",
    "block-ipv6",
    "block-outside-dns",
    "cd",
    "chroot",
    "client-nat",
    "comp-noadapt",
    "compat-names",
    "connect-retry",
    "connect-retry-max",
    "connect-timeout",
    "crl-verify",
    "daemon",
    "dev-node",
    "dh",
    "dhcp-internal",
    "dhcp-option",
    "dhcp-pre-release",
    "dhcp-release",
    "dhcp-renew",
    "disable-dco",
    "disable-occ",
    "dns",
    "dns-updown",
    "down",
    "down-pre",
    "ecdh-curve",
    "echo",
    "engine",
    "errors-to-stderr",
    "fast-io",
    "float",
    "foreign-option",
    "group",
    "ifconfig",
    "ifconfig-ipv6",
    "ifconfig-noexec",
    "ifconfig-nowarn",
    "inactive",
    "ip-remote-hint",
    "ip-win32",
    "ipchange",
    "iproute",
    "keying-material-exporter",
    "keysize",
    "lladdr",
    "local",
    "log",
    "log-append",
    "lport",
    "machine-readable-output",
    "management",
    "management-client",
    "management-client-auth",
    "management-client-group",
    "management-client-pf",
    "management-client-user",
    "management-forget-disconnect",
    "management-hold",
    "management-log-cache",
    "management-query-passwords",
    "management-query-proxy",
    "management-query-remote",
    "management-signal",
    "management-up-down",
    "mark",
    "max-routes",
    "memstats",
    "mlock",
    "msg-channel",
    "mssfix",
    "mtu-disc",
    "mtu-test",
    "multihome",
    "mute",
    "mute-replay-warnings",
    "nice",
    "no-name-remapping",
    "nobind",
    "ns-cert-type",
    "opt-verify",
    "parameter",
    "passtos",
    "pause-exit",
    "persist-key",
    "persist-local-ip",
    "persist-remote-ip",
    "persist-tun",
    "ping-timer-rem",
    "plugin",
    "preresolve",
    "prng",
    "providers",
    "pull-filter",
    "rcvbuf",
    "rdns-internal",
    "redirect-gateway",
    "redirect-private",
    "register-dns",
    "remap-usr1",
    "remote-cert-ku",
    "remote-random-hostname",
    "replay-persist",
    "resolv-retry",
    "route",
    "route-delay",
    "route-gateway",
    "route-ipv6",
    "route-ipv6-gateway",
    "route-method",
    "route-metric",
    "route-noexec",
    "route-nopull",
    "route-pre-down",
    "route-table",
    "route-up",
    "script-security",
    "server-poll-timeout",
    "service",
    "session-timeout",
    "setcon",
    "setenv",
    "setenv-safe",
    "shaper",
    "single-session",
    "sndbuf",
    "socket-flags",
    "status",
    "status-version",
    "suppress-timestamps",
    "syslog",
    "tap-sleep",
    "tcp-nodelay",
    "tls-cert-profile",
    "tls-exit",
    "tls-export-cert",
    "tls-verify",
    "tmp-dir",
    "topology",
    "tran-window",
    "tun-ipv6",
    "tun-mtu-extra",
    "txqueuelen",
    "up",
    "up-delay",
    "up-restart",
    "user",
    "verb",
    "use-prediction-resistance",
    "verify-hash",
    "win-sys",
    "windows-driver",
    "writepid",
    "x509-track",
];

/// What a client cannot be without, or must be asked for, and is not there.
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
    (&["capath", "peer-fingerprint"], "the server is known by its authority: use a <ca> block"),
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
        "a fleet connects without a proxy: leave it out and reach the server directly",
    ),
    (&["fragment", "mtu-dynamic"], "packets are not fragmented: leave it out here and at the server"),
    (&["link-mtu", "udp-mtu", "max-packet-size"], "set the tunnel's own MTU, with `tun-mtu`"),
    (&["static-challenge"], "nobody is there to answer a challenge: use `auth-user-pass` alone"),
    (&["no-replay", "no-iv"], "OpenVPN has given this up: leave it out here and at the server"),
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
        "this is a server's option: give a client's profile",
    ),
    (&["config"], "the other file's text belongs here"),
    (&["gremlin"], "this is for tests of OpenVPN itself: leave it out"),
    (
        &["auth-token", "auth-token-user", "peer-id", "key-derivation", "protocol-flags", "push-continuation"],
        "only a server says this, in a push: leave it out",
    ),
    (&["override-username"], "leave it out: users are given with `auth-user-pass`"),
    (&["force-tls-key-material-export"], "this is a server's option: leave it out"),
    (
        &["genkey", "mktun", "rmtun", "show-ciphers", "show-digests", "show-tls", "test-crypto", "help", "version"],
        "this is a command, no setting: leave it out",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_one_table_only() {
        let refused = REFUSED.iter().flat_map(|(names, _)| names.iter());
        let mut all: Vec<_> = READ.iter().chain(IGNORED).chain(refused).collect();
        let before = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), before);
    }

    #[test]
    fn distances_are_letters() {
        for (one, other, expected) in [("", "abc", 3), ("remot", "remote", 1), ("proot", "proto", 2), ("a", "a", 0)] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }
}
