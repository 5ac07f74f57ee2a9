//! `leadline-agent wireguard CONFIG`: an embedded WireGuard interface. One thread carries packets between a UDP
//! socket, the machine in `leadline_tunnel` and a TUN device. Sets no routes and runs no programs; ends on SIGTERM,
//! SIGINT, or with its parent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leadline_sys::poll::{Interest, Poll};
use leadline_sys::reason::reason;
use leadline_sys::tun::{GsoSocket, Tun, GSO_MAX_BYTES, GSO_MAX_DATAGRAMS};
use leadline_sys::{clock, net, process};
use leadline_tunnel::offload::{Coalescer, Segmenter};
use leadline_tunnel::wireguard::{Config, ConfigError, Machine, Output, SetupError};
use tracing::info;

/// Reads from one side before the other side's turn. With offloads one read returns up to 64 KiB.
const BURST: usize = 32;
/// The size of the buffers: larger than any datagram or frame, bytes.
const SPACE_BYTES: usize = 1 << 17;

/// Packets that the device queues until they are read: as many as an Ethernet card's queue. A TUN device's default of
/// 500 packets is 5 ms of small packets, and a process that shares its core may have to wait longer.
const DEVICE_QUEUE_PACKETS: u16 = 1000;

/// Why the interface could not be set up, or could not continue. One line each.
#[derive(Debug, thiserror::Error)]
pub enum WireguardError {
    /// The file cannot be read.
    #[error("{}: {}", path.display(), reason(error))]
    Read {
        /// The configuration.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Users other than the owner may read the private key.
    #[error("{}: mode {mode:o} lets others read the private key; make it 600 (chmod 600)", path.display())]
    Exposed {
        /// The configuration.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The configuration is invalid.
    #[error("{}: {error}", path.display())]
    Config {
        /// The configuration.
        path: PathBuf,
        /// What is wrong.
        error: ConfigError,
    },
    /// The peers are in conflict, or too many.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The system refused an operation.
    #[error("{operation}: {}", reason(error))]
    System {
        /// What was tried.
        operation: String,
        /// The system's reason.
        error: io::Error,
    },
}

/// Sets the interface up, prints `ready` on stdout, and carries packets until a signal ends it.
pub fn run(path: &Path) -> Result<(), WireguardError> {
    process::die_with_parent().map_err(during("tying this process to its parent"))?;
    process::catch_termination().map_err(during("catching SIGTERM"))?;
    let config = read_config(path)?;
    let machine = Machine::new(&config.private_key, &config.peers)?;
    let mut link = Link::new(machine, set_up_device(&config)?, bind(&config)?);
    let Config { interface, listen_address, listen_port, mtu, peers, offloads, .. } = &config;
    info!(interface, %listen_address, listen_port, mtu, peers = peers.len(), offloads, "interface is up");
    println!("ready");
    io::stdout().flush().map_err(during("printing `ready`"))?;
    let ended = link.carry().map_err(during("waiting for packets"));
    info!(interface, "interface goes down");
    link.report();
    ended
}

fn read_config(path: &Path) -> Result<Config, WireguardError> {
    let unreadable = |error| WireguardError::Read { path: path.to_path_buf(), error };
    let mut file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(WireguardError::Exposed { path: path.to_path_buf(), mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    Config::parse(&text).map_err(|error| WireguardError::Config { path: path.to_path_buf(), error })
}

fn set_up_device(config: &Config) -> Result<Tun, WireguardError> {
    let name = &config.interface;
    let tun = Tun::create(name, config.offloads).map_err(during(format!("creating the TUN device {name}")))?;
    for address in &config.addresses {
        tun.add_address(address.address, address.length).map_err(during(format!("adding {address} to {name}")))?;
    }
    tun.bring_up(config.mtu, DEVICE_QUEUE_PACKETS).map_err(during(format!("bringing {name} up")))?;
    Ok(tun)
}

fn bind(config: &Config) -> Result<GsoSocket, WireguardError> {
    let at = SocketAddr::new(config.listen_address, config.listen_port.unwrap_or(0));
    GsoSocket::bind(at, config.offloads).map_err(during(format!("listening on UDP {at}")))
}

fn during(operation: impl Into<String>) -> impl FnOnce(io::Error) -> WireguardError {
    let operation = operation.into();
    move |error| WireguardError::System { operation, error }
}

/// The running interface.
struct Link {
    machine: Machine,
    tun: Tun,
    gso_socket: GsoSocket,
    /// Splits the device's large segments into ordinary packets.
    segmenter: Segmenter,
    /// Outgoing datagrams.
    outbox: Outbox,
    /// Packets for the device.
    coalescer: Coalescer,
    /// The buffer for decrypted packets.
    space: Box<[u8]>,
    refused: Refused,
}

/// Packets that the system refused; the machine counts everything else.
#[derive(Debug, Default)]
struct Refused {
    datagrams: u64,
    packets: u64,
    frames: u64,
}

impl Link {
    fn new(machine: Machine, tun: Tun, gso_socket: GsoSocket) -> Self {
        Self {
            machine,
            tun,
            gso_socket,
            segmenter: Segmenter::new(),
            outbox: Outbox::new(),
            coalescer: Coalescer::new(),
            space: vec![0; SPACE_BYTES].into_boxed_slice(),
            refused: Refused::default(),
        }
    }

    fn carry(&mut self) -> io::Result<()> {
        const TUN: u64 = 0;
        const SOCKET: u64 = 1;
        let mut poll = Poll::new(2)?;
        poll.add(&self.tun, TUN, Interest::Read)?;
        poll.add(self.gso_socket.socket(), SOCKET, Interest::Read)?;
        let mut input = vec![0; SPACE_BYTES].into_boxed_slice();
        while !process::termination_asked() {
            let until_ns = self.settle();
            let (mut packets, mut datagrams) = (false, false);
            for ready in poll.wait(Some(until_ns))? {
                packets |= ready.token == TUN;
                datagrams |= ready.token == SOCKET;
            }
            if datagrams {
                self.take_datagrams(&mut input);
            }
            if packets {
                self.take_packets(&mut input);
            }
        }
        Ok(())
    }

    /// Carries packets from the host to the peers.
    fn take_packets(&mut self, input: &mut [u8]) {
        let Self { machine, tun, gso_socket, segmenter, outbox, refused, .. } = self;
        let mut each = |packet: &[u8]| {
            if let Output::Send { to, datagram } = machine.handle_packet(packet, outbox.tail()) {
                let bytes = datagram.len();
                refused.datagrams += outbox.enqueue(to, bytes, gso_socket);
            }
        };
        for _ in 0..BURST {
            let Ok(length) = tun.read(input) else { break };
            if !tun.offloads() {
                each(&input[..length]);
            } else if !segmenter.segment(&mut input[..length], &mut each) {
                refused.frames += 1;
            }
        }
        refused.datagrams += outbox.flush(gso_socket);
    }

    /// Carries packets from the peers to the host.
    fn take_datagrams(&mut self, input: &mut [u8]) {
        for _ in 0..BURST {
            let Ok(batch) = self.gso_socket.receive(input) else { break };
            // An empty datagram counts too: the machine counts it.
            let step = batch.datagram_bytes.max(1);
            for start in (0..batch.bytes.max(1)).step_by(step) {
                let datagram = &input[start..(start + step).min(batch.bytes)];
                self.take_datagram(batch.from, datagram);
            }
        }
        self.refused.packets += write_coalesced(&mut self.coalescer, &self.tun);
        self.refused.datagrams += self.outbox.flush(&mut self.gso_socket);
    }

    fn take_datagram(&mut self, from: SocketAddr, datagram: &[u8]) {
        match self.machine.handle_datagram(from, datagram, &mut self.space) {
            Output::Send { to, datagram } => {
                let bytes = datagram.len();
                self.outbox.tail()[..bytes].copy_from_slice(datagram);
                self.refused.datagrams += self.outbox.enqueue(to, bytes, &mut self.gso_socket);
            }
            Output::Deliver { packet } if !self.tun.offloads() => {
                self.refused.packets += u64::from(self.tun.write(packet).is_err());
            }
            Output::Deliver { packet } => {
                if !self.coalescer.push(packet) {
                    self.refused.packets += write_coalesced(&mut self.coalescer, &self.tun);
                    self.coalescer.push(packet);
                }
            }
            Output::Nothing | Output::Wait { .. } => {}
        }
    }

    /// Sends what is due by time; returns when to call again.
    fn settle(&mut self) -> u64 {
        loop {
            match self.machine.poll(clock::monotonic_ns(), self.outbox.tail()) {
                Output::Send { to, datagram } => {
                    let bytes = datagram.len();
                    self.refused.datagrams += self.outbox.enqueue(to, bytes, &mut self.gso_socket);
                }
                Output::Wait { until_ns } => {
                    self.refused.datagrams += self.outbox.flush(&mut self.gso_socket);
                    return until_ns;
                }
                Output::Deliver { .. } | Output::Nothing => {}
            }
        }
    }

    /// Prints the counts of carried and refused packets on stderr, as one line of JSON.
    fn report(&self) {
        let counters = serde_json::json!({
            "interface": self.tun.name(),
            "counters": self.machine.counters(),
            "refused_datagrams": self.refused.datagrams,
            "refused_packets": self.refused.packets,
            "refused_frames": self.refused.frames,
            "receive_drops": net::receive_drops(self.gso_socket.socket()),
        });
        eprintln!("{counters}");
    }
}

/// Writes the coalesced packets; returns how many the host refused.
fn write_coalesced(coalescer: &mut Coalescer, tun: &Tun) -> u64 {
    match coalescer.take() {
        Some((frame, packets)) if tun.write(frame).is_err() => packets as u64,
        _ => 0,
    }
}

/// Datagrams to one peer in a batch of equal lengths. They are written in place: the machine encrypts into `tail`.
struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    to: SocketAddr,
    datagram_bytes: usize,
    count: usize,
}

impl Outbox {
    fn new() -> Self {
        let nobody = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let bytes = vec![0; GSO_MAX_BYTES + SPACE_BYTES].into_boxed_slice();
        Self { bytes, used: 0, to: nobody, datagram_bytes: 0, count: 0 }
    }

    /// Returns the buffer for the next datagram.
    fn tail(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..]
    }

    /// Adds the datagram that was written to `tail`, and first sends the earlier ones if it cannot join them. Returns
    /// how many the system refused.
    fn enqueue(&mut self, to: SocketAddr, bytes: usize, gso_socket: &mut GsoSocket) -> u64 {
        // Only the last datagram of a batch may be shorter.
        let fits = self.to == to
            && bytes <= self.datagram_bytes
            && self.used == self.count * self.datagram_bytes
            && self.count < GSO_MAX_DATAGRAMS
            && self.used + bytes <= GSO_MAX_BYTES;
        let mut refused = 0;
        if self.count > 0 && !fits {
            let start = self.used;
            refused = self.flush(gso_socket);
            self.bytes.copy_within(start..start + bytes, 0);
        }
        if self.count == 0 {
            (self.to, self.datagram_bytes) = (to, bytes);
        }
        self.used += bytes;
        self.count += 1;
        refused
    }

    /// Sends the batch. Returns how many datagrams the system refused.
    fn flush(&mut self, gso_socket: &mut GsoSocket) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let refused = gso_socket.send(self.to, &self.bytes[..self.used], self.datagram_bytes);
        (self.used, self.count) = (0, 0);
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of the datagrams that a socket on loopback receives.
    fn received(gso_socket: &GsoSocket, count: usize) -> Vec<usize> {
        let mut space = vec![0; SPACE_BYTES];
        let mut lengths = Vec::new();
        while lengths.len() < count {
            let batch = gso_socket.receive(&mut space).unwrap();
            lengths.extend(space[..batch.bytes].chunks(batch.datagram_bytes).map(<[u8]>::len));
        }
        lengths
    }

    #[test]
    fn the_outbox_keeps_order_and_lengths() {
        let bind = || GsoSocket::bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
        let (mut from, first, second) = (bind(), bind(), bind());
        let at = |gso_socket: &GsoSocket| gso_socket.socket().local_addr().unwrap();
        let mut outbox = Outbox::new();
        let mut expected = Vec::new();
        for (number, bytes) in [500, 500, 300, 300, 700].into_iter().chain([900; 100]).enumerate() {
            outbox.tail()[..bytes].fill(number as u8);
            assert_eq!(outbox.enqueue(at(&first), bytes, &mut from), 0);
            expected.push(bytes);
        }
        assert_eq!(outbox.enqueue(at(&second), 148, &mut from), 0);
        assert_eq!(outbox.flush(&mut from) + outbox.flush(&mut from), 0);
        assert_eq!(received(&first, expected.len()), expected);
        assert_eq!(received(&second, 1), [148]);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("leadline-wireguard-{}.json", std::process::id()));
        std::fs::write(&path, "{}").unwrap();
        let complaint = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_config(&path).unwrap_err().to_string()
        };
        let (open, closed) = (complaint(0o640), complaint(0o600));
        std::fs::remove_file(&path).unwrap();
        assert!(open.ends_with("mode 640 lets others read the private key; make it 600 (chmod 600)"), "{open}");
        assert!(closed.ends_with("missing field `interface` at line 1 column 2"), "{closed}");
        assert!(matches!(read_config(&path), Err(WireguardError::Read { .. })));
    }
}
