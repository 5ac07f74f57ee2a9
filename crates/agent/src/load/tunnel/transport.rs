//! A client's socket to its server: a connected UDP socket, or a TCP connection, and the packets that wait for room
//! in the socket. Owns the sockets and the framing of packets in a stream; knows nothing of the packets' content.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::stamp_received;
use leadline_sys::net::{self, DatagramBatch};
use leadline_sys::poll::{Interest, Poll};
use leadline_sys::segments::{self, MOST_BYTES, MOST_SEGMENTS};
use leadline_tunnel::client::server::Server;
use leadline_tunnel::client::server::Transport;
use leadline_tunnel::framing::{set_length, Unframer, MAX_PACKET_BYTES};
use socket2::{Domain, Protocol, Socket, Type};

/// Datagrams that one call receives.
pub const BATCH: usize = 32;
/// The longest datagram, bytes: longer than any usual MTU, and not a power of two, so that slots do not share cache
/// sets.
pub const DATAGRAM_BYTES: usize = 9_536;
/// Bytes of a stream that one call receives.
pub const STREAM_BYTES: usize = 64 * 1024;
/// The maximum that may wait for room in a stream, bytes: two full windows of control packets and one burst of data.
const MOST_WAITING: usize = 128 * 1024;

/// An open socket of a client.
pub enum TransportSocket {
    /// A datagram socket.
    Udp {
        /// The connected socket.
        socket: UdpSocket,
        /// Packets that the socket has not accepted yet.
        waiting: Option<Box<Waiting>>,
    },
    /// A stream, in which a length precedes each packet.
    Tcp {
        /// The connection.
        stream: TcpStream,
        /// A packet that has not arrived completely.
        unframer: Unframer,
        /// Bytes that the socket has not accepted yet.
        waiting: Vec<u8>,
    },
}

/// Waiting datagrams of one length, except the last one, which may be shorter.
pub struct Waiting {
    bytes: Vec<u8>,
    segment: usize,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The socket accepted the bytes.
    Taken,
    /// The socket has no room: the bytes wait, and so must all that follow.
    Waits,
    /// The socket has no room, and the bytes are discarded.
    Dropped,
}

impl TransportSocket {
    /// Opens a socket to a server, from this local address if there is one. A `stamped` socket reports the kernel's
    /// timestamps of datagrams. UDP is usable at once; TCP is usable once it is writable and `failure` returns
    /// `None`.
    ///
    /// # Errors
    ///
    /// Errors of the system: the address is not local, or no port or descriptor is left.
    pub fn open(server: Server, from: Option<IpAddr>, stamped: bool) -> io::Result<Self> {
        let any = if server.address.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let local = SocketAddr::new(from.unwrap_or(any), 0);
        match server.transport {
            Transport::Udp => {
                let socket = net::udp_socket(local, Some(server.address), false)?;
                socket.set_nonblocking(true)?;
                if stamped {
                    stamp_received(&socket)?;
                }
                Ok(Self::Udp { socket, waiting: None })
            }
            Transport::Tcp => {
                let socket = Socket::new(Domain::for_address(server.address), Type::STREAM, Some(Protocol::TCP))?;
                socket.set_nonblocking(true)?;
                socket.set_tcp_nodelay(true)?;
                // The port may be used towards other servers too, and again once this connection is closed.
                socket.set_reuse_address(true)?;
                if from.is_some() {
                    socket.bind(&local.into())?;
                }
                match socket.connect(&server.address.into()) {
                    Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
                    _ => {}
                }
                Ok(Self::Tcp { stream: socket.into(), unframer: Unframer::default(), waiting: Vec::new() })
            }
        }
    }

