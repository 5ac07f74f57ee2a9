//! Connections in virtual time: a scripted network, and users that only note how their requests end.

mod endings;
mod limits;
mod random;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use leadline_http::client::{self, ClientTls, Failure, Input, SocketUse, Wire};
use leadline_http::Url;
use leadline_tls::{ServerTls, TlsOptions, TlsServer, TlsVersion};

use super::{ConnectionLimits, Connections, Effects, Origin};
use crate::figures::Age;
use crate::outgoing::Outgoing;
use crate::programs::flow::{ExchangeEnd, ExchangeFailure, Send};
use crate::samples::Opening;

const MS: u64 = 1_000_000;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Answered { status: u16, body: String, opening: Option<Opening> },
    Failed { cause: String, detail: String, timed_out: bool, opening: Option<Opening> },
    GivenUp { latency_ns: Option<u64>, service_ns: Option<u64> },
}

/// A network without sockets.
#[derive(Default)]
struct World {
    /// Slots with a connection, and where it leads.
    open: BTreeMap<u32, Origin>,
    /// Sockets that were kept open at their end.
    kept: usize,
    /// The slot and the number of each request that was sent, in order.
    sent: Vec<(u32, u32)>,
    /// The slots of connections in the order in which they were opened.
    opened: Vec<u32>,
    /// Ends of requests, by number.
    ends: BTreeMap<u32, Vec<End>>,
    /// What the next first steps come to; afterwards each begins to connect.
    dials: VecDeque<Result<client::Opening, Failure>>,
    /// The servers of connections that use TLS, by slot.
    servers: BTreeMap<u32, TlsServer>,
    /// What clients' TLS connections share, once there is one.
    tls: Option<ClientTls>,
    /// What the system takes at once of the next requests; afterwards all of each.
    takes: VecDeque<Result<usize, Failure>>,
    received: Vec<u8>,
    handed_over_ns: Option<u64>,
    /// Bytes and requests that were sent, bytes and responses that were received.
    counted: [u64; 4],
}

impl Wire for World {
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> Result<usize, Failure> {
        let slot = index as u32;
        let mut plain = Vec::new();
        match self.servers.get_mut(&slot) {
            // It fails if the client has sent an alert.
            Some(server) => drop(server.receive_with(bytes, |piece| plain.extend_from_slice(piece))),
            None => plain.extend_from_slice(bytes),
        }
        for number in std::str::from_utf8(&plain).unwrap().split_terminator('/').skip(1) {
            self.sent.push((slot, number.parse().unwrap()));
        }
        self.takes.pop_front().unwrap_or(Ok(bytes.len())).map(|taken| taken.min(bytes.len()))
    }

    fn received(&self) -> &[u8] {
        &self.received
    }
}

impl Effects for World {
    fn open(&mut self, slot: u32, origin: &Origin) -> Result<client::Opening, Failure> {
        let dialled = self.dials.pop_front().unwrap_or(Ok(client::Opening::Connecting))?;
        self.opened.push(slot);
        self.open.insert(slot, origin.clone());
        if origin.is_https {
            self.servers.insert(slot, TlsServer::new(server_tls()).unwrap());
        }
        Ok(dialled)
    }

    fn take_up(&mut self, _slot: u32) -> Result<(), Failure> {
        Ok(())
    }

    fn tls(&mut self, _host: &Arc<str>) -> Result<ClientTls, Failure> {
        Ok(self.tls.get_or_insert_with(client_tls).clone())
    }

    fn handed_over_ns(&self) -> Option<u64> {
        self.handed_over_ns
    }

    fn close(&mut self, slot: u32, then: SocketUse) {
        self.open.remove(&slot);
        self.servers.remove(&slot);
        self.kept += usize::from(then == SocketUse::Keep);
    }

    fn count_sent(&mut self, bytes: u64, requests: u64) {
        self.counted[0] += bytes;
        self.counted[1] += requests;
    }

    fn take_back(&mut self, bytes: u64, requests: u64) {
        self.counted[0] -= bytes;
        self.counted[1] -= requests;
    }

    fn count_received(&mut self, bytes: u64, responses: u64) {
        self.counted[2] += bytes;
        self.counted[3] += responses;
    }

    fn answered(&mut self, send: &Send, end: &ExchangeEnd<'_>, _now_ns: u64) {
        let body = String::from_utf8(end.body.to_vec()).unwrap();
        self.end(send, End::Answered { status: end.status, body, opening: end.opening });
    }

    fn failed(&mut self, send: &Send, failure: ExchangeFailure, _now_ns: u64) {
        let ExchangeFailure { cause, detail, timed_out, opening, .. } = failure;
        self.end(send, End::Failed { cause: cause.into_owned(), detail, timed_out, opening });
    }

