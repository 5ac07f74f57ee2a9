//! TCP beyond socket2: what the kernel knows of a connection (TCP_INFO), options set before it is opened, and ways to send
//! and receive without copying.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::net::set_buffers;
use crate::socket_option::set_int;

/// From linux/in.h.
const IPPROTO_MPTCP: libc::c_int = 262;
/// From linux/mptcp.h: the level of its options, the option that describes a connection, and its flag for plain TCP.
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const MPTCP_FLAGS_AT: usize = 8;
const MPTCP_FELL_BACK: u32 = 1;

/// What a connection's two ends agree on when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningOptions {
    /// Size of the send and of the receive buffer, bytes; the kernel grants at most `net.core.wmem_max` and `rmem_max`.
    pub window_bytes: Option<u32>,
    /// The largest segment's payload, bytes.
    pub mss_bytes: Option<u32>,
    /// Whether it is an MPTCP connection.
    pub mptcp: bool,
}

/// Opens a blocking connection with Nagle's algorithm off, and with the host's defaults otherwise.
pub fn connect(to: SocketAddr, from: Option<IpAddr>, timeout: Duration) -> io::Result<TcpStream> {
    connect_with(to, from.map(|address| SocketAddr::new(address, 0)), timeout, &OpeningOptions::default())
}

/// Like `connect`, with these options; port 0 of `from` is the host's choice.
pub fn connect_with(
    to: SocketAddr,
    from: Option<SocketAddr>,
    timeout: Duration,
    options: &OpeningOptions,
) -> io::Result<TcpStream> {
    let protocol = if options.mptcp { Protocol::from(IPPROTO_MPTCP) } else { Protocol::TCP };
    let socket = stream_socket(to, protocol)?;
    if let Some(bytes) = options.window_bytes {
        // The window's scale is agreed on with the first packets.
        set_buffers(&socket, bytes as usize)?;
    }
    if let Some(bytes) = options.mss_bytes {
        set_mss(&socket, bytes)?;
    }
    if let Some(from) = from {
        // A port that was used a moment ago can be used again.
        socket.set_reuse_address(from.port() != 0)?;
        socket.bind(&from.into())?;
    }
    socket.connect_timeout(&SockAddr::from(to), timeout)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Listens for TCP; an IPv6 socket accepts only IPv6, so that both families can have the same port.
pub fn listen(at: SocketAddr) -> io::Result<std::net::TcpListener> {
    listen_on(stream_socket(at, Protocol::TCP)?, at)
}

/// Listens for TCP and, where the kernel has it, MPTCP.
pub fn listen_multipath(at: SocketAddr) -> io::Result<std::net::TcpListener> {
    let multipath = stream_socket(at, Protocol::from(IPPROTO_MPTCP));
    listen_on(multipath.or_else(|_| stream_socket(at, Protocol::TCP))?, at)
}

fn stream_socket(at: SocketAddr, protocol: Protocol) -> io::Result<Socket> {
    Socket::new(Domain::for_address(at), Type::STREAM, Some(protocol))
}

fn listen_on(socket: Socket, at: SocketAddr) -> io::Result<std::net::TcpListener> {
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&at.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}

/// Stops listening at once, and lets others listen on the address, although the socket may be held elsewhere: an io_uring that has
/// been closed gives its sockets up some time later.
pub fn stop_listening(listener: &std::net::TcpListener) -> io::Result<()> {
    SockRef::from(listener).shutdown(std::net::Shutdown::Both)
}

/// Whether a connection that was opened as MPTCP is one: both ends speak it, and nothing in between removed its options.
pub fn is_mptcp(stream: &TcpStream) -> bool {
    let mut info = [0u8; 64];
    let read = option_bytes(stream, SOL_MPTCP, MPTCP_INFO, &mut info).unwrap_or(0);
    u32_at(&info[..read], MPTCP_FLAGS_AT).is_some_and(|flags| flags & MPTCP_FELL_BACK == 0)
}

/// Sets the largest segment's payload; before the connection is opened, the peer learns of it, too.
pub fn set_mss(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, i32::try_from(bytes).unwrap_or(i32::MAX))
}

