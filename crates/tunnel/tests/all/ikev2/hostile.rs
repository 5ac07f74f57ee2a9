//! Peers and bystanders that lie, repeat or flood: no panic, bounded memory, and a tunnel that goes on.

use std::sync::Arc;

use leadline_tunnel::ikev2::client::{Client, Event, Output};
use leadline_tunnel::ikev2::config::Endpoints;
use leadline_tunnel::ikev2::message::{payload, ExchangeType, Header, PayloadWriter, FLAG_RESPONSE};
use leadline_tunnel::ikev2::notify::{kind, Notify};
use leadline_tunnel::ikev2::random::Random;
use leadline_tunnel::ikev2::route::Path;
use leadline_tunnel::protocol::Received;

use super::link::{identity, settings, Simulation, ESP, IKE};

fn client() -> Client {
    let endpoints = Endpoints { local: "192.0.2.1:500".parse().unwrap(), peer: "192.0.2.2:500".parse().unwrap() };
    Client::new(&Arc::new(settings(IKE, ESP)), &Arc::new(identity()), endpoints, Random::new([5; 32]), 0)
}

fn first_message(client: &mut Client) -> Vec<u8> {
    let mut out = Vec::new();
    assert_eq!(client.poll(0, &mut out), Output::Send(Path::Port500));
    out
}

#[test]
fn flood_of_unauthenticated_answers_costs_bounded_memory() {
    let mut client = client();
    let request = Header::parse(&first_message(&mut client)).unwrap();
    let header = Header { spi_r: 0, flags: FLAG_RESPONSE, ..request };
    let flood = |client: &mut Client, round: u32| {
        for kind in [kind::COOKIE, kind::INVALID_KE_PAYLOAD, kind::NO_PROPOSAL_CHOSEN, 16407, 9999] {
            let mut chain = PayloadWriter::new();
            let data = [0, 19, round as u8, 7];
            let data = if kind == kind::INVALID_KE_PAYLOAD { &data[..2] } else { &data[..] };
            for _ in 0..20 {
                Notify::new(kind, data).push_to(&mut chain);
            }
            let mut message = chain.into_message(header);
            let _: Received<'_> = client.handle(u64::from(round), Path::Port500, &mut message);
        }
        let mut out = Vec::new();
        while let Output::Send(_) | Output::Event(_) = client.poll(u64::from(round), &mut out) {}
    };
    flood(&mut client, 0);
    let info = allocation_counter::measure(|| (1..2000).for_each(|round| flood(&mut client, round)));
    assert!(info.bytes_current < 4096, "{} bytes are kept", info.bytes_current);
}

#[test]
fn random_changes_of_every_message_do_no_harm() {
    let mut simulation = Simulation::good();
    assert!(simulation.run_until(|one| one.has(&Event::ChildUp)));
    let spi = simulation.client.local_spis().0.next().unwrap();
    let mut state = 1u64;
    for round in 0..20_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
        let mut bytes = vec![0; 32 + (state >> 50) as usize % 300];
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (state >> (at % 56)) as u8);
        bytes[..4].copy_from_slice(&[0; 4]);
        bytes[4..12].copy_from_slice(&spi.to_be_bytes());
        bytes[20] = if round % 2 == 0 { payload::SK } else { payload::SKF };
        bytes[21] = 0x20;
        bytes[22] = ExchangeType::Informational as u8;
        let length = (bytes.len() - 4) as u32;
        bytes[28..32].copy_from_slice(&length.to_be_bytes());
        let now_ns = simulation.now_ns;
        assert_eq!(simulation.client.handle(now_ns, Path::Port4500, &mut bytes), Received::Nothing);
    }
    assert!(simulation.ping());
    assert!(simulation.client.counters().rejected >= 20_000);
}

#[test]
fn secrets_are_in_no_debug_output() {
    let identity = identity();
    let client = client();
    let shown = format!("{identity:?} {client:?} {:?}", settings(IKE, ESP));
    assert!(!shown.contains("shared\"") && !shown.contains("115, 104, 97, 114"), "{shown}");
    assert!(shown.contains("SecretBytes(..)"));
}
