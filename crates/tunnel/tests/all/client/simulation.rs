//! Clients and their server in virtual time: a server machine behind links of 1 ms, and a recorder of each client's
//! actions. No test waits: time jumps from one event to the next. The server here is our own OpenVPN machine, which
//! assigns, responds and echoes as each test needs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use leadline_testkit::openvpn::{Pki, Setup};
use leadline_tunnel::client::assigned_config::AssignedConfig;
use leadline_tunnel::client::effects::{
    ArrivalTime, Close, Counts, Effects, Figures, Flushed, Inbox, Metric, Scratch, Socket, SocketError,
};
use leadline_tunnel::client::expectation::Expectation;
use leadline_tunnel::client::phase::Phase;
use leadline_tunnel::client::server::Server;
use leadline_tunnel::client::server::Transport;
use leadline_tunnel::client::settings::{PingSettings, Settings};
use leadline_tunnel::client::{Input, Progress, VpnClient};
use leadline_tunnel::inside::icmp;
use leadline_tunnel::openvpn::client::Received;
use leadline_tunnel::openvpn::fleet::OpenVpn;
use leadline_tunnel::openvpn::server::{Peer, PeerEvent, PeerOutput, ServerConfig};
use leadline_tunnel::secret::Secret;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// The server's behaviour for each connection, by the number of connections before it.
#[derive(Clone)]
pub struct Behaviour {
    pub transport: Transport,
    /// Options that the server pushes to a client.
    pub pushes: fn(u32) -> Vec<String>,
    /// Whether the server responds on a connection; if not, it closes a TCP connection.
    pub responds: fn(u32) -> bool,
    /// Whether the server answers TCP's handshake.
    pub accepts: bool,
    /// Number of echo requests inside each tunnel that are lost before one is answered.
    pub lost_echoes: u32,
    /// Whether echo requests inside a tunnel are answered.
    pub echoes: bool,
    /// Whether an echo reply is sent twice.
    pub duplicates_replies: bool,
    /// A message that the server sends once this many of a client's echo requests have been answered.
    pub message: Option<(u32, &'static str)>,
    /// Users who may connect, with their passwords; if empty, every user may.
    pub users: &'static [(&'static str, &'static str)],
    /// Whether the server refuses clients after they have renewed their keys.
    pub refuses_renewed: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            transport: Transport::Udp,
            pushes: unique_address,
            responds: |_| true,
            accepts: true,
            lost_echoes: 0,
            echoes: true,
            duplicates_replies: false,
            message: None,
            users: &[],
            refuses_renewed: false,
        }
    }
}

/// Assigns each connection its own address.
pub fn unique_address(connection: u32) -> Vec<String> {
    vec![format!("ifconfig 10.8.0.{} 255.255.255.0", connection + 2)]
}

/// Settings that a test changes before its simulation begins.
pub struct TestSettings {
    pub behaviour: Behaviour,
    pub attempt_ns: u64,
    pub retries: u32,
    pub first_data_ns: u64,
    pub hand_window_ns: u64,
    pub expectation: Expectation,
    pub ping_gap_ns: Option<u64>,
    pub user: Option<(&'static str, &'static str)>,
}

impl Default for TestSettings {
    fn default() -> Self {
        Self {
            behaviour: Behaviour::default(),
            attempt_ns: 30 * SECOND,
            retries: 0,
            first_data_ns: 30 * SECOND,
            hand_window_ns: 60 * SECOND,
            expectation: Expectation::default(),
            ping_gap_ns: None,
            user: None,
        }
    }
}

/// The server's side of all connections.
pub trait SimulatedServer {
    /// Handles a packet of a connection.
    fn receive(&mut self, now_ns: u64, connection: u32, packet: &mut [u8]);

    /// When the server has work, ns.
    fn wakes_ns(&self) -> Option<u64>;

    /// Lets all connections do what is due; returns the packets that they send.
    fn poll(&mut self, now_ns: u64) -> Vec<(u32, Vec<u8>)>;

    /// Whether the server takes a TCP connection, and whether it then closes it.
    fn accepts(&self, _connection: u32) -> (bool, bool) {
        (false, false)
    }
}

