//! Tests of the data channel against known packets, against itself in every combination, and against packets that are
//! changed, truncated, repeated or random. The known packets were computed with Python's hashlib and its
//! `cryptography` package by the formulas of each format, from keys whose bytes count from 0 to 255.

use aws_lc_rs::digest;
use proptest::prelude::*;

use super::*;
use crate::openvpn::keys::{self, KeyMaterial};

const PAYLOAD: &[u8] = b"an IP packet";
const KEY_ID: u8 = 1;
const PEER_ID: u32 = 0x01_02_03;

fn keys() -> KeyMaterial {
    keys::from_exported(std::array::from_fn(|index| index as u8))
}

fn options(cipher: DataCipher) -> DataOptions {
    DataOptions { peer_id: Some(PEER_ID), ..DataOptions::new(cipher) }
}

fn channel(role: Role, options: &DataOptions) -> DataChannel {
    DataChannel::new(&keys(), role, KEY_ID, options).expect("options that go together")
}

fn pair(options: &DataOptions) -> (DataChannel, DataChannel) {
    (channel(Role::Client, options), channel(Role::Server, options))
}

fn sealed(channel: &mut DataChannel, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    channel.seal(payload, &mut out).expect("a packet");
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// Every combination in which packets are authenticated: ciphers, digests, both headers, the epoch format, framings,
/// both kinds of replay window.
fn every_option_set() -> Vec<DataOptions> {
    let mut ways = Vec::new();
    for cipher in DataCipher::ALL {
        let digests = if cipher.is_aead() { &Digest::ALL[..1] } else { &Digest::ALL[..] };
        let epochs: &[bool] = if cipher.is_aead() { &[false, true] } else { &[false] };
        for digest in digests.iter().copied().map(Some) {
            for &epoch in epochs {
                for framing in Framing::ALL {
                    for (peer_id, replay_window) in [(Some(PEER_ID), REPLAY_WINDOW), (None, 0)] {
                        let defaults = DataOptions::new(cipher);
                        ways.push(DataOptions { digest, epoch, framing, peer_id, replay_window, ..defaults });
                    }
                }
            }
        }
    }
    ways
}

fn any_option_set() -> impl Strategy<Value = DataOptions> {
    prop::sample::select(every_option_set())
}

#[test]
fn prf_keys_match_an_independent_implementation() {
    let randoms = |first, second| keys::Randoms { r1: [first; 32], r2: [second; 32] };
    let pre_master = std::array::from_fn(|index| index as u8);
    let made = keys::from_prf(&pre_master, &randoms(0x11, 0x22), &randoms(0x33, 0x44), b"CLIENTID", b"SERVERID");
    let (client, server) = (made.sending(Role::Client), made.receiving(Role::Client));
    let all = [*client.cipher, *client.hmac, *server.cipher, *server.hmac].concat();
    assert!(hex(&all).starts_with("26215356c2111695129f30d1ea56d9688b92a8955219cf1991fb3d4f12c615e7"));
    assert_eq!(
        hex(digest::digest(&digest::SHA256, &all).as_ref()),
        "909c1d44c650b7cbd9777dd5ee0fda88451debc729ed682af020ce8f49d39f5c"
    );
    assert_eq!(format!("{made:?} {:?}", randoms(1, 2)), "KeyMaterial(..) Randoms(..)");
}

#[test]
fn aead_packets_match_known_bytes() {
    let v1 = |cipher| DataOptions::new(cipher);
    for (options, epoch, answer) in [
        (
            options(DataCipher::Aes256Gcm),
            false,
            "49010203000000011cf0dfa75855841e0cd084e1dd0bbddfaaa55bf43b96d6a876d53103",
        ),
        (
            options(DataCipher::Aes192Gcm),
            false,
            "490102030000000168c94dba5960ababfbe94d006f9507f08d189a288c30c01c2b81240c",
        ),
        (v1(DataCipher::Aes128Gcm), false, "310000000121cc907258fb6c92dd4daf9211aeadd8b36ddcae8cf34af1e1b64cd9"),
        (v1(DataCipher::ChaCha20Poly1305), false, "3100000001bf916b25a5a01b46d58006083f6977816fea128da38c135ff0dd8287"),
        (
            options(DataCipher::ChaCha20Poly1305),
            true,
            "490102030001000000000001c05ff2b31f25df9929e56db678daebeea4d83632eb44c9947487d695",
        ),
        (v1(DataCipher::Aes256Gcm), true, "31000100000000000189885c0e60184351f6242d76aecda6e07de3ab774ec122310474694c"),
    ] {
        let options = DataOptions { epoch, ..options };
        let (mut client, mut server) = pair(&options);
        let mut packet = sealed(&mut client, PAYLOAD);
        assert_eq!(hex(&packet), answer, "{options:?}");
        assert_eq!(server.open(&mut packet).expect("its own packet"), PAYLOAD);
    }
}

#[test]
fn cbc_packets_of_another_implementation_are_opened() {
    for (cipher, digest, packet) in [
        (
            DataCipher::Aes256Cbc,
            Digest::Sha256,
            "49010203c330f6b1956b3b933a322a1fc68a6ff5236f4d1c26c0d335cf18d94ec25a42e76465666768696a6b6c6d6e6f70717273\
             fea157893bbeb81c8106d9d0c6d4d110327e1f0cf498e00d952706f982fa1c52",
        ),
        (
            DataCipher::Aes128Cbc,
            Digest::Sha1,
            "31ccad1288ecff05dc8bf2c4ce8420489691a7e18f6465666768696a6b6c6d6e6f70717273\
             7b6da638b4c4a056d94071705b8e4d1fb2c97534d62db61e7a0ced428b3fa26b",
        ),
        (
            DataCipher::Aes192Cbc,
            Digest::Sha512,
            "49010203c244ae28923c3d037ff5411e8723b4405f1c66b87b219a71bd18170eeefb4345caf15362dc0d5d8c47ee5f2ffb1ef355\
             6b8b031fdc2a30e07037d443ba039d236465666768696a6b6c6d6e6f70717273\
             afe1e5b2c3a85486bee80cf70ce88be8170027f592c48e519736e26bcc4d646e",
        ),
    ] {
        let mut server = channel(Role::Server, &DataOptions { digest: Some(digest), ..options(cipher) });
        assert_eq!(server.open(&mut unhex(packet)).expect("a known packet"), PAYLOAD, "{cipher:?} {digest:?}");
    }
}

/// The packet above without its HMAC (`auth none`).
#[test]
fn cbc_packets_without_digest_are_checked_by_number() {
    let without = DataOptions { digest: None, ..options(DataCipher::Aes256Cbc) };
    let (mut client, mut server) = pair(&without);
    let known =
        "490102036465666768696a6b6c6d6e6f70717273fea157893bbeb81c8106d9d0c6d4d110327e1f0cf498e00d952706f982fa1c52";
    assert_eq!(server.open(&mut unhex(known)), Ok(PAYLOAD.to_vec().as_mut_slice()));
    assert_eq!(server.open(&mut unhex(known)), Err(DataError::Replayed));
    // Its first number was received before.
    sealed(&mut client, PAYLOAD);
    let mut packet = sealed(&mut client, PAYLOAD);
    assert_eq!(packet.len(), known.len() / 2);
    assert_eq!(server.open(&mut packet), Ok(PAYLOAD.to_vec().as_mut_slice()));
    assert_eq!(server.open(&mut packet[..20]), Err(DataError::Short));
}

#[test]
fn sealing_follows_the_peers_epoch() {
    // The client's first packets of epochs 1, 2, 5 and 6, as another implementation seals them.
    let packet = |epoch: u8| {
        unhex(match epoch {
            1 => "490102030001000000000001c05ff2b31f25df9929e56db678daebeea4d83632eb44c9947487d695",
            2 => "490102030002000000000001a981a0bbd9a449393312b172ef49a8a0e9a3f7ba050959cd569b8fc3",
            5 => "4901020300050000000000019dc25efd4de47d7d16cda1aa8d45cc6f6163ad44f2284e233da31c92",
            _ => "4901020300060000000000019c652a4696a47a832bafb97887ba62d5262cb9756f11bb6392bbadf9",
        })
    };
    let options = DataOptions { epoch: true, ..options(DataCipher::ChaCha20Poly1305) };
    let (mut client, mut server) = pair(&options);
    assert_eq!(server.open(&mut packet(6)), Err(DataError::UnknownEpoch), "an epoch five ahead is refused");
    assert_eq!(server.open(&mut packet(5)).expect("an epoch four ahead is accepted"), PAYLOAD);
    assert_eq!(server.open(&mut packet(5)), Err(DataError::Replayed));
    assert_eq!(server.open(&mut packet(1)).expect("the previous epoch is still accepted"), PAYLOAD);
    assert_eq!(server.open(&mut packet(1)), Err(DataError::Replayed), "its window is kept");
    assert_eq!(server.open(&mut packet(2)), Err(DataError::UnknownEpoch), "the epoch was skipped");
    assert_eq!(server.open(&mut packet(6)).expect("the epoch is one ahead"), PAYLOAD);

    let mut answer = sealed(&mut server, PAYLOAD);
    assert_eq!(answer[4..12], [0, 6, 0, 0, 0, 0, 0, 1], "sealing follows the peer's epoch, and counts from 1");
    assert_eq!(client.open(&mut answer), Err(DataError::UnknownEpoch), "this client was never in epoch 2");
}

#[test]
fn forged_epoch_is_ignored() {
    let options = DataOptions { epoch: true, ..options(DataCipher::Aes128Gcm) };
    let (mut client, mut server) = pair(&options);
    let mut packet = sealed(&mut client, PAYLOAD);
    let mut forged = packet.clone();
    forged[5] = 4;
    assert_eq!(server.open(&mut forged), Err(DataError::Forged));
    assert_eq!(server.open(&mut packet).expect("the packet is in epoch 1"), PAYLOAD);
    assert_eq!(sealed(&mut server, PAYLOAD)[4..6], [0, 1]);
}

#[test]
fn malformed_data_packets_are_refused() {
    let cbc = DataOptions { epoch: true, ..options(DataCipher::Aes256Cbc) };
    assert_eq!(DataChannel::new(&keys(), Role::Client, 0, &cbc).err(), Some(DataError::NoAead));
    for options in every_option_set() {
        let (mut client, mut server) = pair(&options);
        let mut out = vec![9];
        assert_eq!(client.seal(&[], &mut out), Err(DataError::Size(0)));
        assert_eq!(client.seal(&[0; 65_500], &mut out), Err(DataError::Size(65_500)));
        assert_eq!(out, [9]);
        assert!(sealed(&mut client, &[0; LONGEST_PAYLOAD]).len() <= 65_535);
        assert_eq!(server.open(&mut []), Err(DataError::Short));
        for first in 0..=255_u8 {
            assert!(server.open(&mut [first]).is_err());
        }
        let mut other_key = sealed(&mut client, PAYLOAD);
        other_key[0] ^= 2;
        assert_eq!(server.open(&mut other_key), Err(DataError::Foreign));
    }
}

#[test]
fn cipher_names_are_openvpns() {
    for cipher in DataCipher::ALL {
        assert_eq!(DataCipher::from_name(&cipher.name().to_lowercase()), Some(cipher));
        assert_eq!(cipher.is_aead(), !cipher.name().ends_with("CBC"));
    }
    assert_eq!(DataCipher::from_name("BF-CBC"), None);
}

#[test]
fn neither_side_opens_its_own_packets() {
    for options in every_option_set() {
        let mut client = channel(Role::Client, &options);
        let mut packet = sealed(&mut client, PAYLOAD);
        assert_eq!(client.open(&mut packet), Err(DataError::Forged), "{options:?}");
    }
}

#[test]
fn seal_and_open_allocate_nothing() {
    for options in every_option_set() {
        let (mut client, mut server) = pair(&options);
        let mut out = Vec::with_capacity(1600);
        let payload = [7; 1400];
        let allocated = allocation_counter::measure(|| {
            for _ in 0..100 {
                out.clear();
                client.seal(&payload, &mut out).expect("a packet");
                assert!(out.len() <= payload.len() + client.overhead());
                assert_eq!(server.open(&mut out).expect("its own packet"), payload);
            }
        });
        assert_eq!(allocated.count_total, 0, "{options:?}");
        let usage = Usage { sealed_packets: 100, sealed_bytes: 140_000, ..Usage::default() };
        assert_eq!(client.usage(), usage);
        assert_eq!(server.usage().opened_bytes, 140_000);
        assert!(!client.exhausted());
    }
}

#[test]
fn idle_channel_uses_little_memory() {
    // A client of ten thousand may use 64 KiB in total; during a key renewal it has two channels.
    for options in every_option_set() {
        let mut kept = None;
        let allocated = allocation_counter::measure(|| kept = Some(channel(Role::Client, &options)));
        let bytes = allocated.bytes_current + std::mem::size_of::<DataChannel>() as i64;
        assert!(bytes < 8192, "{bytes} bytes for {options:?}");
        drop(kept);
    }
}

proptest! {
    #[test]
    fn sealed_packet_is_opened_by_the_other_end(
        options in any_option_set(),
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..20),
        from_client in any::<bool>(),
        fifties in any::<bool>(),
    ) {
        let (client, server) = pair(&options);
        let (mut sender, mut receiver) = if from_client { (client, server) } else { (server, client) };
        for mut payload in payloads {
            if fifties {
                payload[0] = 0x50;
            }
            let mut packet = sealed(&mut sender, &payload);
            // Version 2 adds two bytes to payloads whose first byte looks like its header.
            prop_assert!(packet.len() <= payload.len() + sender.overhead() + 2);
            prop_assert_eq!(&*receiver.open(&mut packet).expect("a good packet"), &payload[..]);
        }
    }

    #[test]
    fn corrupted_packet_is_refused_without_state_change(
        options in any_option_set(),
        payload in prop::collection::vec(any::<u8>(), 1..100),
        at in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let (mut sender, mut receiver) = pair(&options);
        let mut packet = sealed(&mut sender, &payload);
        let mut changed = packet.clone();
        let at = at.index(packet.len());
        changed[at] ^= change;
        let header_proved = options.cipher.is_aead() && options.peer_id.is_some();
        let peer_id_only = !header_proved && options.peer_id.is_some() && (1..4).contains(&at);
        if peer_id_only {
            // The HMAC of CBC does not cover the header: the channel trusts only the payload.
            prop_assert_eq!(&*receiver.open(&mut changed).expect("the payload is authentic"), &payload[..]);
        } else {
            prop_assert!(receiver.open(&mut changed).is_err());
            prop_assert_eq!(&*receiver.open(&mut packet).expect("the original packet is accepted"), &payload[..]);
        }
    }

    #[test]
    fn truncated_packet_is_refused(options in any_option_set(), payload in prop::collection::vec(any::<u8>(), 1..60)) {
        let (mut sender, mut receiver) = pair(&options);
        let packet = sealed(&mut sender, &payload);
        for length in 0..packet.len() {
            prop_assert!(receiver.open(&mut packet[..length].to_vec()).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(options in any_option_set(), mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut receiver = channel(Role::Server, &options);
        prop_assert!(receiver.open(&mut bytes).is_err());
    }
}
