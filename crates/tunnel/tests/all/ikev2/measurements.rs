//! Memory per client, which is a count, and the costs that `make bench` compares, printed by an ignored test.

use std::time::{Duration, Instant};

use leadline_tunnel::esp::cipher::{CipherSuite, Encryption};
use leadline_tunnel::esp::{Inbound, Outbound, Policy};
use leadline_tunnel::ikev2::client::{Client, Event};
use leadline_tunnel::ikev2::dh::{Group, KeyPair};

use super::link::{identity, settings, Faults, Simulation, ESP, IKE};
use super::responder::Options;

const MAX_CLIENT_BYTES: u64 = 16 << 10;

#[test]
fn client_with_a_tunnel_takes_less_than_its_bound() {
    let mut simulation = None;
    // What the gateway and the link hold is counted, too.
    let info = allocation_counter::measure(|| {
        let mut made = Simulation::good();
        assert!(made.run_until(|one| one.has(&Event::ChildUp)));
        simulation = Some(made);
    });
    drop(simulation);
    let whole = std::mem::size_of::<Client>() as u64 + info.bytes_current.max(0) as u64;
    println!(
        "client {} B on the stack, {} B on the heap with the gateway",
        std::mem::size_of::<Client>(),
        info.bytes_current
    );
    assert!(whole < MAX_CLIENT_BYTES, "{whole} bytes");
}

#[test]
#[ignore = "prints times of this machine"]
fn print_costs() {
    let handshakes = (0..1000).map(|seed| {
        let (config, identity) = (settings(IKE, ESP), identity());
        let mut simulation = Simulation::new(config, identity, Options::default(), Faults::default(), seed);
        simulation.run_until(|one| one.has(&Event::ChildUp));
        simulation.client_time
    });
    println!("handshake: {:?} of the client", median(handshakes.collect()));
    let exchanges = (0..1000).map(|_| {
        let peer = KeyPair::generate(Group::X25519).unwrap();
        let began = Instant::now();
        std::hint::black_box(KeyPair::generate(Group::X25519).unwrap().agree(peer.public()).unwrap());
        began.elapsed()
    });
    println!("of it the key exchange: {:?}", median(exchanges.collect()));
    let policy = Policy {
        suite: CipherSuite { encryption: Encryption::AesGcm16(128), integrity: None },
        has_esn: false,
        replay_window: 64,
    };
    let mut outbound = Outbound::new(&policy, 1000, &[7; 20]).unwrap();
    let mut inbound = Inbound::new(&policy, 1000, &[7; 20]).unwrap();
    let mut packet = vec![0x5A; 1400];
    packet[0] = 0x45;
    let (mut out, mut sealing, mut opening) = (Vec::with_capacity(1600), Vec::new(), Vec::new());
    for _ in 0..200 {
        let began = Instant::now();
        for _ in 0..200 {
            out.clear();
            outbound.seal(&packet, &mut out).unwrap();
            std::hint::black_box(&out);
        }
        sealing.push(began.elapsed());
        let seal = |_| {
            let mut sealed = Vec::new();
            outbound.seal(&packet, &mut sealed).unwrap();
            sealed
        };
        let mut sealed: Vec<Vec<u8>> = (0..200).map(seal).collect();
        let began = Instant::now();
        for packet in &mut sealed {
            std::hint::black_box(inbound.open(packet).unwrap());
        }
        opening.push(began.elapsed());
    }
    let rate = |times: Vec<Duration>| 1400.0 * 200.0 / median(times).as_secs_f64() / 1e6;
    println!("seal {:.0} MB/s, open {:.0} MB/s of 1400-byte packets", rate(sealing), rate(opening));
}

/// The middle one: other work on the machine makes some of them longer.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn packets_are_sealed_and_opened_without_allocation() {
    for encryption in [Encryption::AesGcm16(128), Encryption::ChaCha20Poly1305] {
        let policy = Policy { suite: CipherSuite { encryption, integrity: None }, has_esn: false, replay_window: 64 };
        let mut outbound = Outbound::new(&policy, 1000, &[7; 36]).unwrap();
        let mut inbound = Inbound::new(&policy, 1000, &[7; 36]).unwrap();
        let (mut packet, mut out) = ([0x5A; 1400], Vec::with_capacity(1600));
        packet[0] = 0x45;
        let info = allocation_counter::measure(|| {
            for _ in 0..100 {
                out.clear();
                outbound.seal(&packet, &mut out).unwrap();
                inbound.open(&mut out).unwrap();
            }
        });
        assert_eq!(info.count_total, 0, "{encryption:?}");
    }
}