/// Clients, their server, and the packets in transit between them.
pub struct Simulation<S = ServerSide> {
    pub now_ns: u64,
    pub clients: Vec<DrivenClient>,
    pub server: S,
    /// The arrivals in transit, with their times, ns.
    in_transit: Vec<(u64, Arrival)>,
}

/// A client and the recorder of its actions.
pub struct DrivenClient {
    pub client: VpnClient,
    pub recorder: Recorder,
}

enum Arrival {
    AtServer { connection: u32, packet: Vec<u8> },
    AtClient { client: usize, connection: u32, packet: Vec<u8> },
    Connected { client: usize, connection: u32 },
    Closed { client: usize, connection: u32 },
}

impl Simulation {
    pub fn new(clients: u32, settings: TestSettings) -> Self {
        let pki = Pki::new();
        let mut setup = Setup::new(&pki);
        setup.client.hand_window_ns = settings.hand_window_ns;
        setup.client.is_stream = settings.behaviour.transport == Transport::Tcp;
        setup.server.users =
            settings.behaviour.users.iter().map(|(user, own)| ((*user).into(), (*own).into())).collect();
        setup.identity.user = settings.user.map(|(user, password)| (user.to_owned(), Secret::from(password)));
        let offered = setup.client.ciphers.iter().map(|cipher| cipher.name()).collect();
        let server = Server { address: "192.0.2.1:1194".parse().unwrap(), transport: settings.behaviour.transport };
        let shared = Arc::new(Settings {
            protocol: Arc::new(OpenVpn { config: Arc::new(setup.client), identities: vec![setup.identity] }),
            servers: vec![server],
            attempt_ns: settings.attempt_ns,
            retries: settings.retries,
            expectation: Expectation { offered, ..settings.expectation },
            mtu: None,
            first_data_ns: settings.first_data_ns,
            pings: settings.ping_gap_ns.map(|gap_ns| PingSettings { gap_ns, clients }),
        });
        let server = ServerSide {
            config: Arc::new(setup.server),
            behaviour: settings.behaviour,
            connections: BTreeMap::new(),
            events: Vec::new(),
        };
        Self::of(clients, &shared, server)
    }

    /// Creates clients that all arrive now.
    pub fn arrived(clients: u32, settings: TestSettings) -> Self {
        let mut simulation = Self::new(clients, settings);
        (0..clients as usize).for_each(|client| simulation.pass(client, Input::Arrive { due_ns: 0 }));
        simulation
    }
}

impl<S: SimulatedServer> Simulation<S> {
    /// Creates clients with these settings whose arrivals are not due, and their server.
    pub fn of(clients: u32, settings: &Arc<Settings>, server: S) -> Self {
        let (opened, claims) = (Rc::new(Cell::new(0)), Rc::default());
        let driven = |number| DrivenClient {
            client: VpnClient::new(number, Arc::clone(settings), 0),
            recorder: Recorder::new(Rc::clone(&opened), Rc::clone(&claims), number),
        };
        Self { now_ns: 0, clients: (0..clients).map(driven).collect(), server, in_transit: Vec::new() }
    }

    /// Passes an input to a client, and lets it do what is due.
    pub fn pass(&mut self, client: usize, input: Input) {
        let DrivenClient { client: machine, recorder } = &mut self.clients[client];
        recorder.now_ns = self.now_ns;
        let mut progress = machine.handle(self.now_ns, input, recorder);
        while progress == Progress::Again {
            progress = machine.poll(self.now_ns, recorder);
        }
        self.send_outgoing(client);
    }

    /// Advances the time to `until_ns`.
    pub fn run(&mut self, until_ns: u64) {
        self.run_while(until_ns, |_| true);
    }

    /// Advances the time to `until_ns` at the latest, while a condition holds after each event.
    pub fn run_while(&mut self, until_ns: u64, holds: impl Fn(&Self) -> bool) {
        while holds(self) {
            let timers = self.clients.iter().filter_map(|driven| driven.client.deadline_ns());
            let arrivals = self.in_transit.iter().map(|(at_ns, _)| *at_ns);
            let next = timers.chain(arrivals).chain(self.server.wakes_ns()).min();
            let Some(next_ns) = next.filter(|next_ns| *next_ns <= until_ns) else {
                self.now_ns = until_ns;
                return;
            };
            self.now_ns = self.now_ns.max(next_ns);
            self.step();
        }
    }

