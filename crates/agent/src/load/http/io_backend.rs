//! The kernel interfaces that a worker's loop runs over: io_uring, or epoll where there is none. Owns the choice between them;
//! `backend` says what the loop asks of each.

pub mod backend;
mod epoll;
mod uring;

use std::io;
use std::sync::Arc;

use leadline_sys::usage::cpus_online;

pub use self::backend::{Completion, IoBackend};
pub use self::epoll::EpollBackend;
pub use self::uring::UringBackend;

/// Name of the environment variable that forces an engine: for tests and comparisons.
const FORCED: &str = "LEADLINE_HTTP_ENGINE";

/// Waits of up to this long are spent awake, ns. Falling asleep, a timer, and waking up cost 12 µs of CPU time and the
/// same in lateness, more on virtual machines, whose hypervisor is asked for each: so sleeping spares next to nothing here.
const AWAKE_NS: u64 = 25_000;

/// How threads wait for their sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Completions.
    IoUring,
    /// Readiness.
    Epoll,
}

impl Engine {
    /// The name that a result has.
    pub fn name(self) -> &'static str {
        match self {
            Engine::IoUring => "io_uring",
            Engine::Epoll => "epoll",
        }
    }

    /// What the environment asks for, if it does.
    pub fn forced() -> Option<Self> {
        let name = std::env::var(FORCED).ok()?;
        [Engine::IoUring, Engine::Epoll].into_iter().find(|engine| engine.name() == name)
    }
}

/// The threads' backends.
pub enum IoBackends {
    /// By io_uring.
    IoUring(Vec<UringBackend>),
    /// By epoll, and why not by io_uring.
    Epoll(Vec<EpollBackend>, String),
}

impl IoBackends {
    /// A backend for each thread with so many connections: by io_uring where it is to be had for all of them, by epoll where
    /// it is missing or forbidden, or asked for.
    ///
    /// Short waits are spent awake where a CPU is left to whoever answers.
    pub fn new(payload: &Arc<[u8]>, connections: &[usize], forced: Option<Engine>) -> io::Result<Self> {
        let awake_ns = if connections.len() < cpus_online() { AWAKE_NS } else { 0 };
        let reason = match forced {
            Some(Engine::Epoll) => "epoll was asked for".to_owned(),
            _ => match connections.iter().map(|&count| UringBackend::new(payload, count, awake_ns)).collect() {
                Ok(rings) => return Ok(IoBackends::IoUring(rings)),
                Err(error) if forced.is_some() => return Err(error),
                Err(error) => why_not(&error),
            },
        };
        let backends = connections.iter().map(|&count| EpollBackend::new(payload, count, awake_ns));
        let backends = backends.collect::<io::Result<_>>()?;
        Ok(IoBackends::Epoll(backends, reason))
    }
}

/// What an error of setting io_uring up means and what would help.
fn why_not(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (kernel.io_uring_disabled, or a container's seccomp profile)".to_owned()
        }
        Some(libc::ENOMEM) => "io_uring was refused memory (the limit is `ulimit -l`)".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => "no descriptors are left for io_uring (`ulimit -n`)".to_owned(),
        _ => format!("io_uring could not be set up: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoll_takes_over_where_a_ring_is_not_to_be_had() {
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
    fn each_refusal_has_its_words() {
        let words = |code| why_not(&io::Error::from_raw_os_error(code));
        assert!(words(libc::ENOSYS).contains("no io_uring"));
        assert!(words(libc::EPERM).contains("forbidden"));
        assert!(words(libc::ENOMEM).contains("ulimit -l"));
        assert!(words(libc::EMFILE).contains("ulimit -n"));
        assert!(words(libc::EIO).contains("set up"));
    }
}
