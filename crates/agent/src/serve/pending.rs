//! Connections to the session port without an introduction. Their number is limited, in total and per peer. If there
//! is no room, the oldest connection of the peer with the most is dropped, so that a peer with many connections
//! displaces only its own.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};

use leadline_transport::iperf3::{
    begins_cookie, Cookie, ErrorNumber, Iperf3Parameters, Iperf3Server, Iperf3ServerEvent, COOKIE_BYTES,
};
use leadline_transport::{
    encode_frame, FromServer, Header, HeaderKind, Hex32, Opening, OpeningEvent, Refusal, SessionRequest, SharedKey,
    HEADER_BYTES, MAGIC,
};

use super::shares::{Amounts, Excess, PeerShares, Resource, ShareLimits};
use crate::keys;

/// Pending connections by number; numbers increase, so that the oldest comes first.
#[derive(Debug)]
pub struct PendingTable<C> {
    entries: BTreeMap<u64, (IpAddr, C)>,
    shares: PeerShares,
    next: u64,
}

impl<C> PendingTable<C> {
    /// Returns an empty table; the first connection gets the number `first`.
    pub fn new(first: u64, most: u64, most_per_peer: u64) -> Self {
        let limit = |most: u64| Amounts::UNLIMITED.with(Resource::Pending, most.max(1));
        let limits = ShareLimits { per_peer: limit(most_per_peer), all: limit(most), rate_bps: None };
        Self { entries: BTreeMap::new(), shares: PeerShares::new(limits), next: first }
    }

    /// Inserts a connection of this peer, and drops another one if there is no room; returns its number.
    pub fn insert(&mut self, peer: IpAddr, connection: C) -> u64 {
        match self.shares.take(peer, one_pending()) {
            Ok(()) => {}
            Err(excess) => {
                match excess {
                    Excess::OfPeer(..) => self.drop_oldest_of(peer),
                    Excess::OfAll(_) => self.evict_one(),
                }
                self.shares.take_beyond(peer, one_pending());
            }
        }
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, (peer, connection));
        number
    }

    /// Drops the oldest connection of the peer with the most.
    pub fn evict_one(&mut self) {
        if let Some((peer, _)) = self.shares.largest(Resource::Pending) {
            self.drop_oldest_of(peer);
        }
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the connection with this number, unless it was dropped.
    pub fn find(&mut self, number: u64) -> Option<&mut C> {
        self.entries.get_mut(&number).map(|(_, connection)| connection)
    }

    /// Removes and returns a connection.
    pub fn remove(&mut self, number: u64) -> Option<C> {
        let (peer, connection) = self.entries.remove(&number)?;
        self.shares.give_back(peer, one_pending(), 0);
        Some(connection)
    }

    /// Returns the oldest connection.
    pub fn oldest(&self) -> Option<(u64, &C)> {
        self.entries.first_key_value().map(|(number, (_, connection))| (*number, connection))
    }

    fn drop_oldest_of(&mut self, peer: IpAddr) {
        let oldest = self.entries.iter().find(|(_, (whose, _))| *whose == peer).map(|(number, _)| *number);
        oldest.and_then(|number| self.remove(number));
    }
}

fn one_pending() -> Amounts {
    Amounts::default().with(Resource::Pending, 1)
}

/// A connection without an introduction.
pub struct PendingConnection {
    /// The non-blocking socket.
    pub stream: TcpStream,
    /// When it was accepted, ns.
    pub since_ns: u64,
    first: [u8; HEADER_BYTES],
    length: usize,
    /// The state of a control connection whose request is being read.
    opening: Option<Opening>,
    /// The same of an iperf3 client's.
    iperf3: Option<(Cookie, Iperf3Server)>,
}

/// What an iperf3 client asks for.
#[derive(Debug)]
pub struct Iperf3Request {
    /// The test's cookie.
    pub cookie: Cookie,
    /// The parameters, inside of their ranges.
    pub asked: Iperf3Parameters,
    /// The machine, with the bytes after the request.
    pub machine: Iperf3Server,
}

/// The kind of a connection, by its first bytes.
pub enum Opened {
    /// Not known yet.
    Incomplete,
    /// A control connection with an authorized request.
    Request(Box<SessionRequest>),
    /// A control connection with a refused request.
    Refused(Refusal),
    /// A data flow, or a client that proves its address.
    Flow(Header),
    /// A connection of an iperf3 client: its control connection, or a flow. The listener knows which.
    Iperf3(Cookie),
    /// An iperf3 client's request.
    Iperf3Request(Box<Iperf3Request>),
    /// An iperf3 client's request that is refused: the connection gets these bytes, and the log the reason.
    Iperf3Refused(Vec<u8>, String),
}

impl PendingConnection {
    /// Returns a connection of which nothing has been read.
    pub fn new(stream: TcpStream, since_ns: u64) -> Self {
        Self { stream, since_ns, first: [0; HEADER_BYTES], length: 0, opening: None, iperf3: None }
    }

