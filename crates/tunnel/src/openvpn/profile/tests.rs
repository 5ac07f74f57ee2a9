//! Tests of profiles as providers, installers and people write them, and of each refused option with its line.

use std::fmt::Write;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use proptest::prelude::*;
use rustls::{CipherSuite, NamedGroup};

use super::option_table::{support, OptionSupport};
use super::*;
use crate::client::server::Transport;
use crate::openvpn::data::DataCipher;
use crate::openvpn::digest::Digest;
use crate::openvpn::message::compression::Compression;
use crate::openvpn::message::peer_info::{CompressionOffer, Protocols};
use crate::openvpn::wrap::KeyDirection;
use crate::secret::Secret;

const CA: &str = "<ca>\n-----BEGIN CERTIFICATE-----\nMIIBCA\n-----END CERTIFICATE-----\n</ca>\n";
const PAIR: &str =
    "<cert>\nCertificate:\n    Data: of CN=me\n-----BEGIN CERTIFICATE-----\nMIIBME\n-----END CERTIFICATE-----\n\
                    </cert>\n<key>\n-----BEGIN PRIVATE KEY-----\nMIIKEY\n-----END PRIVATE KEY-----\n</key>\n";

fn static_key() -> String {
    let digits = "6acef03f62675b4b1bbd03e53b187727\n".repeat(16);
    format!("#\n# 2048 bit OpenVPN static key\n#\n-----BEGIN OpenVPN Static key V1-----\n{digits}-----END OpenVPN Static key V1-----\n")
}

fn client_key() -> String {
    let mut bytes = vec![7; 256 + 290];
    bytes[544..].copy_from_slice(&290_u16.to_be_bytes());
    let name = "OpenVPN tls-crypt-v2 client key";
    format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", STANDARD.encode(bytes))
}

/// A minimal profile with `more` before it.
fn with(more: &str) -> String {
    format!("{more}\nclient\nremote vpn.example.net\n{CA}")
}

