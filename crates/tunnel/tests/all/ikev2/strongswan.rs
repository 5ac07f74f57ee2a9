//! Clients against a real strongSwan (charon-systemd with kernel-libipsec) in two network namespaces of the test.
//! The test runs itself again inside the client's namespace, because a process cannot enter one without `unsafe`.
//! Without strongSwan or without root it says so and passes.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leadline_tunnel::ikev2::client::{Cause, Client, Event, Output};
use leadline_tunnel::ikev2::config::{ClientConfig, Endpoints, Identity, LocalAuth, RemoteAuth};
use leadline_tunnel::ikev2::identification::Id;
use leadline_tunnel::ikev2::proposal::Offer;
use leadline_tunnel::ikev2::random::Random;
use leadline_tunnel::ikev2::route::Path;
use leadline_tunnel::ikev2::secret_bytes::SecretBytes;
use leadline_tunnel::ikev2::signature::{PeerVerifier, Signer};
use leadline_tunnel::ikev2::traffic_selector::TrafficSelector;
use leadline_tunnel::protocol::Received;
use leadline_tunnel::secret::Secret;

const CHARON: &str = "/usr/sbin/charon-systemd";
/// Set for the process inside the client's namespace: the case's name, and the directory of keys.
const CASE: &str = "LEADLINE_IKEV2_CASE";
const DIRECTORY: &str = "LEADLINE_IKEV2_DIRECTORY";
const INNER_TEST: &str = "ikev2::strongswan::process_inside_the_namespace";
const KEY: &str = "a shared key of the test";
/// Addresses of the gateway and of clients, outside of tunnels.
const IPV4: (&str, &str) = ("10.99.0.1", "10.99.0.2");
const IPV6: (&str, &str) = ("fd99::1", "fd99::2");
const PROTECTED: &str = "10.30.0.1";

/// A case: proof of the client, IKE proposal, ESP proposal. Names with a 6 use IPv6 outside.
const TUNNELS: [(&str, &str, &str, &str); 10] = [
    ("psk-gcm", "psk", "aes128gcm16-prfsha256-x25519", "aes128gcm16-x25519"),
    ("psk-cbc", "psk", "aes256-sha256-ecp256", "aes128-sha256"),
    ("psk-chacha", "psk", "chacha20poly1305-prfsha384-ecp384", "chacha20poly1305-ecp384"),
    ("ecdsa-gcm", "ecdsa", "aes256gcm16-prfsha384-ecp256", "aes256gcm16-ecp256"),
    ("rsa-cbc", "rsa", "aes128-sha512-x25519", "aes256-sha512-x25519"),
    ("eap-chacha", "eap", "chacha20poly1305-prfsha256-x25519", "chacha20poly1305"),
    ("psk-modp", "psk", "aes256-sha256-modp2048", "aes128-sha256-modp2048"),
    ("psk-cbc-6", "psk", "aes256-sha256-ecp256", "aes128-sha256"),
    ("ecdsa-chacha-6", "ecdsa", "chacha20poly1305-prfsha256-x25519", "chacha20poly1305"),
    ("rsa-gcm-6", "rsa", "aes128gcm16-prfsha256-x25519", "aes128gcm16-x25519"),
];

#[test]
fn real_strongswan_accepts_tunnels_rekeys_and_deletions_of_each_kind() {
    let Some(gateway) = Gateway::start() else { return };
    let others = [
        "wrong-key",
        "wrong-password",
        "unknown-authority",
        "wrong-identity",
        "no-proposal",
        "esn",
        "other-group",
        "pool",
        "peer",
        "cookie",
    ];
    std::thread::scope(|scope| {
        for name in TUNNELS.map(|(name, ..)| name).into_iter().chain(others) {
            let gateway = &gateway;
            scope.spawn(move || gateway.run(name));
        }
    });
}