    /// Whether a length precedes each packet.
    #[inline]
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }

    /// Returns the error if the connection failed.
    pub fn failure(&self) -> Option<io::Error> {
        match self {
            Self::Udp { socket, .. } => socket.take_error(),
            Self::Tcp { stream, .. } => stream.take_error(),
        }
        .unwrap_or_else(Some)
    }

    /// Returns the local address.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Udp { socket, .. } => socket.local_addr(),
            Self::Tcp { stream, .. } => stream.local_addr(),
        }
        .ok()
    }

    /// Registers this socket with the poll under a token.
    pub fn watch(&self, poll: &Poll, token: u64, interest: Interest) -> io::Result<()> {
        match self {
            Self::Udp { socket, .. } => poll.add(socket, token, interest),
            Self::Tcp { stream, .. } => poll.add(stream, token, interest),
        }
    }

    /// Changes the events for which the poll waits.
    pub fn watch_for(&self, poll: &Poll, token: u64, interest: Interest) -> io::Result<()> {
        match self {
            Self::Udp { socket, .. } => poll.modify(socket, token, interest),
            Self::Tcp { stream, .. } => poll.modify(stream, token, interest),
        }
    }

    /// Whether packets wait for room in the socket.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::Udp { waiting, .. } => waiting.is_some(),
            Self::Tcp { waiting, .. } => !waiting.is_empty(),
        }
    }

    /// Sends packets: over UDP as datagrams of `segment` bytes each, the last one being the rest; over TCP unchanged,
    /// with their lengths before them.
    ///
    /// # Errors
    ///
    /// Errors of the socket.
    pub fn send(&mut self, bytes: &[u8], segment: usize) -> io::Result<Sent> {
        match self {
            Self::Udp { socket, waiting } => {
                if waiting.is_some() {
                    return Ok(Sent::Dropped);
                }
                let sent = match segments::send(socket, bytes, segment) {
                    Err(error) if is_full(&error) => 0,
                    // The error belongs to an earlier datagram; this one has not been sent.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        segments::send(socket, bytes, segment)?
                    }
                    result => result?,
                };
                if sent >= bytes.len() {
                    return Ok(Sent::Taken);
                }
                *waiting = Some(Box::new(Waiting { bytes: bytes[sent..].to_vec(), segment }));
                Ok(Sent::Waits)
            }
            Self::Tcp { stream, waiting, .. } => {
                if waiting.len() + bytes.len() > MOST_WAITING {
                    return Ok(Sent::Dropped);
                }
                let sent = if waiting.is_empty() { write(stream, bytes)? } else { 0 };
                if sent == bytes.len() {
                    return Ok(Sent::Taken);
                }
                waiting.extend_from_slice(&bytes[sent..]);
                Ok(Sent::Waits)
            }
        }
    }

    /// Sends waiting packets after the socket has room again; returns whether all were sent.
    ///
    /// # Errors
    ///
    /// Errors of the socket.
    pub fn resume(&mut self) -> io::Result<bool> {
        match self {
            Self::Udp { socket, waiting } => {
                let Some(queued) = waiting else { return Ok(true) };
                match segments::send(socket, &queued.bytes, queued.segment) {
                    Err(error) if is_full(&error) => return Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
                    Ok(sent) if sent < queued.bytes.len() => {
                        queued.bytes.drain(..sent);
                        return Ok(false);
                    }
                    Ok(_) => *waiting = None,
                    // A packet that the socket refuses is not tried again.
                    Err(error) => {
                        *waiting = None;
                        return Err(error);
                    }
                }
                Ok(true)
            }
            Self::Tcp { stream, waiting, .. } => {
                let sent = write(stream, waiting)?;
                waiting.drain(..sent);
                if waiting.is_empty() {
                    // Thousands of idle clients must not each keep a buffer.
                    *waiting = Vec::new();
                }
                Ok(waiting.is_empty())
            }
        }
    }

    /// The number of packets that wait for room in the socket; 0 for a stream, which has no packet count.
    pub fn waiting_packets(&self) -> u64 {
        match self {
            Self::Udp { waiting: Some(waiting), .. } => waiting.bytes.len().div_ceil(waiting.segment.max(1)) as u64,
            _ => 0,
        }
    }

    /// Received datagrams for which the socket had no room; `None` for a stream, and if the kernel does not report
    /// it.
    pub fn receive_drops(&self) -> Option<u64> {
        match self {
            Self::Udp { socket, .. } => net::receive_drops(socket),
            Self::Tcp { .. } => None,
        }
    }

    /// Receives packets and passes each to `each` with its time of arrival (ns): the kernel's timestamp if there is
    /// one. Returns whether more packets may be left.
    ///
    /// # Errors
    ///
    /// Errors of the socket; over TCP also its end (`UnexpectedEof`) and a malformed stream (`InvalidData`).
    pub fn receive(&mut self, buffers: &mut Buffers, mut each: impl FnMut(u64, &mut [u8])) -> io::Result<bool> {
        match self {
            Self::Udp { socket, .. } => {
                let count = match buffers.datagrams.receive(socket) {
                    Err(error) if is_full(&error) => return Ok(false),
                    result => result?,
                };
                for index in 0..count {
                    each(buffers.datagrams.arrived_ns(index), buffers.datagrams.received_mut(index));
                }
                Ok(count == BATCH)
            }
            Self::Tcp { stream, unframer, .. } => {
                let read = match stream.read(&mut buffers.stream) {
                    Err(error) if is_full(&error) => return Ok(false),
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    result => result?,
                };
                let now_ns = monotonic_ns();
                let result = unframer.take(&mut buffers.stream[..read], |packet| each(now_ns, packet));
                result.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                Ok(read == buffers.stream.len())
            }
        }
    }

    /// Closes the socket without an exit notification: TCP sends a reset, so that its port is free at once for
    /// thousands of new connections.
    pub fn drop_silently(self) {
        if let Self::Tcp { stream, .. } = &self {
            // A closed connection needs no reset.
            let _ = net::reset(stream);
        }
    }
}

fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(error) if is_full(&error) => Ok(0),
        result => result,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR))
}

/// The receive buffers of a thread.
pub struct Buffers {
    datagrams: DatagramBatch,
    stream: Box<[u8]>,
}

impl Buffers {
    /// Returns buffers for sockets of these kinds.
    pub fn new(has_datagrams: bool, has_streams: bool) -> Self {
        Self {
            datagrams: DatagramBatch::stamped(if has_datagrams { BATCH } else { 0 }, DATAGRAM_BYTES),
            stream: vec![0; if has_streams { STREAM_BYTES } else { 0 }].into_boxed_slice(),
        }
    }
}

/// Sealed packets of one client that leave together: in one call, as long as they have one length.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    segment: usize,
    count: usize,
    is_short: bool,
    refused: u64,
}

impl Outbox {
    /// Adds a packet that `seal` appends; first sends packets that must precede it. Returns whether it will be sent.
    ///
    /// # Errors
    ///
    /// Errors of the socket.
    pub fn push<E>(
        &mut self,
        transport: &mut TransportSocket,
        seal: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> io::Result<bool> {
        if transport.is_blocked() {
            return Ok(false);
        }
        let start = self.bytes.len();
        if transport.is_stream() {
            self.bytes.extend_from_slice(&[0, 0]);
            // A stream cannot carry a packet that is longer than its length field can state.
            if seal(&mut self.bytes).is_err() || self.bytes.len() - start - 2 > MAX_PACKET_BYTES {
                self.bytes.truncate(start);
                return Ok(false);
            }
            set_length(&mut self.bytes, start);
            self.count += 1;
            return if self.bytes.len() >= MOST_BYTES { self.flush_full(transport) } else { Ok(true) };
        }
        if seal(&mut self.bytes).is_err() {
            self.bytes.truncate(start);
            return Ok(false);
        }
        let length = self.bytes.len() - start;
        if self.count > 0 && (length > self.segment || self.is_short || self.bytes.len() > MOST_BYTES) {
            let sent = transport.send(&self.bytes[..start], self.segment);
            self.refused += if matches!(sent, Ok(Sent::Taken | Sent::Waits)) { 0 } else { self.count as u64 };
            self.count = 0;
            if !matches!(sent, Ok(Sent::Taken)) {
                // The socket is full; this packet waits behind the others only if its end can be distinguished from
                // them. After an error it is not sent either, and the result covers all packets.
                self.bytes.clear();
                return sent.map(|_| false);
            }
            self.bytes.drain(..start);
        }
        if self.count == 0 {
            (self.segment, self.is_short) = (length, false);
        }
        self.count += 1;
        self.is_short = length < self.segment;
        if self.count >= MOST_SEGMENTS {
            return self.flush_full(transport);
        }
        Ok(true)
    }

    /// Sends the packets; returns whether the socket accepted them, or will.
    ///
    /// # Errors
    ///
    /// Errors of the socket.
    pub fn flush(&mut self, transport: &mut TransportSocket) -> io::Result<bool> {
        if self.count == 0 {
            return Ok(true);
        }
        let sent = transport.send(&self.bytes, self.segment);
        self.refused += if matches!(sent, Ok(Sent::Taken | Sent::Waits)) { 0 } else { self.count as u64 };
        self.bytes.clear();
        self.count = 0;
        Ok(sent? != Sent::Dropped)
    }

    /// The number of packets since the last call that had counted as sent, and that an error of the socket discarded.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Like `flush`, for a packet that filled the outbox; the result belongs to this packet.
    fn flush_full(&mut self, transport: &mut TransportSocket) -> io::Result<bool> {
        let flushed = self.flush(transport);
        self.refused -= u64::from(!matches!(flushed, Ok(true)));
        flushed
    }
}

#[cfg(test)]
mod tests {
    use leadline_testkit::{until, PATIENCE};

