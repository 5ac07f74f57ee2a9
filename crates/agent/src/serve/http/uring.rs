//! The responder's loop over io_uring: every connection receives continuously into shared buffers, and responses
//! leave in batches with the next wait. Stops receiving from a peer with too much unsent output.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};

use leadline_http::BLOCKS;
use leadline_sys::ring::{Completion, Options, Ring};

use super::balancer::{AcceptedConnection, Handed, Placement};
use super::worker::{Worker, WorkerContext};

/// The receive buffers of all connections, and a buffer's size.
const BUFFERS: u16 = 256;
const BUFFER_BYTES: u32 = 8192;
/// The maximum number of responses per submission, so that the first does not wait for many others.
const BATCH: u32 = 64;
/// A longer piece of a body is sent without a copy.
const COPIED_BYTES: usize = 4096;

/// The ring's slots: the wake socket, then the listeners, then connections.
const WAKE: usize = 0;

/// How much of a connection's output was passed to the ring.
#[derive(Default)]
pub struct Flow {
    /// Bytes of the output that the ring holds and that the socket has not accepted, as far as is known.
    given: usize,
    is_paused: bool,
    has_ended: bool,
}

/// The loop of one thread.
pub struct UringWorker {
    worker: Worker<Flow>,
    ring: Ring,
    first: usize,
}

/// Returns a ring for `connections` at once, in addition to the wake socket and the listeners.
pub fn ring(listeners: usize, connections: usize) -> io::Result<Ring> {
    let slots = u32::try_from(1 + listeners + connections).unwrap_or(u32::MAX);
    let options = Options { slots, buffers: BUFFERS, buffer_bytes: BUFFER_BYTES, batch: BATCH, awake_ns: 0 };
    Ring::new(&options, BLOCKS.into())
}

impl UringWorker {
    /// Takes a ring that was made for this many listeners and connections; must run on the thread that will use it.
    pub fn new(context: WorkerContext, mut ring: Ring, connections: usize) -> io::Result<Self> {
        ring.enable()?;
        ring.attach(WAKE, &context.wake_socket, false)?;
        for (slot, listener) in (WAKE + 1..).zip(&context.listeners) {
            ring.accept(slot, &listener.socket)?;
        }
        let first = WAKE + 1 + context.listeners.len();
        Ok(Self { worker: Worker::new(context, connections), ring, first })
    }

    /// Serves until the signal stops it, or the ring fails.
    pub fn run(mut self) -> io::Result<()> {
        while !self.worker.context.signal.stopped() {
            if let Err(error) = self.run_once() {
                self.worker.close_all();
                return Err(error);
            }
        }
        Ok(())
    }

    fn run_once(&mut self) -> io::Result<()> {
        // The wait submits queued sends, and therefore must not happen during a stall.
        let now_ns = self.worker.now_after_stall();
        if self.worker.take_accept_resumed(now_ns) {
            // Listeners whose accept has not ended continue as they are.
            for (slot, listener) in (WAKE + 1..).zip(&self.worker.context.listeners) {
                self.ring.accept(slot, &listener.socket)?;
            }
        }
        for index in self.worker.table.overdue(now_ns) {
            self.worker.context.responder.expired();
            self.close(index)?;
        }
        self.ring.wait(self.worker.wait_until_ns(now_ns))?;
        let mut now_ns = self.worker.now_after_stall();
        self.fire_timers(now_ns)?;
        while let Some((slot, _, completion)) = self.ring.completion()? {
            if self.worker.is_timed() {
                now_ns = self.worker.now_after_stall();
                self.fire_timers(now_ns)?;
            }
            match slot.checked_sub(self.first) {
                Some(index) => self.serve(index, now_ns, completion)?,
                None if slot == WAKE => self.take_handed_over(now_ns)?,
                None => self.on_accept(slot, now_ns, completion)?,
            }
        }
        Ok(())
    }

    /// Sends the responses that are due.
    fn fire_timers(&mut self, now_ns: u64) -> io::Result<()> {
        while let Some(index) = self.worker.table.pop_due(now_ns) {
            if let Some(connection) = self.worker.table.find(index) {
                connection.peer.wake(&mut self.worker.context.responder, now_ns);
                self.pump(index, now_ns)?;
            }
        }
        Ok(())
    }

