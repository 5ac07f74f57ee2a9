//! TCP inside a tunnel: smoltcp on a device of two queues, without threads; one stack per client, created only if TCP
//! is used. Takes packets and times and returns packets; callers read and write connections here. Memory is bounded
//! by each connection's buffers and a few packets. Uses no port of the host; ignores all packets but TCP and errors
//! about it.

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

/// A connection ends if the far end acknowledges nothing for this long, or if it is not established by then.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of keep-alives on an idle connection. They replace window probes, which smoltcp does not send.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Minimum MTU of a stack: the IPv6 header, the TCP header with all its options, and a little payload. With a smaller
/// MTU, the stack's packets are too long.
pub const MIN_MTU: u16 = 128;
/// Minimum time until the next call, ns: prevents a busy loop when smoltcp returns "now" and has nothing to send.
const MIN_WAIT_NS: u64 = 1_000_000;
/// First port; ports are used in turn (RFC 6335, section 6: dynamic ports).
const FIRST_PORT: u16 = 49_152;

/// Buffer sizes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Received and unread bytes; also the offered window.
    pub receive_bytes: usize,
    /// Written and unacknowledged bytes.
    pub send_bytes: usize,
}

/// A connection's handle in its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(usize);

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// The stack has no address of the far end's family.
    #[error("no address of that family")]
    NoAddress,
    /// The far end, or a host on the path, refused the connection.
    #[error("refused")]
    Refused,
    /// The far end reset the connection.
    #[error("reset")]
    Reset,
    /// The far end sent nothing for too long.
    #[error("the far end sent nothing for too long")]
    Timeout,
    /// A router or the far end reported this ICMP error.
    #[error("{0}")]
    Unreachable(&'static str),
}

impl TcpError {
    /// The name of the error's counter in snake case.
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

/// The TCP stack of one client.
pub struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    wire: Wire,
    /// Indexed by connection; a new connection reuses the slot of a released one.
    connections: Vec<Option<Entry>>,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    next_port: u16,
    /// When `poll` last had nothing to do, ns.
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
    /// Whether the caller has released the connection.
    is_released: bool,
    error: Option<TcpError>,
}

