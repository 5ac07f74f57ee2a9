//! The tests of iperf3 clients that are under way: by cookie for TCP flows, and by address for UDP flows, whose hello names
//! no test. Several clients are served at once: those at one address open their UDP flows one after the other.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use leadline_transport::iperf3::{Cookie, Iperf3Error, Iperf3ServerEvent};

use crate::control_signal::ControlSignal;
use crate::locking::lock;

/// How often a test that waits for its turn checks whether its server has been stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The input of a test.
pub enum Iperf3Input {
    /// From the control connection.
    Event(Iperf3ServerEvent),
    /// A TCP flow.
    Stream(TcpStream),
    /// A UDP flow.
    Datagram(UdpSocket),
    /// Another port of the client's address claims a UDP flow when all are open already: one of them is forged.
    Contender(SocketAddr),
    /// A worker has ended.
    WorkerDone,
    /// The control connection has ended, or is unusable for this reason.
    Closed(Option<Iperf3Error>),
}

/// A test that awaits its UDP flows.
#[derive(Debug)]
struct Awaiting {
    cookie: Cookie,
    inbox: SyncSender<Iperf3Input>,
}

/// A test whose UDP flows are all open, and have not shown yet that their ports are the client's.
#[derive(Debug)]
struct Contest {
    awaiting: Awaiting,
    /// Whether a flow can still go to another port.
    may_move: bool,
    /// The ports that have said hello.
    known: HashSet<SocketAddr>,
}

/// The maximum number of ports that may claim the flows of a test.
const MAX_CONTENDERS: usize = 4096;

/// What a claim on a flow of a running test leads to.
#[derive(Debug)]
pub struct Claim {
    /// Tells the test.
    pub inbox: SyncSender<Iperf3Input>,
    /// Whether the hello is to be answered.
    pub is_answered: bool,
}

/// The tests under way.
#[derive(Debug, Default)]
pub struct Iperf3Tests {
    by_cookie: Mutex<HashMap<Cookie, SyncSender<Iperf3Input>>>,
    awaiting_datagrams: Mutex<HashMap<IpAddr, Awaiting>>,
    /// The tests of the UDP flows that are open, by the client's end of the flow.
    open_datagrams: Mutex<HashMap<SocketAddr, Cookie>>,
    /// The tests whose flows may have been claimed by a forged hello, by the client's address; the last one of each.
    contests: Mutex<HashMap<IpAddr, Contest>>,
    turn_over: Condvar,
}

