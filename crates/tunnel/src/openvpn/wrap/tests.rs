//! Tests of the protections against packets that OpenVPN 2.6.14 sent, in `captures/` (client `C`, server `S`, with
//! their keys), and against attackers without a key: changed, truncated, repeated and reflected packets are refused.

use super::super::packet::{early_negotiation_flags, Acks, ControlBody, Opcode, RESEND_WRAPPED_KEY};
use super::super::reliable::{Accepted, Reliable};
use super::*;

const STATIC: &str = include_str!("captures/static.key");
const SERVER: &str = include_str!("captures/v2-server.key");
const CLIENT: &str = include_str!("captures/v2-client.key");
const DATED_CLIENT: &str = include_str!("captures/v2-client-dated.key");
const NOW_S: u32 = 1_800_000_000;
const SESSION: SessionId = SessionId([1, 2, 3, 4, 5, 6, 7, 8]);
const RESET: Header = Header { opcode: Opcode::HardResetClientV2, key_id: 0 };
const RESET_V3: Header = Header { opcode: Opcode::HardResetClientV3, key_id: 0 };
const CONTROL: Header = Header { opcode: Opcode::Control, key_id: 0 };

/// The keys of a client and a server, and the packets between them.
struct Capture {
    name: &'static str,
    client: WrapKeys,
    server: WrapKeys,
    packets: Vec<(Role, Vec<u8>)>,
}

fn captures() -> Vec<Capture> {
    let key = static_key();
    let (zero, one) = (Some(KeyDirection::Normal), Some(KeyDirection::Inverse));
    let auth = |direction, digest| WrapKeys::auth(&key, direction, digest);
    let (sha1, sha512) = (Digest::Sha1, Digest::Sha512);
    let (client, server) = v2();
    [
        ("auth", auth(one, sha1), auth(zero, sha1), include_str!("captures/auth.txt")),
        ("auth512", auth(None, sha512), auth(None, sha512), include_str!("captures/auth512.txt")),
        (
            "crypt",
            WrapKeys::crypt(&key, Role::Client),
            WrapKeys::crypt(&key, Role::Server),
            include_str!("captures/crypt.txt"),
        ),
        ("v2", client, server, include_str!("captures/v2.txt")),
    ]
    .map(|(name, client, server, text)| Capture { name, client, server, packets: packets(text) })
    .into()
}

fn packets(text: &str) -> Vec<(Role, Vec<u8>)> {
    text.lines()
        .map(|line| {
            let (who, digits) = line.split_once(' ').expect("an end, then a packet");
            let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
            (if who == "C" { Role::Client } else { Role::Server }, bytes.collect())
        })
        .collect()
}

fn static_key() -> StaticKey {
    StaticKey::parse(STATIC).unwrap()
}

fn v2() -> (WrapKeys, WrapKeys) {
    (WrapKeys::crypt_v2(CLIENT).unwrap(), WrapKeys::crypt_v2_server(SERVER).unwrap())
}

/// Pairs of ends with matching keys, and the client's first opcode.
fn pairs() -> Vec<(&'static str, Wrap, Wrap, Header)> {
    let mut pairs: Vec<_> = captures()
        .into_iter()
        .map(|capture| {
            let begins = if capture.client.is_crypt_v2() { RESET_V3 } else { RESET };
            (capture.name, Wrap::new(capture.client), Wrap::new(capture.server), begins)
        })
        .collect();
    pairs.push(("none", Wrap::new(WrapKeys::None), Wrap::new(WrapKeys::None), RESET));
    let exported = [0x5c; 256];
    let base = WrapKeys::auth(&static_key(), Some(KeyDirection::Inverse), Digest::Sha256);
    let dynamic = |role| Wrap::dynamic(&base, exported, role);
    pairs.push(("dynamic", dynamic(Role::Client), dynamic(Role::Server), CONTROL));
    pairs
}