    /// The client's phase.
    pub fn phase(&self, client: usize) -> Phase {
        self.clients[client].client.phase()
    }

    /// Failures of all clients, by name.
    pub fn failures(&self) -> BTreeMap<&'static str, usize> {
        let mut named = BTreeMap::new();
        for (name, _) in self.clients.iter().flat_map(|driven| &driven.recorder.failures) {
            *named.entry(*name).or_insert(0) += 1;
        }
        named
    }

    /// The sum of one count over all clients.
    pub fn count(&self, of: impl Fn(&Counts) -> u64) -> u64 {
        self.clients.iter().map(|driven| of(&driven.recorder.counts)).sum()
    }

    fn step(&mut self) {
        let now_ns = self.now_ns;
        while let Some(place) = self.in_transit.iter().position(|(at_ns, _)| *at_ns <= now_ns) {
            match self.in_transit.remove(place).1 {
                Arrival::AtServer { connection, mut packet } => self.server.receive(now_ns, connection, &mut packet),
                Arrival::AtClient { client, connection, packet } => self.receive(client, connection, packet),
                Arrival::Connected { client, connection } if self.is_open(client, connection) => {
                    self.pass(client, Input::Connected);
                }
                Arrival::Closed { client, connection } if self.is_open(client, connection) => {
                    let error = SocketError::new("closed_early", io::ErrorKind::UnexpectedEof.into());
                    self.pass(client, Input::SocketFailed(error));
                }
                _ => {}
            }
        }
        for client in 0..self.clients.len() {
            if self.clients[client].client.deadline_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                self.pass(client, Input::TimerDue);
            }
        }
        for (connection, packet) in self.server.poll(now_ns) {
            let client = self.clients.iter().position(|driven| driven.recorder.connection == Some(connection));
            if let Some(client) = client {
                self.in_transit.push((now_ns + MS, Arrival::AtClient { client, connection, packet }));
            }
        }
    }

    fn is_open(&self, client: usize, connection: u32) -> bool {
        self.clients[client].recorder.connection == Some(connection)
    }

    fn receive(&mut self, client: usize, connection: u32, mut packet: Vec<u8>) {
        if self.is_open(client, connection) {
            let DrivenClient { client: machine, recorder } = &mut self.clients[client];
            machine.receive(self.now_ns, self.now_ns, &mut packet, recorder);
            self.pass(client, Input::BatchReceived);
        }
    }

    /// Puts the packets that a client has sent in transit.
    fn send_outgoing(&mut self, client: usize) {
        let arrives_ns = self.now_ns + MS;
        let recorder = &mut self.clients[client].recorder;
        for connection in recorder.opened.drain(..) {
            let (is_accepted, is_closed) = self.server.accepts(connection);
            if is_accepted {
                self.in_transit.push((arrives_ns, Arrival::Connected { client, connection }));
                if is_closed {
                    self.in_transit.push((arrives_ns + MS, Arrival::Closed { client, connection }));
                }
            }
        }
        for (connection, packet) in recorder.outgoing.drain(..) {
            self.in_transit.push((arrives_ns, Arrival::AtServer { connection, packet }));
        }
    }
}

/// The server's side of all connections.
pub struct ServerSide {
    config: Arc<ServerConfig>,
    pub behaviour: Behaviour,
    connections: BTreeMap<u32, Connection>,
    /// Events of connections.
    pub events: Vec<(u32, PeerEvent)>,
}

#[derive(Default)]
struct Connection {
    peer: Option<Peer>,
    lost: u32,
    answered: u32,
    outgoing: Vec<Vec<u8>>,
    wakes_ns: Option<u64>,
}

impl ServerSide {
    /// How often an event occurred.
    pub fn happened(&self, event: &PeerEvent) -> usize {
        self.events.iter().filter(|(_, happened)| happened == event).count()
    }

    /// Accesses the session of a connection.
    pub fn with(&mut self, connection: u32, act: impl FnOnce(&mut Peer)) {
        let connection = self.connections.get_mut(&connection).expect("a connection");
        act(connection.peer.as_mut().expect("a session"));
        connection.wakes_ns = Some(0);
    }
}

