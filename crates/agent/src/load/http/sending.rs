//! Sending requests: from the set of requests, or from a script; in clear, or through TLS; one by one, or several in one
//! piece. Owns when a request counts as sent, and what was counted of sends whose connection is given up.

use std::io;

use leadline_http::{expect_no_bodies, expects_no_body, Batch};
use leadline_stats::Histogram;
use socket2::Socket;

use super::exchange::Source;
use super::io_backend::{Detached, IoBackend};
use super::worker::{failure_name, Begun, Connection, Metric, Worker};

impl<B: IoBackend> Worker<B> {
    /// Sends a request, or a batch; `free_ns` says since when some connection was free for it. Until then it waited for the
    /// server, which is in its latency; only what came after that is our own lateness.
    #[inline]
    pub fn begin(&mut self, index: usize, due_ns: u64, free_ns: u64) {
        self.tally.due_while_busy += u64::from(free_ns > due_ns);
        let connection = &mut self.connections[index];
        connection.is_pushed_back = false;
        let wanted_ns = due_ns.max(free_ns);
        let Source::Fixed(picker) = &mut self.source else { return self.begin_scripted(index, due_ns, wanted_ns) };
        let number = picker.next();
        let piece = self.plan.requests.get(number);
        let range = piece.from as usize..piece.to as usize;
        (connection.request, connection.redirects_left) = (number as u32, self.plan.redirects);
        connection.redirected = None;
        let batch = Batch { bytes: range.len(), requests: 1, expects_no_body: piece.expects_no_body };
        connection.machine.begin(due_ns, wanted_ns, batch);
        self.begun.push(Begun { index, epoch: connection.epoch, due_ns, wanted_ns });
        if connection.tls.is_some() {
            let plan = std::sync::Arc::clone(&self.plan);
            self.send_sealed(index, &plan.payload[range]);
        } else {
            match self.backend.send(index, range) {
                Ok(bytes) => self.sent(index, bytes),
                Err(error) => self.not_sent(index, &error),
            }
        }
        self.note_handed_over();
    }

    fn begin_scripted(&mut self, index: usize, due_ns: u64, wanted_ns: u64) {
        let Source::Script(script) = &mut self.source else { return };
        let mut request = std::mem::take(&mut self.out);
        request.clear();
        match script.request(&mut request) {
            Ok(()) => {
                let batch = Batch {
                    bytes: request.len(),
                    requests: script.batch(),
                    expects_no_body: expects_no_body(&request),
                };
                let mixed = (batch.requests > 1).then(|| expect_no_bodies(&request));
                if let Some(None) = mixed {
                    let message = "of more than 64 requests in one piece all or none may be HEAD";
                    self.script_failed(message, batch.requests);
                } else {
                    let Connection { machine, epoch, .. } = &mut self.connections[index];
                    machine.begin(due_ns, wanted_ns, batch);
                    if let Some(Some(mask)) = mixed {
                        machine.expect_no_bodies(mask);
                    }
                    self.begun.push(Begun { index, epoch: *epoch, due_ns, wanted_ns });
                    self.send_whole(index, &request);
                    self.note_handed_over();
                }
            }
            Err(error) => {
                let requests = script.batch();
                self.script_failed(&error, requests);
            }
        }
        self.out = request;
    }

    /// Records how late requests were that have been handed to the kernel, which is when they count as sent. A backend may
    /// queue them for a while, and that is the generator's time and not the server's.
    #[inline]
    pub fn note_handed_over(&mut self) {
        if self.begun.is_empty() {
            return;
        }
        let Some(handed_over_ns) = self.backend.handed_over_ns() else { return };
        let Self { begun, connections, recorder, late, tally, .. } = self;
        for Begun { index, epoch, due_ns, wanted_ns } in begun.drain(..) {
            let sent_ns = handed_over_ns.max(wanted_ns);
            tally.first_sent_ns.get_or_insert(sent_ns);
            let place = Histogram::place(sent_ns - wanted_ns);
            recorder.record_at(Metric::Late as usize, due_ns, place);
            if let Some(all) = late {
                all.record_at(place);
            }
            let connection = &mut connections[index];
            if connection.epoch == epoch {
                connection.machine.handed_over(sent_ns);
            }
        }
    }

    /// Sends bytes that are not among the plan's.
    pub fn send_whole(&mut self, index: usize, bytes: &[u8]) {
        if self.connections[index].tls.is_some() {
            return self.send_sealed(index, bytes);
        }
        match self.backend.send_copy(index, bytes) {
            Ok(bytes) => self.sent(index, bytes),
            Err(error) => self.not_sent(index, &error),
        }
    }

    fn send_sealed(&mut self, index: usize, bytes: &[u8]) {
        let connection = &mut self.connections[index];
        let Some(tls) = &mut connection.tls else { return };
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.clear();
        tls.write_to(bytes, &mut sealed);
        let given = self.send_records(index, &sealed);
        self.sealed = sealed;
        match given {
            Ok(()) => self.sent(index, 0),
            Err(error) => self.not_sent(index, &error),
        }
    }

    /// Sends records of TLS, or what a proxy is asked: no requests by themselves.
    pub fn send_records(&mut self, index: usize, bytes: &[u8]) -> io::Result<()> {
        let taken = self.backend.send_copy(index, bytes)?;
        self.connections[index].records_left += bytes.len() - taken;
        Ok(())
    }

    /// Counts what the system took of a request. Records of TLS count once they are all gone.
    #[inline]
    pub fn sent(&mut self, index: usize, bytes: usize) {
        let connection = &mut self.connections[index];
        let mut bytes = bytes;
        // What a handshake or a proxy was sent goes before the request.
        let records = bytes.min(connection.records_left);
        connection.records_left -= records;
        bytes -= records;
        if connection.tls.is_some() {
            bytes = if connection.records_left == 0 { connection.machine.unsent_bytes() } else { 0 };
        }
        if !connection.machine.is_sending() {
            return;
        }
        let requests = connection.machine.batch_requests();
        let whole = connection.machine.sent(bytes);
        self.counters.sent(bytes as u64, if whole { u64::from(requests) } else { 0 });
        if bytes > 0 && !whole && !connection.is_pushed_back {
            connection.is_pushed_back = true;
            self.tally.pushback += 1;
        }
    }

    /// Sending failed. Where the connection has gone, the server may have answered before it hung up: that is seen, and
    /// the failure counted, when receiving ends.
    pub fn not_sent(&mut self, index: usize, error: &io::Error) {
        match failure_name(error) {
            name @ "reset" => self.connections[index].broken = Some(name),
            name => self.fail(index, name, || error.to_string()),
        }
    }

    /// Corrects what was counted as sent.
    pub fn take_back(&mut self, index: usize, bytes: usize) {
        if bytes > 0 {
            let machine = &mut self.connections[index].machine;
            machine.take_back(bytes);
            // A request that was answered all the same has been a request.
            let requests = if machine.is_answered() { 0 } else { machine.batch_requests() };
            self.counters.not_sent(bytes as u64, u64::from(requests));
        }
    }

    /// Takes a connection's socket from the backend. What has become of its last send by then is counted: bytes that were on
    /// their way are sent, those that were promised and did not go are not.
    pub fn detach(&mut self, index: usize) -> Option<Socket> {
        let Detached { socket, unsent_bytes, taken_bytes } = self.backend.detach(index)?;
        self.note_handed_over();
        if taken_bytes > 0 {
            self.sent(index, taken_bytes);
        }
        self.take_back(index, unsent_bytes);
        Some(socket)
    }
}
