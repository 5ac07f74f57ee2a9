//! The HTTP responder: threads that accept for themselves, each with a loop over its connections, by io_uring or, where
//! that is missing, by epoll. Owns how many threads and connections there are; what is answered is
//! `leadline_http::ServerConnection`'s business. Refuses connections beyond a number, and parts from those that fall
//! silent, so that a peer cannot use up the host's descriptors.

mod balancer;
mod epoll;
mod limits;
mod peer;
mod setup;
mod table;
#[cfg(test)]
mod tests;
mod uring;
mod worker;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use leadline_http::{Behaviour, Responder, Setup, Stalls};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::minimize_timer_slack;
use leadline_sys::ring::Ring;
use leadline_tls::ServerTls;
use tracing::{error, info, warn};

pub use self::setup::{behaviour, tls};

use self::balancer::Balancer;
use self::epoll::EpollWorker;
use self::limits::{Limits, LIMITS};
use self::uring::UringWorker;
use self::worker::{Listener, WorkerContext};
use crate::control_signal::ControlSignal;

/// More threads than this find nothing to do that the rest of the host would not rather do.
const MOST_THREADS: usize = 16;
/// What a thread has room for beside its even share of the connections, since shares are only nearly even.
const SPARE_CONNECTIONS: usize = 1024;
/// A ring for fewer connections than this is none.
const LEAST_CONNECTIONS: usize = 256;

/// What a responder is to do, and where.
pub struct Service {
    /// Listeners for plain HTTP.
    pub plain: Vec<TcpListener>,
    /// Listeners for HTTP over TLS, which need `tls`.
    pub secure: Vec<TcpListener>,
    /// Who it is over TLS.
    pub tls: Option<ServerTls>,
    /// The answer to requests that ask for nothing else.
    pub behaviour: Behaviour,
    /// When all of it stands still.
    pub stalls: Option<Stalls>,
    /// Threads; one per CPU that it may use where absent.
    pub threads: Option<u32>,
    /// Connections that one peer may have open.
    pub most_per_peer: usize,
}

#[cfg(test)]
impl Service {
    /// The default answer, on these.
    pub fn on(plain: Vec<TcpListener>) -> Self {
        let (secure, tls, stalls, threads) = Default::default();
        Self { plain, secure, tls, behaviour: Behaviour::default(), stalls, threads, most_per_peer: LIMITS.per_peer }
    }
}

/// Answer until it is signalled to stop; returns at once.
pub fn listen(service: Service, signal: &Arc<ControlSignal>) -> io::Result<()> {
    listen_within(Limits { per_peer: service.most_per_peer, ..LIMITS }, Engine::Best, service, signal)
}

/// What moves the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    /// io_uring if the kernel allows it.
    Best,
    #[cfg(test)]
    Epoll,
}

fn listen_within(limits: Limits, engine: Engine, service: Service, signal: &Arc<ControlSignal>) -> io::Result<()> {
    let available = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let threads = service.threads.map_or(available, |threads| (threads as usize).clamp(1, MOST_THREADS));
    let listeners = service.plain.len() + service.secure.len();
    let share = limits.connections / threads;
    let wanted = (share + share / 4 + SPARE_CONNECTIONS).min(limits.connections);
    let (mut rings, connections, engine) = match rings(engine, threads, listeners, wanted) {
        Ok((rings, connections)) => (rings, connections, "io_uring".to_owned()),
        Err(error) => {
            warn!(%error, "io_uring cannot be used: epoll takes over");
            (Vec::new(), 0, format!("epoll: io_uring is not to be had ({})", plain_text(&error)))
        }
    };
    info!(engine, threads, limits.connections, limits.per_peer, "HTTP responder starts");
    let (balancer, wake_sockets) = Balancer::new(threads, &limits)?;
    let balancer = Arc::new(balancer);
    let setup = Setup { behaviour: service.behaviour, stalls: service.stalls, started_ns: monotonic_ns(), engine };
    for (own, (responder, wake_socket)) in Responder::group(threads, setup).into_iter().zip(wake_sockets).enumerate() {
        let context = worker_context(own, &service, responder, wake_socket, limits, &balancer, signal)?;
        let ring = rings.pop();
        let balancer = Arc::clone(&balancer);
        std::thread::Builder::new().name(format!("http-serve-{own}")).spawn(move || {
            minimize_timer_slack();
            let served = match ring {
                Some(ring) => UringWorker::new(context, ring, connections).and_then(UringWorker::run),
                None => EpollWorker::new(context).and_then(EpollWorker::run),
            };
            // A loop that fails leaves nothing to serve with: its clients see their connections close, and the other threads serve
            // those that come.
            if let Err(error) = served {
                balancer.retire(own);
                error!(thread = own, %error, "a thread of the HTTP responder has ended");
                eprintln!("leadline-agent: a thread of the HTTP responder has ended: {error}");
            }
        })?;
    }
    Ok(())
}

fn worker_context(
    own: usize,
    service: &Service,
    responder: Responder,
    wake_socket: UnixStream,
    limits: Limits,
    balancer: &Arc<Balancer>,
    signal: &Arc<ControlSignal>,
) -> io::Result<WorkerContext> {
    let listeners = [(&service.plain, false), (&service.secure, true)];
    let listeners =
        listeners.into_iter().flat_map(|(listeners, over_tls)| listeners.iter().map(move |each| (each, over_tls)));
    let listeners = listeners
        .map(|(listener, over_tls)| Ok(Listener { socket: listener.try_clone()?, over_tls }))
        .collect::<io::Result<Vec<_>>>()?;
    let (balancer, signal, tls) = (Arc::clone(balancer), Arc::clone(signal), service.tls.clone());
    Ok(WorkerContext { own, listeners, wake_socket, balancer, signal, responder, tls, limits })
}

/// A ring for each thread and how many connections it is for, or the reason why there is none.
fn rings(engine: Engine, threads: usize, listeners: usize, wanted: usize) -> io::Result<(Vec<Ring>, usize)> {
    if engine != Engine::Best {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not asked for"));
    }
    let mut connections = wanted;
    loop {
        match (0..threads).map(|_| uring::ring(listeners, connections)).collect::<io::Result<Vec<_>>>() {
            Ok(rings) => return Ok((rings, connections)),
            // A ring may have no more slots than its process may have descriptors.
            Err(error) if is_exhausted(&error) && connections / 2 >= LEAST_CONNECTIONS => connections /= 2,
            Err(error) => return Err(error),
        }
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENOMEM))
}

/// An error's text that needs no escapes in JSON.
fn plain_text(error: &io::Error) -> String {
    error.to_string().replace(['"', '\\'], "'")
}
