//! The life of a client whose protocol is a script: the steps of IKE, and a tunnel that stays incomplete.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use leadline_tunnel::client::assigned_config::AssignedConfig;
use leadline_tunnel::client::effects::Metric;
use leadline_tunnel::client::expectation::Expectation;
use leadline_tunnel::client::phase::Phase;
use leadline_tunnel::client::server::{Server, Transport};
use leadline_tunnel::client::settings::Settings;
use leadline_tunnel::client::Input;
use leadline_tunnel::protocol::{
    Counters, Event, Failure, Granted, NotUp, Output, Protocol, Received, Session, Step, Token,
};

use super::simulation::{SimulatedServer, Simulation, SECOND};

const STEPS: [Step; 3] = [Step::Answered, Step::IkeUp, Step::IpAssigned];

struct Script {
    ends_with: Event,
}

struct ScriptedSession {
    events: VecDeque<Event>,
}

impl Protocol for Script {
    fn begin(&self, _client: u32, _token: Option<Token>, _now_ns: u64) -> Box<dyn Session> {
        let events = STEPS.into_iter().map(Event::Step).chain([self.ends_with.clone()]);
        Box::new(ScriptedSession { events: events.collect() })
    }

    fn steps(&self) -> &'static [Step] {
        &STEPS
    }
}

impl Session for ScriptedSession {
    fn handle<'p>(&'p mut self, _now_ns: u64, _packet: &'p mut [u8], _space: &'p mut Vec<u8>) -> Received<'p> {
        Received::Nothing
    }

    fn poll(&mut self, _now_ns: u64, _out: &mut Vec<u8>) -> Output {
        self.events.pop_front().map_or(Output::Wait(None), Output::Event)
    }

    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    fn send(&mut self, _now_ns: u64, _packet: &[u8], _out: &mut Vec<u8>) -> Result<(), NotUp> {
        Err(NotUp)
    }

    fn renegotiate(&mut self, _now_ns: u64) {}

    fn leave(&mut self, _now_ns: u64) {}

    fn assigned(&self, server: Server, _mtu: Option<u16>) -> Option<AssignedConfig> {
        Some(AssignedConfig {
            ipv4: Some([10, 9, 0, 2].into()),
            ipv6: None,
            server_ipv4: None,
            server_ipv6: None,
            peer_id: None,
            server,
            cipher: None,
            mtu: 1400,
        })
    }

    fn granted(&self) -> Option<&dyn Granted> {
        Some(self)
    }

    fn is_first_packet(&self, _packet: &[u8]) -> bool {
        false
    }

    fn retransmits(&self) -> u32 {
        0
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn last_received_ns(&self) -> Option<u64> {
        None
    }

    fn stuck_at(&self) -> &'static str {
        "no_child"
    }
}

impl Granted for ScriptedSession {
    fn has_route(&self, _route: &IpNet) -> bool {
        false
    }

    fn has_dns(&self, _server: &IpAddr) -> bool {
        false
    }

    fn has_option(&self, _text: &str) -> bool {
        false
    }

    fn malformed(&self) -> Option<&str> {
        None
    }
}

struct Silent;

impl SimulatedServer for Silent {
    fn receive(&mut self, _now_ns: u64, _connection: u32, _packet: &mut [u8]) {}

    fn wakes_ns(&self) -> Option<u64> {
        None
    }

    fn poll(&mut self, _now_ns: u64) -> Vec<(u32, Vec<u8>)> {
        Vec::new()
    }
}

fn arrived(ends_with: Event) -> Simulation<Silent> {
    let settings = Settings {
        protocol: Arc::new(Script { ends_with }),
        servers: vec![Server { address: "192.0.2.1:500".parse().unwrap(), transport: Transport::Udp }],
        attempt_ns: 60 * SECOND,
        retries: 0,
        expectation: Expectation::default(),
        mtu: None,
        first_data_ns: 5 * SECOND,
        pings: None,
    };
    let mut simulation = Simulation::of(1, &Arc::new(settings), Silent);
    simulation.pass(0, Input::Arrive { due_ns: 0 });
    simulation.run(SECOND);
    simulation
}

#[test]
fn client_with_an_address_and_no_child_is_partial_by_its_cause() {
    let failure = Failure { name: "no_proposal_chosen", detail: "of the child".to_owned() };
    let simulation = arrived(Event::Incomplete(failure));
    assert_eq!((simulation.phase(0), simulation.failures()), (Phase::Partial, [("no_proposal_chosen", 1)].into()));
    let attempt = simulation.clients[0].client.attempt().unwrap();
    assert_eq!(
        (attempt.cause, attempt.assigned.unwrap().ipv4),
        (Some("no_proposal_chosen"), Some([10, 9, 0, 2].into()))
    );
    let steps = attempt.steps;
    assert_eq!((steps.ike_up_ns, steps.ip_assigned_ns, steps.child_up_ns), (Some(0), Some(0), None));
    assert_eq!(simulation.clients[0].recorder.arrival_ended_ns, Some(0));
}

#[test]
fn server_whose_address_is_not_known_leaves_the_client_partial() {
    let simulation = arrived(Event::Up(Step::ChildUp));
    assert_eq!((simulation.phase(0), simulation.failures()), (Phase::Partial, [("partial_no_data", 1)].into()));
    let steps = simulation.clients[0].client.attempt().unwrap().steps;
    assert_eq!((steps.child_up_ns, steps.configured_ns), (Some(0), None));
    assert_eq!(simulation.clients[0].recorder.times(Metric::ChildUp), 0, "times are those of configured clients");
}
