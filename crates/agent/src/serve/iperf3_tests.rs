//! The tests of iperf3 clients that are under way: by cookie for TCP flows, and by address for UDP flows, whose hello names
//! no test. Several clients are served at once: those at one address open their UDP flows one after the other.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, TcpStream, UdpSocket};
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
    /// A worker has ended.
    WorkerDone,
    /// The control connection has ended, or is unusable for this reason.
    Closed(Option<Iperf3Error>),
}

/// The tests under way.
#[derive(Debug, Default)]
pub struct Iperf3Tests {
    by_cookie: Mutex<HashMap<Cookie, SyncSender<Iperf3Input>>>,
    awaiting_datagrams: Mutex<HashMap<IpAddr, SyncSender<Iperf3Input>>>,
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

    /// The test whose UDP flows are awaited from an address.
    pub fn awaiting(&self, address: IpAddr) -> Option<SyncSender<Iperf3Input>> {
        lock(&self.awaiting_datagrams).get(&address.to_canonical()).cloned()
    }

    /// Waits until no other test awaits UDP flows from this address, and awaits them until the result is dropped.
    pub fn await_datagrams(
        &self,
        address: IpAddr,
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
        awaiting.insert(address, inbox.clone());
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
        lock(&self.tests.by_cookie).remove(&self.cookie);
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
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let turn = tests.await_datagrams(one, &inbox, past, &server).unwrap();
        assert!(tests.awaiting(one).is_some() && tests.awaiting(other).is_none());
        assert!(tests.await_datagrams(one, &inbox, past, &server).is_err(), "its deadline is over");
        assert!(tests.await_datagrams(other, &inbox, past, &server).is_ok());
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| tests.await_datagrams(one, &inbox, past + POLL_INTERVAL * 1000, &server).is_ok());
            drop(turn);
            assert!(waiting.join().unwrap());
        });
        assert!(tests.awaiting(one).is_none());
    }
}