impl Stack {
    /// Creates a stack with these addresses, for packets of at most this length. An address that no host can have is
    /// ignored. `seed` makes ports and sequence numbers hard to guess.
    pub fn new(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>, mtu: u16, seed: u64, now_ns: u64) -> Self {
        // A server may assign any address, and smoltcp panics on a multicast address.
        let ipv4 = ipv4.filter(|own| !own.is_multicast() && !own.is_broadcast() && !own.is_unspecified());
        let ipv6 = ipv6.filter(|own| !own.is_multicast() && !own.is_unspecified());
        let mut wire = Wire::new(mtu.max(MIN_MTU));
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire.device(&[]), instant(now_ns));
        interface.update_ip_addrs(|addresses| {
            let all = [ipv4.map(|own| IpCidr::new(own.into(), 32)), ipv6.map(|own| IpCidr::new(own.into(), 128))];
            // The list has room for two.
            all.into_iter().flatten().for_each(|address| addresses.push(address).unwrap_or_default());
        });
        // Every address is behind the tunnel. The table has room for two routes.
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
        // Fails only for a socket in use, port 0, or an unspecified address; such a connection times out.
        socket
            .connect(self.interface.context(), endpoint(remote), listen_endpoint(local))
            .map_err(|_| TcpError::Unreachable("bad_address"))?;
        Ok(self.enter(now_ns, socket, local, remote))
    }

    /// Listens for one connection on a port, for a stack that acts as a server.
    pub fn listen(&mut self, now_ns: u64, local: SocketAddr, buffers: Buffers) -> Connection {
        let mut socket = socket(buffers);
        // Fails only for port 0; then no connection arrives.
        let _ = socket.listen(listen_endpoint(local));
        self.enter(now_ns, socket, local, local)
    }

    /// Handles a packet from the tunnel; returns whether it was TCP, or an error about a connection. The next `poll`
    /// sends the responses.
    pub fn handle(&mut self, now_ns: u64, bytes: &[u8]) -> bool {
        let Ok(packet) = Packet::parse(bytes) else { return false };
        if packet.protocol != protocol::TCP {
            return self.record_refusal(&packet);
        }
        if !self.wire.admits(packet.transport) {
            return true;
        }
        self.idle_ns = None;
        self.interface.poll_ingress_single(instant(now_ns), &mut self.wire.device(bytes), &mut self.sockets);
        self.watch(now_ns);
        true
    }

    /// Sends pending packets: passes each to `emit`, which returns whether it was taken. A refused packet is passed
    /// again at the next call, before all others.
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

    /// When `poll` has work, ns; `None` if it only waits for packets.
    pub fn deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        if !self.wire.is_empty() {
            return Some(now_ns.saturating_add(MIN_WAIT_NS));
        }
        let at = self.interface.poll_at(instant(now_ns), &self.sockets)?;
        let at_ns = u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000);
        Some(self.idle_ns.map_or(at_ns, |idle_ns| at_ns.max(idle_ns.saturating_add(MIN_WAIT_NS))))
    }

    /// Whether bytes can be written: the connection is established, and this direction is not closed.
    pub fn is_writable(&self, connection: Connection) -> bool {
        self.socket(connection).may_send()
    }

    /// Number of bytes that can be written now.
    pub fn room(&self, connection: Connection) -> usize {
        let socket = self.socket(connection);
        if socket.may_send() {
            socket.send_capacity() - socket.send_queue()
        } else {
            0
        }
    }

    /// Writes as many bytes as possible; returns how many.
    pub fn write(&mut self, connection: Connection, bytes: &[u8]) -> usize {
        self.idle_ns = None;
        let written = self.socket_mut(connection).send_slice(bytes).unwrap_or(0);
        self.entry_mut(connection).window.wrote(written);
        written
    }

    /// Writes as many arbitrary bytes as the congestion control allows; returns how many. Copies nothing.
    pub fn fill(&mut self, now_ns: u64, connection: Connection) -> usize {
        let room = self.room(connection);
        let entry = self.connections[connection.0].as_mut().expect("the connection is not released");
        let socket = self.sockets.get_mut::<Socket>(entry.handle);
        let losses = self.wire.sent(entry.local.port()).map_or(0, |sent| sent.losses);
        let most = entry.window.room(now_ns, socket.send_queue(), losses, socket.send_capacity()).min(room);
        let mut filled = 0;
        // The ring buffer has at most two pieces.
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

    /// Passes received bytes to `take`, which returns how many it took; returns the total.
    pub fn read(&mut self, connection: Connection, mut take: impl FnMut(&[u8]) -> usize) -> usize {
        let mut taken = 0;
        // An opened window has to be announced.
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

    /// Whether the far end has closed its direction, and all bytes are read.
    pub fn is_at_end(&self, connection: Connection) -> bool {
        let socket = self.socket(connection);
        self.entry(connection).was_open && !socket.may_recv() && !socket.can_recv()
    }

    /// Number of bytes that are written and not acknowledged.
    pub fn unacknowledged(&self, connection: Connection) -> usize {
        self.socket(connection).send_queue()
    }

    /// Why the connection failed; `None` for an open or orderly closed connection.
    pub fn error(&self, connection: Connection) -> Option<TcpError> {
        self.entry(connection).error
    }

    /// The local address and port.
    pub fn local(&self, connection: Connection) -> SocketAddr {
        self.entry(connection).local
    }

    /// Number of retransmitted segments with payload.
    pub fn retransmits(&self, connection: Connection) -> u64 {
        self.wire.sent(self.entry(connection).local.port()).map_or(0, |sent| sent.again)
    }

    /// Closes this direction after the written bytes.
    pub fn close(&mut self, connection: Connection) {
        self.idle_ns = None;
        self.entry_mut(connection).ended_by_us = true;
        self.socket_mut(connection).close();
    }

    /// Forgets a closed or aborted connection as soon as it has ended; its handle must not be used again.
    pub fn release(&mut self, connection: Connection) {
        self.entry_mut(connection).is_released = true;
    }

    /// Resets the connection.
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

    /// Records which connections were established, and which ended unexpectedly; removes the released ones.
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
                    let waited = now_ns.saturating_sub(entry.began_ns) >= TIMEOUT.total_micros() * 1000;
                    entry.error = Some(match (entry.was_open, waited) {
                        (false, true) => TcpError::Timeout,
                        (false, false) => TcpError::Refused,
                        (true, _) => TcpError::Reset,
                    });
                }
                _ => entry.was_open = true,
            }
            // Ports are used in turn, so TIME-WAIT is not needed; an aborted connection still has to send its reset.
            let is_over = socket.state() == State::TimeWait || socket.local_endpoint().is_none();
            if entry.is_released && is_over {
                self.wire.forget(entry.local.port());
                self.sockets.remove(entry.handle);
                *place = None;
            }
        }
    }

    /// Ends a connection that is not established after an ICMP error about it (RFC 1122, 4.2.3.9: hard errors). An
    /// error about an established connection is ignored.
    fn record_refusal(&mut self, packet: &Packet<'_>) -> bool {
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
        self.connections[connection.0].as_ref().expect("the connection is not released")
    }

    fn entry_mut(&mut self, connection: Connection) -> &mut Entry {
        self.connections[connection.0].as_mut().expect("the connection is not released")
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
    socket.set_timeout(Some(TIMEOUT));
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