impl SimulatedServer for ServerSide {
    fn accepts(&self, connection: u32) -> (bool, bool) {
        let is_accepted = self.behaviour.transport == Transport::Tcp && self.behaviour.accepts;
        (is_accepted, is_accepted && !(self.behaviour.responds)(connection))
    }

    fn wakes_ns(&self) -> Option<u64> {
        self.connections.values().filter_map(|connection| connection.wakes_ns).min()
    }

    fn receive(&mut self, now_ns: u64, number: u32, packet: &mut [u8]) {
        let Self { config, behaviour, connections, .. } = self;
        let connection = connections.entry(number).or_default();
        connection.wakes_ns = Some(now_ns);
        let Some(peer) = &mut connection.peer else {
            if (behaviour.responds)(number) {
                connection.peer = Peer::accept(config, (behaviour.pushes)(number), number, now_ns, packet);
            }
            return;
        };
        let Received::Payload(payload) = peer.handle(now_ns, packet) else { return };
        let mut reply = Vec::new();
        if connection.lost < behaviour.lost_echoes {
            connection.lost += 1;
        } else if behaviour.echoes && icmp::answer(payload, &mut reply) {
            let mut sealed = Vec::new();
            peer.send(&reply, &mut sealed).expect("the tunnel is up");
            connection.outgoing.extend(behaviour.duplicates_replies.then(|| sealed.clone()));
            connection.outgoing.push(sealed);
            connection.answered += 1;
            if let Some((_, message)) = behaviour.message.filter(|(after, _)| *after == connection.answered) {
                peer.send_message(message);
            }
        }
    }

    fn poll(&mut self, now_ns: u64) -> Vec<(u32, Vec<u8>)> {
        let Self { behaviour, connections, events, .. } = self;
        let mut sent = Vec::new();
        for (number, connection) in connections {
            sent.extend(connection.outgoing.drain(..).map(|packet| (*number, packet)));
            connection.wakes_ns = None;
            let Some(peer) = &mut connection.peer else { continue };
            let mut out = Vec::new();
            connection.wakes_ns = loop {
                match peer.poll(now_ns, &mut out) {
                    PeerOutput::Send => sent.push((*number, out.clone())),
                    PeerOutput::Event(event) => {
                        if event == PeerEvent::Renegotiated && behaviour.refuses_renewed {
                            peer.send_message("AUTH_FAILED");
                        }
                        events.push((*number, event));
                    }
                    PeerOutput::Wait(at_ns) => break at_ns,
                }
            };
        }
        sent
    }
}

/// A recorder of a client's actions.
pub struct Recorder {
    now_ns: u64,
    number: u32,
    /// Number of connections that all clients have opened.
    all_opened: Rc<Cell<u32>>,
    /// The client that holds each address.
    claims: Rc<RefCell<BTreeMap<IpAddr, u32>>>,
    /// The open connection.
    pub connection: Option<u32>,
    opened: Vec<u32>,
    outgoing: Vec<(u32, Vec<u8>)>,
    /// Data packets since the last flush.
    outbox: Vec<Vec<u8>>,
    scratch: Scratch,
    /// The error of the next control packet.
    pub control_error: Option<SocketError>,
    /// The error of the next flush.
    pub flush_error: Option<SocketError>,
    pub counts: Counts,
    /// Metric and duration, ns.
    pub recorded: Vec<(Metric, u64)>,
    pub failures: Vec<(&'static str, String)>,
    pub phases: Vec<Phase>,
    pub arrival_ended_ns: Option<u64>,
    pub broken_traffic: Vec<&'static str>,
    pub delivered: Vec<Vec<u8>>,
    pub closed: Vec<Close>,
    pub pings_since_ns: Option<u64>,
}

impl Recorder {
    fn new(all_opened: Rc<Cell<u32>>, claims: Rc<RefCell<BTreeMap<IpAddr, u32>>>, number: u32) -> Self {
        Self {
            now_ns: 0,
            number,
            all_opened,
            claims,
            connection: None,
            opened: Vec::new(),
            outgoing: Vec::new(),
            outbox: Vec::new(),
            scratch: Scratch::default(),
            control_error: None,
            flush_error: None,
            counts: Counts::default(),
            recorded: Vec::new(),
            failures: Vec::new(),
            phases: Vec::new(),
            arrival_ended_ns: None,
            broken_traffic: Vec::new(),
            delivered: Vec::new(),
            closed: Vec::new(),
            pings_since_ns: None,
        }
    }