#[test]
#[ignore = "runs inside the namespace of another test"]
fn process_inside_the_namespace() {
    let (Ok(case), Ok(directory)) = (std::env::var(CASE), std::env::var(DIRECTORY)) else { return };
    let keys = FilePath::new(&directory);
    if let Some((_, proof, ike, esp)) = TUNNELS.iter().find(|(name, ..)| *name == case) {
        let (config, identity) = (settings(proof, ike, esp, keys), identity(proof, &case, keys));
        return run_tunnel(Peer::connect_from(if case.ends_with('6') { IPV6 } else { IPV4 }, config, identity));
    }
    let (ike, esp) = ("aes128gcm16-prfsha256-x25519", "aes128gcm16");
    let (mut config, mut user) = (settings("psk", ike, esp, keys), identity("psk", &case, keys));
    match case.as_str() {
        "wrong-key" => {
            user.shared_key = Some(SecretBytes::from(&b"another key"[..]));
            expect_failure(Peer::connect(config, user), Cause::AuthenticationRefused);
        }
        "wrong-password" => {
            config = settings("eap", ike, esp, keys);
            user = identity("eap", "eap-chacha", keys);
            user.auth = LocalAuth::Eap { user: "user".to_owned(), password: Secret::from("another") };
            expect_failure(Peer::connect(config, user), Cause::EapRefused);
        }
        "wrong-identity" => {
            config.remote_id = Some(Id::parse("@other.test"));
            expect_failure(Peer::connect(config, user), Cause::AuthenticationRefused);
        }
        "no-proposal" => {
            config.ike = vec![Offer::parse_ike("aes192-sha384-ecp384").unwrap()];
            expect_failure(Peer::connect(config, user), Cause::NoProposalChosen);
        }
        "unknown-authority" => {
            config = settings("ecdsa", "aes256gcm16-prfsha384-ecp256", esp, keys);
            let foreign = leadline_tls::TemporaryAuthority::new().unwrap();
            let verifier = PeerVerifier::from_pem(&foreign.certificate_pem).unwrap();
            config.remote_auth = RemoteAuth::Certificate(Arc::new(verifier));
            let mut peer = Peer::connect(config, identity("ecdsa", "ecdsa-gcm", keys));
            let failed = peer.wait(|event| matches!(event, Event::Failed(_)));
            assert!(format!("{failed:?}").contains("UnknownAuthority"), "{failed:?}");
        }
        "esn" => {
            config.esp = vec![Offer::parse_esp("aes128gcm16-esn").unwrap()];
            let mut peer = Peer::connect(config, user);
            peer.wait(|event| matches!(event, Event::IkeUp));
            peer.wait(|event| matches!(event, Event::AddressAssigned(_)));
            let refused = peer.wait(|event| matches!(event, Event::ChildRefused(_)));
            assert_eq!(refused, Event::ChildRefused(Cause::NoProposalChosen));
            peer.leave();
        }
        "other-group" => {
            config.ike = vec![Offer::parse_ike("aes256-sha256-ecp384-ecp256").unwrap()];
            let mut peer = Peer::connect(config, user);
            peer.wait(|event| matches!(event, Event::ChildUp));
            assert_eq!(peer.client.counters().group_changes, 1);
            peer.leave();
        }
        "pool" => run_pool(config, user),
        "cookie" => run_cookie(config, user),
        "peer" => run_rekeying_peer(config, user),
        other => panic!("no such case: {other}"),
    }
}

/// A pool of two addresses under three clients.
fn run_pool(config: ClientConfig, user: Identity) {
    let connect = |name: &str| {
        let id = Id::parse(&format!("{name}@small.test"));
        Peer::connect(config.clone(), Identity { id, ..user.clone() })
    };
    let mut peers = ["a", "b", "c"].map(connect);
    peers[0].wait(|event| matches!(event, Event::ChildUp));
    peers[1].wait(|event| matches!(event, Event::ChildUp));
    let refused = peers[2].wait(|event| matches!(event, Event::AddressRefused(_)));
    assert_eq!(refused, Event::AddressRefused(Cause::NoAddress));
    assert_eq!(peers[2].wait(|event| matches!(event, Event::ChildRefused(_))), Event::ChildRefused(Cause::NoAddress));
    assert!(peers[2].client.is_up() && !peers[2].client.has_child());
    peers.iter_mut().for_each(Peer::leave);
}

