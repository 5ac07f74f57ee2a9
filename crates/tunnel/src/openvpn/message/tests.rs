//! Tests of the messages with truncated, extended and random input: each truncation is refused or incomplete, and an
//! encoded message can be parsed again.

use proptest::prelude::*;

use super::control::{next_message, ControlMessage, LONGEST_CONTROL};
use super::key_method::KeyMethod;
use super::push::{bundles, Completeness, Pushed, Topology, MAX_BYTES, MAX_NAME_SERVERS, MAX_OPTIONS};
use super::MessageError;
use crate::openvpn::role::Role;
use crate::secret::Secret;

fn key_method(role: Role) -> KeyMethod {
    let mut half = KeyMethod::default();
    half.pre_master = (role == Role::Client).then_some([1; 48]);
    (half.random1, half.random2) = ([2; 32], [3; 32]);
    half.options = "V4,dev-type tun".into();
    if role == Role::Client {
        half.user = Some("anna".into());
        half.password = Some(Secret::from("hunter2"));
        half.peer_info = Some("IV_PROTO=2\n".into());
    }
    half
}

fn written(half: &KeyMethod) -> Vec<u8> {
    let mut bytes = Vec::new();
    half.write(&mut bytes).expect("short texts");
    bytes
}

fn control(text: &str) -> ControlMessage {
    ControlMessage::parse(text.as_bytes()).expect("a printable string")
}

fn pushed(options: &str) -> Pushed {
    let mut pushed = Pushed::default();
    assert_eq!(pushed.absorb(options), Ok(Completeness::Complete));
    pushed
}

fn texts_of(pushed: &Pushed) -> Vec<&str> {
    pushed.texts.iter().map(|text| &**text).collect()
}

#[test]
fn key_method_has_openvpns_layout() {
    let bytes = written(&key_method(Role::Client));
    assert_eq!(bytes[..5], [0, 0, 0, 0, 2]);
    assert_eq!((&bytes[5..53], &bytes[53..85], &bytes[85..117]), (&[1; 48][..], &[2; 32][..], &[3; 32][..]));
    assert_eq!(bytes[117..119], [0, 16]);
    assert!(bytes.ends_with(b"\0\x05anna\0\0\x08hunter2\0\0\x0cIV_PROTO=2\n\0"));
    assert!(written(&key_method(Role::Server)).ends_with(b"V4,dev-type tun\0\0\0\0\0\0\0"));
}

#[test]
fn truncated_key_method_waits_for_more() {
    for role in [Role::Client, Role::Server] {
        let half = key_method(role);
        let mut bytes = written(&half);
        let whole = bytes.len();
        for length in 0..whole {
            let parsed = KeyMethod::parse(&bytes[..length], role).expect("a valid prefix");
            // A server may omit trailing texts.
            let may_end = role == Role::Server && [6, 4, 2].contains(&(whole - length));
            assert_eq!(parsed.is_some(), may_end, "{role:?}, {length} of {whole} bytes");
        }
        bytes.extend_from_slice(b"PUSH");
        assert_eq!(KeyMethod::parse(&bytes, role), Ok(Some((half, whole))));
    }
}

#[test]
fn malformed_key_method_is_refused() {
    let mut bytes = written(&key_method(Role::Client));
    bytes[117..119].copy_from_slice(&513_u16.to_be_bytes());
    let too_long = MessageError::TooLong { what: "options string", bytes: 513, most: 512 };
    assert_eq!(KeyMethod::parse(&bytes[..119], Role::Client), Err(too_long));
    let mut bytes = written(&key_method(Role::Client));
    bytes[120] = 0xff;
    assert_eq!(KeyMethod::parse(&bytes, Role::Client), Err(MessageError::NotText("options string")));
    bytes[4] = 1;
    assert_eq!(KeyMethod::parse(&bytes[..5], Role::Client), Err(MessageError::KeyMethod(1)));
    let mut half = key_method(Role::Client);
    half.password = Some(Secret::new("x".repeat(5000)));
    assert!(half.write(&mut Vec::new()).is_err());
}