/// Returns the sizes of a socket's send and receive buffer, bytes, as the kernel counts them: with its own overhead.
pub fn buffer_bytes(socket: impl AsFd) -> (Option<u64>, Option<u64>) {
    let socket = socket2::SockRef::from(&socket);
    (socket.send_buffer_size().ok().map(|size| size as u64), socket.recv_buffer_size().ok().map(|size| size as u64))
}

/// The kernel's figures of a TCP connection; a figure that this kernel does not have is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Variance of the round-trip time, µs.
    pub rtt_variance_us: u32,
    /// The shortest round-trip time that was measured, µs.
    pub rtt_min_us: Option<u32>,
    /// Segments retransmitted since the connection began.
    pub retransmits: u32,
    /// Congestion window, bytes.
    pub congestion_window_bytes: u64,
    /// The path's MTU, bytes.
    pub path_mtu_bytes: u32,
    /// Payload of a full segment to the peer, bytes.
    pub mss_bytes: u32,
    /// The rate at which the kernel paces segments, bit/s.
    pub pacing_bps: Option<u64>,
    /// The rate at which the peer acknowledged recently, bit/s.
    pub delivery_bps: Option<u64>,
    /// Time with data to send or under way, µs.
    pub busy_us: Option<u64>,
    /// Part of it in which the peer's window was full, µs.
    pub receiver_limited_us: Option<u64>,
    /// Part of it in which the send buffer was too small, µs.
    pub send_buffer_limited_us: Option<u64>,
    /// Payload bytes sent, retransmitted ones included, and the retransmitted ones.
    pub sent_bytes: Option<u64>,
    /// Payload bytes retransmitted.
    pub retransmitted_bytes: Option<u64>,
    /// The window that the peer announced last, bytes.
    pub peer_window_bytes: Option<u32>,
    /// The receiving side's estimate of the round-trip time, µs; 0 before the first.
    pub receive_rtt_us: u32,
    /// The window that this side announced last, bytes.
    pub receive_window_bytes: Option<u32>,
    /// Segments that arrived before one with a lower sequence number.
    pub out_of_order: Option<u32>,
    /// How often acknowledgements showed that the path had changed the order of segments.
    pub reorderings: Option<u32>,
}

/// `struct tcp_info` of linux/tcp.h; a newer kernel's is longer, an older one's is shorter.
const TCP_INFO_BYTES: usize = 256;
/// Its length since Linux 2.6.
const MIN_TCP_INFO_BYTES: usize = 104;

/// Reads TCP_INFO.
///
/// # Errors
/// The system's; `Unsupported` if it says too little, as emulators do.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0u8; TCP_INFO_BYTES];
    let length = option_bytes(&socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    if length < MIN_TCP_INFO_BYTES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(parse_tcp_info(&bytes[..length]))
}

/// Reads the figures by their offsets in linux/tcp.h.
fn parse_tcp_info(bytes: &[u8]) -> TcpInfo {
    let (short, long) = (|at| u32_at(bytes, at), |at| u64_at(bytes, at));
    let mss_bytes = short(16).unwrap_or(0);
    // The kernel says all ones where nothing is known or limited.
    let bits = |rate: u64| (rate != u64::MAX).then(|| rate.saturating_mul(8));
    TcpInfo {
        rtt_us: short(68).unwrap_or(0),
        rtt_variance_us: short(72).unwrap_or(0),
        rtt_min_us: short(148).filter(|us| *us != u32::MAX),
        retransmits: short(100).unwrap_or(0),
        congestion_window_bytes: u64::from(short(80).unwrap_or(0)) * u64::from(mss_bytes),
        path_mtu_bytes: short(60).unwrap_or(0),
        mss_bytes,
        pacing_bps: long(104).and_then(bits),
        delivery_bps: long(160).and_then(bits),
        busy_us: long(168),
        receiver_limited_us: long(176),
        send_buffer_limited_us: long(184),
        sent_bytes: long(200),
        retransmitted_bytes: long(208),
        peer_window_bytes: short(228),
        receive_rtt_us: short(92).unwrap_or(0),
        receive_window_bytes: short(232),
        out_of_order: short(224),
        reorderings: short(220),
    }
}

/// Discards at most `most` received bytes in the kernel, without copying them (MSG_TRUNC); 0 at the end of the stream.
pub fn discard(stream: &TcpStream, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC, TCP writes nothing to the buffer, which therefore may be none.
    let result =
        unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC | libc::MSG_DONTWAIT) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Bytes in a file in memory, for sending without copying. What the kernel still has to send keeps its content, whatever