fn sealed(wrap: &mut Wrap, header: Header, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    wrap.seal(header, SESSION, body, NOW_S, &mut out);
    assert_eq!(out.len(), body.len() + wrap.overhead(header));
    out
}

#[test]
fn captured_openvpn_packets_are_parsed_and_rebuilt_exactly() {
    for capture in captures() {
        let (mut client, mut server) = (Wrap::new(capture.client.clone()), Wrap::new(capture.server));
        let mut kinds = Vec::new();
        for (from, packet) in capture.packets {
            let (receiver, sender) = match from {
                Role::Client => (&mut server, Wrap::new(capture.client.clone())),
                Role::Server => (&mut client, Wrap::new(server.keys().clone())),
            };
            let mut bytes = packet.clone();
            let Opened { header, session, body } = receiver.open(&mut bytes).expect(capture.name);
            ControlBody::parse(header.opcode, body).expect(capture.name);
            kinds.push(header.opcode);
            let PacketId { id, unix_s } = number(&packet, &sender);
            let mut again = Wrap { sent: Some(PacketId { id: id - 1, unix_s }), ..sender };
            let mut made = Vec::new();
            again.seal(header, session, body, NOW_S, &mut made);
            assert_eq!(made, packet, "{} {header:?}", capture.name);
        }
        let begins = if capture.name == "v2" { Opcode::HardResetClientV3 } else { Opcode::HardResetClientV2 };
        assert_eq!(kinds[..2], [begins, Opcode::HardResetServerV2], "{}", capture.name);
    }
}

/// A protected packet's id on the wire.
fn number(packet: &[u8], wrap: &Wrap) -> PacketId {
    let at = match wrap.keys() {
        WrapKeys::Auth(keys) => HEAD_LEN + keys.overhead() - PacketId::LEN,
        _ => HEAD_LEN,
    };
    PacketId::from_bytes(*packet[at..].first_chunk().unwrap())
}

#[test]
fn captured_negotiation_replays_in_order() {
    let capture = captures().pop().expect("the last one is tls-crypt-v2");
    assert!(speaks_early_negotiation(&capture.packets[0].1));
    let (mut client, mut server) = (Wrap::new(capture.client), Wrap::new(capture.server));
    let (mut to_client, mut to_server) = (Reliable::new(), Reliable::new());
    let (mut streams, mut resets, mut again) = ([Vec::new(), Vec::new()], 0, false);
    for (from, mut packet) in capture.packets {
        let (wrap, reliable) = match from {
            Role::Client => (&mut server, &mut to_server),
            Role::Server => (&mut client, &mut to_client),
        };
        let opened = wrap.open(&mut packet).unwrap();
        let body = ControlBody::parse(opened.header.opcode, opened.body).unwrap();
        if let Some(id) = body.id {
            assert_eq!(reliable.received(id, body.payload), Accepted::New);
        }
        while let Some(payload) = reliable.next_in_order() {
            match opened.header.opcode {
                Opcode::HardResetServerV2 => again = early_negotiation_flags(&payload) == Ok(RESEND_WRAPPED_KEY),
                Opcode::HardResetClientV3 => assert!(payload.is_empty()),
                _ => streams[usize::from(from == Role::Server)].extend(payload),
            }
            resets += u32::from(opened.header.opcode != Opcode::Control);
        }
    }
    assert!(again, "the stateless server requested the wrapped key again");
    assert_eq!(resets, 3, "two resets and the wrapped key again");
    for stream in &streams {
        assert_eq!(stream[..2], [22, 3], "the stream begins with a TLS handshake");
        assert_eq!(whole_records(stream), stream.len());
    }
}

fn whole_records(stream: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = stream.get(at..at + 5) {
        at += 5 + usize::from(u16::from_be_bytes([head[3], head[4]]));
    }
    at
}