impl Iperf3Tests {
    /// Makes a test known until the result is dropped; `None` if its cookie is in use.
    pub fn register(&self, cookie: Cookie, inbox: SyncSender<Iperf3Input>) -> Option<Registered<'_>> {
        let mut known = lock(&self.by_cookie);
        if known.contains_key(&cookie) {
            return None;
        }
        known.insert(cookie, inbox);
        Some(Registered { tests: self, cookie })
    }

    /// Whether a connection with this cookie is a flow of a test.
    pub fn knows(&self, cookie: &Cookie) -> bool {
        lock(&self.by_cookie).contains_key(cookie)
    }

    /// Passes a TCP flow to its test.
    pub fn deliver(&self, cookie: &Cookie, stream: TcpStream) {
        let inbox = lock(&self.by_cookie).get(cookie).cloned();
        // If the test's inbox is full, the client did not announce the flow.
        let _ = inbox.map(|inbox| inbox.try_send(Iperf3Input::Stream(stream)));
    }

    /// Makes a client's end of a UDP flow the flow of the test that is awaited from its address, until this test ends;
    /// `None` if no test is awaited, or if this end has an open flow already.
    pub fn claim(&self, client: SocketAddr) -> Option<SyncSender<Iperf3Input>> {
        let awaiting = lock(&self.awaiting_datagrams);
        let Awaiting { cookie, inbox } = awaiting.get(&client.ip().to_canonical())?;
        match lock(&self.open_datagrams).entry(client) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert(*cookie);
                Some(inbox.clone())
            }
        }
    }

    /// Watches for further claims on the open UDP flows of a test, until the result is dropped.
    pub fn watch_claims(
        &self,
        address: IpAddr,
        cookie: Cookie,
        inbox: &SyncSender<Iperf3Input>,
        may_move: bool,
    ) -> ClaimWatch<'_> {
        let address = address.to_canonical();
        let open = lock(&self.open_datagrams);
        let known = open.iter().filter(|(_, whose)| **whose == cookie).map(|(client, _)| *client).collect();
        let awaiting = Awaiting { cookie, inbox: inbox.clone() };
        lock(&self.contests).insert(address, Contest { awaiting, may_move, known });
        ClaimWatch { tests: self, address, cookie }
    }

    /// Returns the test whose flows are all open and that gets another hello, from a port that has not said any.
    pub fn contend(&self, client: SocketAddr) -> Option<Claim> {
        if lock(&self.open_datagrams).contains_key(&client) {
            return None;
        }
        let mut contests = lock(&self.contests);
        let contest = contests.get_mut(&client.ip().to_canonical())?;
        let is_new = contest.known.len() < MAX_CONTENDERS && contest.known.insert(client);
        is_new.then(|| Claim { inbox: contest.awaiting.inbox.clone(), is_answered: contest.may_move })
    }

    /// Returns the test that gets a datagram from a port that has said hello and has no flow: so the sender is the
    /// client, or forges more than hellos.
    pub fn contend_by_data(&self, client: SocketAddr) -> Option<SyncSender<Iperf3Input>> {
        let contests = lock(&self.contests);
        let contest = contests.get(&client.ip().to_canonical())?;
        (contest.may_move && contest.known.contains(&client)).then(|| contest.awaiting.inbox.clone())
    }

    /// Waits until no other test awaits UDP flows from this address, and awaits them until the result is dropped.
    pub fn await_datagrams(
        &self,
        address: IpAddr,
        cookie: Cookie,
        inbox: &SyncSender<Iperf3Input>,
        deadline: Instant,
        server: &ControlSignal,
    ) -> io::Result<Turn<'_>> {
        let address = address.to_canonical();
        let mut awaiting = lock(&self.awaiting_datagrams);
        while awaiting.contains_key(&address) {
            if server.stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = self.turn_over.wait_timeout(awaiting, POLL_INTERVAL);
            awaiting = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        awaiting.insert(address, Awaiting { cookie, inbox: inbox.clone() });
        Ok(Turn { tests: self, address })
    }
}

/// A test that is known by its cookie.
pub struct Registered<'a> {
    tests: &'a Iperf3Tests,
    cookie: Cookie,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.tests.open_datagrams).retain(|_, cookie| *cookie != self.cookie);
        lock(&self.tests.by_cookie).remove(&self.cookie);
    }
}

/// A test whose flows may be claimed once more.
pub struct ClaimWatch<'a> {
    tests: &'a Iperf3Tests,
    address: IpAddr,
    cookie: Cookie,
}

impl Drop for ClaimWatch<'_> {
    fn drop(&mut self) {
        let mut contests = lock(&self.tests.contests);
        // A later test at this address has a watch of its own.
        if contests.get(&self.address).is_some_and(|contest| contest.awaiting.cookie == self.cookie) {
            contests.remove(&self.address);
        }
    }
}

