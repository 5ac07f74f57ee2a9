//! The options of sockets and of TLS, made of their specifications. Owns every check of these.

use std::time::Duration;

use leadline_sys::connect::{self, TcpOptions};
use leadline_tls::{ClientSettings, ClientTls, TlsOptions, TlsSetupError, TlsVersion};
use leadline_wire::{ErrorReport, SocketOptions, TlsSpec};

use crate::events::input_error;

/// Returns the options of sockets.
pub fn tcp_options(socket: &SocketOptions) -> Result<TcpOptions, ErrorReport> {
    let socket = socket.clone();
    let options = TcpOptions {
        delay: socket.delay,
        congestion: socket.congestion,
        send_buffer_bytes: socket.send_buffer_bytes,
        receive_buffer_bytes: socket.receive_buffer_bytes,
        segment_bytes: socket.segment_bytes,
        dscp: socket.dscp,
        user_timeout: socket.user_timeout_ms.map(|time_ms| Duration::from_millis(time_ms.into())),
        fast_open: socket.fast_open,
    };
    connect::check(&options).map_err(|error| input_error("bad_socket", format!("socket: {error}")))?;
    Ok(options)
}

/// Returns what the TLS connections to a host have in common.
pub fn client_tls(spec: Option<&TlsSpec>, host: &str, connections: u32) -> Result<ClientTls, ErrorReport> {
    let Some(spec) = spec else {
        return Err(input_error("bad_tls", format!("{host} needs TLS, and the specification has none")));
    };
    server_tls(&tls_settings(spec, connections)?, spec, host)
}

/// Returns what the TLS connections to a host have in common, by what those to all hosts have. Reads no file.
pub fn server_tls(settings: &ClientSettings, spec: &TlsSpec, host: &str) -> Result<ClientTls, ErrorReport> {
    settings.server(spec.server_name.as_deref().unwrap_or(host)).map_err(bad_tls)
}

/// Returns what the TLS connections to all hosts have in common. Reads the host's root certificates if they are needed.
pub fn tls_settings(spec: &TlsSpec, connections: u32) -> Result<ClientSettings, ErrorReport> {
    let version = |version| match version {
        leadline_wire::TlsVersion::V1_2 => TlsVersion::V1_2,
        leadline_wire::TlsVersion::V1_3 => TlsVersion::V1_3,
    };
    let identity = spec.identity.as_ref();
    ClientSettings::new(&TlsOptions {
        verify: spec.verify,
        ca_pem: spec.ca_pem.as_deref(),
        identity: identity.map(|identity| (identity.certificate_pem.as_str(), identity.key_pem.as_str())),
        oldest: version(spec.oldest),
        newest: version(spec.newest),
        cipher_suites: &spec.cipher_suites,
        alpn: &spec.alpn,
        // Each host has its own.
        server_name: "",
        resumption: spec.resumption,
        early_data: spec.early_data,
        connections: connections as usize,
    })
    .map_err(bad_tls)
}

fn bad_tls(error: TlsSetupError) -> ErrorReport {
    input_error("bad_tls", error.to_string())
}
