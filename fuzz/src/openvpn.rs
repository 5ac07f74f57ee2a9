//! OpenVPN from a hostile peer: packets, their protection, messages inside TLS, and data. Whatever is parsed can be
//! encoded again, limits hold, and no input without the keys is accepted.

use std::net::IpAddr;
use std::sync::OnceLock;

use leadline_tunnel::client::server::Transport;
use leadline_tunnel::framing::Unframer;
use leadline_tunnel::openvpn::certificate_subject::{common_name, public_key, subject};
use leadline_tunnel::openvpn::data::{DataChannel, DataCipher, DataError, DataOptions, Framing};
use leadline_tunnel::openvpn::digest::Digest;
use leadline_tunnel::openvpn::keys;
use leadline_tunnel::openvpn::message::control::{next_message, ControlMessage, LONGEST_CONTROL};
use leadline_tunnel::openvpn::message::key_method::KeyMethod;
use leadline_tunnel::openvpn::message::peer_info::Protocols;
use leadline_tunnel::openvpn::message::push::{Pushed, MAX_BYTES, MAX_NAME_SERVERS, MAX_OPTIONS, MIN_MTU};
use leadline_tunnel::openvpn::packet::{early_negotiation_flags, ControlBody, Header};
use leadline_tunnel::openvpn::profile;
use leadline_tunnel::openvpn::role::Role;
use leadline_tunnel::openvpn::wrap::{KeyDirection, StaticKey, Wrap, WrapError, WrapKeys};
use rustls::pki_types::CertificateDer;

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 6] = [
    ("openvpn_packet", packet),
    ("openvpn_wrap", wrap),
    ("openvpn_message", message),
    ("openvpn_data", data),
    ("openvpn_profile", profile),
    ("openvpn_certificate", certificate),
];

/// A control packet after its session id, and the bytes as a TCP stream: the first byte selects the size of pieces.
pub fn packet(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    if let Some(header) = Header::parse(first) {
        assert_eq!(header.byte(), first);
        if let Ok(body) = ControlBody::parse(header.opcode, rest) {
            assert_eq!(body.peer.is_some(), !body.acks.is_empty());
            let mut again = Vec::new();
            body.write(&mut again);
            assert_eq!(ControlBody::parse(header.opcode, &again), Ok(body));
            // An id that is acknowledged twice is stored once.
            assert!(again.len() <= rest.len());
        }
    }
    let _ = early_negotiation_flags(rest);
    let size = usize::from(first) + 1;
    assert_eq!(framed(rest, size), framed(rest, rest.len().max(1)));
}

/// Splits a stream in pieces of one size into packets; returns them and whether the stream is invalid.
fn framed(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, bool) {
    let mut unframer = Unframer::default();
    let mut packets = Vec::new();
    for piece in stream.chunks(size) {
        if unframer.take(&mut piece.to_vec(), |packet| packets.push(packet.to_vec())).is_err() {
            return (packets, true);
        }
    }
    (packets, false)
}

const CAPTURES: [&str; 4] = [
    include_str!("../../crates/tunnel/src/openvpn/wrap/captures/auth.txt"),
    include_str!("../../crates/tunnel/src/openvpn/wrap/captures/auth512.txt"),
    include_str!("../../crates/tunnel/src/openvpn/wrap/captures/crypt.txt"),
    include_str!("../../crates/tunnel/src/openvpn/wrap/captures/v2.txt"),
];

/// Packets, each after its length in two bytes, to one session: the first byte selects the session's keys. Only
/// packets that OpenVPN created with those keys are accepted.
pub fn wrap(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let keys = wrap_keys();
    let mut wrap = match keys.get(usize::from(choice) % (keys.len() + 1)) {
        Some(keys) => Wrap::new(keys.clone()),
        None => Wrap::dynamic(&keys[1], [7; StaticKey::LEN], Role::Client),
    };
    let is_open = matches!(wrap.keys(), WrapKeys::None);
    for packet in pieces(rest) {
        let mut bytes = packet.to_vec();
        let Ok(opened) = wrap.open(&mut bytes) else { continue };
        assert!(opened.session.is_defined() && !opened.header.opcode.is_data());
        if is_open {
            assert_eq!(opened.body, &packet[9..]);
            continue;
        }
        // A following wrapped key is authenticated separately, or skipped if the key is known.
        let proved = if opened.header.opcode.carries_wrapped_key() { 49 + opened.body.len() } else { packet.len() };
        assert!(
            genuine().iter().any(|known| known.starts_with(&packet[..proved])),
            "no packet is accepted without the keys"
        );
        assert_eq!(wrap.open(&mut packet.to_vec()), Err(WrapError::Replayed));
    }
}

