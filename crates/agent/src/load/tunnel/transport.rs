//! A client's socket towards its server: a connected UDP socket of its own, or a TCP connection, and what waits for the socket to have
//! room. Owns the sockets and how packets are told apart in a stream; knows nothing of what is in the packets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::stamp_received;
use leadline_sys::net::{self, DatagramBatch};
use leadline_sys::poll::{Interest, Poll};
use leadline_sys::segments::{self, MOST_BYTES, MOST_SEGMENTS};
use leadline_tunnel::client::server::Server;
use leadline_tunnel::openvpn::framing::{set_length, Unframer, LONGEST_PACKET};
use leadline_tunnel::openvpn::profile::Transport;
use socket2::{Domain, Protocol, Socket, Type};

/// Datagrams that one call receives.
pub const BATCH: usize = 32;
/// The longest datagram: beyond any tunnel's usual MTU, and no power of two, so that slots share no cache sets.
pub const DATAGRAM_BYTES: usize = 9_536;
/// Bytes of a stream that one call receives.
pub const STREAM_BYTES: usize = 64 * 1024;
/// What may wait for a stream to have room, bytes: two full flights of control packets and one burst of data.
const MOST_WAITING: usize = 128 * 1024;

/// An open socket.
pub enum TransportSocket {
    /// Datagrams.
    Udp {
        /// Connected.
        socket: UdpSocket,
        /// Packets that the socket has not taken yet.
        waiting: Option<Box<Waiting>>,
    },
    /// A stream, in which each packet is behind its length.
    Tcp {
        /// The connection.
        stream: TcpStream,
        /// A packet that has not come whole.
        unframer: Unframer,
        /// Bytes that the socket has not taken yet.
        waiting: Vec<u8>,
    },
}

/// Datagrams of one length, the last one perhaps shorter.
pub struct Waiting {
    bytes: Vec<u8>,
    segment: usize,
}

/// What became of bytes that were to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The socket has them.
    Taken,
    /// The socket has no room: they wait, and so has what comes after them.
    Waits,
    /// The socket has no room, and they are gone.
    Dropped,
}

impl TransportSocket {
    /// Open a socket towards a server, from this local address where one is given; a `stamped` one tells of datagrams when the
    /// kernel had them. UDP is usable at once, TCP once it is writable and `failure` tells of none.
    ///
    /// # Errors
    /// The system's: an address that is not ours, no port or descriptor left.
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
                // A port may serve towards other servers too, and be had again once its connection is gone.
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