/// becomes of this value.
#[derive(Debug)]
pub struct SharedBytes {
    file: File,
    address: *mut libc::c_void,
    length: usize,
}

// SAFETY: the mapping is private to this value, never changes after its creation, and lives until it is dropped.
unsafe impl Send for SharedBytes {}

impl SharedBytes {
    /// Copies bytes, at least one, to a file in memory.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        // SAFETY: the name ends with NUL; a non-negative result is a descriptor that no other object owns.
        let file = unsafe {
            let fd = libc::memfd_create(c"leadline-payload".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        io::Write::write_all(&mut &file, bytes)?;
        Self::of(file, bytes.len())
    }

    /// Maps the first `length` bytes, at least one, of a file.
    pub fn of(file: File, length: usize) -> io::Result<Self> {
        // SAFETY: a new shared mapping of an open file, for reading.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, address, length })
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Sends a range by sendfile, without waiting; returns how many bytes the socket accepted.
    pub fn send_file(&self, stream: &TcpStream, from: usize, length: usize) -> io::Result<usize> {
        let mut offset = from as libc::off_t;
        let length = length.min(self.length.saturating_sub(from));
        // SAFETY: both descriptors are open, and `offset` outlives the call.
        let sent = unsafe { libc::sendfile(stream.as_raw_fd(), self.file.as_raw_fd(), &mut offset, length) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Sends a range by MSG_ZEROCOPY, without waiting; returns how many bytes the socket accepted.
    pub fn send_zerocopy(&self, stream: &TcpStream, from: usize, length: usize) -> io::Result<usize> {
        let from = from.min(self.length);
        let length = length.min(self.length - from);
        // SAFETY: the range lies within the mapping. The kernel holds the pages until they are sent.
        let sent = unsafe {
            let flags = libc::MSG_ZEROCOPY | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            libc::send(stream.as_raw_fd(), self.address.cast::<u8>().add(from).cast(), length, flags)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: the mapping of `length` bytes is this value's own; pages that the kernel sends stay until they are sent.
        unsafe { libc::munmap(self.address, self.length) };
    }
}

/// Lets a socket send by MSG_ZEROCOPY.
pub fn enable_zerocopy(stream: &TcpStream) -> io::Result<()> {
    set_int(stream, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
}

/// What the kernel says of completed sends by MSG_ZEROCOPY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZerocopyCompletions {
    /// Sends that are complete.
    pub sends: u64,
    /// Those that the kernel copied after all.
    pub copied: u64,
}

/// From linux/errqueue.h.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Reads the completions that wait in a socket's error queue.
pub fn zerocopy_completions(stream: &TcpStream) -> io::Result<ZerocopyCompletions> {
    let mut found = ZerocopyCompletions::default();
    loop {
        // Room for one extended error and an address, aligned as their headers want it.
        let mut control = [0u64; 16];
        // The kernel writes no data; emulators do not ask it without room for some.
        let (mut data, before) = ([0u8; 1], found.sends);
        let mut vector = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
        // SAFETY: an all-zero msghdr is valid; its buffers outlive the calls, and the headers are read within the length
        // that the kernel set.
        unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &mut vector;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of::<[u64; 16]>() as _;
            let read = libc::recvmsg(stream.as_raw_fd(), &mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT);
            if read < 0 {
                let error = io::Error::last_os_error();
                return if error.kind() == io::ErrorKind::WouldBlock { Ok(found) } else { Err(error) };
            }
            let mut header = libc::CMSG_FIRSTHDR(&message);
            while !header.is_null() {
                let body: libc::sock_extended_err = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                if body.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
                    let sends = u64::from(body.ee_data.wrapping_sub(body.ee_info)) + 1;
                    found.sends += sends;
                    if body.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0 {
                        found.copied += sends;
                    }
                }
                header = libc::CMSG_NXTHDR(&message, header);
            }
        }
        // An error of another origin: the next call goes on.
        if found.sends == before {
            return Ok(found);
        }
    }
}

/// Reads a socket option; returns how many bytes the kernel wrote.
fn option_bytes(socket: impl AsFd, level: libc::c_int, name: libc::c_int, into: &mut [u8]) -> io::Result<usize> {
    let mut length = into.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `into`.
    let result =
        unsafe { libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, into.as_mut_ptr().cast(), &mut length) };
    if result == 0 {
        Ok((length as usize).min(into.len()))
    } else {
        Err(io::Error::last_os_error())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    fn pair(options: &OpeningOptions) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = connect_with(listener.local_addr().unwrap(), None, Duration::from_secs(5), options).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn tcp_info_counts_what_was_sent_and_what_arrived() {
        let (mut near, mut far) = pair(&OpeningOptions::default());
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        let info = tcp_info(&near).unwrap();
        assert_eq!((info.sent_bytes, info.retransmitted_bytes), (Some(5000), Some(0)));
        assert!(info.rtt_us > 0 && info.rtt_min_us.is_some() && info.mss_bytes > 0, "{info:?}");
        assert!(info.congestion_window_bytes > 0 && info.busy_us.is_some(), "{info:?}");
        assert!(info.peer_window_bytes > Some(0) && info.reorderings.is_some(), "{info:?}");
        assert!(tcp_info(&far).unwrap().receive_window_bytes.is_some());
    }

    #[test]
    fn short_answer_of_an_old_kernel_leaves_figures_unknown() {
        let info = parse_tcp_info(&[1; 104]);
        assert_eq!((info.retransmits, info.pacing_bps, info.busy_us), (0x0101_0101, None, None));
        assert_eq!(parse_tcp_info(&[255; TCP_INFO_BYTES]).pacing_bps, None);
        assert_eq!(parse_tcp_info(&[]), TcpInfo::default());
    }

    #[test]
    fn segments_and_windows_have_the_size_that_was_asked_for() {
        let options = OpeningOptions { window_bytes: Some(40_000), mss_bytes: Some(1000), mptcp: false };
        let (near, far) = pair(&options);
        assert!(tcp_info(&near).unwrap().mss_bytes <= 1000 && tcp_info(&far).unwrap().mss_bytes <= 1000);
        assert_eq!(buffer_bytes(&near), (Some(80_000), Some(80_000)));
    }

    #[test]
    fn discarded_bytes_are_counted_and_end_with_the_stream() {
        let (mut near, far) = pair(&OpeningOptions::default());
        assert_eq!(discard(&far, 100).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        near.write_all(&[1; 100]).unwrap();
        assert_eq!(discard(&far, 60).unwrap() + discard(&far, 60).unwrap(), 100);
        drop(near);
        assert_eq!(discard(&far, 60).unwrap(), 0);
    }

    #[test]
    fn shared_bytes_arrive_whole_by_each_way_of_sending() {
        let (near, mut far) = pair(&OpeningOptions::default());
        let content: Vec<u8> = (0..9000u32).map(|number| number as u8).collect();
        let shared = SharedBytes::new(&content).unwrap();
        enable_zerocopy(&near).unwrap();
        assert_eq!(shared.send_file(&near, 4000, 9000).unwrap(), 5000);
        assert_eq!(shared.send_zerocopy(&near, 0, 4000).unwrap(), 4000);
        drop(shared);
        let mut arrived = vec![0; 9000];
        far.read_exact(&mut arrived).unwrap();
        assert_eq!(arrived, [&content[4000..], &content[..4000]].concat());
        // Loopback copies: an skb must not hold the pages of a sender in its receiver.
        let mut found = ZerocopyCompletions::default();
        while found.sends == 0 {
            found = zerocopy_completions(&near).unwrap();
        }
        assert_eq!(found, ZerocopyCompletions { sends: 1, copied: 1 });
    }

    #[test]
    fn plain_connection_to_any_listener_is_not_mptcp() {
        let listener = listen_multipath(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let to = listener.local_addr().unwrap();
        let plain = connect(to, None, Duration::from_secs(5)).unwrap();
        assert!(!is_mptcp(&plain));
        assert!(tcp_info(listener.accept().unwrap().0).is_ok());
        let options = OpeningOptions { mptcp: true, ..OpeningOptions::default() };
        if let Ok(stream) = connect_with(to, None, Duration::from_secs(5), &options) {
            let far = listener.accept().unwrap().0;
            assert!(is_mptcp(&stream));
            assert!(tcp_info(&stream).is_ok() && tcp_info(&far).is_ok());
        }
    }
}
