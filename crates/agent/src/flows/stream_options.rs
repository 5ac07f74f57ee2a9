//! The options of a byte stream's sockets: what the client sets before it connects, and what both ends set afterwards.

use std::io;
use std::net::TcpStream;

use leadline_sys::net;
use leadline_sys::tcp::OpeningOptions;
use leadline_wire::StreamOptions;

/// An option, as errors name it.
pub type OptionName = &'static str;

/// Returns what has to be set before a connection is opened.
pub fn opening(options: &StreamOptions) -> OpeningOptions {
    let StreamOptions { window_bytes, mss_bytes, mptcp, .. } = *options;
    OpeningOptions { window_bytes, mss_bytes, mptcp }
}

/// Sets the other options of an open connection; the error has the option's name.
pub fn apply(socket: &TcpStream, options: &StreamOptions) -> Result<(), (OptionName, io::Error)> {
    if options.nagle {
        socket.set_nodelay(false).map_err(|error| ("Nagle's algorithm", error))?;
    }
    if let Some(dscp) = options.dscp {
        // The code point is the upper six bits of the byte (RFC 2474, 3).
        net::set_type_of_service(socket, u32::from(dscp) << 2).map_err(|error| ("the DSCP", error))?;
    }
    if let Some(pacing_bps) = options.pacing_bps {
        net::set_pacing(socket, (pacing_bps / 8).max(1)).map_err(|error| ("the pacing rate", error))?;
    }
    Ok(())
}

/// The same on the side that accepted the connection, which also sets its buffers now.
pub fn apply_accepted(socket: &TcpStream, options: &StreamOptions) -> Result<(), (OptionName, io::Error)> {
    if let Some(bytes) = options.window_bytes {
        net::set_buffers(socket, bytes as usize).map_err(|error| ("the window", error))?;
    }
    if let Some(bytes) = options.mss_bytes {
        leadline_sys::tcp::set_mss(socket, bytes).map_err(|error| ("the MSS", error))?;
    }
    apply(socket, options)
}