#[test]
fn debug_output_hides_secrets() {
    let mut push = pushed("auth-token SESS_ID_AT_x,ping 10");
    assert_eq!(push.auth_token, Some(Secret::from("SESS_ID_AT_x")));
    assert_eq!(texts_of(&push), ["auth-token [hidden]", "ping 10"]);
    push.absorb("auth-token SESS_ID_AT_y").expect("a push");
    assert_eq!(push.auth_token, Some(Secret::from("SESS_ID_AT_y")));
    let reply = control("PUSH_REPLY,auth-token SESS_ID_AT_x");
    let text = format!("{:?} {push:?} {reply:?}", key_method(Role::Client));
    assert!(text.contains("anna") && text.contains("ping 10"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("SESS_ID"), "{text}");
}

#[test]
fn token_is_hidden_in_every_spelling() {
    let long = "SESS".repeat(100);
    for line in [
        &format!("auth-token {long}"),
        "auth-token \"SESS",
        "\"auth-token SESS",
        "auth-token\tSESS",
        "auth-token",
        "auth-token SESS SESS",
        "auth-tokenSESS",
        "auth-token=SESS",
        "auth-token SE\\SS",
    ] {
        let mut push = pushed(&format!("{line},ping 10"));
        // OpenVPN ignores lines that it cannot split.
        assert!(push.auth_token.as_ref().is_none_or(|token| token.expose() == "SESS"), "{line}");
        assert_eq!(push.malformed().is_some(), push.auth_token.is_none(), "{line}");
        let failures = [line.to_owned(), format!("-{line}")].map(|change| push.update(&change));
        for text in [format!("{push:?} {:?} {failures:?}", push.malformed()), format!("{:?}", texts_of(&push))] {
            assert!(text.contains("auth-token") && !text.contains("SESS"), "{line}: {text}");
        }
        for failure in failures {
            let push = failure.expect_err("no token can be updated").to_string();
            assert!(!push.contains("SESS"), "{push}");
        }
    }
}

#[test]
fn control_messages_are_parsed_by_kind() {
    let owned = |text: &str| Some(text.to_owned());
    for (text, expected) in [
        ("PUSH_REQUEST", ControlMessage::PushRequest),
        ("PUSH_REPLY", ControlMessage::PushReply(String::new())),
        ("PUSH_REPLY,ping 10,peer-id 0", ControlMessage::PushReply("ping 10,peer-id 0".into())),
        ("PUSH_UPDATE,-dns", ControlMessage::PushUpdate("-dns".into())),
        ("PUSH_OVER", ControlMessage::Other("PUSH_OVER".into())),
        ("PUSH_REPLYX", ControlMessage::Other("PUSH_REPLYX".into())),
        ("AUTH_FAILED", ControlMessage::AuthFailed { reason: None, temporary: false, backoff_s: None }),
        (
            "AUTH_FAILED,Data channel cipher negotiation failed",
            ControlMessage::AuthFailed {
                reason: owned("Data channel cipher negotiation failed"),
                temporary: false,
                backoff_s: None,
            },
        ),
        (
            "AUTH_FAILED,TEMP[backoff 42,advance no]:Come back",
            ControlMessage::AuthFailed { reason: owned("Come back"), temporary: true, backoff_s: Some(42) },
        ),
        ("AUTH_FAILED,TEMP", ControlMessage::AuthFailed { reason: None, temporary: true, backoff_s: None }),
        ("AUTH_FAILED,TEMP[x", ControlMessage::AuthFailed { reason: owned("[x"), temporary: true, backoff_s: None }),
        ("AUTH_PENDING", ControlMessage::AuthPending { timeout_s: None }),
        ("AUTH_PENDING,timeout 60", ControlMessage::AuthPending { timeout_s: Some(60) }),
        ("AUTH_PENDING,x,timeout 99999999999", ControlMessage::AuthPending { timeout_s: None }),
        ("RESTART", ControlMessage::Restart { reason: None, next: false }),
        ("RESTART,[N]full", ControlMessage::Restart { reason: owned("[N]full"), next: true }),
        ("HALT,go away", ControlMessage::Halt { reason: owned("go away") }),
        ("INFO_PRE,OPEN_URL:https://a.example", ControlMessage::Info("OPEN_URL:https://a.example".into())),
        ("INFO,hello", ControlMessage::Info("hello".into())),
        ("EXIT", ControlMessage::Exit),
        ("", ControlMessage::Other(String::new())),
        ("NEWS,today", ControlMessage::Other("NEWS,today".into())),
    ] {
        assert_eq!(control(text), expected, "{text}");
        assert_eq!(control(&format!("{text}\r\n\0")), expected, "{text}");
    }
}

#[test]
fn control_messages_are_split_at_nul() {
    let bytes = b"INFO,a\0\0EXIT\0PUSH";
    assert_eq!(next_message(bytes), Ok(Some((&b"INFO,a"[..], 7))));
    assert_eq!(next_message(&bytes[7..]), Ok(Some((&b""[..], 1))));
    assert_eq!(next_message(&bytes[13..]), Ok(None));
    assert_eq!(next_message(&vec![b'x'; LONGEST_CONTROL]), Ok(None));
    assert!(next_message(&vec![b'x'; LONGEST_CONTROL + 1]).is_err());
    assert!(ControlMessage::parse(&vec![b'x'; LONGEST_CONTROL + 1]).is_err());
    for unprintable in [&b"INFO,\x1b[2J"[..], b"INFO,a\nb", b"INFO\0x\0", b"INFO,\xff"] {
        assert_eq!(ControlMessage::parse(unprintable), Err(MessageError::NotText("control message")));
    }
}

#[test]
fn usual_push_reply_is_parsed() {
    let push = pushed(
        "route 10.9.0.0 255.255.0.0,route 192.0.2.7,route vpn_gateway,route-ipv6 fd00:9::/48,dhcp-option DNS 10.8.0.1,\
         dhcp-option DOMAIN a.example,dns server 0 address 10.8.0.1 [fd00::53]:5353,route-gateway 10.8.0.1,topology subnet,\
         ping 10,ping-restart 60,ifconfig-ipv6 fd00:8::2/64 fd00:8::1,ifconfig 10.8.0.2 255.255.255.0,peer-id 7,\
         cipher AES-256-GCM,protocol-flags cc-exit tls-ekm dyn-tls-crypt aead-epoch,tun-mtu 1400,explicit-exit-notify,\
         setenv-safe A \"b c\"",
    );
    let text = |item: &dyn ToString| item.to_string();
    assert_eq!(
        push.routes.iter().map(|net| text(net)).collect::<Vec<_>>(),
        ["10.9.0.0/16", "192.0.2.7/32", "fd00:9::/48"]
    );
    assert_eq!(push.dns.iter().map(|server| text(server)).collect::<Vec<_>>(), ["10.8.0.1", "fd00::53"]);
    assert_eq!(push.ifconfig, Some(([10, 8, 0, 2].into(), [255, 255, 255, 0].into())));
    let (address, bits, peer) = push.ifconfig_ipv6.expect("an IPv6 address");
    assert_eq!(
        (text(&address).as_str(), bits, peer.map(|peer| text(&peer)).as_deref()),
        ("fd00:8::2", 64, Some("fd00:8::1"))
    );
    assert_eq!((push.topology, push.peer_id, push.tun_mtu), (Some(Topology::Subnet), Some(7), Some(1400)));
    assert_eq!((push.ping_s, push.ping_restart_s), (Some(10), Some(60)));
    assert!(push.cc_exit && push.tls_ekm && push.dyn_tls_crypt && push.epoch);
    assert_eq!(push.cipher.as_deref(), Some("AES-256-GCM"));
    assert_eq!(push.malformed(), None);
    assert_eq!(push.texts.len(), 19);
    assert_eq!(texts_of(&push).last(), Some(&"setenv-safe A \"b c\""));
    assert!(push.texts.contains("ping 10") && !push.texts.contains("ping"));
}

#[test]
fn malformed_pushed_options_are_reported() {
    for option in [
        "ifconfig 10.8.0.2",
        "ifconfig 10.8.0.x 255.0.0.0",
        "peer-id 16777216",
        "route 10.0.0.0 255.0.255.0",
        "tun-mtu 99999",
        "tun-mtu 67",
        "topology star",
        "ifconfig-ipv6 fd00::1/129 fd00::2",
        "route-ipv6 10.0.0.0/8",
        "ping x",
        "key-derivation none",
        "protocol-flags x",
    ] {
        let push = pushed(&format!("route-gateway 10.8.0.1,{option},ping y"));
        assert_eq!(push.malformed(), Some(option));
        assert_eq!((push.ifconfig, push.peer_id, push.topology, push.ifconfig_ipv6), (None, None, None, None));
        assert!(push.routes.is_empty() && push.tun_mtu.is_none());
    }
    assert_eq!(pushed("tun-mtu 68").tun_mtu, Some(68));
    // Such a line may contain anything, and have any length.
    assert_eq!(pushed("ping \"1").malformed(), Some("an option that cannot be split into words"));
    assert_eq!(pushed(&format!("ping {}", "1".repeat(200))).malformed().map(str::len), Some(100));
    // An option that an update corrects is no longer malformed.
    let mut push = pushed("tun-mtu 99999");
    push.update("tun-mtu 1400").expect("an update");
    assert_eq!((push.malformed(), push.tun_mtu), (None, Some(1400)));
}

#[test]
fn non_host_addresses_are_malformed() {
    for address in ["224.0.0.5", "239.1.2.3", "255.255.255.255", "0.0.0.0"] {
        let option = format!("ifconfig {address} 255.255.255.0");
        let push = pushed(&option);
        assert_eq!((push.ifconfig, push.malformed()), (None, Some(&*option)));
    }
    for address in ["ff02::1", "::"] {
        let option = format!("ifconfig-ipv6 {address}/64 fd00::1");
        let push = pushed(&option);
        assert_eq!((push.ifconfig_ipv6, push.malformed()), (None, Some(&*option)));
    }
}

#[test]
fn repeated_malformed_option_is_kept_once() {
    let option = format!("ifconfig {}", "10.8.0.2 ".repeat(14));
    let mut push = pushed(&option);
    let spent = allocation_counter::measure(|| {
        for _ in 0..1000 {
            push.absorb(&format!("{option},push-continuation 2")).expect("nothing new");
        }
    });
    assert_eq!((push.texts.len(), spent.bytes_current), (1, 0));
}

#[test]
fn name_server_count_is_bounded() {
    let mut push = Pushed::default();
    for server in 0..=MAX_NAME_SERVERS {
        assert_eq!(push.malformed(), None);
        push.absorb(&format!("dns server 0 address 10.8.{}.{}", server / 256, server % 256)).expect("a push");
    }
    assert_eq!((push.dns.len(), push.malformed()), (MAX_NAME_SERVERS, Some("dns server 0 address 10.8.1.0")));
}

#[test]
fn split_push_completes_with_its_last_part() {
    let options: Vec<String> = (0..200).map(|number| format!("route 10.{number}.0.0 255.255.0.0")).collect();
    let bundles = bundles(&options).expect("short options");
    assert!(bundles.len() > 5);
    let mut push = Pushed::default();
    for (number, bundle) in bundles.iter().enumerate() {
        assert!("PUSH_REPLY,".len() + bundle.len() < 1024);
        let last = number + 1 == bundles.len();
        let expected = if last { Completeness::Complete } else { Completeness::More };
        assert_eq!(push.absorb(bundle), Ok(expected));
    }
    assert_eq!(texts_of(&push), options);
    assert_eq!(push.routes.len(), 200);
    // The server repeats the push when the client asks again after 30 s.
    push.absorb(&bundles[0]).expect("a push");
    assert_eq!((push.texts.len(), push.routes.len()), (200, 200));
}

#[test]
fn too_many_pushed_options_are_refused() {
    let mut push = Pushed::default();
    let refused = (0..1024).map(|part| {
        let options: Vec<String> =
            (0..25).map(|number| format!("setenv-safe n{part}x{number} {}", "v".repeat(20))).collect();
        push.absorb(&options.join(","))
    });
    assert!(refused.last().is_some_and(|last| last == Err(MessageError::TooMany { most: MAX_OPTIONS })));
    assert_eq!(push.texts.len(), MAX_OPTIONS);
    let mut push = Pushed::default();
    for part in 0..1024 {
        let _ = push.absorb(&format!("setenv-safe n{part} {}", "v".repeat(1000)));
    }
    assert!(push.texts.iter().map(|text| text.len()).sum::<usize>() <= MAX_BYTES);
    let mut push = Pushed::default();
    assert!(push.absorb(&"v".repeat(1 << 20)).is_err());
    assert!(push.texts.is_empty());
    assert!(bundles(&["v".repeat(1000)]).is_err());
}

#[test]
fn push_update_replaces_and_removes_options() {
    let mut push = pushed(
        "route 10.1.0.0 255.255.0.0,route 10.2.0.0 255.255.0.0,route-ipv6 fd00:9::/48,dns server 0 address 10.8.0.1,\
         dhcp-option DNS 10.8.0.2,ifconfig 10.8.0.2 255.255.255.0,peer-id 7,auth-token t,tun-mtu 1400,protocol-flags tls-ekm",
    );
    // The routes of both parts together replace the old ones.
    assert_eq!(push.update("route 10.3.0.0 255.255.0.0,push-continuation 2"), Ok(Completeness::More));
    assert_eq!(
        push.update("route 10.4.0.0 255.255.0.0,-dns,-?block-ipv6,?unheard of,push-continuation 1"),
        Ok(Completeness::Complete)
    );
    let routes: Vec<String> = push.routes.iter().map(ToString::to_string).collect();
    assert_eq!(routes, ["fd00:9::/48", "10.3.0.0/16", "10.4.0.0/16"]);
    assert_eq!(*push.dns, ["10.8.0.2".parse::<std::net::IpAddr>().expect("an address")]);
    assert_eq!((push.peer_id, push.tls_ekm, push.tun_mtu), (Some(7), true, Some(1400)));
    assert_eq!(push.auth_token, Some(Secret::from("t")));
    assert_eq!(push.update("ifconfig 10.8.0.9 255.255.255.0,-tun-mtu"), Ok(Completeness::Complete));
    assert_eq!((push.ifconfig.map(|(local, _)| local), push.tun_mtu), (Some([10, 8, 0, 9].into()), None));
    // The next update replaces them again.
    push.update("route 10.5.0.0 255.255.0.0").expect("an update");
    assert_eq!(push.routes.len(), 2);
    for (refused, named) in [
        ("cipher AES-128-GCM", "cipher"),
        ("-peer-id", "peer-id"),
        ("unheard of", "unheard"),
        ("-", ""),
        ("?-dns", "-dns"),
        ("-?", ""),
    ] {
        assert_eq!(push.update(refused), Err(MessageError::NotUpdatable(named.into())), "{refused}");
    }
}

#[test]
fn push_update_cost_is_bounded_by_its_changes() {
    let routes: Vec<String> = (0..4000).map(|number| format!("route 10.{}.{}.0", number / 250, number % 250)).collect();
    let mut push = pushed(&routes.join(","));
    let mut work = |changes: &str, expected| {
        let spent = allocation_counter::measure(|| assert_eq!(push.update(changes), Ok(expected), "{changes}"));
        spent.count_total
    };
    // Each text that is parsed again allocates its words.
    for changes in ["-dns", "-dns,".repeat(3000).as_str(), "?unheard of", "push-continuation 1"] {
        let allocations = work(changes, Completeness::Complete);
        assert!(allocations < 10, "{changes}: {allocations}");
    }
    let first = work("dns server 0 address 10.8.0.1,push-continuation 2", Completeness::More);
    let last = work("dns server 1 address 10.8.0.2,push-continuation 1", Completeness::Complete);
    assert!(first < 100 && (4000..100_000).contains(&last), "{first}, {last}");
    assert_eq!((push.dns.len(), push.routes.len()), (2, 4000));
}

fn texts() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[^\u{0}]{0,60}")
}