#[test]
fn client_and_server_open_each_others_packets() {
    for (name, mut client, mut server, begins) in pairs() {
        for (number, length) in [(0usize, 0usize), (1, 1), (2, 15), (3, 16), (4, 17), (5, 1250)] {
            let body: Vec<u8> = (0..length).map(|byte| byte.to_le_bytes()[0]).collect();
            let header = if number == 0 { begins } else { Header { opcode: Opcode::Control, key_id: 3 } };
            let mut there = sealed(&mut client, header, &body);
            if name != "none" && length > 1 {
                assert_eq!(there.windows(length).any(|part| part == body), name.starts_with("auth"), "{name}");
            }
            assert_eq!(server.open(&mut there), Ok(Opened { header, session: SESSION, body: &body }), "{name}");
            let mut back = sealed(&mut server, CONTROL, &body);
            assert_eq!(client.open(&mut back), Ok(Opened { header: CONTROL, session: SESSION, body: &body }), "{name}");
        }
    }
}

#[test]
fn replayed_packet_is_refused_and_reordering_within_the_window_accepted() {
    for (name, mut client, mut server, begins) in pairs().into_iter().filter(|pair| pair.0 != "none") {
        server.open(&mut sealed(&mut client, begins, b"first")).unwrap();
        let packets: Vec<_> = (0..80).map(|_| sealed(&mut client, CONTROL, b"packet")).collect();
        for packet in packets.iter().rev().take(64) {
            assert!(server.open(&mut packet.clone()).is_ok(), "{name}");
            assert_eq!(server.open(&mut packet.clone()), Err(WrapError::Replayed), "{name}");
        }
        for old in &packets[..16] {
            assert_eq!(server.open(&mut old.clone()), Err(WrapError::Replayed), "{name}: too old to be checked");
        }
    }
}

#[test]
fn older_timestamp_is_refused_and_newer_timestamp_resets_the_window() {
    let mut window = ReplayWindow::default();
    let mut take = |id, unix_s| window.take(PacketId { id, unix_s });
    assert!(!take(0, 5), "0 is not a valid id");
    assert!(take(7, 5) && take(1, 5) && !take(7, 5) && !take(1, 5));
    assert!(!take(8, 4));
    assert!(take(1, 6) && !take(1, 6) && !take(9, 5));
    assert!(take(u32::MAX, 6) && !take(2, 6) && take(u32::MAX - 63, 6) && !take(u32::MAX - 64, 6));
}

#[test]
fn packet_number_is_never_reused() {
    let mut last = Some(PacketId { id: u32::MAX - 1, unix_s: NOW_S });
    assert_eq!(PacketId::after(&mut last, 0, NOW_S), PacketId { id: u32::MAX, unix_s: NOW_S });
    assert_eq!(PacketId::after(&mut last, 0, NOW_S), PacketId { id: 1, unix_s: NOW_S + 1 });
    assert_eq!(PacketId::after(&mut last, 0, NOW_S + 9), PacketId { id: 2, unix_s: NOW_S + 1 });
}

#[test]
fn corrupted_or_truncated_packet_is_refused_without_state_change() {
    for (name, mut client, mut server, begins) in pairs().into_iter().filter(|pair| pair.0 != "none") {
        let first = sealed(&mut client, begins, b"something to protect");
        for bit in 0..8 * first.len() {
            let mut changed = first.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(server.open(&mut changed).is_err(), "{name} bit {bit}");
        }
        for length in 0..first.len() {
            assert!(server.open(&mut first[..length].to_vec()).is_err(), "{name} cut to {length}");
        }
        let mut longer = first.clone();
        longer.push(0);
        assert!(server.open(&mut longer).is_err(), "{name}");
        assert!(server.open(&mut first.clone()).is_ok(), "{name}: the original packet is accepted");
    }
}