/// An initial exchange that stops after its answer: the gateway asks the next client for a cookie.
fn run_cookie(config: ClientConfig, user: Identity) {
    let mut idle = Peer::connect(config.clone(), Identity { id: Id::parse("idle@test"), ..user.clone() });
    while idle.client.steps().sa_init_answered_ns.is_none() {
        idle.step();
    }
    let mut peer = Peer::connect(config, user);
    peer.wait(|event| matches!(event, Event::ChildUp));
    assert!(peer.client.counters().cookies >= 1);
    peer.leave();
}

/// The gateway rekeys by itself.
fn run_rekeying_peer(config: ClientConfig, mut user: Identity) {
    user.id = Id::parse("a@rekey.test");
    let mut peer = Peer::connect(config, user);
    peer.wait(|event| matches!(event, Event::ChildUp));
    for round in 0..2 {
        peer.wait(|event| matches!(event, Event::ChildRekeyed { by_peer: true }));
        peer.ping(round);
    }
    peer.wait(|event| matches!(event, Event::IkeRekeyed { by_peer: true }));
    peer.ping(9);
    peer.leave();
}

fn expect_failure(mut peer: Peer, cause: Cause) {
    match peer.wait(|event| matches!(event, Event::Failed(_))) {
        Event::Failed(failure) => assert_eq!(failure.cause, cause),
        _ => unreachable!(),
    }
}

/// Up, packets both ways, new keys of child and IKE SA with packets after each, deletion.
fn run_tunnel(mut peer: Peer) {
    peer.wait(|event| matches!(event, Event::SaInitAnswered));
    peer.wait(|event| matches!(event, Event::IkeUp));
    peer.wait(|event| matches!(event, Event::AddressAssigned(_)));
    peer.wait(|event| matches!(event, Event::ChildUp));
    peer.ping(1);
    for round in 0..2 {
        peer.client.rekey_child(peer.now_ns());
        peer.wait(|event| matches!(event, Event::ChildRekeyed { by_peer: false }));
        peer.ping(10 + round);
        peer.client.rekey_ike(peer.now_ns());
        peer.wait(|event| matches!(event, Event::IkeRekeyed { by_peer: false }));
        peer.ping(20 + round);
        peer.client.probe(peer.now_ns());
        peer.ping(30 + round);
    }
    assert_eq!(peer.client.counters().replayed, 0);
    peer.leave();
}

fn settings(proof: &str, ike: &str, esp: &str, keys: &FilePath) -> ClientConfig {
    let remote_auth = match proof {
        "psk" => RemoteAuth::SharedKey,
        _ => {
            let authority = if proof == "rsa" { "rsa-ca.pem" } else { "ecdsa-ca.pem" };
            let pem = fs::read_to_string(keys.join("x509ca").join(authority)).unwrap();
            RemoteAuth::Certificate(Arc::new(PeerVerifier::from_pem(&pem).unwrap()))
        }
    };
    let mut config = ClientConfig::new(Offer::parse_ike(ike).unwrap(), Offer::parse_esp(esp).unwrap(), remote_auth);
    config.remote_id = Some(Id::parse("@gw.test"));
    config.remote_ts = vec![TrafficSelector::network("10.30.0.0/24".parse().unwrap())];
    config.forces_encapsulation = true;
    config.has_mobike = true;
    // Cases at the same time share the identities of certificates.
    config.has_initial_contact = false;
    config.unix_base_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    // Messages with certificates are fragmented, both ways.
    config.fragment_bytes = Some(700);
    // A lost packet costs no test 4 s.
    config.retransmission.first_ns = 500_000_000;
    config
}