proptest! {
    #[test]
    fn key_method_round_trips(
        client: bool, options in "[ -~]{0,200}", user in texts(), password in texts(), peer_info in texts(), seed: [u8; 32],
    ) {
        let role = if client { Role::Client } else { Role::Server };
        let mut half = key_method(role);
        (half.random1, half.options, half.user, half.peer_info) = (seed, options, user, peer_info);
        half.password = password.map(Secret::new);
        let bytes = written(&half);
        let whole = bytes.len();
        prop_assert_eq!(KeyMethod::parse(&bytes, role), Ok(Some((half, whole))));
    }

    #[test]
    fn arbitrary_key_method_never_panics(mut bytes: Vec<u8>, client: bool) {
        let role = if client { Role::Client } else { Role::Server };
        let _ = KeyMethod::parse(&bytes, role);
        bytes.splice(0..0, written(&key_method(role)));
        bytes.truncate(bytes.len() / 2);
        if let Ok(Some((_, length))) = KeyMethod::parse(&bytes, role) {
            prop_assert!(length <= bytes.len());
        }
    }

    #[test]
    fn control_messages_round_trip(name in 0..6_usize, text in "[ -~]{0,100}", seconds: u32) {
        let message = match name {
            0 => ControlMessage::PushReply(text),
            1 => ControlMessage::PushUpdate(text),
            2 => ControlMessage::AuthPending { timeout_s: Some(seconds) },
            3 => ControlMessage::Info(text),
            4 => ControlMessage::AuthFailed { reason: None, temporary: true, backoff_s: Some(seconds) },
            _ => ControlMessage::Halt { reason: Some(text).filter(|text| !text.is_empty()) },
        };
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        let (parsed, length) = next_message(&bytes).expect("a short one").expect("a whole one");
        prop_assert_eq!(length, bytes.len());
        prop_assert_eq!(ControlMessage::parse(parsed), Ok(message));
    }

    #[test]
    fn arbitrary_push_never_panics(reply in "[ -~]{0,300}", update in "(([-?]{0,2}(route|dns|ifconfig|x))?[ -~]{0,9},){0,9}") {
        let mut push = Pushed::default();
        let _ = push.absorb(&reply);
        let _ = push.update(&update);
        let _ = control(&reply);
        prop_assert!(push.texts.len() <= 300);
    }

    #[test]
    fn split_push_keeps_every_option(options in proptest::collection::vec("[a-z][a-z0-9 ]{0,200}[a-z]", 0..60)) {
        let mut push = Pushed::default();
        let mut last = Completeness::More;
        for bundle in bundles(&options).expect("short options") {
            prop_assert!("PUSH_REPLY,".len() + bundle.len() < 1024);
            last = push.absorb(&bundle).expect("few options");
        }
        prop_assert_eq!(last, Completeness::Complete);
        prop_assert!(options.iter().all(|option| push.texts.contains(&**option) || option.starts_with("auth-token")));
    }
}