#[test]
fn unwrapped_packet_needs_only_its_header() {
    let mut wrap = Wrap::new(WrapKeys::None);
    let packet = sealed(&mut wrap.clone(), CONTROL, b"");
    for length in 0..packet.len() {
        assert_eq!(wrap.open(&mut packet[..length].to_vec()), Err(WrapError::TOO_SHORT));
    }
    for (byte, wrong) in [
        (0, PacketError::UnknownKind(0)),
        (9 << 3, PacketError::NotControl),
        (6 << 3, PacketError::NotControl),
        (12 << 3, PacketError::UnknownKind(96)),
    ] {
        let mut packet = packet.clone();
        packet[0] = byte;
        assert_eq!(wrap.open(&mut packet), Err(WrapError::Packet(wrong)));
    }
    let mut without_session = packet;
    without_session[1..].fill(0);
    assert_eq!(wrap.open(&mut without_session), Err(WrapError::Packet(PacketError::NoSession)));
}

#[test]
fn reflected_packet_is_refused() {
    for (name, mut client, _, _) in pairs().into_iter().filter(|pair| !["none", "auth512"].contains(&pair.0)) {
        let mut packet = sealed(&mut client, CONTROL, b"echo");
        assert_eq!(client.open(&mut packet), Err(WrapError::Unauthentic), "{name}");
    }
}

#[test]
fn openvpn_wrapped_key_is_unwrapped_and_rebuilt() {
    let server = ServerKey::parse(SERVER).unwrap();
    for (file, kind, text) in [(CLIENT, 0, &b"hello"[..]), (DATED_CLIENT, 1, &[0, 0, 0, 0][..])] {
        let client = ClientKey::parse(file).unwrap();
        let Unwrapped { key, metadata } = server.unwrap_key(&client.wrapped).unwrap();
        assert_eq!(key.bytes(), client.keys.base.bytes());
        assert_eq!(metadata[0], kind);
        assert!(metadata[1..].starts_with(text));
        assert_eq!(server.wrap(&key, &metadata), Some(client.wrapped.clone()));
        for bit in 0..8 * client.wrapped.len() {
            let mut changed = client.wrapped.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(server.unwrap_key(&changed), Err(WrapError::BadWrappedKey)), "bit {bit}");
        }
        for length in 0..client.wrapped.len() {
            assert!(matches!(server.unwrap_key(&client.wrapped[..length]), Err(WrapError::BadWrappedKey)));
        }
    }
    let longest = LONGEST_WRAPPED_KEY - 290;
    let wrapped = server.wrap(&static_key(), &vec![7; longest]).unwrap();
    assert_eq!(server.unwrap_key(&wrapped).unwrap().metadata, vec![7; longest]);
    assert_eq!(server.wrap(&static_key(), &vec![7; longest + 1]), None);
}

#[test]
fn server_learns_the_client_key_from_its_first_packet() {
    let (client_keys, server_keys) = v2();
    let (mut client, mut server) = (Wrap::new(client_keys), Wrap::new(server_keys.clone()));
    let plain = sealed(&mut client, CONTROL, b"too early");
    assert_eq!(server.open(&mut plain.clone()), Err(WrapError::NoClientKey));
    let mut nothing = Vec::new();
    server.seal(CONTROL, SESSION, b"no key", NOW_S, &mut nothing);
    assert!(nothing.is_empty());
    let again = Header { opcode: Opcode::ControlWkc, key_id: 0 };
    assert_eq!(server.open(&mut sealed(&mut client, again, b"hello")).unwrap().body, b"hello");
    // A repeated wrapped key is accepted; it is not unwrapped again.
    assert_eq!(server.open(&mut sealed(&mut client, again, b"repeated")).unwrap().body, b"repeated");
    assert_eq!(server.open(&mut plain.clone()).unwrap().body, b"too early");
    let other = ServerKey::parse(&SERVER.replace("HrL8", "HrL9")).unwrap();
    let mut other_server = Wrap::new(WrapKeys::CryptV2Server(Arc::new(other)));
    assert_eq!(other_server.open(&mut sealed(&mut client, again, b"")), Err(WrapError::BadWrappedKey));
    assert_eq!(client.open(&mut sealed(&mut client.clone(), again, b"")), Err(WrapError::BadWrappedKey));
}