fn wrap_keys() -> &'static [WrapKeys] {
    static KEYS: OnceLock<Vec<WrapKeys>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let text = include_str!("../../crates/tunnel/src/openvpn/wrap/captures/static.key");
        let key = StaticKey::parse(text).expect("the key is valid");
        let client = include_str!("../../crates/tunnel/src/openvpn/wrap/captures/v2-client.key");
        let server = include_str!("../../crates/tunnel/src/openvpn/wrap/captures/v2-server.key");
        vec![
            WrapKeys::None,
            WrapKeys::auth(&key, Some(KeyDirection::Normal), Digest::Sha1),
            WrapKeys::auth(&key, Some(KeyDirection::Inverse), Digest::Sha1),
            WrapKeys::auth(&key, None, Digest::Sha512),
            WrapKeys::crypt(&key, Role::Server),
            WrapKeys::crypt(&key, Role::Client),
            WrapKeys::crypt_v2_server(server).expect("the key is valid"),
            WrapKeys::crypt_v2(client).expect("the key is valid"),
        ]
    })
}

/// Packets that OpenVPN sent with these keys.
fn genuine() -> &'static [Vec<u8>] {
    static PACKETS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PACKETS.get_or_init(|| {
        let byte = |digits: &str| u8::from_str_radix(digits, 16).expect("the text is hexadecimal");
        let bytes = |line: &str| (2..line.len()).step_by(2).map(|at| byte(&line[at..at + 2])).collect();
        CAPTURES.iter().flat_map(|capture| capture.lines()).map(bytes).collect()
    })
}

/// Messages inside TLS: the first byte selects the key method's sender; control messages follow.
pub fn message(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    if first & 2 == 0 {
        let from = if first & 1 == 0 { Role::Client } else { Role::Server };
        let Ok(Some((half, used))) = KeyMethod::parse(rest, from) else { return };
        assert_eq!(half.pre_master.is_some(), from == Role::Client);
        let mut again = Vec::new();
        half.write(&mut again).expect("a parsed message can be encoded");
        let length = again.len();
        assert_eq!(KeyMethod::parse(&again, from), Ok(Some((half, length))));
        rest = &rest[used..];
    }
    let mut pushed = Pushed::default();
    while let Ok(Some((bytes, used))) = next_message(rest) {
        assert!(bytes.len() < used && bytes.len() <= LONGEST_CONTROL);
        rest = &rest[used..];
        let Ok(message) = ControlMessage::parse(bytes) else { continue };
        let mut again = Vec::new();
        message.write(&mut again);
        assert_eq!(ControlMessage::parse(&again), Ok(message.clone()));
        let _ = match &message {
            ControlMessage::PushReply(options) => pushed.absorb(options),
            ControlMessage::PushUpdate(changes) => pushed.update(changes),
            _ => continue,
        };
        assert!(pushed.texts.len() <= MAX_OPTIONS);
        assert!(pushed.texts.iter().map(|text| text.len()).sum::<usize>() <= MAX_BYTES);
        assert!(pushed.routes.len() <= MAX_OPTIONS && pushed.dns.len() <= MAX_NAME_SERVERS);
        assert!(pushed.malformed().is_none_or(|text| text.chars().count() <= 100));
        let addresses = [pushed.ifconfig.map(|(own, _)| own.into()), pushed.ifconfig_ipv6.map(|(own, ..)| own.into())];
        assert!(addresses.into_iter().flatten().all(|own: IpAddr| !own.is_multicast() && !own.is_unspecified()));
        assert!(pushed.tun_mtu.is_none_or(|mtu| mtu >= MIN_MTU));
    }
}