    /// How often a metric was recorded.
    pub fn times(&self, metric: Metric) -> usize {
        self.recorded.iter().filter(|(recorded, _)| *recorded == metric).count()
    }
}

impl Figures for Recorder {
    fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    fn record(&mut self, metric: Metric, _due_ns: u64, value_ns: u64) {
        self.recorded.push((metric, value_ns));
    }

    fn arrival_time(&self, _at_ns: u64) -> ArrivalTime {
        ArrivalTime::During
    }
}

impl Inbox for Recorder {
    fn deliver(&mut self, _arrived_ns: u64, packet: &[u8]) {
        self.delivered.push(packet.to_vec());
    }

    fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.scratch.replies
    }

    fn space(&mut self) -> &mut Vec<u8> {
        &mut self.scratch.space
    }
}

impl Socket for Recorder {
    fn connect(&mut self, _server: Server) -> Result<(), SocketError> {
        let number = self.all_opened.get();
        self.all_opened.set(number + 1);
        self.connection = Some(number);
        self.opened.push(number);
        Ok(())
    }

    fn close(&mut self, manner: Close) {
        if self.connection.take().is_some() {
            self.closed.push(manner);
        }
    }

    fn local(&self) -> Option<SocketAddr> {
        self.connection.map(|number| SocketAddr::from(([198, 51, 100, 1], 10_000 + number as u16)))
    }

    fn send_control(&mut self, packet: &mut Vec<u8>) -> Result<u64, SocketError> {
        if let Some(error) = self.control_error.take() {
            return Err(error);
        }
        self.outgoing.extend(self.connection.map(|number| (number, packet.clone())));
        Ok(self.now_ns)
    }

    fn send_data<E>(&mut self, seal: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> bool {
        let mut packet = Vec::new();
        let is_sealed = seal(&mut packet).is_ok();
        self.outbox.extend(is_sealed.then_some(packet));
        is_sealed
    }

    fn flush(&mut self) -> Flushed {
        let packets = std::mem::take(&mut self.outbox);
        if let Some(error) = self.flush_error.take() {
            return Flushed { refused: packets.len() as u64, error: Some(error) };
        }
        if let Some(number) = self.connection {
            self.outgoing.extend(packets.into_iter().map(|packet| (number, packet)));
        }
        Flushed::default()
    }
}

impl Effects for Recorder {
    fn socket(&mut self) -> &mut impl Socket {
        self
    }

    fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }

    fn entered(&mut self, from: Phase, to: Phase) {
        assert_eq!(self.phases.last().copied().unwrap_or_default(), from);
        self.phases.push(to);
    }

    fn failed(&mut self, name: &'static str, detail: &str) {
        self.failures.push((name, detail.to_owned()));
    }

    fn arrival_ended(&mut self, at_ns: u64) {
        assert_eq!(self.arrival_ended_ns.replace(at_ns), None, "an arrival ends once");
    }

    fn claim(&mut self, assigned: &AssignedConfig, _now_ns: u64) -> Option<&'static str> {
        let mut claims = self.claims.borrow_mut();
        let held = assigned.addresses().filter(|address| *claims.entry(*address).or_insert(self.number) != self.number);
        (held.count() > 0).then_some("partial_address_not_unique")
    }

    fn release(&mut self, assigned: &AssignedConfig, _heard_ns: Option<u64>) {
        let mut claims = self.claims.borrow_mut();
        assigned.addresses().for_each(|address| {
            if claims.get(&address) == Some(&self.number) {
                claims.remove(&address);
            }
        });
    }

    fn break_traffic(&mut self, name: &'static str, _detail: &'static str) {
        self.broken_traffic.push(name);
    }

    fn packets_refused(&mut self, _packets: u64) {}

    fn pings_since_ns(&self) -> Option<u64> {
        self.pings_since_ns
    }
}
