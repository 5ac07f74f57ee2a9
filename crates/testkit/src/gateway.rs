//! A server for the fleet's tests: a server machine behind a real socket on loopback, which answers pings in its
//! tunnels and misbehaves as a test requires. It creates new certificates for each test.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_tls::TemporaryAuthority;
use leadline_tunnel::client::server::Transport;
use leadline_tunnel::framing::{set_length, Unframer};
use leadline_tunnel::inside::icmp;
use leadline_tunnel::openvpn::client::Received;
use leadline_tunnel::openvpn::data::{DataCipher, Framing};
use leadline_tunnel::openvpn::digest::Digest;
use leadline_tunnel::openvpn::message::peer_info::Protocols;
use leadline_tunnel::openvpn::profile;
use leadline_tunnel::openvpn::server::{Peer, PeerEvent, PeerOutput, ServerConfig};
use leadline_tunnel::openvpn::tls::{self, Trust};
use leadline_tunnel::openvpn::wrap::WrapKeys;

/// The server's behaviour towards each client, by the number of earlier clients.
#[derive(Clone)]
pub struct ServerBehaviour {
    pub transport: Transport,
    /// Options that are pushed to a client.
    pub pushed_options: fn(u32) -> Vec<String>,
    /// Whether a client's first reset is answered.
    pub answers: fn(u32) -> bool,
    /// Pings in each client's tunnel that are lost before one is answered.
    pub lost_pings: u32,
    /// Whether pings in a client's tunnel are answered.
    pub echoes: fn(u32) -> bool,
    /// Whether responses in the tunnel wait until no packet has arrived for a while; over UDP.
    pub delays_replies: bool,
    /// A control message that is sent to a client after this many of its pings have been answered; later pings are
    /// not answered.
    pub control_message: Option<(u32, &'static str)>,
    /// The longest packet that passes the tunnel.
    pub most_bytes: usize,
    /// Whether every client gets the peer id 0, as from servers before OpenVPN 2.6 over TCP.
    pub shares_peer_id: bool,
}

impl Default for ServerBehaviour {
    fn default() -> Self {
        Self {
            transport: Transport::Udp,
            pushed_options: an_address_each,
            answers: |_| true,
            lost_pings: 0,
            echoes: |_| true,
            delays_replies: false,
            control_message: None,
            most_bytes: usize::MAX,
            shares_peer_id: false,
        }
    }
}

/// Returns options with a separate address for each client.
pub fn an_address_each(client: u32) -> Vec<String> {
    vec![format!("ifconfig 10.8.{}.{} 255.255.0.0", (client + 2) / 256, (client + 2) % 256)]
}

/// Counters of the packets and events that the server saw.
#[derive(Default)]
pub struct GatewayCounts {
    /// Sources of packets, or connections.
    pub clients: AtomicU64,
    /// First packets of sessions, repeated ones included.
    pub resets: AtomicU64,
    pub up: AtomicU64,
    pub left: AtomicU64,
    pub renegotiated: AtomicU64,
    pub echoes: AtomicU64,
}

/// A running server.
pub struct Gateway {
    pub address: SocketAddr,
    pub seen: Arc<GatewayCounts>,
    /// The profile of its clients.
    pub profile: String,
    pub authority_pem: String,
    pub authority_key_pem: String,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Gateway {
    pub fn start(behaviour: ServerBehaviour) -> Self {
        let authority = TemporaryAuthority::new().unwrap();
        let (server, client) = (authority.issue_server().unwrap(), authority.issue_client().unwrap());
        let (authority_pem, authority_key_pem) = (authority.certificate_pem, authority.key_pem);
        let udp = net::udp_socket("127.0.0.1:0".parse().unwrap(), None, false).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let (protocol, address) = match behaviour.transport {
            Transport::Udp => ("udp", udp.local_addr().unwrap()),
            Transport::Tcp => ("tcp-client", tcp.local_addr().unwrap()),
        };
        let profile = format!(
            "client\ndev tun\nproto {protocol}\nremote 127.0.0.1 {}\nremote-cert-tls server\n\
             <ca>\n{authority_pem}</ca>\n<cert>\n{}</cert>\n<key>\n{}</key>\n",
            address.port(),
            client.0,
            client.1
        );
        let parsed = profile::parse(&profile).unwrap();
        let config = Arc::new(ServerConfig {
            tls: Arc::new(tls::server_config(&Trust::of(&parsed), (&server.0, &server.1), true).unwrap()),
            wrap: WrapKeys::None,
            ciphers: vec![DataCipher::Aes256Gcm],
            digest: Some(Digest::Sha1),
            framing: Framing::None,
            push: ["topology subnet", "route-gateway 10.8.0.1", "route 10.9.0.0 255.255.0.0"]
                .map(str::to_owned)
                .to_vec(),
            protocols: Protocols::ALL.without(Protocols::DATA_EPOCH),
            users: Vec::new(),
            unix_base_s: 0,
        });
        let (seen, over) = (Arc::new(GatewayCounts::default()), Arc::new(AtomicBool::new(false)));
        let shared = Shared { config, behaviour: behaviour.clone(), seen: Arc::clone(&seen), over: Arc::clone(&over) };
        let thread = match behaviour.transport {
            Transport::Udp => std::thread::spawn(move || serve_datagrams(&shared, &udp)),
            Transport::Tcp => std::thread::spawn(move || serve_streams(&shared, &tcp)),
        };
        Self { address, seen, profile, authority_pem, authority_key_pem, over, threads: vec![thread] }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes a waiting listener.
        let _ = TcpStream::connect(self.address);
        for thread in self.threads.drain(..) {
            let joined = thread.join();
            if !std::thread::panicking() {
                joined.unwrap();
            }
        }
    }
}

/// The state that the threads of a server share.
#[derive(Clone)]
struct Shared {
    config: Arc<ServerConfig>,
    behaviour: ServerBehaviour,
    seen: Arc<GatewayCounts>,
    over: Arc<AtomicBool>,
}

/// A client in the server's table.
struct KnownClient {
    number: u32,
    /// None: its resets are not answered.
    peer: Option<Peer>,
    /// Pings that were lost, and that were answered.
    lost: u32,
    answered: u32,
    /// Responses that wait.
    delayed_replies: Vec<Vec<u8>>,
}

impl KnownClient {
    fn new(shared: &Shared, number: u32) -> Self {
        shared.seen.clients.fetch_add(1, Ordering::Relaxed);
        Self { number, peer: None, lost: 0, answered: 0, delayed_replies: Vec::new() }
    }

