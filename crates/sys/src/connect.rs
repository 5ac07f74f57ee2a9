//! Non-blocking stream connections over TCP or a Unix socket, from a given address, with socket options; and
//! receiving with the kernel's timestamps. Owns the sockets' set-up; the caller owns their data.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::reason::reason;
use crate::ring::{stamp_ns, CONTROL_BYTES};
use crate::socket_option::set_int;

/// The destination of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// TCP.
    Inet(SocketAddr),
    /// A Unix socket's path.
    Unix(PathBuf),
}

impl std::fmt::Display for Remote {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Remote::Inet(address) => address.fmt(formatter),
            Remote::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// The options of a TCP socket before it connects; absent ones are the system's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Whether small segments may be held back (Nagle's algorithm).
    pub delay: bool,
    /// Congestion control by the kernel's name.
    pub congestion: Option<String>,
    /// Send buffer, bytes.
    pub send_buffer_bytes: Option<u32>,
    /// Receive buffer, bytes.
    pub receive_buffer_bytes: Option<u32>,
    /// Largest segment, bytes.
    pub segment_bytes: Option<u32>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// How long sent bytes may stay unacknowledged.
    pub user_timeout: Option<Duration>,
    /// Whether the first bytes may be sent with the SYN.
    pub fast_open: bool,
}

/// Begins a connection. The socket is writable once it is connected or has failed (see `take_error`).
///
/// # Errors
/// The system's: an option that it refuses, an address that is not local, no port or descriptor left.
pub fn begin(to: &Remote, from: Option<IpAddr>, options: &TcpOptions) -> io::Result<Socket> {
    let (socket, address) = match to {
        Remote::Inet(address) => {
            let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
            set(&socket, address, options)?;
            if let Some(from) = from {
                // The port is chosen when the peer is known, so that one local port can serve many peers.
                set_int(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
                socket.bind(&SocketAddr::new(from, 0).into())?;
            }
            (socket, SockAddr::from(*address))
        }
        Remote::Unix(path) => (Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?),
    };
    socket.set_nonblocking(true)?;
    match socket.connect(&address) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// Checks that this host accepts the options.
///
/// # Errors
/// The option that it refuses, and the reason.
pub fn check(options: &TcpOptions) -> io::Result<()> {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    set(&Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?, &anywhere, options)
}

fn set(socket: &Socket, to: &SocketAddr, options: &TcpOptions) -> io::Result<()> {
    let named = |name: &'static str| {
        move |error: io::Error| io::Error::new(error.kind(), format!("{name}: {}", reason(&error)))
    };
    socket.set_tcp_nodelay(!options.delay)?;
    if let Some(name) = &options.congestion {
        let unknown = |error: io::Error| io::Error::new(error.kind(), format!("congestion {name}: {}", reason(&error)));
        socket.set_tcp_congestion(name.as_bytes()).map_err(unknown)?;
    }
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes as usize).map_err(named("send buffer"))?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes as usize).map_err(named("receive buffer"))?;
    }
    if let Some(bytes) = options.segment_bytes {
        set_int(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes as libc::c_int).map_err(named("segment"))?;
    }
    if let Some(point) = options.dscp {
        if point > 63 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("dscp {point}: a code point is 0 to 63")));
        }
        // The code point is the upper six bits; the lower two are ECN's.
        let class = libc::c_int::from(point) << 2;
        match to {
            SocketAddr::V4(_) => set_int(socket, libc::IPPROTO_IP, libc::IP_TOS, class),
            SocketAddr::V6(_) => set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class),
        }
        .map_err(named("dscp"))?;
    }
    if options.user_timeout.is_some() {
        socket.set_tcp_user_timeout(options.user_timeout).map_err(named("user timeout"))?;
    }
    if options.fast_open {
        set_int(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1).map_err(named("fast open"))?;
    }
    Ok(())
}

/// Requests the kernel's timestamps on all data that a socket receives. The kernel then stamps every packet of the
/// host, at some 20 ns each, as long as one socket requests it.
pub fn stamp_received(socket: impl AsFd) -> io::Result<()> {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags as libc::c_int)
}