    /// Treats it as the control connection of an iperf3 client: asks for the parameters.
    pub fn ask_parameters(&mut self, cookie: Cookie) -> io::Result<()> {
        let (machine, bytes) = Iperf3Server::new();
        self.iperf3 = Some((cookie, machine));
        self.stream.write_all(&bytes)
    }

    /// Reads further; an error ends the connection.
    pub fn receive(&mut self, key: Option<&SharedKey>) -> io::Result<Opened> {
        if self.iperf3.is_some() {
            return self.receive_iperf3();
        }
        while self.opening.is_none() {
            // Reads only the bytes that show the kind: a flow's payload, or a request, may follow.
            let cookie = self.length > 0 && begins_cookie(self.first[0]);
            let needed = match self.length {
                _ if cookie => COOKIE_BYTES,
                length if length < MAGIC.len() => MAGIC.len(),
                _ => HEADER_BYTES,
            };
            match read(&mut self.stream, &mut self.first[self.length..needed])? {
                None => return Ok(Opened::Incomplete),
                Some(read) => self.length += read,
            }
            if cookie && self.length == COOKIE_BYTES {
                let cookie = self.first.first_chunk().and_then(Cookie::parse);
                return cookie.map(Opened::Iperf3).ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
            if self.first[..self.length] == *MAGIC {
                let nonce = match key {
                    Some(_) => keys::fresh_nonce().map_err(|error| io::Error::other(error.message))?,
                    None => Hex32([0; 32]),
                };
                self.opening = Some(Opening::new(key.cloned(), nonce));
            } else if self.length == HEADER_BYTES {
                return match Header::parse(&self.first) {
                    Ok(header) if matches!(header.kind, HeaderKind::Stream | HeaderKind::Address) => {
                        Ok(Opened::Flow(header))
                    }
                    _ => Err(io::ErrorKind::InvalidData.into()),
                };
            }
        }
        let Some(opening) = &mut self.opening else { return Ok(Opened::Incomplete) };
        let mut piece = [0; 1024];
        loop {
            let Some(read) = read(&mut self.stream, &mut piece)? else { return Ok(Opened::Incomplete) };
            opening.receive(&piece[..read]);
            while let Some(event) = opening.next_event().map_err(io::Error::other)? {
                match event {
                    OpeningEvent::Answer(answer) => send(&mut self.stream, &answer)?,
                    OpeningEvent::Refuse(refusal) => return Ok(Opened::Refused(refusal)),
                    OpeningEvent::Request(request) => return Ok(Opened::Request(request)),
                }
            }
        }
    }
}

impl PendingConnection {
    fn receive_iperf3(&mut self) -> io::Result<Opened> {
        let mut piece = [0; 1024];
        while let Some(read) = read(&mut self.stream, &mut piece)? {
            let Some((_, machine)) = &mut self.iperf3 else { break };
            machine.receive(&piece[..read]);
            match machine.next_event() {
                Ok(Some(Iperf3ServerEvent::Parameters(asked))) => {
                    let Some((cookie, machine)) = self.iperf3.take() else { break };
                    return Ok(Opened::Iperf3Request(Box::new(Iperf3Request { cookie, asked: *asked, machine })));
                }
                Ok(Some(_)) => return Err(io::ErrorKind::InvalidData.into()),
                Ok(None) => {}
                Err(error) => {
                    let message = Iperf3Server::fail(ErrorNumber::of(&error), libc::EINVAL);
                    return Ok(Opened::Iperf3Refused(message, error.to_string()));
                }
            }
        }
        Ok(Opened::Incomplete)
    }
}

/// Sends a short message. The connection's buffer is empty, so the whole message fits.
pub fn send(stream: &mut impl Write, message: &FromServer) -> io::Result<()> {
    stream.write_all(&encode_frame(message).map_err(io::Error::other)?)
}

/// Reads once; `None` if nothing has arrived. The end of the stream is an error.
fn read(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => return Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const MODEST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const THIRD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 3));

    #[test]
    fn a_peer_beyond_its_limit_loses_its_own_oldest() {
        let mut table = PendingTable::new(2, 100, 3);
        let modest = table.insert(MODEST, ());
        assert_eq!(modest, 2);
        let greedy: Vec<u64> = (0..1000).map(|_| table.insert(GREEDY, ())).collect();
        assert!(table.find(modest).is_some());
        let remaining: Vec<u64> = greedy.into_iter().filter(|number| table.find(*number).is_some()).collect();
        assert_eq!(remaining, [1000, 1001, 1002], "its newest");
    }

    #[test]
    fn a_full_table_evicts_from_the_peer_with_most() {
        let mut table = PendingTable::new(0, 4, 3);
        let modest = table.insert(MODEST, ());
        let greedy: Vec<u64> = (0..3).map(|_| table.insert(GREEDY, ())).collect();
        let third = table.insert(THIRD, ());
        assert!(table.find(greedy[0]).is_none() && table.find(greedy[1]).is_some());
        assert!(table.find(modest).is_some() && table.find(third).is_some());
        assert_eq!(table.oldest().unwrap().0, modest);
        assert!(table.remove(modest).is_some() && table.remove(modest).is_none());
        assert_eq!(table.shares.held(MODEST, Resource::Pending), 0);
    }
}