/// A test to which UDP flows from an address belong.
pub struct Turn<'a> {
    tests: &'a Iperf3Tests,
    address: IpAddr,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.tests.awaiting_datagrams).remove(&self.address);
        self.tests.turn_over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn cookie(seed: u8) -> Cookie {
        Cookie::from_random(&[seed; 36])
    }

    #[test]
    fn cookie_is_known_while_its_test_runs_and_belongs_to_one() {
        let tests = Iperf3Tests::default();
        let (inbox, _input) = mpsc::sync_channel(1);
        let registered = tests.register(cookie(1), inbox.clone()).unwrap();
        assert!(tests.register(cookie(1), inbox.clone()).is_none());
        assert!(tests.knows(&cookie(1)) && !tests.knows(&cookie(2)));
        drop(registered);
        assert!(!tests.knows(&cookie(1)) && tests.register(cookie(1), inbox).is_some());
    }

    #[test]
    fn tests_of_one_address_open_their_flows_in_turn() {
        let tests = Iperf3Tests::default();
        let (inbox, _input) = mpsc::sync_channel(1);
        let (server, past) = (ControlSignal::default(), Instant::now());
        let ends = ["192.0.2.1:1", "192.0.2.2:1"].map(|text| text.parse::<SocketAddr>().unwrap());
        let [one, other] = ends.map(|end| end.ip());
        let turn = tests.await_datagrams(one, cookie(1), &inbox, past, &server).unwrap();
        assert!(tests.claim(ends[0]).is_some() && tests.claim(ends[1]).is_none());
        assert!(tests.await_datagrams(one, cookie(2), &inbox, past, &server).is_err(), "its deadline is over");
        assert!(tests.await_datagrams(other, cookie(2), &inbox, past, &server).is_ok());
        std::thread::scope(|scope| {
            let (tests, inbox, server, later) = (&tests, &inbox, &server, past + POLL_INTERVAL * 1000);
            let waiting = scope.spawn(move || tests.await_datagrams(one, cookie(3), inbox, later, server).is_ok());
            drop(turn);
            assert!(waiting.join().unwrap());
        });
        assert!(tests.claim("192.0.2.1:2".parse().unwrap()).is_none());
    }

    #[test]
    fn duplicated_hello_opens_no_second_flow_until_its_test_has_ended() {
        let tests = Iperf3Tests::default();
        let (inbox, _input) = mpsc::sync_channel(1);
        let (server, past) = (ControlSignal::default(), Instant::now());
        let ends = ["192.0.2.1:1", "192.0.2.1:2"].map(|text| text.parse::<SocketAddr>().unwrap());
        let registered = tests.register(cookie(1), inbox.clone()).unwrap();
        let turn = tests.await_datagrams(ends[0].ip(), cookie(1), &inbox, past, &server).unwrap();
        assert!(tests.claim(ends[0]).is_some() && tests.claim(ends[0]).is_none());
        assert!(tests.claim(ends[1]).is_some(), "another port is another flow");
        drop(turn);
        let _next = tests.await_datagrams(ends[0].ip(), cookie(2), &inbox, past, &server).unwrap();
        assert!(tests.claim(ends[0]).is_none(), "a late duplicate does not join the next test");
        drop(registered);
        assert!(tests.claim(ends[0]).is_some());
    }

    #[test]
    fn further_hello_from_another_port_is_a_claim_and_its_data_another() {
        let tests = Iperf3Tests::default();
        let (inbox, _input) = mpsc::sync_channel(1);
        let (server, past) = (ControlSignal::default(), Instant::now());
        let ends = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:3"].map(|text| text.parse::<SocketAddr>().unwrap());
        let turn = tests.await_datagrams(ends[0].ip(), cookie(1), &inbox, past, &server).unwrap();
        assert!(tests.claim(ends[0]).is_some());
        let watch = tests.watch_claims(ends[0].ip(), cookie(1), &inbox, true);
        drop(turn);
        assert!(tests.contend(ends[0]).is_none(), "a duplicate of the flow's own hello");
        assert!(tests.contend_by_data(ends[1]).is_none(), "it has not said hello");
        assert!(tests.contend(ends[1]).is_some_and(|claim| claim.is_answered) && tests.contend(ends[1]).is_none());
        assert!(tests.contend_by_data(ends[1]).is_some() && tests.contend_by_data(ends[0]).is_some());
        assert!(tests.contend(ends[2]).is_none(), "another address");
        let later = tests.watch_claims(ends[0].ip(), cookie(2), &inbox, false);
        drop(watch);
        assert!(
            tests.contend_by_data(ends[1]).is_none() && tests.contend(ends[1]).is_some_and(|claim| !claim.is_answered),
            "the later test's"
        );
        drop(later);
        assert!(tests.contend("192.0.2.1:4".parse().unwrap()).is_none());
    }
}