    fn given_up(&mut self, send: &Send, age: Age) {
        self.end(send, End::GivenUp { latency_ns: age.latency_ns, service_ns: age.service_ns });
    }
}

impl World {
    fn end(&mut self, send: &Send, end: End) {
        self.ends.entry(send.exchange).or_default().push(end);
    }

    fn causes(&self) -> Vec<(u32, String)> {
        let cause = |end: &End| match end {
            End::Failed { cause, .. } => cause.clone(),
            End::Answered { status, .. } => status.to_string(),
            End::GivenUp { .. } => "given up".to_owned(),
        };
        self.ends.iter().flat_map(|(number, ends)| ends.iter().map(move |end| (*number, cause(end)))).collect()
    }
}

/// Connections, their network, and the time.
struct Bench {
    connections: Connections,
    world: World,
    now_ns: u64,
}

impl Bench {
    fn new(connections: usize, connections_per_user: u32) -> Self {
        let connections = Connections::new(ConnectionLimits {
            connections,
            connections_per_user,
            connect_timeout_ns: 100 * MS,
            response_timeout_ns: 200 * MS,
        });
        Self { connections, world: World::default(), now_ns: 0 }
    }

    fn request(&mut self, user: u32, number: u32) {
        self.send(request(user, number, "a.test"));
    }

    fn send(&mut self, send: Send) {
        let send = Box::new(Send { due_ns: self.now_ns, ..send });
        self.connections.request(send, self.now_ns, &mut self.world);
    }

    fn input(&mut self, slot: u32, input: Input) {
        self.connections.handle(slot, self.now_ns, input, &mut self.world);
        self.connections.make_room(self.now_ns, &mut self.world);
    }

    /// The server of a connection sends bytes, over TLS if it uses that.
    fn receive(&mut self, slot: u32, bytes: &[u8]) {
        let Some(server) = self.world.servers.get_mut(&slot) else { return self.receive_raw(slot, bytes.to_vec()) };
        server.write(bytes);
        self.secure(slot);
    }

    /// The server of a TLS connection sends what it has to send, until it waits for the client.
    fn secure(&mut self, slot: u32) {
        loop {
            let mut records = Vec::new();
            let Some(server) = self.world.servers.get_mut(&slot) else { return };
            server.take_output(&mut records);
            if records.is_empty() {
                return;
            }
            self.receive_raw(slot, records);
        }
    }

    fn receive_raw(&mut self, slot: u32, bytes: Vec<u8>) {
        self.world.received = bytes;
        self.input(slot, Input::Received);
    }

    /// A request of a user goes over a new connection in this slot and is answered.
    fn answer_first(&mut self, user: u32, number: u32, slot: u32) {
        self.request(user, number);
        self.input(slot, Input::Connected);
        self.receive(slot, OK);
    }

    fn after(&mut self, ns: u64) {
        self.now_ns += ns;
        self.connections.check_deadlines(self.now_ns, &mut self.world);
    }
}

/// Returns an idempotent request whose bytes are its number.
fn request(user: u32, number: u32, host: &str) -> Send {
    let target = format!("/{number}");
    let url = Url { is_https: false, host: host.into(), port: 80, target: target.as_str().into() };
    let outgoing = Outgoing {
        url,
        bytes: target.as_bytes().into(),
        kept_fields: 0..0,
        credentials: 0..0,
        is_head: false,
        is_idempotent: true,
        closes: false,
    };
    Send {
        user,
        exchange: number,
        outgoing,
        due_ns: 0,
        label: Some(0),
        connect_timeout_ns: None,
        response_timeout_ns: None,
        keeps_head: false,
        keeps_body: true,
    }
}

fn server_tls() -> &'static ServerTls {
    static SHARED: OnceLock<ServerTls> = OnceLock::new();
    SHARED.get_or_init(|| ServerTls::self_signed(&["a.test".to_owned()]).unwrap().0)
}

/// What clients share who verify nothing and resume sessions.
fn client_tls() -> ClientTls {
    ClientTls::new(&TlsOptions {
        verify: false,
        ca_pem: None,
        identity: None,
        oldest: TlsVersion::V1_2,
        newest: TlsVersion::V1_3,
        cipher_suites: &[],
        alpn: &[],
        server_name: "a.test",
        resumption: true,
        connections: 4,
        early_data: false,
    })
    .unwrap()
}

fn failure(name: &'static str) -> Failure {
    Failure { name, detail: name.to_owned() }
}