#[test]
fn dynamic_keys_combine_exported_and_session_keys() {
    let (exported, key) = ([0x5c; 256], static_key());
    let mut both = *key.bytes();
    both.iter_mut().for_each(|byte| *byte ^= 0x5c);
    let packet = |mut wrap: Wrap| sealed(&mut wrap, CONTROL, b"negotiated again");
    let combined = packet(Wrap::dynamic(&WrapKeys::None, both, Role::Client));
    for base in [
        WrapKeys::auth(&key, None, Digest::Sha512),
        WrapKeys::crypt(&key, Role::Client),
        WrapKeys::crypt(&key, Role::Server),
    ] {
        assert_eq!(packet(Wrap::dynamic(&base, exported, Role::Client)), combined, "{base:?}");
        assert_ne!(packet(Wrap::dynamic(&base, exported, Role::Server)), combined);
    }
    assert_ne!(packet(Wrap::dynamic(&WrapKeys::None, exported, Role::Client)), combined);
    let (client_keys, server_keys) = v2();
    let (mut client, mut server) = (Wrap::new(client_keys), Wrap::new(server_keys));
    server.open(&mut sealed(&mut client, RESET_V3, b"")).unwrap();
    let mut renewed = Wrap::dynamic(client.keys(), exported, Role::Client);
    let mut packet = sealed(&mut renewed, CONTROL, b"both know it");
    assert_eq!(number(&packet, &renewed).id, 1, "there is nothing to announce");
    assert!(Wrap::dynamic(server.keys(), exported, Role::Server).open(&mut packet).is_ok());
}

#[test]
fn invalid_key_file_is_refused_without_showing_the_key() {
    let missing = |mark: &str| Some(KeyError::NoMark(mark.to_owned()));
    assert_eq!(StaticKey::parse("").err(), missing("-----BEGIN OpenVPN Static key V1-----"));
    assert_eq!(
        StaticKey::parse(STATIC.split("-----END").next().unwrap()).err(),
        missing("-----END OpenVPN Static key V1-----")
    );
    assert_eq!(StaticKey::parse(&STATIC.replace("8f9c", "8fzc")).err(), Some(KeyError::NotHexadecimal));
    for (text, bytes) in [(STATIC.replace("8f9c", "8f"), 255), (STATIC.replace("8f9c", "8f9caa"), 257)] {
        assert_eq!(StaticKey::parse(&text).err(), Some(KeyError::Length { bytes, right: "256" }));
    }
    assert!(matches!(WrapKeys::crypt_v2(SERVER), Err(KeyError::NoMark(_))));
    assert!(matches!(WrapKeys::crypt_v2_server(CLIENT), Err(KeyError::NoMark(_))));
    assert_eq!(WrapKeys::crypt_v2_server(&SERVER.replace("HrL8", "HrL?")).err(), Some(KeyError::NotBase64));
    let short = SERVER.replace("HrL8", "");
    assert_eq!(WrapKeys::crypt_v2_server(&short).err(), Some(KeyError::Length { bytes: 125, right: "128" }));
    let cut: String = CLIENT.lines().take(6).chain(CLIENT.lines().last()).map(|line| format!("{line}\n")).collect();
    assert!(matches!(WrapKeys::crypt_v2(&cut), Err(KeyError::Length { .. })));
    for direction in [("0", Some(KeyDirection::Normal)), ("1", Some(KeyDirection::Inverse)), ("2", None)] {
        assert_eq!(KeyDirection::from_name(direction.0), direction.1);
    }
    for (_, client, server, _) in pairs() {
        let shown = format!("{client:?} {server:?} {:?}", static_key());
        assert!(shown.contains("StaticKey(..)") && shown.len() < 400, "{shown}");
    }
}

#[test]
fn idle_session_uses_little_memory() {
    assert!(size_of::<Wrap>() <= 64 && size_of::<Reliable>() <= 160, "{}", size_of::<Reliable>());
    assert_eq!(Acks::default().len(), 0);
}
