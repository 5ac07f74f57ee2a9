//! `leadline-agent wireguard CONFIG`: an embedded WireGuard interface. Carries bytes between a UDP socket, the machine in
//! `leadline_tunnel` and a TUN device, in one thread. Sets no routes and runs no programs; ends on SIGTERM, SIGINT, or with its parent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leadline_sys::poll::{Interest, Poll};
use leadline_sys::tun::Tun;
use leadline_sys::{clock, net, process};
use leadline_tunnel::wireguard::{Config, ConfigError, Machine, Output, SetupError};

/// Packets taken from one side before the other gets its turn.
const BURST: usize = 64;
/// Larger than any datagram.
const SPACE_BYTES: usize = 1 << 16;

/// Why the interface could not be set up, or could not go on. One line each.
#[derive(Debug, thiserror::Error)]
pub enum WireguardError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The configuration.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// Others than the owner may read the private key.
    #[error("{}: mode {mode:o} lets others read the private key; make it 600 (chmod 600)", path.display())]
    Exposed {
        /// The configuration.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// What the file says cannot be.
    #[error("{}: {error}", path.display())]
    Config {
        /// The configuration.
        path: PathBuf,
        /// What is wrong.
        error: ConfigError,
    },
    /// Peers that cannot be told apart.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The system refused something.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The system's reason.
        error: io::Error,
    },
}

/// Sets the interface up, prints `ready` on stdout, and carries packets until it is asked to end.
pub fn run(path: &Path) -> Result<(), WireguardError> {
    process::die_with_parent().map_err(during("tying this process to its parent"))?;
    process::catch_termination().map_err(during("catching SIGTERM"))?;
    let config = read_config(path)?;
    let mut link = Link {
        machine: Machine::new(&config.private_key, &config.peers)?,
        tun: set_up_device(&config)?,
        socket: bind(&config)?,
        space: vec![0; SPACE_BYTES].into_boxed_slice(),
        refused: Refused::default(),
    };
    println!("ready");
    io::stdout().flush().map_err(during("printing `ready`"))?;
    let ended = link.carry().map_err(during("waiting for packets"));
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
    let tun = Tun::create(name).map_err(during(format!("creating the TUN device {name}")))?;
    tun.set_mtu(config.mtu).map_err(during(format!("setting the MTU of {name} to {}", config.mtu)))?;
    for address in &config.addresses {
        tun.add_address(address.address, address.length).map_err(during(format!("adding {address} to {name}")))?;
    }
    tun.set_up().map_err(during(format!("bringing {name} up")))?;
    Ok(tun)
}

fn bind(config: &Config) -> Result<UdpSocket, WireguardError> {
    let at = SocketAddr::new(config.listen_address, config.listen_port.unwrap_or(0));
    let socket = net::udp_socket(at, None, false).map_err(during(format!("listening on UDP {at}")))?;
    socket.set_nonblocking(true).map_err(during(format!("listening on UDP {at}")))?;
    Ok(socket)
}

fn during(what: impl Into<String>) -> impl FnOnce(io::Error) -> WireguardError {
    let what = what.into();
    move |error| WireguardError::System { what, error }
}

/// The interface at work.
struct Link {
    machine: Machine,
    tun: Tun,
    socket: UdpSocket,
    /// Where the machine writes its one output.
    space: Box<[u8]>,
    refused: Refused,
}

/// What the system would not take from us; the machine counts everything else.
#[derive(Debug, Default)]
struct Refused {
    datagrams: u64,
    packets: u64,
}

impl Link {
    fn carry(&mut self) -> io::Result<()> {
        const TUN: u64 = 0;
        const SOCKET: u64 = 1;
        let mut poll = Poll::new(2)?;
        poll.add(&self.tun, TUN, Interest::Read)?;
        poll.add(&self.socket, SOCKET, Interest::Read)?;
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

    fn take_packets(&mut self, input: &mut [u8]) {
        for _ in 0..BURST {
            let Ok(length) = self.tun.read(input) else { return };
            let output = self.machine.handle_packet(&input[..length], &mut self.space);
            obey(output, &self.socket, &self.tun, &mut self.refused);
        }
    }

    fn take_datagrams(&mut self, input: &mut [u8]) {
        for _ in 0..BURST {
            let Ok((length, from)) = self.socket.recv_from(input) else { return };
            let output = self.machine.handle_datagram(from, &input[..length], &mut self.space);
            obey(output, &self.socket, &self.tun, &mut self.refused);
        }
    }

    /// Sends whatever is due by itself; returns when to look again.
    fn settle(&mut self) -> u64 {
        loop {
            match self.machine.poll(clock::monotonic_ns(), &mut self.space) {
                Output::Wait { until_ns } => return until_ns,
                output => obey(output, &self.socket, &self.tun, &mut self.refused),
            }
        }
    }

    /// Says on stderr what went through and what did not, as one line of JSON.
    fn report(&self) {
        let counters = serde_json::json!({
            "interface": self.tun.name(),
            "counters": self.machine.counters(),
            "refused_datagrams": self.refused.datagrams,
            "refused_packets": self.refused.packets,
            "receive_drops": net::receive_drops(&self.socket),
        });
        eprintln!("{counters}");
    }
}

fn obey(output: Output<'_>, socket: &UdpSocket, tun: &Tun, refused: &mut Refused) {
    match output {
        Output::Send { to, datagram } => refused.datagrams += u64::from(socket.send_to(datagram, to).is_err()),
        Output::Deliver { packet } => refused.packets += u64::from(tun.write(packet).is_err()),
        Output::Nothing | Output::Wait { .. } => {}
    }
}