fn good(text: &str) -> Profile {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refused(text: &str) -> ProfileError {
    parse(text).err().unwrap_or_else(|| panic!("taken:\n{text}"))
}

#[test]
fn minimal_profile_has_openvpns_defaults() {
    let profile = good(&with(""));
    let remote = Remote { host: "vpn.example.net".into(), port: 1194, transport: Transport::Udp, family: None };
    assert_eq!(profile.remotes, [remote]);
    assert_eq!(profile.ca, CA.replace("<ca>\n", "").replace("</ca>\n", ""));
    let names: Vec<_> = profile.data_ciphers.iter().map(|cipher| cipher.name()).collect();
    assert_eq!(names, ["AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305"]);
    assert_eq!((profile.auth, profile.wants_user, profile.server_usage), (Some(Digest::Sha1), false, false));
    assert_eq!((profile.reneg_s, profile.hand_window_s, profile.tls_timeout_s), (Some(3600), 60, 2));
    assert_eq!((profile.tls_min, profile.tls_max, profile.replay_window), (TlsVersion::Tls12, TlsVersion::Tls13, 64));
    assert!(profile.ignored.is_empty());
    assert_eq!(
        profile.options_string(Transport::Udp),
        "V4,dev-type tun,link-mtu 1541,tun-mtu 1500,proto UDPv4,auth SHA1,keysize 128,key-method 2,tls-client"
    );
    assert!(profile.peer_info(Protocols::ALL).contains("\nIV_MTU=1600\nIV_NCP=2\nIV_CIPHERS=AES-256-GCM:AES-128-GCM:"));
}

#[test]
fn installer_profile_with_crlf_is_parsed() {
    let text = format!(
        "\u{feff}client\ndev tun\nproto udp\nremote 203.0.113.7 1194\nresolv-retry infinite\nnobind\npersist-key\npersist-tun\n\
         remote-cert-tls server\nverify-x509-name server_kq3X name\nauth SHA256\nauth-nocache\ncipher AES-128-GCM\ntls-client\n\
         tls-version-min 1.2\ntls-cipher TLS-ECDHE-ECDSA-WITH-AES-128-GCM-SHA256\nignore-unknown-option block-outside-dns nonsense\n\
         setenv opt block-outside-dns # Prevent Windows 10 DNS leak\nnonsense 3\nverb 3\n{CA}{PAIR}<tls-crypt>\n{}</tls-crypt>\n",
        static_key()
    );
    let profile = good(&text.replace('\n', "\r\n"));
    assert_eq!(profile.verify_name, Some(VerifyName::CommonName("server_kq3X".into())));
    assert_eq!((profile.auth, profile.server_usage), (Some(Digest::Sha256), true));
    assert!(matches!(profile.wrap, WrapProfile::Crypt { .. }));
    assert!(profile.wrap.keys().is_ok());
    assert!(profile.cert.as_deref().is_some_and(|cert| cert.contains("MIIBME")));
    assert!(profile.key.as_ref().is_some_and(|key| key.expose().contains("MIIKEY")));
    assert!(profile.tls_ciphers.contains(&CipherSuite::TLS13_AES_128_GCM_SHA256));
    assert!(profile.tls_ciphers.contains(&CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256));
    assert!(!profile.tls_ciphers.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
    let ignored: Vec<_> = profile.ignored.iter().map(ToString::to_string).collect();
    assert_eq!(
        ignored,
        [
            "line 5: resolv-retry infinite",
            "line 6: nobind",
            "line 7: persist-key",
            "line 8: persist-tun",
            "line 12: auth-nocache",
            "line 18: block-outside-dns",
            "line 19: nonsense 3",
            "line 20: verb 3",
        ]
    );
}

#[test]
fn provider_profile_with_remotes_and_password_is_parsed() {
    let profile = good(&format!(
        "# Provider's own\n; old style\nclient\ndev tun\nproto tcp\nremote a.example.net 443\nremote b.example.net\n\
         remote 2001:db8::7 1194 udp6\nremote-random\nremote-cert-tls server\nauth-user-pass\ncomp-lzo no\nreneg-sec 0\n\
         tun-mtu 1400\ntun-mtu-max 9000\nkeepalive 10 60\nport 8443\ncipher AES-256-CBC\ndata-ciphers AES-256-GCM:?BF-CBC:AES-256-CBC\n\
         auth SHA512\nkey-direction 1\npush-peer-info\nsetenv UV_SITE \"a b\"\nsetenv IV_GUI_VER \"X 1\"\nsetenv PASSWORD hunter2\n\
         {CA}<tls-auth>\n{}</tls-auth>\nexplicit-exit-notify 2\n",
        static_key()
    ));
    let remotes: Vec<_> = profile
        .remotes
        .iter()
        .map(|remote| (remote.host.as_str(), remote.port, remote.transport, remote.family))
        .collect();
    assert_eq!(
        remotes,
        [
            ("a.example.net", 443, Transport::Tcp, None),
            ("b.example.net", 8443, Transport::Tcp, None),
            ("2001:db8::7", 1194, Transport::Udp, Some(Family::V6)),
        ]
    );
    assert!(profile.remote_random && profile.wants_user && profile.user.is_none());
    assert_eq!((profile.reneg_s, profile.tun_mtu, profile.max_mtu), (None, Some(1400), 9000));
    assert_eq!((profile.ping_s, profile.ping_restart_s), (Some(10), Some(60)));
    assert_eq!(profile.compression, Some(Compression::Stub));
    assert!(matches!(profile.wrap, WrapProfile::Auth { direction: Some(KeyDirection::Inverse), .. }));
    assert_eq!(
        profile.options_string(Transport::Tcp),
        "V4,dev-type tun,link-mtu 1504,tun-mtu 1400,proto TCPv4_CLIENT,comp-lzo,keydir 1,cipher AES-256-CBC,auth SHA512,\
         keysize 256,tls-auth,key-method 2,tls-client"
    );
    let info = profile.peer_info(Protocols::ALL);
    assert!(info.ends_with("IV_GUI_VER=X 1\nUV_SITE=a b\n"), "{info}");
    assert!(info.contains("IV_MTU=9000\nIV_CIPHERS=AES-256-GCM:AES-256-CBC\n"), "{info}");
    assert_eq!(profile.ignored, [Ignored { line: 25, text: "setenv PASSWORD".into() }]);
}

/// In the style of two large providers.
#[test]
fn full_subjects_and_buffer_options_are_accepted() {
    let profile = good(&with("--tun-mtu-extra 32\n--verify-x509-name CN=us1.example.net"));
    assert_eq!(profile.verify_name, Some(VerifyName::Subject("CN=us1.example.net".into())));
    assert_eq!(profile.ignored, [Ignored { line: 1, text: "tun-mtu-extra 32".into() }]);
    let spaced = good(&with("verify-x509-name 'C=DE, CN=x y' subject"));
    assert_eq!(spaced.verify_name, Some(VerifyName::Subject("C=DE, CN=x y".into())));
}

#[test]
fn connection_blocks_replace_remotes() {
    let text = format!(
        "client\nport 7\nremote ignored.example.net\n<connection>\nremote a.example.net\nproto tcp4\nconnect-timeout 3\n\
         </connection>\nproto udp6\n  <connection>\n# a comment\nremote b.example.net 9\nexplicit-exit-notify\n  </connection>\n{CA}"
    );
    let profile = good(&text);
    let remote =
        |host: &str, port, transport, family| Remote { host: host.into(), port, transport, family: Some(family) };
    assert_eq!(
        profile.remotes,
        [
            remote("a.example.net", 7, Transport::Tcp, Family::V4),
            remote("b.example.net", 9, Transport::Udp, Family::V6),
        ]
    );
    let ignored: Vec<_> = profile.ignored.iter().map(ToString::to_string).collect();
    assert_eq!(ignored, ["line 3: remote ignored.example.net", "line 7: connect-timeout 3"]);
    let only = |force: &str| good(&format!("{force}\n{text}")).remotes.len();
    assert_eq!((only("proto-force tcp"), only("proto-force udp")), (1, 1));
}

#[test]
fn inline_credentials_and_unusual_syntax_are_parsed() {
    let profile = good(&format!(
        "'client'\n\t\"remote\" \"v pn\" '1195' udp4 # quoted\nremote a\\ b\nauth-user-pass [inline]\nca [inline]\n\
         tls-auth [inline] 0\n<auth-user-pass>\nanna lee\nhunter2 # all of it\n</auth-user-pass>\n<tls-auth>\n{}</tls-auth>\n{CA}",
        static_key()
    ));
    assert_eq!(profile.remotes[0].host, "v pn");
    assert_eq!((profile.remotes[0].port, profile.remotes[0].family), (1195, Some(Family::V4)));
    assert_eq!(profile.remotes[1].host, "a b");
    assert_eq!(profile.user, Some(("anna lee".into(), Secret::from("hunter2 # all of it"))));
    assert!(matches!(profile.wrap, WrapProfile::Auth { direction: Some(KeyDirection::Normal), .. }));
    assert!(!format!("{profile:?}").contains("hunter2"));
    assert!(!format!("{profile:?}").contains("6acef03f"));
    let profile = good(&format!("{}{PAIR}<tls-crypt-v2>\n{}</tls-crypt-v2>", with(""), client_key()));
    assert!(profile.wrap.keys().is_ok_and(|keys| keys.is_crypt_v2()));
    assert!(!format!("{profile:?}").contains("MIIKEY"));
}

#[test]
fn ciphers_and_suites_are_chosen_as_openvpn_does() {
    let names =
        |more: &str| -> Vec<&str> { good(&with(more)).data_ciphers.iter().map(|cipher| cipher.name()).collect() };
    assert_eq!(names("ncp-ciphers aes-128-cbc:AES-128-CBC:aes-256-gcm"), ["AES-128-CBC", "AES-256-GCM"]);
    assert_eq!(names("data-ciphers AES-128-CBC:DEFAULT").len(), 4);
    assert_eq!(names("cipher AES-128-CBC\ncompat-mode 2.4.0").last(), Some(&"AES-128-CBC"));
    assert_eq!(names("cipher AES-128-CBC\ncompat-mode 2.5.0").len(), 3);
    let fallback = |more: &str| good(&with(more)).fallback_cipher;
    assert_eq!(fallback("cipher AES-128-CBC\ncompat-mode 2.3.7"), Some(DataCipher::Aes128Cbc));
    assert_eq!(fallback("cipher AES-128-CBC\ncompat-mode 2.4.0"), None);
    assert_eq!(fallback("data-ciphers-fallback AES-256-CBC"), Some(DataCipher::Aes256Cbc));
    let unused = good(&with("cipher BF-CBC\nauth MD5"));
    let ignored: Vec<_> = unused.ignored.iter().map(ToString::to_string).collect();
    assert_eq!(ignored, ["line 1: cipher BF-CBC (not among data-ciphers, so it is not offered)", "line 2: auth MD5"]);
    let unauthenticated = |more: &str| good(&with(&format!("auth none\n{more}"))).options_string(Transport::Udp);
    assert!(unauthenticated("").contains("link-mtu 1521,tun-mtu 1500,proto UDPv4,auth [null-digest],keysize 128"));
    assert!(unauthenticated("cipher AES-256-CBC\ndata-ciphers AES-256-CBC").contains("link-mtu 1537,"));
    assert_eq!(good(&with("auth none\nauth SHA512")).auth, Some(Digest::Sha512));
    assert_eq!(good(&with("auth none\ndata-ciphers AES-256-CBC")).auth, None);
    assert_eq!(good(&with("tls-cipher DEFAULT:!EXP:!kRSA")).tls_ciphers, []);
    let foreign = good(&with("tls-cipher TLS-DHE-RSA-WITH-AES-256-GCM-SHA384"));
    assert_eq!((foreign.tls_min, foreign.tls_max), (TlsVersion::Tls13, TlsVersion::Tls13));
    assert!(foreign.ignored[0].to_string().starts_with("line 1: tls-cipher (none"), "{:?}", foreign.ignored);
    let newer = good(&with("tls-ciphersuites TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256")).tls_ciphers;
    assert_eq!((newer[0], newer.len()), (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, 7));
    assert_eq!(good(&with("tls-groups X448:secp384r1:x25519")).tls_groups, [NamedGroup::secp384r1, NamedGroup::X25519]);
    let offer = |more: &str| good(&with(more)).compression_offer;
    assert_eq!(offer("allow-compression no"), CompressionOffer::Stubs);
    assert_eq!(offer("compress"), CompressionOffer::Stubs);
    assert_eq!(offer("compress lz4-v2\nallow-compression asym"), CompressionOffer::All);
    assert_eq!(good(&with("tls-version-min 1.3 or-highest\nreneg-pkts 9")).tls_min, TlsVersion::Tls13);
}

/// Each line is the third of a profile that is valid without it; the text must be part of the error.
#[test]
fn unsupported_option_is_refused_with_its_line() {
    for (line, message) in [
        ("secret static.key", "use TLS"),
        ("dev tap0", "only `dev tun`"),
        ("dev-type tap", "only `dev tun`"),
        ("pkcs11-id x", "PEM"),
        ("pkcs12 me.p12", "PEM"),
        ("askpass", "without one"),
        ("http-proxy 10.0.0.1 8080", "without a proxy"),
        ("socks-proxy 10.0.0.1", "without a proxy"),
        ("fragment 1400", "not fragmented"),
        ("link-mtu 1500", "tun-mtu"),
        ("static-challenge \"Code?\" 1", "challenge"),
        ("no-replay", "removed this option"),
        ("ncp-disable", "always negotiated"),
        ("tls-server", "write `client`"),
        ("mode server", "write `client`"),
        ("server 10.8.0.0 255.255.255.0", "a server's option"),
        ("push \"route 10.0.0.0\"", "a server's option"),
        ("peer-fingerprint 00:11", "<ca>"),
        ("config other.ovpn", "insert the other file"),
        ("ca ca.crt", "between <ca> and </ca>"),
        ("key my.key", "between <key> and </key>"),
        ("auth-user-pass pass.txt", "between <auth-user-pass>"),
        ("tls-auth ta.key 1", "between <tls-auth>"),
        ("tls-crypt-v2", "between <tls-crypt-v2>"),
        ("proto icmp", "udp6"),
        ("proto tcp-server", "tcp-client"),
        ("remote", "write remote HOST"),
        ("remote a 99999", "65535"),
        ("remote a 1 2 3", "write remote HOST"),
        ("remote a 1 sctp", "no such protocol"),
        ("port http", "65535"),
        ("rport", "one parameter"),
        ("client now", "no parameter"),
        ("key-direction 2", "0 or 1"),
        ("key-method 1", "only key method 2"),
        ("data-ciphers AES-128-GCM:BF-CBC", "`BF-CBC` is not a supported data cipher"),
        ("data-ciphers BF-CBC", "AES-256-GCM"),
        ("data-ciphers ?BF-CBC", "no supported cipher"),
        ("data-ciphers-fallback DES-CBC", "AES-256-GCM"),
        ("compat-mode old", "2.4.0"),
        ("compress snappy", "stub-v2"),
        ("compress migrate", "stub-v2"),
        ("comp-lzo maybe", "adaptive"),
        ("allow-compression maybe", "asym"),
        ("tls-version-min 2.0", "1.2 or 1.3"),
        ("tls-version-max 1.1", "1.2 or 1.3"),
        ("tls-cipher TLS-RSA-WITH-AES-256-CBC-SHA\ntls-version-max 1.2", "TLS-ECDHE"),
        ("tls-groups X448", "X25519"),
        ("remote-cert-tls client", "server"),
        ("remote-cert-eku 1.2.3", "remote-cert-tls server"),
        ("remote-cert-ku zz", "hexadecimal"),
        ("ns-cert-type client", "ns-cert-type server"),
        ("verify-hash 00:11", "not compared"),
        ("peer-fingerprint 00:11", "<ca> block"),
        ("crl-verify revoked.pem", "not read"),
        ("block-outside-dns", "Windows"),
        ("register-dns", "setenv opt register-dns"),
        ("script-security 2 system", "`script-security` takes one parameter"),
        ("verb", "`verb` takes one parameter"),
        ("nobind 1", "`nobind` takes no parameter"),
        ("route", "`route` takes 1 to 4 parameters"),
        ("up", "`up` takes at least 1 parameter"),
        ("verify-x509-name x nickname", "NAME name"),
        ("setenv GENERIC_CONFIG 1", "template"),
        ("setenv opt", "must follow"),
        ("reneg-sec -1", "from 0"),
        ("hand-window 0", "from 1"),
        ("tls-timeout x", "from 1"),
        ("keepalive 10", "PING RESTART"),
        ("explicit-exit-notify 9999", "from 0 to 100"),
        ("replay-window 70000", "65536"),
        ("tun-mtu 10", "from 68"),
        ("peer-id 3", "in a push"),
        ("remote-certtls server", "`remote-cert-tls`"),
        ("Remote a", "`remote`"),
        ("frobnicate", "does not begin with an option"),
        ("remote \"a", "not closed"),
        ("log C:\\logs", "backslash"),
        ("<ca> x", "nothing may follow"),
        ("<key>", "`</key>` is missing"),
        ("connection", "<connection>"),
    ] {
        let error = refused(&format!("client\nremote a.example.net\n{line}\n{CA}"));
        assert_eq!(error.line, 3, "{line}: {error}");
        assert!(error.message.contains(message), "{line}: {error}");
        assert_eq!(error.to_string(), format!("line 3: {}", error.message));
    }
}

#[test]
fn invalid_block_is_refused() {
    let key = static_key();
    let (auth, crypt) = (format!("<tls-auth>\n{key}</tls-auth>\n"), format!("<tls-crypt>\n{key}</tls-crypt>\n"));
    for (block, line, message) in [
        (format!("{auth}auth none\n"), 28, "auth SHA256"),
        (format!("{auth}auth MD5\n"), 28, "SHA256"),
        (format!("{auth}{crypt}"), 28, "exclude each other"),
        (auth.replace("6acef03f62675b4b1bbd03e53b187727\n", ""), 5, "bytes"),
        ("<tls-crypt-v2>\nx\n</tls-crypt-v2>\n".into(), 5, "key"),
        ("<key>\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n</key>\n".into(), 5, "passphrase"),
        ("<cert>\nnot there\n</cert>\n".into(), 5, "CERTIFICATE"),
        ("<auth-user-pass>\nanna\n</auth-user-pass>\n".into(), 5, "two lines"),
        ("<pkcs12>\nx\n</pkcs12>\n".into(), 5, "PEM"),
        ("<connection>\nnobind\n</connection>\n".into(), 5, "no `remote`"),
        ("<connection>\nremote a\n\ntls-auth ta.key\n</connection>\n".into(), 8, "move it out"),
        ("<connection>\nremote a\ncipher x\n</connection>\n".into(), 7, "may not have"),
        ("<connection>\nremote a\nhttp-proxy x 1\n</connection>\n".into(), 7, "without a proxy"),
        ("<connection>\nremote a\nregister-dns\n</connection>\n".into(), 7, "Windows"),
        ("<connection>\nremote a\nfloat 1\n</connection>\n".into(), 7, "no parameter"),
        ("<crl-verify>\nx\n</crl-verify>\n".into(), 5, "not read"),
    ] {
        let error = refused(&format!("client\nremote a\n\n\n{block}{CA}"));
        assert_eq!(error.line, line, "{block}: {error}");
        assert!(error.message.contains(message), "{block}: {error}");
    }
}

#[test]
fn missing_required_options_are_named() {
    for (text, message) in [
        ("", "no `client`"),
        ("client\nremote a", "<ca>"),
        (&format!("client\n{CA}"), "no `remote`"),
        (&format!("{}{}", with(""), PAIR.split("<key>").next().unwrap_or_default()), "no <key> block"),
        (&format!("{}<key>{}", with(""), PAIR.split("<key>").last().unwrap_or_default()), "no <cert> block"),
        (&with("proto-force tcp"), "proto-force"),
        (&with("tls-version-min 1.3\ntls-version-max 1.2"), "exchange"),
    ] {
        let error = refused(text);
        assert_eq!((error.line, error.message.contains(message)), (0, true), "{error}");
        assert_eq!(error.to_string(), error.message);
    }
}

/// The lines of a block without its opening tag must not appear in errors.
#[test]
fn errors_never_quote_a_key() {
    for secret in [&static_key(), &client_key(), PAIR.trim_start_matches("<cert>\n")] {
        for line in secret.lines().filter(|line| line.len() > 9 && !line.starts_with(['#', ' ', '-'])) {
            let error = refused(&format!("client\n{line}\n"));
            assert_eq!(error.line, 2);
            assert!(!error.message.contains(&line[..8]), "{error}");
        }
    }
}

#[test]
fn misspelt_option_gets_a_suggestion() {
    for (name, expected) in [("remot", "remote"), ("tls-crypt-2", "tls-crypt-v2"), ("data-cipher", "data-ciphers")] {
        assert!(matches!(support(name, 0), OptionSupport::Unknown(Some(known)) if known == expected), "{name}");
    }
    for name in ["x", "c", "frobnicate", &"remote".repeat(1000)] {
        assert!(matches!(support(name, 0), OptionSupport::Unknown(None)), "{name}");
    }
}

proptest! {
    #[test]
    fn arbitrary_profile_never_panics(lines in proptest::collection::vec("[a-z<>/\"' \\\\-]{0,30}|[^\u{0}]{0,20}", 0..30)) {
        let _ = parse(&lines.join("\n"));
    }

    #[test]
    fn remotes_round_trip(inputs in proptest::collection::vec(("[a-z0-9.:-]{1,40}", 1..=u16::MAX, any::<bool>()), 1..20)) {
        let mut text = with("").replace("remote vpn.example.net\n", "");
        for (host, port, tcp) in &inputs {
            let _ = writeln!(text, "remote {host} {port} {}", if *tcp { "tcp" } else { "udp" });
        }
        let parsed: Vec<_> = good(&text)
            .remotes
            .into_iter()
            .map(|remote| (remote.host, remote.port, remote.transport == Transport::Tcp))
            .collect();
        prop_assert_eq!(parsed, inputs);
    }

    #[test]
    fn truncated_profile_never_panics(length in 0..2000_usize) {
        let text = format!("{}{PAIR}<tls-auth>\n{}</tls-auth>\n", with("tls-version-min 1.3\nauth SHA256"), static_key());
        if let Some(cut) = text.get(..length) {
            let _ = parse(cut);
        }
    }
}

#[test]
fn unknown_option_is_accepted_where_the_profile_allows_it() {
    let text = with("setenv opt block-outside-dns\nsetenv opt script-security 2 system\nignore-unknown-option register-dns\nregister-dns");
    let ignored: Vec<_> = parse(&text).expect("a good profile").ignored.into_iter().map(|one| one.text).collect();
    for expected in ["block-outside-dns", "script-security 2 system", "register-dns"] {
        assert!(ignored.iter().any(|text| text == expected), "{expected}: {ignored:?}");
    }
}
