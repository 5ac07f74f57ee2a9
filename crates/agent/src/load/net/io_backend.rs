//! The kernel interfaces over which a worker's loop runs: io_uring, or epoll if io_uring is not available. Owns the
//! choice between them; `backend` is their common interface.

pub mod backend;
mod epoll;
mod uring;

use std::io;
use std::sync::Arc;

use leadline_sys::reason::reason;
use leadline_sys::usage::cpus_online;

pub use self::backend::{Completion, IoBackend};
pub use self::epoll::EpollBackend;
pub use self::uring::UringBackend;

/// The environment variable that forces an engine, for tests and comparisons.
const FORCED: &str = "LEADLINE_HTTP_ENGINE";

/// Waits of up to this long are busy-waits, ns. A sleep with a timer costs 12 µs of CPU time and 12 µs of lateness,
/// and more on virtual machines, where each one goes through the hypervisor. A sleep for a shorter time therefore
/// saves almost nothing.
const AWAKE_NS: u64 = 25_000;

/// The kernel interface by which threads wait for their sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Completions.
    IoUring,
    /// Readiness.
    Epoll,
}

impl Engine {
    /// The engine's name in a result.
    pub fn name(self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::Epoll => "epoll",
        }
    }

    /// Returns the engine that the environment variable forces, if it does.
    pub fn forced() -> Option<Self> {
        let name = std::env::var(FORCED).ok()?;
        [Engine::IoUring, Engine::Epoll].into_iter().find(|engine| engine.name() == name)
    }
}

/// The backends of all threads.
pub enum IoBackends {
    /// Backends over io_uring.
    IoUring(Vec<UringBackend>),
    /// Backends over epoll, and the reason why io_uring is not used.
    Epoll(Vec<EpollBackend>, String),
}

impl IoBackends {
    /// Returns a backend for each thread with this many connections: over io_uring if it is available for all of
    /// them, over epoll if it is missing, forbidden or not requested.
    ///
    /// Short waits are busy-waits only if at least one CPU is left for the server.
    pub fn new(payload: &Arc<[u8]>, connections: &[usize], forced: Option<Engine>) -> io::Result<Self> {
        let awake_ns = if connections.len() < cpus_online() { AWAKE_NS } else { 0 };
        let reason = match forced {
            Some(Engine::Epoll) => "epoll was requested".to_owned(),
            _ => match connections.iter().map(|&count| UringBackend::new(payload, count, awake_ns)).collect() {
                Ok(rings) => return Ok(IoBackends::IoUring(rings)),
                Err(error) if forced.is_some() => return Err(error),
                Err(error) => unavailable_reason(&error),
            },
        };
        let backends = connections.iter().map(|&count| EpollBackend::new(payload, count, awake_ns));
        let backends = backends.collect::<io::Result<_>>()?;
        Ok(IoBackends::Epoll(backends, reason))
    }
}

/// Tries whether io_uring can be used: sets up a ring for one socket, and drops it.
///
/// # Errors
/// Why it cannot, in words for users: the kernel is too old, a container's filter forbids it, an emulator lacks it.
pub fn try_io_uring() -> Result<(), String> {
    UringBackend::new(&Arc::from([0].as_slice()), 1, 0).map(drop).map_err(|error| unavailable_reason(&error))
}

/// Returns what an error of io_uring's setup means, and what helps.
fn unavailable_reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (kernel.io_uring_disabled, or a container's seccomp profile)".to_owned()
        }
        Some(libc::ENOMEM) => "io_uring was refused memory (the limit is `ulimit -l`)".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => "no descriptors are left for io_uring (`ulimit -n`)".to_owned(),
        _ => format!("io_uring could not be set up: {}", reason(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unavailable_io_uring_falls_back_to_epoll() {
        // More files than any ring may have.
        const TOO_MANY: usize = 2_000_000;
        let payload: Arc<[u8]> = b"GET / HTTP/1.1\r\n\r\n".as_slice().into();
        let Ok(IoBackends::Epoll(backends, reason)) = IoBackends::new(&payload, &[1, TOO_MANY], None) else {
            panic!("no epoll")
        };
        assert_eq!(backends.len(), 2);
        assert!(reason.contains("ulimit -n"), "{reason}");
        assert!(
            IoBackends::new(&payload, &[TOO_MANY], Some(Engine::IoUring)).is_err(),
            "what is forced is not replaced"
        );
        assert!(matches!(IoBackends::new(&payload, &[1], None), Ok(IoBackends::IoUring(_))));
    }

    #[test]
    fn each_setup_error_has_its_message() {
        let reason_of = |code| unavailable_reason(&io::Error::from_raw_os_error(code));
        assert!(reason_of(libc::ENOSYS).contains("no io_uring"));
        assert!(reason_of(libc::EPERM).contains("forbidden"));
        assert!(reason_of(libc::ENOMEM).contains("ulimit -l"));
        assert!(reason_of(libc::EMFILE).contains("ulimit -n"));
        assert!(reason_of(libc::EIO).contains("set up"));
    }
}