    /// Whether packets are behind their lengths.
    #[inline]
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }

    /// Why the connection could not be made.
    pub fn failure(&self) -> Option<io::Error> {
        match self {
            Self::Udp { socket, .. } => socket.take_error(),
            Self::Tcp { stream, .. } => stream.take_error(),
        }
        .unwrap_or_else(Some)
    }

    /// Its own address.
    pub fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Udp { socket, .. } => socket.local_addr(),
            Self::Tcp { stream, .. } => stream.local_addr(),
        }
        .ok()
    }

    /// Register this socket with the poller under a token.
    pub fn watch(&self, poll: &Poll, token: u64, interest: Interest) -> io::Result<()> {
        match self {
            Self::Udp { socket, .. } => poll.add(socket, token, interest),
            Self::Tcp { stream, .. } => poll.add(stream, token, interest),
        }
    }

    /// Wait for something else from now on.
    pub fn watch_for(&self, poll: &Poll, token: u64, interest: Interest) -> io::Result<()> {
        match self {
            Self::Udp { socket, .. } => poll.modify(socket, token, interest),
            Self::Tcp { stream, .. } => poll.modify(stream, token, interest),
        }
    }

    /// Whether something waits for the socket to have room.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::Udp { waiting, .. } => waiting.is_some(),
            Self::Tcp { waiting, .. } => !waiting.is_empty(),
        }
    }

    /// Send packets: of UDP datagrams of `segment` bytes each, the last one being the rest; of TCP as they are, their lengths
    /// before them.
    ///
    /// # Errors
    /// The socket's.
    pub fn send(&mut self, bytes: &[u8], segment: usize) -> io::Result<Sent> {
        match self {
            Self::Udp { socket, waiting } => {
                if waiting.is_some() {
                    return Ok(Sent::Dropped);
                }
                let sent = match segments::send(socket, bytes, segment) {
                    Err(error) if is_full(&error) => 0,
                    // It tells of an earlier datagram; this one has not been sent.
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

    /// There is room again: send what waits; says whether all of it went.
    ///
    /// # Errors
    /// The socket's.
    pub fn resume(&mut self) -> io::Result<bool> {
        match self {
            Self::Udp { socket, waiting } => {
                let Some(left) = waiting else { return Ok(true) };
                match segments::send(socket, &left.bytes, left.segment) {
                    Err(error) if is_full(&error) => return Ok(false),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
                    Ok(sent) if sent < left.bytes.len() => {
                        left.bytes.drain(..sent);
                        return Ok(false);
                    }
                    Ok(_) => *waiting = None,
                    // What cannot be sent is not tried for ever.
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
                    // Thousands of idle clients keep no buffer.
                    *waiting = Vec::new();
                }
                Ok(waiting.is_empty())
            }
        }
    }

    /// Packets that wait for the socket to have room; a stream does not tell.
    pub fn waiting_packets(&self) -> u64 {
        match self {
            Self::Udp { waiting: Some(waiting), .. } => waiting.bytes.len().div_ceil(waiting.segment.max(1)) as u64,
            _ => 0,
        }
    }

    /// Datagrams that its socket had no room for when they came; `None` for a stream, and where the system does not tell.
    pub fn receive_drops(&self) -> Option<u64> {
        match self {
            Self::Udp { socket, .. } => net::receive_drops(socket),
            Self::Tcp { .. } => None,
        }
    }

    /// Take what has come, packet by packet, each after the instant at which it came (ns): by the kernel's stamp where there is
    /// one. Returns whether more may be there.
    ///
    /// # Errors
    /// The socket's; of TCP also its end (`UnexpectedEof`), and a stream that makes no sense (`InvalidData`).
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
                let whole = unframer.take(&mut buffers.stream[..read], |packet| each(now_ns, packet));
                whole.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                Ok(read == buffers.stream.len())
            }
        }
    }

    /// Close it without a farewell: TCP sends a reset, so that its port is free at once for thousands of new connections.
    pub fn drop_silently(self) {
        if let Self::Tcp { stream, .. } = &self {
            // A connection that is gone already needs none.
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

/// Where a thread's sockets put what they receive.
pub struct Buffers {
    datagrams: DatagramBatch,
    stream: Box<[u8]>,
}

impl Buffers {
    /// For sockets of these kinds.
    pub fn new(has_datagrams: bool, has_streams: bool) -> Self {
        Self {
            datagrams: DatagramBatch::stamped(if has_datagrams { BATCH } else { 0 }, DATAGRAM_BYTES),
            stream: vec![0; if has_streams { STREAM_BYTES } else { 0 }].into_boxed_slice(),
        }
    }
}

/// Sealed packets of one client that are to leave together: as long as they have one length, in one call.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    segment: usize,
    count: usize,
    is_short: bool,
    refused: u64,
}

impl Outbox {
    /// Put in a packet that `seal` appends; sends what has to go before it. Returns whether it will be sent.
    ///
    /// # Errors
    /// The socket's.
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
            // A stream has no way to carry what is longer than its lengths can tell.
            if seal(&mut self.bytes).is_err() || self.bytes.len() - start - 2 > LONGEST_PACKET {
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
                // The socket is full; this packet waits behind the others only where it can be told apart from them. Nor is
                // one sent after an error, whose answer tells of all.
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

    /// Send what is in it; says whether the socket took it, or will.
    ///
    /// # Errors
    /// The socket's.
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

    /// Packets that were on their way, and that an error of the socket took after all, since the last call.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// As `flush`, for a packet that filled it: what became of that one the answer tells.
    fn flush_full(&mut self, transport: &mut TransportSocket) -> io::Result<bool> {
        let flushed = self.flush(transport);
        self.refused -= u64::from(!matches!(flushed, Ok(true)));
        flushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(transport: Transport) -> (TransportSocket, Box<dyn FnMut() -> Vec<u8> + Send>) {
        match transport {
            Transport::Udp => {
                let far = net::udp_socket("127.0.0.1:0".parse().unwrap(), None, false).unwrap();
                far.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
                let server = Server { address: far.local_addr().unwrap(), transport };
                let transport = TransportSocket::open(server, None, false).unwrap();
                let receive = move || {
                    let mut bytes = vec![0; 4096];
                    let length = far.recv(&mut bytes).unwrap();
                    bytes.truncate(length);
                    bytes
                };
                (transport, Box::new(receive))
            }
            Transport::Tcp => {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let server = Server { address: listener.local_addr().unwrap(), transport };
                let transport = TransportSocket::open(server, None, false).unwrap();
                let (mut far, _) = listener.accept().unwrap();
                let receive = move || {
                    let mut length = [0; 2];
                    far.read_exact(&mut length).unwrap();
                    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
                    far.read_exact(&mut bytes).unwrap();
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
            // More than one call takes, and less than a socket of the usual size holds.
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
        let far = net::udp_socket("127.0.0.1:0".parse().unwrap(), None, false).unwrap();
        let server = Server { address: far.local_addr().unwrap(), transport: Transport::Udp };
        let (mut transport, mut buffers) =
            (TransportSocket::open(server, None, true).unwrap(), Buffers::new(true, false));
        // The kernel begins to stamp some time after the first socket has asked.
        for _ in 0..1000 {
            far.send_to(&[7], transport.local().unwrap()).unwrap();
            let sent_ns = monotonic_ns();
            let mut came = Vec::new();
            while came.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(1));
                assert!(!transport
                    .receive(&mut buffers, |arrived_ns, packet| came.push((arrived_ns, packet.to_vec())))
                    .unwrap());
            }
            let [(arrived_ns, packet)] = &came[..] else { panic!("{came:?}") };
            assert_eq!(packet, &[7]);
            if *arrived_ns < sent_ns + 500_000 {
                return;
            }
        }
        panic!("no stamp came");
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
        // Longer than UDP can be.
        assert!(outbox.push(&mut transport, packet(66_000)).unwrap());
        assert!(outbox.flush(&mut transport).is_err());
        assert_eq!((outbox.take_refused(), outbox.take_refused()), (1, 0));
        assert!(outbox.push(&mut transport, packet(66_000)).unwrap());
        assert!(outbox.push(&mut transport, packet(67_000)).is_err(), "the second packet's own result tells of it");
        assert_eq!(outbox.take_refused(), 1);
        assert!(outbox.push(&mut transport, packet(20)).unwrap() && outbox.push(&mut transport, packet(10)).unwrap());
        assert!(outbox.flush(&mut transport).unwrap());
        assert_eq!((receive(), receive()), (vec![20; 20], vec![10; 10]));
        assert_eq!(outbox.take_refused(), 0);
    }

    #[test]
    fn receive_buffer_drops_are_counted() {
        let (far, near) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Transport::Udp);
        let server = Server { address: far.local_addr().unwrap(), transport: near };
        let transport = TransportSocket::open(server, None, false).unwrap();
        assert_eq!(transport.receive_drops(), Some(0));
        far.connect(transport.local().unwrap()).unwrap();
        // The socket is not read, so that some of these find no room at last.
        while transport.receive_drops() == Some(0) {
            far.send(&[0; 9000]).unwrap();
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
