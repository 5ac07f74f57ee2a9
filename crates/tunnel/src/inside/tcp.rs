//! TCP inside of a tunnel: smoltcp's machine on a device of two queues without threads, one stack per client, made only where TCP is
//! used. Packets and the time come in, packets go out; connections are written to and read from here. What it holds is bounded by
//! each connection's buffers and a few packets. Owns no port of the host's; refuses everything that is not TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpListenEndpoint};

use super::icmp::{quotes, Message};
use super::ip::{protocol, Ends, Packet};
use crate::offload::layout::u16_at;

mod window;
mod wire;

use window::Window;
use wire::Wire;

/// A connection whose far end acknowledges nothing for so long is over, as is one that does not come about by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// A connection on which nothing happens asks for a sign of life this often. It takes the place of probes of a closed window,
/// which smoltcp does not send.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// The smallest MTU that a stack works with: IPv6's header, TCP's with all its options, and a little payload. For one with a
/// smaller MTU it makes packets that are too long.
pub const LEAST_MTU: u16 = 128;
/// The least time until the next call, ns: a machine that says "now" and has nothing to send must not turn us in a circle.
const LEAST_WAIT_NS: u64 = 1_000_000;
/// The first of the ports that are used in turn (RFC 6335, section 6: dynamic ports).
const FIRST_PORT: u16 = 49_152;

/// Bytes that a connection may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Received and not read; the window that is offered to the far end.
    pub receive_bytes: usize,
    /// Written and not acknowledged.
    pub send_bytes: usize,
}

/// One connection of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(usize);

/// Why there is no connection, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// This end has no address of the far end's family.
    #[error("no address of that family")]
    NoAddress,
    /// The far end, or an end on the way, will have none of it.
    #[error("refused")]
    Refused,
    /// The far end broke it off.
    #[error("reset")]
    Reset,
    /// Nothing came for too long.
    #[error("nothing came for too long")]
    Timeout,
    /// A router or the far end said why not.
    #[error("{0}")]
    Unreachable(&'static str),
}

impl TcpError {
    /// Its name in counts, snake case.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoAddress => "no_address",
            Self::Refused => "connection_refused",
            Self::Reset => "connection_reset",
            Self::Timeout => "timeout",
            Self::Unreachable(name) => name,
        }
    }
}

/// One client's TCP.
pub struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    wire: Wire,
    /// By their connections' numbers; a released one's place is taken by the next.
    connections: Vec<Option<Entry>>,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    next_port: u16,
    /// When `poll` found nothing to do last, ns.
    idle_ns: Option<u64>,
}

struct Entry {
    handle: SocketHandle,
    local: SocketAddr,
    remote: SocketAddr,
    began_ns: u64,
    window: Window,
    was_open: bool,
    ended_by_us: bool,
    /// Nobody asks for it any more.
    is_released: bool,
    error: Option<TcpError>,
}