    use super::*;

    fn pair(transport: Transport) -> (TransportSocket, Box<dyn FnMut() -> Vec<u8> + Send>) {
        match transport {
            Transport::Udp => {
                let peer = net::udp_socket("127.0.0.1:0".parse().unwrap(), None, false).unwrap();
                peer.set_read_timeout(Some(PATIENCE)).unwrap();
                let server = Server { address: peer.local_addr().unwrap(), transport };
                let transport = TransportSocket::open(server, None, false).unwrap();
                let receive = move || {
                    let mut bytes = vec![0; 4096];
                    let length = peer.recv(&mut bytes).unwrap();
                    bytes.truncate(length);
                    bytes
                };
                (transport, Box::new(receive))
            }
            Transport::Tcp => {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let server = Server { address: listener.local_addr().unwrap(), transport };
                let transport = TransportSocket::open(server, None, false).unwrap();
                let (mut peer, _) = listener.accept().unwrap();
                let receive = move || {
                    let mut length = [0; 2];
                    peer.read_exact(&mut length).unwrap();
                    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
                    peer.read_exact(&mut bytes).unwrap();
                    bytes
                };
                (transport, Box::new(receive))
            }
        }
    }

    #[test]
    fn packets_of_any_length_arrive_in_order() {
        for transport in [Transport::Udp, Transport::Tcp] {
            let (mut transport, mut receive) = pair(transport);
            let mut outbox = Outbox::default();
            // More than one call receives, and less than a socket of the usual size holds.
            let lengths: Vec<usize> = (0..100).map(|n| [100, 100, 100, 40, 100, 700, 700][n % 7]).collect();
            for (number, length) in lengths.iter().enumerate() {
                let seal = |out: &mut Vec<u8>| {
                    out.resize(out.len() + length, number as u8);
                    Ok::<(), ()>(())
                };
                assert!(outbox.push(&mut transport, seal).unwrap());
            }
            assert!(outbox.flush(&mut transport).unwrap());
            for (number, length) in lengths.iter().enumerate() {
                assert_eq!(receive(), vec![number as u8; *length], "packet {number}");
            }
        }
    }

