//! Data packets that a server of OpenVPN 2.6.14 sent, with the keys that its client printed (`--verb 11`):
//! keepalives, and compressed echo requests of 628 bytes.

use leadline_tunnel::openvpn::client::PING;
use leadline_tunnel::openvpn::data::{DataChannel, DataCipher, DataError, DataOptions, Framing};
use leadline_tunnel::openvpn::digest::Digest;
use leadline_tunnel::openvpn::keys;
use leadline_tunnel::openvpn::role::Role;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

/// The channel of a client that receives with these keys.
fn client(options: DataOptions, cipher: &str, hmac: &str) -> DataChannel {
    let mut keys = [0; 256];
    for (start, part) in [(128, unhex(cipher)), (192, unhex(hmac))] {
        keys[start..start + part.len()].copy_from_slice(&part);
    }
    DataChannel::new(&keys::from_exported(keys), Role::Client, 0, &options).expect("a channel")
}

fn opened(mut channel: DataChannel, packet: &str) -> Vec<u8> {
    let payload = channel.open(&mut unhex(packet)).expect("the server's packet").to_vec();
    assert_eq!(channel.open(&mut unhex(packet)), Err(DataError::Replayed));
    payload
}

/// Checks `ping -s 600 -p 41` from the server: after the time stamp, one byte repeats.
fn assert_echo_request(packet: &[u8]) {
    assert_eq!(packet.len(), 628);
    assert_eq!((packet[0], packet[9], packet[20]), (0x45, 1, 8), "IPv4, ICMP, echo request");
    assert_eq!((&packet[12..16], &packet[16..20]), (&[10, 9, 0, 1][..], &[10, 9, 0, 2][..]));
    assert!(packet[44..].iter().all(|byte| *byte == 0x41));
    for covered in [&packet[..20], &packet[20..]] {
        let words = covered.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF, "its checksum");
    }
}

#[test]
fn openvpn_keepalives_are_opened() {
    let stub = DataOptions { framing: Framing::StubSwap, ..DataOptions::new(DataCipher::ChaCha20Poly1305) };
    let key = "a402c6acb50ba481f80e16c90e57a71acca005cd670805127a719fd60b7c5ec0";
    let packet = "48000000000000035726fb591fcc99559cfccde530ff56884a7792eab74c674e655d3ba67fbb445223";
    assert_eq!(opened(client(stub, key, "34aaf864d59a2319"), packet), PING);

    let lzo = DataOptions { framing: Framing::Lzo, ..DataOptions::new(DataCipher::Aes128Gcm) };
    let packet = "4800000000000004b1c9b5e1e9e576d990b808963efeddf81dadc0e48cba0abb7e80104e204a2a85b6";
    assert_eq!(opened(client(lzo, "4bcdabc408520d4db070bf59158520c1", "0648ce8dba2a5221"), packet), PING);

    let sha512 = DataOptions { digest: Some(Digest::Sha512), ..DataOptions::new(DataCipher::Aes192Cbc) };
    let hmac = "3e5770479ba81f1197cf3bb99b14c73c2b85e36b3335116aa6283ea59a30ed1d\
                97c0c1c5875c63847d9d162a9583f32e5a80484f980433cfc4f249454d3f3ef5";
    let packet = "48000000544a24d077f068dab286d5f234436d3f5d7a309056845a3c7ab79e5eb63231f0881b5917fd2e2849d270bea9\
                  b8ef0af8db42b9b3ce83d2bc739bb3deab61f31e5bb06d29f38f265385c8050f477304497f13bd46d8c826cc384412c2\
                  5cdb00878d7145e43484c6712f7cbc151425bfa4";
    assert_eq!(opened(client(sha512, "5a3accfd01ece321e017efea5458105a0482204d67bd1fcc", hmac), packet), PING);
}

#[test]
fn openvpn_lz4_payload_is_opened() {
    let lz4 = DataOptions { framing: Framing::Lz4, ..DataOptions::new(DataCipher::Aes256Gcm) };
    let key = "c4d439118034bc0c24773db84842ea6c8d48bab5899c05a34d50167d4da1a81c";
    let packet = "48000000000000011ba7590e9f72e6176748e47ce794f0eae900aa7e1a054b3c2786ace48218c6ed919db2eab5498f31\
                  7df8a8a7ccd5bc6c419fa8e5d3d05ca2361b3013ec8a4de96f37eceea4fa6c9a0e49";
    assert_echo_request(&opened(client(lz4, key, "6136cd9daaa5e85c"), packet));

    let v2 = DataOptions { framing: Framing::Lz4V2, ..DataOptions::new(DataCipher::Aes128Cbc) };
    let (key, hmac) = ("79ec3b78b2965fda7479eaa0ca677d58", "672dd516581b933d4ee30643cd91a1e49e201871");
    let packet = "4800000033ded49facd4a14884edbfbaf3bab7326fb74caad16dd59d8f48ed1cc24b0e42f9371b320ec3d6e416f7eca4\
                  c2c5ce23484b7797ca90f38669c2299eae05e646c40ca88ef1199f7288dfc3725799b94473cdd8e687e887c20ce7e12b\
                  5dcfb1e9202495b5";
    assert_echo_request(&opened(client(v2, key, hmac), packet));
}

#[test]
fn openvpn_lzo_payload_is_opened() {
    let options =
        DataOptions { framing: Framing::Lzo, digest: Some(Digest::Sha256), ..DataOptions::new(DataCipher::Aes256Cbc) };
    let key = "7285355f3284aef5a7579f0d3e62db0e7c186ee1b68132f01569c0afa070473e";
    let hmac = "57c42f7670bbe10b0b9f9205b3f5bfa5418fabc15a9d63f421ac4e04c7983363";
    let packet = "48000000d447d5c3021326bc4e802492b0cd0b163d6679b6845ec6ff9e8ca0813f13d4ba12f3220a7ffbc1d6e005c8f6\
                  020462be2b7c3a39200e3a6f67d2d82e3134f19894ec0649557bbaf2da9c19a640e3b6c184b912c222c37ad98db0e4bf\
                  8c8d91dab489803903cf0757bcc7533e5fe49ffcc564e6966b47534e4c694cfb84ca88574852dd296414476b74a64916\
                  ea776f98";
    assert_echo_request(&opened(client(options, key, hmac), packet));
    let small = DataOptions { largest_payload: 600, ..options };
    assert_eq!(client(small, key, hmac).open(&mut unhex(packet)), Err(DataError::Framing), "larger than the tunnel's");
}