    /// Takes a packet, and sends the responses to it. A reset begins a separate session, once its client is known.
    fn take(&mut self, shared: &Shared, packet: &mut [u8], mut send: impl FnMut(&[u8])) {
        let now_ns = monotonic_ns();
        let is_reset = packet.first().is_some_and(|byte| byte >> 3 == 7);
        shared.seen.resets.fetch_add(u64::from(is_reset), Ordering::Relaxed);
        let mut answer = Vec::new();
        if is_reset && (shared.behaviour.answers)(self.number) {
            let mut copy = packet.to_vec();
            let heard =
                self.peer.as_mut().is_some_and(|peer| matches!(peer.handle(now_ns, &mut copy), Received::Control));
            if !heard {
                let options = (shared.behaviour.pushed_options)(self.number);
                let number = if shared.behaviour.shares_peer_id { 0 } else { self.number };
                self.peer = Peer::accept(&shared.config, options, number, now_ns, packet);
            }
        } else if let Some(peer) = &mut self.peer {
            if let Received::Payload(payload) = peer.handle(now_ns, packet) {
                if payload.len() > shared.behaviour.most_bytes {
                    // Dropped like on a path with a smaller MTU.
                } else if self.lost < shared.behaviour.lost_pings {
                    self.lost += 1;
                } else if shared.behaviour.control_message.is_some_and(|(after, _)| self.answered >= after) {
                    // It has sent its control message.
                } else if (shared.behaviour.echoes)(self.number) && icmp::answer(payload, &mut answer) {
                    shared.seen.echoes.fetch_add(1, Ordering::Relaxed);
                    self.answered += 1;
                    if let Some((_, message)) =
                        shared.behaviour.control_message.filter(|(after, _)| *after == self.answered)
                    {
                        peer.send_message(message);
                    }
                }
            }
        }
        let mut out = Vec::new();
        if let (Some(peer), false) = (&mut self.peer, answer.is_empty()) {
            peer.send(&answer, &mut out).unwrap();
            if shared.behaviour.delays_replies {
                self.delayed_replies.push(out);
                return;
            }
            send(&out);
        }
        self.poll(shared, send);
    }

