//! `leadline-agent serve`: the server without a control plane, for a host where only this file was copied to.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leadline_sys::process;
use leadline_wire::{ErrorReport, HttpAnswer, ServeSpec};

use crate::events::system_error;
use crate::gate::Gate;
use crate::serve;

/// What the command line said.
pub struct Options {
    /// Addresses; the loopback ones where none was given.
    pub bind: Vec<String>,
    /// Session port.
    pub port: Option<u16>,
    /// HTTP port.
    pub http_port: Option<u16>,
}

impl Default for Options {
    fn default() -> Self {
        Self { bind: Vec::new(), port: Some(5201), http_port: Some(8080) }
    }
}

const LONGEST_MS: u64 = 86_400_000;
const MOST_FLOWS: u32 = 1024;

/// Answer until SIGINT or SIGTERM.
pub fn serve(options: &Options) -> Result<(), ErrorReport> {
    process::catch_termination().map_err(|error| system_error("catching signals", &error))?;
    let bind = if options.bind.is_empty() { loopback() } else { options.bind.clone() };
    let spec = ServeSpec {
        bind: bind.clone(),
        port: options.port,
        http_port: options.http_port,
        https_port: None,
        answer: HttpAnswer::default(),
        threads: None,
        longest_ms: LONGEST_MS,
        most_flows: MOST_FLOWS,
    };
    let gate = Arc::new(Gate::default());
    let server = serve::start(&spec, &gate)?;
    let port = |name: &str, port: Option<u16>| port.map(|port| format!("{name} on port {port}"));
    let parts = [port("tcp, udp and rr", server.port), port("http", server.http_port)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    println!("listening at {}: {}", bind.join(", "), parts.join("; "));
    while !process::termination_asked() {
        // Ends early with the signal.
        thread::park_timeout(Duration::from_millis(200));
    }
    gate.stop();
    Ok(())
}

/// IPv6 may be switched off on a host; IPv4's loopback is always there.
fn loopback() -> Vec<String> {
    let mut addresses = vec!["127.0.0.1".to_owned()];
    if std::net::UdpSocket::bind("[::1]:0").is_ok() {
        addresses.push("::1".to_owned());
    }
    addresses
}