impl Stack {
    /// With these addresses, for packets of at most so many bytes; an address that can be no host's is as none. `seed` makes ports and sequence numbers hard to guess.
    pub fn new(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>, mtu: u16, seed: u64, now_ns: u64) -> Self {
        // A server gives what it likes, and smoltcp takes an address of a group for our own mistake.
        let ipv4 = ipv4.filter(|own| !own.is_multicast() && !own.is_broadcast() && !own.is_unspecified());
        let ipv6 = ipv6.filter(|own| !own.is_multicast() && !own.is_unspecified());
        let mut wire = Wire::new(mtu.max(LEAST_MTU));
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire.device(&[]), instant(now_ns));
        interface.update_ip_addrs(|addresses| {
            let all = [ipv4.map(|own| IpCidr::new(own.into(), 32)), ipv6.map(|own| IpCidr::new(own.into(), 128))];
            // There is room for two.
            all.into_iter().flatten().for_each(|address| addresses.push(address).unwrap_or_default());
        });
        // Every address lies behind the tunnel. The table has room for two routes.
        if let Some(own) = ipv4 {
            let _ = interface.routes_mut().add_default_ipv4_route(own);
        }
        if let Some(own) = ipv6 {
            let _ = interface.routes_mut().add_default_ipv6_route(own);
        }
        let next_port = FIRST_PORT + (seed % u64::from(u16::MAX - FIRST_PORT)) as u16;
        let sockets = SocketSet::new(Vec::new());
        Self { interface, sockets, wire, connections: Vec::new(), ipv4, ipv6, next_port, idle_ns: None }
    }

    /// Begins a connection; `poll` sends its first packet.
    ///
    /// # Errors
    /// `NoAddress`.
    pub fn connect(&mut self, now_ns: u64, remote: SocketAddr, buffers: Buffers) -> Result<Connection, TcpError> {
        let own = match remote.ip() {
            IpAddr::V4(_) => self.ipv4.map(IpAddr::V4),
            IpAddr::V6(_) => self.ipv6.map(IpAddr::V6),
        };
        let local = SocketAddr::new(own.ok_or(TcpError::NoAddress)?, self.take_port());
        let mut socket = socket(buffers);
        // Fails for a socket in use and for port 0 or an unspecified address, which nobody answers at.
        socket
            .connect(self.interface.context(), endpoint(remote), listen_endpoint(local))
            .map_err(|_| TcpError::Unreachable("bad_address"))?;
        Ok(self.enter(now_ns, socket, local, remote))
    }

    /// Waits for one connection at a port: the far end's part, for a stack that stands in for a server.
    pub fn listen(&mut self, now_ns: u64, local: SocketAddr, buffers: Buffers) -> Connection {
        let mut socket = socket(buffers);
        // Fails for port 0 alone, where nothing arrives then.
        let _ = socket.listen(listen_endpoint(local));
        self.enter(now_ns, socket, local, local)
    }

    /// Takes a packet out of the tunnel; says whether it was TCP, or an error about a connection. What it calls for is sent at the
    /// next `poll`.
    pub fn handle(&mut self, now_ns: u64, bytes: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(bytes) else { return false };
        if packet.protocol != protocol::TCP {
            return self.note_refusal(&packet);
        }
        if !self.wire.admits(packet.transport) {
            return true;
        }
        self.idle_ns = None;
        self.interface.poll_ingress_single(instant(now_ns), &mut self.wire.device(bytes), &mut self.sockets);
        self.watch(now_ns);
        true
    }

    /// Sends what is to be sent: hands each packet to `emit`, which says whether it was taken; one that was not is offered again at
    /// the next call, and nothing else is sent before.
    pub fn poll(&mut self, now_ns: u64, emit: &mut dyn FnMut(&[u8]) -> bool) {
        loop {
            if !self.wire.drain(emit) {
                break;
            }
            let polled = self.interface.poll_egress(instant(now_ns), &mut self.wire.device(&[]), &mut self.sockets);
            if matches!(polled, PollResult::None) && self.wire.is_empty() {
                self.idle_ns = Some(now_ns);
                break;
            }
        }
        self.watch(now_ns);
    }

    /// When `poll` has something to do, ns; `None` if it only waits for packets.
    pub fn deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        if !self.wire.is_empty() {
            return Some(now_ns.saturating_add(LEAST_WAIT_NS));
        }
        let at = self.interface.poll_at(instant(now_ns), &self.sockets)?;
        let at_ns = u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000);
        Some(self.idle_ns.map_or(at_ns, |idle_ns| at_ns.max(idle_ns.saturating_add(LEAST_WAIT_NS))))
    }

    /// Whether bytes may be written: the connection has come about, and neither end has ended this direction.
    pub fn is_writable(&self, connection: Connection) -> bool {
        self.socket(connection).may_send()
    }

    /// Bytes that could be written now.
    pub fn room(&self, connection: Connection) -> usize {
        let socket = self.socket(connection);
        if socket.may_send() {
            socket.send_capacity() - socket.send_queue()
        } else {
            0
        }
    }

    /// Writes as much as there is room for; says how much.
    pub fn write(&mut self, connection: Connection, bytes: &[u8]) -> usize {
        self.idle_ns = None;
        let written = self.socket_mut(connection).send_slice(bytes).unwrap_or(0);
        self.entry_mut(connection).window.wrote(written);
        written
    }

    /// Writes as many bytes of no meaning as the path takes, by the stream's congestion control; says how many. Nothing is copied.
    pub fn fill(&mut self, now_ns: u64, connection: Connection) -> usize {
        let room = self.room(connection);
        let entry = self.connections[connection.0].as_mut().expect("it was not released");
        let socket = self.sockets.get_mut::<Socket>(entry.handle);
        let losses = self.wire.sent(entry.local.port()).map_or(0, |sent| sent.losses);
        let most = entry.window.room(now_ns, socket.send_queue(), losses, socket.send_capacity()).min(room);
        let mut filled = 0;
        // The ring has two pieces at most.
        for _ in 0..2 {
            let piece = |room: &mut [u8]| (room.len().min(most - filled), room.len().min(most - filled));
            filled += socket.send(piece).unwrap_or(0);
        }
        entry.window.sent(now_ns, filled);
        if filled > 0 {
            self.idle_ns = None;
        }
        filled
    }

    /// Hands what has come to `take`, which says how much of it it took; says how much in all.
    pub fn read(&mut self, connection: Connection, mut take: impl FnMut(&[u8]) -> usize) -> usize {
        let mut taken = 0;
        // A window that opens is to be told.
        self.idle_ns = None;
        let socket = self.socket_mut(connection);
        while socket.can_recv() {
            let piece = socket.recv(|bytes| {
                let used = take(bytes).min(bytes.len());
                (used, used)
            });
            match piece {
                Ok(used) if used > 0 => taken += used,
                _ => break,
            }
        }
        taken
    }

    /// Whether the far end has said that nothing more follows, and everything was read.
    pub fn is_at_end(&self, connection: Connection) -> bool {
        let socket = self.socket(connection);
        self.entry(connection).was_open && !socket.may_recv() && !socket.can_recv()
    }

    /// Bytes that were written and not acknowledged.
    pub fn unacknowledged(&self, connection: Connection) -> usize {
        self.socket(connection).send_queue()
    }

    /// Why the connection is none, if it is not one that was ended in order.
    pub fn error(&self, connection: Connection) -> Option<TcpError> {
        self.entry(connection).error
    }

    /// This end of it.
    pub fn local(&self, connection: Connection) -> SocketAddr {
        self.entry(connection).local
    }

    /// Segments with payload that were sent again.
    pub fn retransmits(&self, connection: Connection) -> u64 {
        self.wire.sent(self.entry(connection).local.port()).map_or(0, |sent| sent.again)
    }

    /// Ends this direction in order, behind what was written.
    pub fn close(&mut self, connection: Connection) {
        self.idle_ns = None;
        self.entry_mut(connection).ended_by_us = true;
        self.socket_mut(connection).close();
    }

    /// Forgets it as soon as it has ended, which it must have been asked to; it may not be asked for again.
    pub fn release(&mut self, connection: Connection) {
        self.entry_mut(connection).is_released = true;
    }

    /// Breaks it off.
    pub fn abort(&mut self, connection: Connection) {
        self.idle_ns = None;
        self.entry_mut(connection).ended_by_us = true;
        self.socket_mut(connection).abort();
    }

    fn enter(&mut self, now_ns: u64, socket: Socket<'static>, local: SocketAddr, remote: SocketAddr) -> Connection {
        self.idle_ns = None;
        self.wire.watch(local.port());
        let handle = self.sockets.add(socket);
        let entry = Some(Entry {
            handle,
            local,
            remote,
            began_ns: now_ns,
            window: Window::default(),
            was_open: false,
            ended_by_us: false,
            is_released: false,
            error: None,
        });
        if let Some(free) = self.connections.iter().position(Option::is_none) {
            self.connections[free] = entry;
            return Connection(free);
        }
        self.connections.push(entry);
        Connection(self.connections.len() - 1)
    }

    fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }

    /// Takes note of connections that came about, and of those that ended without our asking; forgets the released ones.
    fn watch(&mut self, now_ns: u64) {
        for place in &mut self.connections {
            let Some(entry) = place.as_mut().filter(|entry| entry.error.is_none() || entry.is_released) else {
                continue;
            };
            let socket = self.sockets.get::<Socket>(entry.handle);
            match socket.state() {
                State::Listen | State::SynSent | State::SynReceived => {}
                State::Closed if entry.ended_by_us || entry.error.is_some() => {}
                State::Closed => {
                    let waited = now_ns.saturating_sub(entry.began_ns) >= PATIENCE.total_micros() * 1000;
                    entry.error = Some(match (entry.was_open, waited) {
                        (false, true) => TcpError::Timeout,
                        (false, false) => TcpError::Refused,
                        (true, _) => TcpError::Reset,
                    });
                }
                _ => entry.was_open = true,
            }
            // Ports are used in turn, so that none needs its time of waiting; one that was broken off has yet to say so.
            let is_over = socket.state() == State::TimeWait || socket.local_endpoint().is_none();
            if entry.is_released && is_over {
                self.wire.forget(entry.local.port());
                self.sockets.remove(entry.handle);
                *place = None;
            }
        }
    }

    /// An ICMP error about a connection that has not come about ends it (RFC 1122, 4.2.3.9: hard errors); a router's complaint
    /// about one that has is nothing to act on.
    fn note_refusal(&mut self, packet: &Packet<'_>) -> bool {
        let Ok(Some(Message::Error { name, packet: ours, .. })) = Message::parse(packet) else { return false };
        for entry in self.connections.iter_mut().flatten() {
            let Some(ends) = Ends::new(entry.local.ip(), entry.remote.ip()) else { continue };
            let Some(header) = quotes(ours, ends, protocol::TCP).filter(|header| header.len() >= 4) else { continue };
            if u16_at(header, 0) != entry.local.port() || u16_at(header, 2) != entry.remote.port() {
                continue;
            }
            let socket = self.sockets.get_mut::<Socket>(entry.handle);
            if socket.state() == State::SynSent && entry.error.is_none() {
                entry.error = Some(TcpError::Unreachable(name));
                socket.abort();
            }
            return true;
        }
        false
    }

    fn entry(&self, connection: Connection) -> &Entry {
        self.connections[connection.0].as_ref().expect("it was not released")
    }

    fn entry_mut(&mut self, connection: Connection) -> &mut Entry {
        self.connections[connection.0].as_mut().expect("it was not released")
    }

    fn socket(&self, connection: Connection) -> &Socket<'static> {
        self.sockets.get(self.entry(connection).handle)
    }

    fn socket_mut(&mut self, connection: Connection) -> &mut Socket<'static> {
        self.sockets.get_mut(self.entry(connection).handle)
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Stack({} connections)", self.connections.len())
    }
}

fn socket(buffers: Buffers) -> Socket<'static> {
    let ring = |bytes: usize| SocketBuffer::new(vec![0; bytes.max(1)]);
    let mut socket = Socket::new(ring(buffers.receive_bytes), ring(buffers.send_bytes));
    socket.set_nagle_enabled(false);
    socket.set_keep_alive(Some(KEEP_ALIVE));
    socket.set_timeout(Some(PATIENCE));
    socket
}

fn instant(now_ns: u64) -> Instant {
    Instant::from_micros(i64::try_from(now_ns / 1000).unwrap_or(i64::MAX))
}

fn endpoint(address: SocketAddr) -> (IpAddress, u16) {
    (address.ip().into(), address.port())
}

fn listen_endpoint(address: SocketAddr) -> IpListenEndpoint {
    IpListenEndpoint { addr: Some(address.ip().into()), port: address.port() }
}

#[cfg(test)]
mod shared_bottleneck;
#[cfg(test)]
mod tests;