fn numbered(causes: &[(u32, &str)]) -> Vec<(u32, String)> {
    causes.iter().map(|(number, cause)| (*number, (*cause).to_owned())).collect()
}

#[test]
fn idle_connection_is_reused_by_its_user_alone() {
    let mut bench = Bench::new(4, 6);
    bench.request(1, 1);
    bench.now_ns = 3;
    bench.input(0, Input::Connected);
    bench.receive(0, OK);
    bench.request(1, 2);
    bench.receive(0, OK);
    bench.request(2, 3);
    assert_eq!((&bench.world.sent[..], &bench.world.opened[..]), (&[(0, 1), (0, 2)][..], &[0, 1][..]));
    let opening = Opening { connect_ns: 3, ..Opening::default() };
    let answered = |opening| vec![End::Answered { status: 200, body: "hi".to_owned(), opening }];
    assert_eq!(bench.world.ends, BTreeMap::from([(1, answered(Some(opening))), (2, answered(None))]));
    let tally = bench.connections.tally();
    assert_eq!((tally.counts.requests_due, tally.counts.connections_opened, tally.counts.body_bytes), (3, 1, 4));
    assert_eq!((tally.status[2], tally.last_ns, tally.phases.connect.count()), (2, Some(3), 1));
    assert_eq!(bench.world.counted, [4, 2, 2 * OK.len() as u64, 2]);
}

#[test]
fn connection_of_another_origin_is_not_reused() {
    let mut bench = Bench::new(4, 1);
    bench.answer_first(1, 1, 0);
    bench.send(request(1, 2, "b.test"));
    assert_eq!(bench.world.opened, [0, 1]);
    let mut other = request(1, 3, "a.test");
    other.outgoing.url.port = 81;
    bench.send(other);
    assert_eq!((bench.world.opened.len(), bench.connections.open()), (3, 3));
}

#[test]
fn request_waits_for_the_name_and_learns_how_long() {
    let mut bench = Bench::new(4, 6);
    bench.world.dials = VecDeque::from([Ok(client::Opening::Resolving), Ok(client::Opening::Resolving)]);
    bench.request(1, 1);
    bench.send(request(1, 2, "b.test"));
    bench.now_ns = 5;
    bench.world.dials = VecDeque::from([Ok(client::Opening::Connecting)]);
    bench.connections.resolved("a.test", 80, 4, bench.now_ns, &mut bench.world);
    bench.now_ns = 7;
    bench.input(0, Input::Connected);
    bench.receive(0, OK);
    bench.input(1, Input::Connected);
    let opening = Some(Opening { dns_ns: Some(5), connect_ns: 2, tls_ns: None });
    assert_eq!(bench.world.ends[&1], [End::Answered { status: 200, body: "hi".to_owned(), opening }]);
    assert_eq!(bench.world.sent, [(0, 1)], "the other name is still unknown");
    assert_eq!(bench.connections.tally().phases.dns.count(), 1);
}

#[test]
fn request_over_tls_begins_after_the_handshake() {
    let mut bench = Bench::new(4, 6);
    for number in 1..=2 {
        let mut send = request(number, number, "a.test");
        send.outgoing.url.is_https = true;
        bench.send(send);
        let slot = number - 1;
        bench.input(slot, Input::Connected);
        assert_eq!(bench.world.sent.len(), slot as usize);
        bench.now_ns += 9;
        bench.secure(slot);
        assert_eq!(bench.world.sent[slot as usize..], [(slot, number)]);
        bench.receive(slot, OK);
    }
    let End::Answered { opening, .. } = &bench.world.ends[&1][0] else { panic!("no response") };
    assert_eq!(opening.unwrap().tls_ns, Some(9));
    let tally = bench.connections.tally();
    assert_eq!((tally.counts.tls_full, tally.counts.tls_resumed), (Some(1), Some(1)));
    assert_eq!((tally.phases.tls_full.count(), tally.phases.tls_resumed.count()), (1, 1));
}

#[test]
fn times_of_a_request_are_those_of_its_handing_over() {
    let mut bench = Bench::new(4, 6);
    bench.request(1, 1);
    bench.input(0, Input::Connected);
    bench.connections.note_handed_over(&bench.world);
    assert_eq!(bench.connections.tally().first_sent_ns, None, "it is queued");
    bench.world.handed_over_ns = Some(4);
    bench.connections.note_handed_over(&bench.world);
    assert_eq!(bench.connections.tally().first_sent_ns, Some(4));
    bench.now_ns = 10;
    bench.connections.cancel(1, bench.now_ns, &mut bench.world);
    assert_eq!(bench.world.ends[&1], [End::GivenUp { latency_ns: Some(10), service_ns: Some(6) }]);
}
