//! A script loaded in memory: an origin, a simulated network, and the printed text.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use leadline_wrk_lua::{load, Main, Network, Origin, Program, ScriptError, ThreadScript};

/// A simulated network with one name; only the listed addresses accept connections.
pub struct SimulatedNetwork {
    pub names: Vec<(&'static str, Vec<SocketAddr>)>,
    pub reachable: Vec<SocketAddr>,
    pub calls: Mutex<Vec<String>>,
}

impl Network for SimulatedNetwork {
    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String> {
        self.calls.lock().unwrap().push(format!("lookup {host} {service}"));
        let entry = self.names.iter().find(|(name, _)| *name == host);
        entry.map(|(_, addresses)| addresses.clone()).ok_or_else(|| "no such name".to_owned())
    }

    fn connect(&self, address: SocketAddr) -> bool {
        self.calls.lock().unwrap().push(format!("connect {address}"));
        self.reachable.contains(&address)
    }
}

/// A loaded script.
pub struct Loaded {
    pub main: Main,
    pub threads: Vec<ThreadScript>,
    pub network: Arc<SimulatedNetwork>,
    printed: Arc<Mutex<String>>,
}

impl Loaded {
    /// The text printed since the last call.
    pub fn printed(&self) -> String {
        std::mem::take(&mut self.printed.lock().unwrap())
    }

    /// The next request of the first thread.
    pub fn request(&mut self) -> String {
        try_request(&mut self.threads[0]).unwrap()
    }
}

pub fn try_request(thread: &mut ThreadScript) -> Result<String, ScriptError> {
    let mut out = b"left over".to_vec();
    thread.request(&mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

/// Passes a response to this thread's script.
pub fn respond(
    thread: &mut ThreadScript,
    status: u16,
    headers: &[(&[u8], &[u8])],
    body: &[u8],
) -> Result<(), ScriptError> {
    thread.response(status, headers, body)
}

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn origin() -> Origin {
    Origin {
        url: "http://shop.test:8080/list?page=1".to_owned(),
        scheme: "http".to_owned(),
        host: "shop.test".to_owned(),
        port: Some(8080),
        path: "/list?page=1".to_owned(),
        method: "GET".to_owned(),
        headers: Vec::new(),
        body: None,
        addresses: vec![address("192.0.2.1:8080"), address("192.0.2.2:8080")],
    }
}

pub fn try_load(source: &str, args: &[&str], origin: &Origin, threads: usize) -> Result<Loaded, ScriptError> {
    let network = Arc::new(SimulatedNetwork {
        names: vec![(
            "shop.test",
            vec![address("192.0.2.1:8080"), address("192.0.2.2:8080"), address("[2001:db8::1]:8080")],
        )],
        reachable: vec![address("192.0.2.2:8080"), address("[2001:db8::1]:8080")],
        calls: Mutex::default(),
    });
    let program = Program {
        name: "test.lua".to_owned(),
        source: source.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
    };
    let printed = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&printed);
    let output = Arc::new(move |text: &str| sink.lock().unwrap().push_str(text));
    let (main, threads) = load(&program, origin, threads, output, Arc::clone(&network) as Arc<dyn Network>)?;
    Ok(Loaded { main, threads, network, printed })
}

/// Loads a script for one thread, without arguments, with the default origin.
pub fn loaded(source: &str) -> Loaded {
    try_load(source, &[], &origin(), 1).unwrap()
}

/// Returns why a script cannot be loaded.
pub fn refused(source: &str) -> String {
    try_load(source, &[], &origin(), 1).err().expect("the script loaded").to_string()
}

/// The lines of a request with sorted header fields, because Lua does not define their order.
pub fn sorted(request: &str) -> Vec<String> {
    let mut lines: Vec<String> = request.split("\r\n").map(str::to_owned).collect();
    let end = lines.iter().position(String::is_empty).expect("an end of the head");
    lines[1..end].sort();
    lines
}
