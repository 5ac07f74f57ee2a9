//! The kernel interface that a worker's loop uses, so that the same loop runs over io_uring and over epoll. A backend
//! owns one thread's sockets, with the worker's connection numbers as indexes; it knows nothing of HTTP.

use std::io;
use std::ops::Range;

use leadline_http::client::SocketUse;
pub use leadline_sys::ring::Completion;
use socket2::Socket;

/// The sockets of one thread.
pub trait IoBackend: Send + 'static {
    /// Prepares the backend for use on this thread; must be called first.
    fn begin(&mut self) -> io::Result<()>;
    /// Takes a socket that is connecting; `Writable` reports the end of the connection attempt.
    fn connect(&mut self, index: usize, socket: Socket) -> io::Result<()>;
    /// Starts to receive on a connected socket, with kernel timestamps if `stamped`. Returns the error if the
    /// connection failed.
    fn connected(&mut self, index: usize, stamped: bool) -> io::Result<()>;
    /// Sends a piece of the payload. Returns how many bytes the system accepts at once; `Sent` reports the others,
    /// and `NotSent` corrects this number if the system did not accept all of them.
    fn send(&mut self, index: usize, piece: Range<usize>) -> io::Result<usize>;
    /// Sends a copy of these bytes after all earlier ones; returns the same as `send`.
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> io::Result<usize>;
    /// Submits queued operations without waiting.
    fn flush(&mut self) -> io::Result<()>;
    /// When the last send was handed to the kernel, ns; `None` while a send is queued.
    fn handed_over_ns(&self) -> Option<u64>;
    /// Returns the socket to the caller, who closes it or keeps it open; no completion of it follows.
    fn detach(&mut self, index: usize, then: SocketUse) -> Option<Detached>;
    /// Waits for an event, until `until_ns` at most.
    fn wait(&mut self, until_ns: u64) -> io::Result<()>;
    /// The next event: its connection, when it was seen (ns), and the completion. `None` means that the next `wait`
    /// is due.
    fn completion(&mut self) -> io::Result<Option<(usize, u64, Completion)>>;
    /// The bytes of the last `Received` of `completion`.
    fn received(&self) -> &[u8];
    /// When the kernel received the last of these bytes, ns on the real-time clock; `None` if it did not report the
    /// time.
    fn stamp_ns(&self) -> Option<u64>;
    /// Total busy-waiting time without events, ns.
    fn spun_ns(&self) -> u64;
    /// The socket of one connection.
    fn socket(&self, index: usize) -> Option<&Socket>;
    /// All sockets.
    fn sockets(&self) -> impl Iterator<Item = &Socket>;
}

/// A socket that its backend has returned.
pub struct Detached {
    /// The socket.
    pub socket: Socket,
    /// Bytes that `send` reported as accepted, and that the system did not accept.
    pub unsent_bytes: usize,
    /// Accepted bytes that neither `send` nor a `Sent` has reported.
    pub taken_bytes: usize,
}