    #[test]
    fn datagram_arrival_is_the_kernel_timestamp() {
        let peer = net::udp_socket("127.0.0.1:0".parse().unwrap(), None, false).unwrap();
        let server = Server { address: peer.local_addr().unwrap(), transport: Transport::Udp };
        let (mut transport, mut buffers) =
            (TransportSocket::open(server, None, true).unwrap(), Buffers::new(true, false));
        // The kernel begins to timestamp some time after the first socket has requested it.
        until("the kernel stamps", || {
            peer.send_to(&[7], transport.local().unwrap()).unwrap();
            let sent_ns = monotonic_ns();
            let mut packets = Vec::new();
            while packets.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(1));
                assert!(!transport
                    .receive(&mut buffers, |arrived_ns, packet| packets.push((arrived_ns, packet.to_vec())))
                    .unwrap());
            }
            let [(arrived_ns, packet)] = &packets[..] else { panic!("{packets:?}") };
            assert_eq!(packet, &[7]);
            (*arrived_ns < sent_ns + 500_000).then_some(())
        });
    }

    #[test]
    fn packets_lost_to_a_socket_error_are_counted_not_resent() {
        let (mut transport, mut receive) = pair(Transport::Udp);
        let mut outbox = Outbox::default();
        let packet = |length: usize| {
            move |out: &mut Vec<u8>| {
                out.resize(out.len() + length, length as u8);
                Ok::<(), ()>(())
            }
        };
        // Longer than a UDP datagram can be.
        assert!(outbox.push(&mut transport, packet(66_000)).unwrap());
        assert!(outbox.flush(&mut transport).is_err());
        assert_eq!((outbox.take_refused(), outbox.take_refused()), (1, 0));
        assert!(outbox.push(&mut transport, packet(66_000)).unwrap());
        assert!(outbox.push(&mut transport, packet(67_000)).is_err(), "the result of the second packet reports it");
        assert_eq!(outbox.take_refused(), 1);
        assert!(outbox.push(&mut transport, packet(20)).unwrap() && outbox.push(&mut transport, packet(10)).unwrap());
        assert!(outbox.flush(&mut transport).unwrap());
        assert_eq!((receive(), receive()), (vec![20; 20], vec![10; 10]));
        assert_eq!(outbox.take_refused(), 0);
    }

    #[test]
    fn receive_buffer_drops_are_counted() {
        let (peer, near) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Transport::Udp);
        let server = Server { address: peer.local_addr().unwrap(), transport: near };
        let transport = TransportSocket::open(server, None, false).unwrap();
        assert_eq!(transport.receive_drops(), Some(0));
        peer.connect(transport.local().unwrap()).unwrap();
        // The socket is not read, so that it has no room for some of these.
        while transport.receive_drops() == Some(0) {
            peer.send(&[0; 9000]).unwrap();
        }
        assert_eq!(pair(Transport::Tcp).0.receive_drops(), None);
    }

    #[test]
    fn failed_seal_leaves_the_outbox_unchanged() {
        for transport in [Transport::Udp, Transport::Tcp] {
            let (mut transport, mut receive) = pair(transport);
            let mut outbox = Outbox::default();
            let fail = |out: &mut Vec<u8>| {
                out.push(1);
                Err(())
            };
            assert!(!outbox.push(&mut transport, fail).unwrap());
            let seal = |out: &mut Vec<u8>| {
                out.push(2);
                Ok::<(), ()>(())
            };
            assert!(outbox.push(&mut transport, seal).unwrap());
            assert!(outbox.flush(&mut transport).unwrap());
            assert_eq!(receive(), [2]);
        }
    }

    #[test]
    fn full_stream_queues_bytes_in_order() {
        let (mut transport, mut receive) = pair(Transport::Tcp);
        let mut outbox = Outbox::default();
        let mut sent = 0u32;
        while !transport.is_blocked() {
            let seal = |out: &mut Vec<u8>| {
                out.extend_from_slice(&sent.to_be_bytes());
                out.resize(out.len() + 1000, 0);
                Ok::<(), ()>(())
            };
            sent += u32::from(outbox.push(&mut transport, seal).unwrap());
        }
        let taking = std::thread::spawn(move || (0..sent).all(|number| receive()[..4] == number.to_be_bytes()));
        while !transport.resume().unwrap() {
            std::thread::yield_now();
        }
        assert!(taking.join().unwrap());
    }
}