fn identity(proof: &str, case: &str, keys: &FilePath) -> Identity {
    let read = |name: String| fs::read_to_string(keys.join(name)).unwrap();
    let auth = match proof {
        "psk" => LocalAuth::SharedKey,
        "eap" => LocalAuth::Eap { user: "user".to_owned(), password: Secret::from("password") },
        _ => {
            let (chain, key) = (read(format!("client-{proof}.pem")), read(format!("client-{proof}.key")));
            LocalAuth::Certificate(Arc::new(Signer::from_pem(&chain, &key).unwrap()))
        }
    };
    let id = if matches!(proof, "ecdsa" | "rsa") { format!("{proof}@test") } else { format!("{case}@test") };
    Identity { id: Id::parse(&id), auth, shared_key: Some(SecretBytes::from(KEY.as_bytes())) }
}

/// A client with its socket.
struct Peer {
    client: Client,
    socket: UdpSocket,
    gateway: IpAddr,
    began: Instant,
    events: Vec<Event>,
    replies: Vec<u16>,
}

impl Peer {
    fn connect(config: ClientConfig, identity: Identity) -> Self {
        Self::connect_from(IPV4, config, identity)
    }

    fn connect_from((gateway, local): (&str, &str), config: ClientConfig, identity: Identity) -> Self {
        let (gateway, local): (IpAddr, IpAddr) = (gateway.parse().unwrap(), local.parse().unwrap());
        let socket = UdpSocket::bind((local, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let endpoints = Endpoints { local: socket.local_addr().unwrap(), peer: (gateway, 500).into() };
        let client = Client::new(&Arc::new(config), &Arc::new(identity), endpoints, Random::from_system(), 0);
        Self { client, socket, gateway, began: Instant::now(), events: Vec::new(), replies: Vec::new() }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn step(&mut self) {
        let mut out = Vec::new();
        loop {
            match self.client.poll(self.now_ns(), &mut out) {
                Output::Event(event) => self.events.push(event),
                Output::Send(path) => self.send(path, &out),
                Output::Wait(_) => break,
            }
        }
        let mut datagram = [0; 4096];
        if let Ok((length, from)) = self.socket.recv_from(&mut datagram) {
            let path = if from.port() == 4500 { Path::Port4500 } else { Path::Port500 };
            let received = self.client.handle(self.began.elapsed().as_nanos() as u64, path, &mut datagram[..length]);
            if let Received::Payload(packet) = received {
                if packet.len() >= 28 && packet[9] == 1 && packet[20] == 0 {
                    self.replies.push(u16::from_be_bytes([packet[26], packet[27]]));
                }
            }
        }
    }

    fn send(&self, path: Path, bytes: &[u8]) {
        let port = if path == Path::Port4500 { 4500 } else { 500 };
        self.socket.send_to(bytes, (self.gateway, port)).unwrap();
    }

    fn wait(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(at) = self.events.iter().position(&wanted) {
                return self.events.drain(..=at).next_back().unwrap();
            }
            assert!(Instant::now() < until, "no such event; {:?}, {:?}", self.events, self.client);
            self.step();
        }
    }

    /// Sends echo requests through the tunnel until one of this number is answered.
    fn ping(&mut self, sequence: u16) {
        let until = Instant::now() + Duration::from_secs(30);
        let from = self.client.assigned().addresses[0];
        let (IpAddr::V4(from), to) = (from, PROTECTED.parse::<std::net::Ipv4Addr>().unwrap()) else {
            panic!("an IPv4 address")
        };
        let mut packet = vec![0x45, 0, 0, 84, 0, 0, 0x40, 0, 64, 1, 0, 0];
        packet.extend_from_slice(&from.octets());
        packet.extend_from_slice(&to.octets());
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut echo = vec![8, 0, 0, 0, 0, 1];
        echo.extend_from_slice(&sequence.to_be_bytes());
        echo.resize(64, 0x5A);
        let sum = checksum(&echo);
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        packet.extend_from_slice(&echo);
        let mut sent = None::<Instant>;
        while !self.replies.contains(&sequence) {
            assert!(Instant::now() < until, "no reply to {sequence}; {:?}", self.client);
            if sent.is_none_or(|sent| sent.elapsed() > Duration::from_millis(500)) {
                let mut sealed = Vec::new();
                self.client.send(self.now_ns(), &packet, &mut sealed).unwrap();
                self.send(self.client.data_path(), &sealed);
                sent = Some(Instant::now());
            }
            self.step();
        }
    }

    fn leave(&mut self) {
        self.client.leave(self.now_ns());
        assert_eq!(self.wait(|event| matches!(event, Event::Left { .. })), Event::Left { is_confirmed: true });
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// strongSwan in a namespace of its own, with another one for clients.
struct Gateway {
    directory: PathBuf,
    names: [String; 2],
    charon: Process,
}

impl Gateway {
    /// `None` where strongSwan cannot run, with the reason on stderr.
    fn start() -> Option<Self> {
        if !FilePath::new(CHARON).exists() {
            eprintln!("skipped: {CHARON} is not installed (charon-systemd, libcharon-extra-plugins)");
            return None;
        }
        let id = std::process::id();
        let names = [format!("ike-gw-{id}"), format!("ike-cl-{id}")];
        if !Command::new("ip").args(["netns", "add", &names[0]]).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: network namespaces cannot be made here");
            return None;
        }
        let directory = std::env::temp_dir().join(format!("leadline-ikev2-{id}"));
        for part in ["x509", "x509ca", "private"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        make_keys(&directory);
        write_settings(&directory);
        let ip = |line: &str| {
            let done = Command::new("ip").args(line.split(' ')).status().unwrap();
            assert!(done.success(), "ip {line}");
        };
        let [gateway, client] = &names;
        ip(&format!("netns add {client}"));
        ip(&format!("link add ikegw{id} netns {gateway} type veth peer name ikecl{id} netns {client}"));
        for (name, device, address) in [(gateway, "ikegw", "10.99.0.1/24"), (client, "ikecl", "10.99.0.2/24")] {
            ip(&format!("-n {name} addr add {address} dev {device}{id}"));
            let ipv6 = address.replace("10.99.0.", "fd99::").replace("/24", "/64");
            ip(&format!("-n {name} addr add {ipv6} dev {device}{id} nodad"));
            ip(&format!("-n {name} link set {device}{id} up"));
            ip(&format!("-n {name} link set lo up"));
        }
        ip(&format!("-n {gateway} addr add {PROTECTED}/24 dev lo"));
        let log = fs::File::create(directory.join("charon.out")).unwrap();
        let charon = Command::new("ip")
            .args(["netns", "exec", gateway, CHARON])
            .env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let started = Self { directory, names, charon };
        started.load();
        Some(started)
    }

    /// Loads connections as soon as the daemon answers.
    fn load(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let socket = format!("unix://{}", self.directory.join("charon.vici").display());
            let file = self.directory.join("swanctl.conf");
            let mut command = Command::new("swanctl");
            command.args(["--load-all", "--uri", &socket, "--file"]).arg(file);
            let done = command.output().unwrap();
            if done.status.success() {
                return;
            }
            assert!(Instant::now() < until, "{}{}", String::from_utf8_lossy(&done.stderr), self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn run(&self, case: &str) {
        let done = Command::new("ip")
            .args(["netns", "exec", &self.names[1]])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", INNER_TEST, "--ignored", "--nocapture"])
            .env(CASE, case)
            .env(DIRECTORY, &self.directory)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && output.contains("1 passed"), "{case}: {output}\n{}", self.log());
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(self.directory.join("charon.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.charon.kill();
        let _ = self.charon.wait();
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Two authorities, each with a certificate of the gateway and of a client.
fn make_keys(directory: &FilePath) {
    let openssl = |line: String| {
        let done = Command::new("openssl").args(line.split(' ')).current_dir(directory).output().unwrap();
        assert!(done.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let kinds: HashMap<&str, &str> =
        [("ecdsa", "-newkey ec -pkeyopt ec_paramgen_curve:P-256"), ("rsa", "-newkey rsa:2048")].into();
    for (kind, new_key) in kinds {
        openssl(format!(
            "req -x509 {new_key} -nodes -days 30 -subj /CN={kind}-ca -keyout {kind}-ca.key -out x509ca/{kind}-ca.pem"
        ));
        for (name, alternative) in [("gw", "DNS:gw.test".to_owned()), ("client", format!("email:{kind}@test"))] {
            openssl(format!(
                "req -x509 {new_key} -nodes -days 30 -subj /CN={name} -addext subjectAltName={alternative} \
                 -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth,clientAuth \
                 -CA x509ca/{kind}-ca.pem -CAkey {kind}-ca.key -keyout {name}-{kind}.key -out {name}-{kind}.pem"
            ));
        }
        fs::copy(directory.join(format!("gw-{kind}.pem")), directory.join(format!("x509/gw-{kind}.pem"))).unwrap();
        fs::copy(directory.join(format!("gw-{kind}.key")), directory.join(format!("private/gw-{kind}.key"))).unwrap();
    }
}

fn write_settings(directory: &FilePath) {
    let at = directory.display();
    let daemon = format!(
        "charon-systemd {{\n load = random nonce pem x509 pubkey pkcs1 pkcs8 constraints openssl hmac kdf gcm aes sha1 \
         sha2 curve25519 chapoly kernel-libipsec kernel-netlink socket-default vici eap-identity eap-mschapv2 md5 md4 \
         updown\n cookie_threshold = 1\n block_threshold = 0\n fragment_size = 700\n \
         plugins {{ vici {{ socket = unix://{at}/charon.vici }} }}\n filelog {{ log {{ \
         path = {at}/charon.log\n default = 1\n flush_line = yes }} }}\n}}\n"
    );
    fs::write(directory.join("strongswan.conf"), daemon).unwrap();
    let ike = "aes128gcm16-prfsha256-x25519,aes256-sha256-ecp256,chacha20poly1305-prfsha384-ecp384,\
               aes256gcm16-prfsha384-ecp256,aes128-sha512-x25519,chacha20poly1305-prfsha256-x25519,\
               aes256-sha256-modp2048";
    let esp = "aes128gcm16-x25519,aes128gcm16,aes128-sha256,chacha20poly1305-ecp384,aes256gcm16-ecp256,\
               aes256-sha512-x25519,chacha20poly1305,aes128gcm16-esn,aes128-sha256-modp2048";
    let connection = |name: &str, local: &str, remote: &str| {
        let (pool, ike_time, child_time) = match name {
            "small" => ("s", "4h", "1h"),
            "peer" => ("p", "3s\n over_time = 10s\n rand_time = 0", "1s\n life_time = 10s\n rand_time = 0"),
            _ => ("p", "4h", "1h"),
        };
        format!(
            "{name} {{\n local_addrs = 10.99.0.1,fd99::1\n proposals = {ike}\n pools = {pool}\n unique = never\n \
             rekey_time = {ike_time}\n local {{ id = gw.test\n {local} }}\n \
             remote {{ {remote} }}\n children {{ c {{ local_ts = 10.30.0.0/24\n \
             esp_proposals = {esp}\n rekey_time = {child_time} }} }}\n}}\n"
        )
    };
    let connections = [
        connection("psk", "auth = psk", "auth = psk"),
        connection("small", "auth = psk", "auth = psk\n id = *@small.test"),
        connection("peer", "auth = psk", "auth = psk\n id = *@rekey.test"),
        connection("ecdsa", "auth = pubkey\n certs = gw-ecdsa.pem", "auth = pubkey\n cacerts = ecdsa-ca.pem"),
        connection("rsa", "auth = pubkey\n certs = gw-rsa.pem", "auth = pubkey\n cacerts = rsa-ca.pem"),
        connection(
            "eap",
            "auth = pubkey\n certs = gw-ecdsa.pem",
            "auth = eap-mschapv2\n eap_id = %any\n id = eap-chacha@test",
        ),
    ]
    .concat();
    let text = format!(
        "connections {{\n{connections}}}\npools {{ p {{ addrs = 10.20.0.0/24 }}\n \
         s {{ addrs = 10.21.0.0/30 }} }}\nsecrets {{\n ike {{ secret = \
         \"{KEY}\" }}\n eap {{ id = user\n secret = password }}\n}}\n"
    );
    fs::write(directory.join("swanctl.conf"), text).unwrap();
}