/// Receives without waiting; also returns when the kernel had the last of the data, ns on the real-time clock, if it
/// reported it.
pub fn receive_stamped(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: an all-zero msghdr is valid. The vector and the control memory, which is aligned for its headers,
    // outlive the call, and the kernel writes no more than their lengths.
    let (received, header) = unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
        (libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT), header)
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let words: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).take(header.msg_controllen).collect();
    Ok((received, stamp_ns(&words)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

    use super::*;

    fn established(listener: &TcpListener, from: Option<IpAddr>, options: &TcpOptions) -> Socket {
        let remote = Remote::Inet(listener.local_addr().unwrap());
        let socket = begin(&remote, from, options).unwrap();
        socket.set_nonblocking(false).unwrap();
        let _ = listener.accept().unwrap();
        assert!(socket.take_error().unwrap().is_none());
        socket
    }

    #[test]
    fn options_are_set_before_the_connection_is_made() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let options = TcpOptions {
            delay: true,
            congestion: Some("reno".to_owned()),
            send_buffer_bytes: Some(50_000),
            receive_buffer_bytes: Some(60_000),
            segment_bytes: Some(1000),
            dscp: Some(46),
            user_timeout: Some(Duration::from_millis(1234)),
            fast_open: false,
        };
        let from = IpAddr::from([127, 0, 0, 9]);
        let socket = established(&listener, Some(from), &options);
        assert_eq!(socket.local_addr().unwrap().as_socket().unwrap().ip(), from);
        assert!(!socket.tcp_nodelay().unwrap());
        assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));
        // The kernel doubles the requested size.
        assert_eq!((socket.send_buffer_size().unwrap(), socket.recv_buffer_size().unwrap()), (100_000, 120_000));
        assert_eq!(socket.tos_v4().unwrap(), 46 << 2);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_millis(1234)));
        assert!(socket.tcp_mss().unwrap() <= 1000);
        assert!(established(&listener, None, &TcpOptions::default()).tcp_nodelay().unwrap());
        let unknown = TcpOptions { congestion: Some("none-such".to_owned()), ..TcpOptions::default() };
        assert!(check(&unknown).unwrap_err().to_string().starts_with("congestion none-such: "));
        assert!(check(&TcpOptions { dscp: Some(64), ..TcpOptions::default() }).is_err());
        check(&options).unwrap();
    }

    #[test]
    fn ipv6_traffic_class_is_set() {
        let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else { return };
        let options = TcpOptions { dscp: Some(8), ..TcpOptions::default() };
        assert_eq!(established(&listener, None, &options).tclass_v6().unwrap(), 8 << 2);
    }

    #[test]
    fn unix_socket_connects_as_a_stream() {
        let folder = std::env::temp_dir().join(format!("leadline-connect-{}", std::process::id()));
        let _ = std::fs::remove_file(&folder);
        let listener = std::os::unix::net::UnixListener::bind(&folder).unwrap();
        let remote = Remote::Unix(folder.clone());
        let mut ours = begin(&remote, None, &TcpOptions::default()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        ours.read_exact(&mut got).unwrap();
        assert_eq!((&got, remote.to_string()), (b"hello", format!("unix:{}", folder.display())));
        std::fs::remove_file(folder).unwrap();
        assert!(begin(&remote, None, &TcpOptions::default()).is_err());
    }

    #[test]
    fn received_bytes_carry_the_kernel_timestamp() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ours = begin(&Remote::Inet(listener.local_addr().unwrap()), None, &TcpOptions::default()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        stamp_received(&ours).unwrap();
        let mut buffer = [0; 100];
        // The kernel begins to stamp some time after the first socket has requested it.
        let deadline_ns = crate::clock::monotonic_ns() + 60_000_000_000;
        while crate::clock::monotonic_ns() < deadline_ns {
            let before_ns = crate::clock::realtime_ns();
            theirs.write_all(b"hello").unwrap();
            let (received, stamp) = loop {
                match receive_stamped(&ours, &mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    other => break other.unwrap(),
                }
            };
            assert_eq!(&buffer[..received], b"hello");
            if let Some(stamp) = stamp {
                assert!(before_ns <= stamp && stamp <= crate::clock::realtime_ns());
                return;
            }
        }
        panic!("no stamp came");
    }
}