/// The data channel between two ends: one byte selects the cipher, one the other options; then follow pieces, each
/// after its length in two bytes. The first byte of a piece selects its source: random bytes, a server's payload, a
/// payload with the piece's own framing, or a damaged packet.
pub fn data(data: &[u8]) {
    let [cipher, agreed, rest @ ..] = data else { return };
    let options = DataOptions {
        peer_id: (agreed & 8 != 0).then_some(7),
        epoch: agreed & 16 != 0,
        framing: Framing::ALL[usize::from(agreed & 7) % Framing::ALL.len()],
        digest: Some(Digest::Sha256),
        replay_window: if agreed & 32 == 0 { 64 } else { 0 },
        ..DataOptions::new(DataCipher::ALL[usize::from(*cipher) % DataCipher::ALL.len()])
    };
    let keys = keys::from_exported([9; keys::KEY_MATERIAL_BYTES]);
    let Ok(mut client) = DataChannel::new(&keys, Role::Client, 0, &options) else {
        assert!(options.epoch && !options.cipher.is_aead());
        return;
    };
    let mut server = DataChannel::new(&keys, Role::Server, 0, &options).expect("both ends accept the same options");
    let mut packet = Vec::new();
    for piece in pieces(rest) {
        let Some((&what, piece)) = piece.split_first() else { continue };
        let before = client.usage().opened_packets;
        packet.clear();
        match what % 4 {
            0 => {
                packet.extend_from_slice(piece);
                assert!(client.open(&mut packet).is_err(), "no packet is accepted without the keys");
                assert_eq!(client.usage().opened_packets, before);
            }
            1 if server.seal(piece, &mut packet).is_ok() => {
                let again = packet.clone();
                assert_eq!(client.open(&mut packet).as_deref(), Ok(piece));
                assert_eq!(client.open(&mut again.clone()).map(|_| ()), Err(DataError::Replayed));
            }
            2 => {
                // A separate pair of channels: packet numbers of the first pair would be used twice.
                let plain = DataOptions { framing: Framing::None, ..options };
                let mut server = DataChannel::new(&keys, Role::Server, 0, &plain).expect("as before");
                let mut client = DataChannel::new(&keys, Role::Client, 0, &options).expect("as before");
                if server.seal(piece, &mut packet).is_ok() {
                    match client.open(&mut packet) {
                        Ok(payload) => assert!((1..=options.largest_payload.max(piece.len())).contains(&payload.len())),
                        Err(error) => assert_eq!(error, DataError::Framing),
                    }
                }
            }
            3 if server.seal(piece, &mut packet).is_ok() => {
                // The header of a CBC packet is not authenticated.
                let proved = packet.len() - 4;
                let at =
                    4 + piece.iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)))
                        % proved;
                let mut damaged = packet.clone();
                damaged[at] ^= 1 << (what >> 5);
                assert!(client.open(&mut damaged).is_err(), "byte {at} was changed");
                assert_eq!(client.open(&mut packet).as_deref(), Ok(piece));
            }
            _ => {}
        }
    }
}

/// A profile: accepted, or refused in one line that names one of its lines.
pub fn profile(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match profile::parse(&text) {
        Ok(profile) => {
            assert!(!profile.remotes.is_empty() && !profile.data_ciphers.is_empty());
            for transport in [Transport::Udp, Transport::Tcp] {
                assert!(profile.options_string(transport).starts_with("V4,"));
            }
            assert!(profile.peer_info(Protocols::ALL).lines().all(|line| line.contains('=')));
            let _ = profile.wrap.keys();
        }
        Err(error) => {
            assert!(error.line <= text.split('\n').count(), "{error:?}");
            assert!(!error.message.is_empty() && !error.message.contains('\n'), "{error:?}");
        }
    }
}

/// A server's certificate before it is verified.
pub fn certificate(data: &[u8]) {
    let certificate = CertificateDer::from(data);
    // A one-byte letter may take two bytes in UTF-8, and the written name of an attribute may be longer than its
    // value.
    let names = [common_name(&certificate), subject(&certificate)];
    assert!(names.iter().flatten().all(|name| name.len() <= 8 * data.len()));
    assert!(public_key(&certificate).is_none_or(|rest| rest.len() < data.len()));
}

/// Splits the data into pieces, each after its length in two bytes.
fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, after) = data.split_first_chunk::<2>()?;
        let (piece, rest) = after.split_at(after.len().min(usize::from(u16::from_be_bytes(*length)) % 2048));
        data = rest;
        Some(piece)
    })
}
