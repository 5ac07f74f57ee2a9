//! The HTTP responder: threads that each accept connections and run a loop over them, over io_uring, or over epoll if
//! io_uring is not available. Owns the numbers of threads and connections; `leadline_http::ServerConnection` makes
//! the responses. Refuses connections beyond a limit, and closes silent ones, so that a peer cannot use up the host's
//! descriptors.

mod balancer;
mod epoll;
mod limits;
mod pacing;
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
use std::thread::JoinHandle;

use leadline_http::{Behaviour, Responder, Setup, Stalls};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::priority::minimize_timer_slack;
use leadline_sys::reason::reason;
use leadline_sys::ring::Ring;
use leadline_tls::ServerTls;
use tracing::{error, info, warn};

pub use self::limits::MAX_CONNECTIONS;
pub use self::setup::{behaviour, tls};

use self::balancer::Balancer;
use self::epoll::EpollWorker;
use self::limits::{Limits, LIMITS};
use self::uring::UringWorker;
use self::worker::{Listener, WorkerContext};
use super::occupancy::Occupancy;
use crate::control_signal::ControlSignal;

/// The maximum number of threads: more would only take CPU time from the rest of the host.
const MOST_THREADS: usize = 16;
/// A thread's room for connections beyond its even share, because shares are only roughly even.
const SPARE_CONNECTIONS: usize = 1024;
/// The minimum number of connections of a ring; a smaller ring is not used.
const LEAST_CONNECTIONS: usize = 256;

/// The configuration of a responder.
pub struct Service {
    /// Listeners for plain HTTP.
    pub plain: Vec<TcpListener>,
    /// Listeners for HTTP over TLS, which need `tls`.
    pub secure: Vec<TcpListener>,
    /// Its identity over TLS.
    pub tls: Option<ServerTls>,
    /// The default response.
    pub behaviour: Behaviour,
    /// The stalls of the whole responder.
    pub stalls: Option<Stalls>,
    /// Threads; one per CPU that it may use if absent.
    pub threads: Option<u32>,
    /// What its peers hold.
    pub occupancy: Arc<Occupancy>,
    /// The maximum number of open connections, over all peers.
    pub connections: usize,
}

#[cfg(test)]
impl Service {
    /// Returns a service with the default response on these listeners.
    pub fn on(plain: Vec<TcpListener>) -> Self {
        let (secure, tls, stalls, threads) = Default::default();
        let (behaviour, occupancy) =
            (Behaviour::default(), limits::tests::occupancy(MAX_CONNECTIONS, MAX_CONNECTIONS, None));
        Self { plain, secure, tls, behaviour, stalls, threads, occupancy, connections: LIMITS.connections }
    }
}

/// Answers requests on threads of its own, until the signal stops them; returns these threads.
pub fn listen(service: Service, signal: &Arc<ControlSignal>) -> io::Result<Vec<JoinHandle<()>>> {
    listen_within(Limits { connections: service.connections, ..LIMITS }, Engine::Best, service, signal)
}

/// The kernel interface for sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    /// io_uring if the kernel allows it.
    Best,
    #[cfg(test)]
    Epoll,
}

fn listen_within(
    limits: Limits,
    engine: Engine,
    service: Service,
    signal: &Arc<ControlSignal>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let available = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let threads = service.threads.map_or(available, |threads| (threads as usize).clamp(1, MOST_THREADS));
    let listeners = service.plain.len() + service.secure.len();
    let share = limits.connections / threads;
    let capacity = (share + share / 4 + SPARE_CONNECTIONS).min(limits.connections);
    let (mut rings, connections, engine) = match rings(engine, threads, listeners, capacity) {
        Ok((rings, connections)) => (rings, connections, "io_uring".to_owned()),
        Err(error) => {
            warn!(%error, "io_uring cannot be used: epoll takes over");
            (Vec::new(), 0, format!("epoll: io_uring is not available ({})", plain_text(&error)))
        }
    };
    info!(engine, threads, limits.connections, "HTTP responder starts");
    let (balancer, wake_sockets) = Balancer::new(threads, &limits, Arc::clone(&service.occupancy))?;
    let balancer = Arc::new(balancer);
    let closing = Arc::downgrade(&balancer);
    service.occupancy.on_close_http(move |peer| {
        if let Some(balancer) = closing.upgrade() {
            balancer.close_idle(peer);
        }
    });
    let setup = Setup { behaviour: service.behaviour, stalls: service.stalls, started_ns: monotonic_ns(), engine };
    let mut workers = Vec::with_capacity(threads);
    for (own, (responder, wake_socket)) in Responder::group(threads, setup).into_iter().zip(wake_sockets).enumerate() {
        let context = worker_context(own, &service, responder, wake_socket, limits, &balancer, signal)?;
        let ring = rings.pop();
        let balancer = Arc::clone(&balancer);
        let worker = std::thread::Builder::new().name(format!("http-serve-{own}")).spawn(move || {
            minimize_timer_slack();
            let served = match ring {
                Some(ring) => UringWorker::new(context, ring, connections).and_then(UringWorker::run),
                None => EpollWorker::new(context).and_then(EpollWorker::run),
            };
            // A loop that fails cannot serve: its clients' connections are closed, and the other threads serve new
            // ones.
            if let Err(error) = served {
                balancer.retire(own);
                error!(thread = own, %error, "a thread of the HTTP responder has ended");
                eprintln!("leadline-agent: a thread of the HTTP responder has ended: {}", reason(&error));
            }
        })?;
        workers.push(worker);
    }
    Ok(workers)
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

/// Returns a ring for each thread and its number of connections, or the reason why there is none.
fn rings(engine: Engine, threads: usize, listeners: usize, capacity: usize) -> io::Result<(Vec<Ring>, usize)> {
    if engine != Engine::Best {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not asked for"));
    }
    let mut connections = capacity;
    loop {
        match (0..threads).map(|_| uring::ring(listeners, connections)).collect::<io::Result<Vec<_>>>() {
            Ok(rings) => return Ok((rings, connections)),
            // A ring cannot have more slots than its process may have descriptors.
            Err(error) if is_exhausted(&error) && connections / 2 >= LEAST_CONNECTIONS => connections /= 2,
            Err(error) => return Err(error),
        }
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENOMEM))
}

/// Returns an error's text without characters that JSON escapes.
fn plain_text(error: &io::Error) -> String {
    reason(error).replace(['"', '\\'], "'")
}