    fn on_accept(&mut self, slot: usize, now_ns: u64, completion: Completion) -> io::Result<()> {
        let Worker { context, .. } = &self.worker;
        let listener = &context.listeners[slot - WAKE - 1];
        match completion {
            Completion::Accepted(socket) => {
                context.responder.accepted();
                let accepted = AcceptedConnection::new(TcpStream::from(socket), listener.over_tls);
                match context.balancer.place(context.own, accepted) {
                    Placement::Own(accepted) => self.add_connection(accepted, now_ns),
                    Placement::Handed => Ok(()),
                    Placement::Refused => {
                        context.responder.refused();
                        Ok(())
                    }
                }
            }
            Completion::Ended(Err(error)) => match error.kind() {
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted | ErrorKind::WouldBlock => {
                    self.ring.accept(slot, &listener.socket)
                }
                _ => {
                    self.worker.pause_accepting();
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }

    /// Takes connections from other threads, and closes some for others.
    fn take_handed_over(&mut self, now_ns: u64) -> io::Result<()> {
        for handed in self.worker.context.balancer.take_handed_over(self.worker.context.own) {
            match handed {
                Handed::Connection(accepted) => self.add_connection(accepted, now_ns)?,
                Handed::CloseIdle(peer, asked) => {
                    for index in self.worker.choose_idle(peer, asked) {
                        self.worker.context.responder.displaced();
                        self.close(index)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add_connection(&mut self, accepted: AcceptedConnection, now_ns: u64) -> io::Result<()> {
        let Some(index) = self.worker.admit(accepted, Flow::default(), now_ns) else { return Ok(()) };
        let Some(connection) = self.worker.table.find(index) else { return Ok(()) };
        match self.ring.attach(self.first + index, &connection.socket, false) {
            // If this fails, the host has no room for the connection.
            Err(_) => self.close(index),
            Ok(()) => Ok(()),
        }
    }

    fn close(&mut self, index: usize) -> io::Result<()> {
        self.ring.detach(self.first + index)?;
        self.worker.close(index);
        Ok(())
    }

    #[inline]
    fn serve(&mut self, index: usize, now_ns: u64, completion: Completion) -> io::Result<()> {
        let Some(connection) = self.worker.table.find(index) else { return Ok(()) };
        connection.seen_ns = now_ns;
        let responder = &mut self.worker.context.responder;
        match completion {
            Completion::Received if connection.linger_bytes.is_some() => {
                if !connection.linger(self.ring.received().len()) {
                    return self.close(index);
                }
            }
            Completion::Received => connection.peer.receive(responder, now_ns, self.ring.received()),
            Completion::Sent(bytes) => {
                connection.engine.given = connection.engine.given.saturating_sub(bytes);
                connection.peer.sent(responder, now_ns, bytes);
            }
            Completion::Ended(Ok(())) => {
                connection.engine.has_ended = true;
                connection.peer.end_of_input(responder);
            }
            Completion::Ended(Err(_)) | Completion::NotSent(..) => return self.close(index),
            Completion::Writable | Completion::Accepted(_) => {}
        }
        if !self.worker.is_within_memory(index) {
            return self.close(index);
        }
        self.pump(index, now_ns)
    }

    /// Passes pending output to the ring, and updates what a connection waits for.
    #[inline]
    fn pump(&mut self, index: usize, now_ns: u64) -> io::Result<()> {
        let slot = self.first + index;
        let Some(connection) = self.worker.table.find(index) else { return Ok(()) };
        let flow = &mut connection.engine;
        let (out, stream) = connection.peer.output();
        if out.len() > flow.given {
            let allowed = connection.pacing.allow(now_ns, out.len() - flow.given);
            if allowed > 0 {
                self.ring.send_copy(slot, &out[flow.given..flow.given + allowed])?;
                flow.given += allowed;
                connection.pacing.spend(allowed);
            }
        } else if flow.given == 0 && stream.left() > 0 {
            let mut place = stream.place();
            let allowed = connection.pacing.allow(now_ns, place.len());
            place.end = place.start + allowed;
            flow.given = allowed;
            connection.pacing.spend(allowed);
            if allowed > COPIED_BYTES {
                self.ring.send(slot, place)?;
            } else if allowed > 0 {
                self.ring.send_copy(slot, &BLOCKS[place])?;
            }
        } else {
            // What was not allowed before has been sent, or is under way.
            connection.pacing.allow(now_ns, 0);
        }
        if connection.peer.is_finished() {
            if flow.has_ended {
                return self.close(index);
            }
            if connection.linger_bytes.is_none() {
                connection.begin_linger();
                if connection.socket.shutdown(Shutdown::Write).is_err() {
                    return self.close(index);
                }
            }
        }
        let is_full = connection.peer.is_full();
        if connection.engine.is_paused != is_full {
            connection.engine.is_paused = is_full;
            if is_full {
                self.ring.pause(slot)?;
            } else {
                self.ring.resume(slot)?;
            }
        }
        self.worker.table.set_timer(index);
        Ok(())
    }
}