    fn poll(&mut self, shared: &Shared, mut send: impl FnMut(&[u8])) {
        let Some(peer) = &mut self.peer else { return };
        let mut out = Vec::new();
        loop {
            match peer.poll(monotonic_ns(), &mut out) {
                PeerOutput::Send => send(&out),
                PeerOutput::Event(PeerEvent::Up) => drop(shared.seen.up.fetch_add(1, Ordering::Relaxed)),
                PeerOutput::Event(PeerEvent::Left) => drop(shared.seen.left.fetch_add(1, Ordering::Relaxed)),
                PeerOutput::Event(PeerEvent::Renegotiated) => {
                    shared.seen.renegotiated.fetch_add(1, Ordering::Relaxed);
                }
                PeerOutput::Event(PeerEvent::Failed(_)) => {}
                PeerOutput::Wait(_) => return,
            }
        }
    }
}

const TURN: Duration = Duration::from_millis(5);

fn serve_datagrams(shared: &Shared, socket: &UdpSocket) {
    socket.set_read_timeout(Some(TURN)).unwrap();
    let mut clients: HashMap<SocketAddr, KnownClient> = HashMap::new();
    let mut packet = vec![0; 65_536];
    while !shared.over.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut packet) else {
            // A packet that cannot be sent counts as lost.
            for (to, client) in &mut clients {
                client.delayed_replies.drain(..).for_each(|out| drop(socket.send_to(&out, to)));
                client.poll(shared, |out| drop(socket.send_to(out, to)));
            }
            continue;
        };
        let next = clients.len() as u32;
        let client = clients.entry(from).or_insert_with(|| KnownClient::new(shared, next));
        client.take(shared, &mut packet[..length], |out| drop(socket.send_to(out, from)));
    }
}

fn serve_streams(shared: &Shared, listener: &TcpListener) {
    let mut threads = Vec::new();
    for (stream, number) in listener.incoming().zip(0..) {
        if shared.over.load(Ordering::Relaxed) {
            break;
        }
        let (shared, stream) = (shared.clone(), stream.unwrap());
        if !(shared.behaviour.answers)(number) {
            drop(stream);
            continue;
        }
        threads.push(std::thread::spawn(move || serve_stream(&shared, stream, number)));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn serve_stream(shared: &Shared, mut stream: TcpStream, number: u32) {
    stream.set_read_timeout(Some(TURN)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let mut send = |packet: &[u8]| {
        let mut framed = vec![0, 0];
        framed.extend_from_slice(packet);
        set_length(&mut framed, 0);
        // The client may have closed the connection.
        let _ = writer.write_all(&framed);
    };
    let (mut client, mut unframer) = (KnownClient::new(shared, number), Unframer::default());
    let mut bytes = vec![0; 65_536];
    while !shared.over.load(Ordering::Relaxed) {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(length) => {
                unframer.take(&mut bytes[..length], |packet| client.take(shared, packet, &mut send)).unwrap();
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => client.poll(shared, &mut send),
            Err(_) => return,
        }
    }
}
