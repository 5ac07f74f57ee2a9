//! One TCP connection: its two directions, put in order, and the exchanges that they carry.

use leadline_packet::capture::Segment;

use super::counts::Out;
use super::exchange::{starts_like_request, Exchange, Kind};
use super::parts::Part;
use super::stream::{Piece, Placed, Stream};
use crate::recorded::Cause;

/// What a connection costs beside the bytes that it holds: itself and its places in tables.
const CONNECTION_BYTES: usize = std::mem::size_of::<Connection>() + 1024;

/// A connection whose bytes are read.
#[derive(Debug)]
pub(super) struct Connection {
    streams: [Stream; 2],
    exchange: Exchange,
    /// Who sent the SYN, if that was seen.
    opener: Option<usize>,
}

impl Connection {
    /// Creates one that is about to take its first segment, which came from direction `from`.
    pub(super) fn new(exchange: Exchange, from: usize, segment: &Segment<'_>) -> Self {
        let is_opening = segment.is_syn() && segment.acknowledged.is_none();
        Self { streams: Default::default(), exchange, opener: is_opening.then_some(from) }
    }

    /// Memory that it holds, bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let waiting: usize = self.streams.iter().map(Stream::held_bytes).sum();
        CONNECTION_BYTES + waiting + self.exchange.held_bytes()
    }

    /// Whether both sides have ended it, and all of it was read.
    pub(super) fn has_ended(&self) -> bool {
        self.streams.iter().all(Stream::is_ended)
    }

    /// Whether nothing more of it is read.
    pub(super) fn is_over(&self) -> bool {
        self.exchange.kind == Kind::Ignored || self.has_ended()
    }

    /// Whether this segment is the beginning of another connection between the same ends.
    pub(super) fn is_superseded(&self, from: usize, segment: &Segment<'_>) -> bool {
        segment.is_syn()
            && segment.acknowledged.is_none()
            && self.opener.is_none_or(|opener| opener == from)
            && !self.streams[from].has_begun_with(segment.sequence)
    }

    /// Takes a segment from direction `from`.
    pub(super) fn take(&mut self, from: usize, segment: &Segment<'_>, at_ns: u64, out: &mut Out) {
        let first = segment.sequence.wrapping_add(u32::from(segment.is_syn()));
        if segment.is_syn() && !self.streams[from].is_started() {
            self.streams[from].start(first);
            // Its SYN was not seen, but this says where that began.
            if let (false, Some(number)) = (self.streams[1 - from].is_started(), segment.acknowledged) {
                self.streams[1 - from].start(number);
            }
        }
        if let Some(acknowledged) = segment.acknowledged {
            self.streams[1 - from].acknowledge(acknowledged);
        }
        if !segment.payload.is_empty() {
            self.take_payload(from, first, segment, at_ns, out);
        }
        if segment.is_fin() {
            let bytes = segment.payload.len() as u32 + segment.missing_bytes;
            self.streams[from].set_end(first.wrapping_add(bytes));
        }
        // Nothing waits for ever: not for the answer to a request for another protocol either.
        let is_full = self.streams.iter().any(Stream::is_full);
        self.pass_on(is_full, out);
        self.streams.iter_mut().for_each(Stream::count_frame);
        self.lose_holes(false, out);
    }

    /// Gives requests without waiting any longer for answers that have not come.
    pub(super) fn give_up_waiting(&mut self, until_ns: u64, out: &mut Out) {
        self.exchange.answers.give_up_waiting(until_ns, out);
    }

    /// Ends it. `cause` is that of a request whose end is not there.
    pub(super) fn close(&mut self, cause: Cause, out: &mut Out) {
        self.pass_on(true, out);
        self.lose_holes(true, out);
        self.exchange.close(cause, out);
    }

    fn take_payload(&mut self, from: usize, first: u32, segment: &Segment<'_>, at_ns: u64, out: &mut Out) {
        self.synchronise(from, first, segment, out);
        let acknowledged = segment.acknowledged.and_then(|number| self.streams[1 - from].position(number));
        let piece = Piece { bytes: Vec::new(), at_ns, acknowledged };
        let Placed::Next(known) = self.streams[from].place(first, segment.payload, &piece, &mut out.counts) else {
            return;
        };
        let bytes = &segment.payload[known..];
        if self.may_pass(from, acknowledged) {
            self.pass(from, bytes, &piece, out);
        } else {
            let offset = self.streams[from].offset();
            self.streams[from].keep(offset, bytes, &piece, &mut out.counts);
        }
    }

    /// Passes on bytes that are in order, and keeps those that have to wait after all.
    fn pass(&mut self, from: usize, bytes: &[u8], piece: &Piece, out: &mut Out) {
        let at_ns = self.streams[from].arrive(piece.at_ns);
        let part = Part { bytes, at_ns, offset: self.streams[from].offset(), acknowledged: piece.acknowledged };
        let used = self.exchange.data(from, part, out);
        let stream = &mut self.streams[from];
        stream.pass(&bytes[..used]);
        if used < bytes.len() {
            stream.keep(stream.offset(), &bytes[used..], piece, &mut out.counts);
        }
    }

    /// Finds the place of a direction whose beginning was not seen, or that went on without being captured.
    fn synchronise(&mut self, from: usize, first: u32, segment: &Segment<'_>, out: &mut Out) {
        let stream = &mut self.streams[from];
        let is_request = starts_like_request(segment.payload);
        let is_earlier = stream.position(first).is_some_and(|position| position < stream.offset());
        if stream.has_left(first) {
            out.counts.gaps += 1;
            stream.restart(first);
            self.exchange.lose(from, None, out);
        } else if !stream.is_started()
            || (self.opener.is_none() && self.exchange.is_fresh() && is_request && is_earlier)
        {
            stream.restart(first);
        }
        // Amid a connection, the answer begins where the request says that it waits.
        if let (true, false, Some(number)) = (is_request, self.streams[1 - from].is_started(), segment.acknowledged) {
            self.streams[1 - from].start(number);
        }
    }

    fn may_pass(&self, from: usize, acknowledged: Option<i64>) -> bool {
        let has_peer = || acknowledged.is_none_or(|position| position <= self.streams[1 - from].offset());
        self.exchange.may_pass(from) && (!self.exchange.follows_peer(from) || has_peer())
    }

    /// Passes on what is in order, in both directions, until nothing moves.
    fn pass_on(&mut self, is_forced: bool, out: &mut Out) {
        let mut has_moved = true;
        while has_moved {
            has_moved = false;
            for from in [0, 1] {
                while let Some(piece) = self.take_next(from, is_forced) {
                    has_moved = true;
                    self.pass(from, &piece.bytes, &piece, out);
                }
                if self.streams[from].take_end() {
                    has_moved = true;
                    self.exchange.end(from, out);
                }
            }
        }
    }

    fn take_next(&mut self, from: usize, is_forced: bool) -> Option<Piece> {
        let peer = self.streams[1 - from].offset();
        let (may_pass, follows) = (self.exchange.may_pass(from), self.exchange.follows_peer(from));
        self.streams[from].take_next(|piece| {
            is_forced || (may_pass && (!follows || piece.acknowledged.is_none_or(|position| position <= peer)))
        })
    }

    /// Passes over holes that nothing fills any more.
    fn lose_holes(&mut self, is_over: bool, out: &mut Out) {
        loop {
            // Requests first: what an answer belongs to depends on them.
            let client = if self.exchange.kind == (Kind::Http { client: 1 }) { 1 } else { 0 };
            let loss =
                [client, 1 - client].into_iter().find_map(|from| Some((from, self.streams[from].find_loss(is_over)?)));
            let Some((from, bytes)) = loss else { return };
            out.counts.gaps += 1;
            out.counts.lost_bytes += bytes;
            self.streams[from].lose(bytes);
            self.exchange.lose(from, Some(bytes), out);
            self.pass_on(is_over, out);
        }
    }
}
