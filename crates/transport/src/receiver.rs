//! The receiver of a paced flow: counts loss, duplicates, reordering, jitter and one-way delay separately.

use leadline_stats::{Arrival, Jitter, Lengths, SequenceTracker};
use leadline_wire::{DatagramReport, DelayReport, LengthsReport};

use crate::datagram::{parse_short, DatagramFormat, Header, HeaderKind};
use crate::iperf3::DatagramHeader;
use crate::sizes::DatagramSizes;

/// The receiver's accounting of one UDP flow.
#[derive(Clone, Debug)]
pub struct DatagramReceiver {
    format: DatagramFormat,
    flow: u32,
    sizes: DatagramSizes,
    /// One more than the highest number so far.
    next: u64,
    tracker: SequenceTracker,
    jitter: Jitter,
    delay: Delay,
    /// Datagrams that arrived together with others, at one time.
    coalesced: u64,
    bytes: u64,
    strays: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
}

/// The times from sending to arrival, by the clocks of both ends, which need not agree.
#[derive(Clone, Debug, Default)]
struct Delay {
    count: u64,
    sum_ns: i128,
    /// The shortest and the longest, ns.
    range_ns: Option<(i128, i128)>,
}

impl Delay {
    #[inline]
    fn record(&mut self, sent_ns: u64, arrived_ns: u64) {
        let delay_ns = i128::from(arrived_ns) - i128::from(sent_ns);
        self.count += 1;
        self.sum_ns += delay_ns;
        let (shortest, longest) = self.range_ns.unwrap_or((delay_ns, delay_ns));
        self.range_ns = Some((shortest.min(delay_ns), longest.max(delay_ns)));
    }

    fn report(&self) -> Option<DelayReport> {
        let us = |ns: i128| ns as f64 / 1000.0;
        let (shortest, longest) = self.range_ns?;
        let mean_us = us(self.sum_ns) / self.count as f64;
        Some(DelayReport { min_us: us(shortest), mean_us, max_us: us(longest), bound_us: None })
    }
}

impl DatagramReceiver {
    /// Creates a receiver for one flow with datagrams of this format and length; any other packet counts as a stray.
    pub fn new(format: DatagramFormat, flow: u32, datagram_bytes: usize) -> Self {
        Self::with_sizes(format, flow, DatagramSizes::fixed(u32::try_from(datagram_bytes).unwrap_or(u32::MAX)))
    }

    /// Like `new`, for datagrams of these lengths.
    pub fn with_sizes(format: DatagramFormat, flow: u32, sizes: DatagramSizes) -> Self {
        Self {
            format,
            flow,
            sizes,
            next: 0,
            tracker: SequenceTracker::default(),
            jitter: Jitter::default(),
            delay: Delay::default(),
            coalesced: 0,
            bytes: 0,
            strays: 0,
            first_ns: None,
            last_ns: None,
        }
    }

    /// Sets the number of sequence numbers, instead of 2^18, that are remembered in one bit each to distinguish
    /// duplicates from late datagrams.
    #[must_use]
    pub fn remembering(self, numbers: u64) -> Self {
        Self { tracker: SequenceTracker::with_window(numbers), ..self }
    }

    /// Handles one datagram; returns whether it was a new one of this flow. Packets that introduce the flow change
    /// nothing.
    #[inline]
    pub fn handle(&mut self, now_ns: u64, datagram: &[u8]) -> bool {
        let (sequence, sent_ns) = match self.format {
            DatagramFormat::Session(token) => match Header::parse(datagram) {
                Ok(Header { kind: HeaderKind::Data, token: theirs, flow, sequence, sent_ns })
                    if theirs == token && flow == self.flow =>
                {
                    (sequence, sent_ns)
                }
                Ok(header) if self.is_introduction(token, header) => return false,
                _ => return self.stray(),
            },
            DatagramFormat::Short(token) => match parse_short(token, datagram, self.next) {
                Some(parts) => parts,
                None if Header::parse(datagram).is_ok_and(|header| self.is_introduction(token, header)) => {
                    return false
                }
                None => return self.stray(),
            },
            DatagramFormat::Iperf3 { wide } => match DatagramHeader::parse(wide, datagram, self.next.saturating_add(1))
            {
                Some(DatagramHeader { sent_ns, number }) if number > 0 => (number - 1, sent_ns),
                _ => return self.stray(),
            },
        };
        // A datagram of another length does not come from the sender, even with a valid header.
        if datagram.len() != self.sizes.of(sequence) {
            return self.stray();
        }
        self.next = self.next.max(sequence.saturating_add(1));
        self.first_ns.get_or_insert(now_ns);
        self.last_ns = Some(now_ns);
        if matches!(self.tracker.record(sequence), Arrival::Duplicate | Arrival::Stale) {
            return false;
        }
        self.jitter.record(sent_ns, now_ns);
        self.delay.record(sent_ns, now_ns);
        self.bytes += datagram.len() as u64;
        true
    }

    /// Payload bytes of distinct datagrams.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts of loss, duplicates and reordering.
    pub fn tracker(&self) -> &SequenceTracker {
        &self.tracker
    }

    /// Mean interarrival jitter, µs.
    pub fn jitter_us(&self) -> Option<f64> {
        self.jitter.mean_us()
    }

    /// Records that this many datagrams arrived as one, so that they have one time of arrival.
    pub fn coalesced(&mut self, datagrams: u64) {
        self.coalesced += datagrams;
    }

    /// Returns further figures; `sent` is the sender's count, if it is known. Without it, the gaps before the last
    /// arrival are all that is known of loss.
    pub fn report(&self, sent: Option<u64>) -> DatagramReport {
        let bursts = self.tracker.loss_bursts(sent.unwrap_or(self.next));
        DatagramReport {
            segmented: None,
            coalesced: Some(self.coalesced),
            is_cut_off: None,
            loss_bursts: Some(lengths_report(&bursts)),
            reorder_extents: Some(lengths_report(self.tracker.reorder_extents())),
            unknown_extents: Some(self.tracker.unknown_extents()),
            one_way_delay: self.delay.report(),
        }
    }

    /// Packets that did not belong to this flow.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Arrival times of the first and the last datagram, ns.
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        self.first_ns.zip(self.last_ns)
    }

    fn is_introduction(&self, token: u64, header: Header) -> bool {
        let introduces = matches!(header.kind, HeaderKind::Hello | HeaderKind::HelloAck);
        introduces && header.token == token && header.flow == self.flow
    }

    fn stray(&mut self) -> bool {
        self.strays += 1;
        false
    }
}

fn lengths_report(lengths: &Lengths) -> LengthsReport {
    LengthsReport {
        count: lengths.count(),
        sum: lengths.sum(),
        longest: lengths.longest(),
        by_doubling: lengths.by_doubling().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::HEADER_BYTES;

    fn datagram(token: u64, sequence: u64, sent_ns: u64) -> [u8; HEADER_BYTES + 10] {
        let mut bytes = [0; HEADER_BYTES + 10];
        Header { kind: HeaderKind::Data, token, flow: 3, sequence, sent_ns }.write(&mut bytes);
        bytes
    }

    #[test]
    fn loss_of_every_hundredth_datagram_is_counted_exactly() {
        let mut receiver = DatagramReceiver::new(DatagramFormat::Session(9), 3, HEADER_BYTES + 10);
        for sequence in (0..10_000).filter(|sequence| sequence % 100 != 99) {
            receiver.handle(sequence * 1000 + 77, &datagram(9, sequence, sequence * 1000));
        }
        assert_eq!(receiver.tracker().lost(10_000), 100);
        assert_eq!(receiver.bytes(), 9_900 * 50);
        assert_eq!(receiver.jitter_us(), Some(0.0));
    }

    fn formats() -> [DatagramFormat; 4] {
        let iperf3 = |wide| DatagramFormat::Iperf3 { wide };
        [DatagramFormat::Session(9), DatagramFormat::Short(9), iperf3(true), iperf3(false)]
    }

    #[test]
    fn highest_number_of_each_format_is_followed_by_others() {
        for format in formats() {
            let mut receiver = DatagramReceiver::new(format, 3, HEADER_BYTES + 10);
            for sequence in [0, u64::MAX - 1, u64::MAX - 1, 1, u64::MAX - 2] {
                let mut bytes = [0; HEADER_BYTES + 10];
                format.write(3, sequence, 0, &mut bytes);
                receiver.handle(1, &bytes);
            }
            assert_eq!(receiver.strays(), 0, "{format:?}");
            assert_eq!(receiver.tracker().duplicates(), 1, "{format:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_numbers_and_times_never_panic(
            packets in proptest::collection::vec(proptest::arbitrary::any::<(u64, u64, u64)>(), 0..60),
            garbage in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..80),
        ) {
            for format in formats() {
                let mut receiver = DatagramReceiver::new(format, 3, HEADER_BYTES + 10);
                for (now_ns, sequence, sent_ns) in &packets {
                    let mut bytes = [0; HEADER_BYTES + 10];
                    format.write(3, sequence.min(&(u64::MAX - 1)).to_owned(), *sent_ns, &mut bytes);
                    receiver.handle(*now_ns, &bytes);
                }
                let was_new = receiver.handle(0, &garbage);
                let is_read = !matches!(format, DatagramFormat::Session(_)) && garbage.len() == HEADER_BYTES + 10;
                proptest::prop_assert!(is_read || !was_new, "{:?}", format);
                receiver.report(Some(0));
            }
        }
    }

    #[test]
    fn packets_of_other_flows_are_not_counted() {
        let mut receiver = DatagramReceiver::new(DatagramFormat::Session(9), 3, HEADER_BYTES + 10);
        assert!(!receiver.handle(1, &datagram(8, 0, 0)));
        assert!(!receiver.handle(1, b"hello"));
        assert!(!receiver.handle(1, &datagram(9, 0, 0)[..HEADER_BYTES]));
        assert_eq!((receiver.strays(), receiver.bytes(), receiver.span_ns()), (3, 0, None));
    }

    #[test]
    fn repeated_hello_is_not_a_stray() {
        let mut receiver = DatagramReceiver::new(DatagramFormat::Session(9), 3, HEADER_BYTES + 10);
        let mut hello = [0; HEADER_BYTES];
        Header { kind: HeaderKind::Hello, token: 9, flow: 3, sequence: 0, sent_ns: 0 }.write(&mut hello);
        assert!(!receiver.handle(1, &hello));
        assert_eq!((receiver.strays(), receiver.span_ns()), (0, None));
    }

    #[test]
    fn stale_datagram_does_not_hide_loss() {
        let mut receiver = DatagramReceiver::new(DatagramFormat::Session(9), 3, HEADER_BYTES + 10);
        for sequence in [0, 1 << 20, 0] {
            receiver.handle(1, &datagram(9, sequence, 0));
        }
        assert_eq!((receiver.tracker().stale(), receiver.tracker().received()), (1, 2));
        assert_eq!(receiver.bytes(), 100);
    }

    #[test]
    fn short_headers_are_counted_across_the_wrap_of_their_numbers() {
        const WRAP: u64 = 1 << 32;
        let sizes = DatagramSizes::new(
            30,
            &[leadline_wire::SizeShare { bytes: 16, count: 1 }, leadline_wire::SizeShare { bytes: 30, count: 1 }],
        )
        .unwrap();
        let mut receiver = DatagramReceiver::with_sizes(DatagramFormat::Short(9), 0, sizes.clone());
        let mut handle = |number: u64, token: u64| {
            let mut bytes = vec![0; sizes.of(number)];
            DatagramFormat::Short(token).write(0, number, 5000, &mut bytes);
            receiver.handle(9000, &bytes)
        };
        let mut number = 0;
        while number < WRAP - 2 {
            assert!(handle(number, 9), "{number}");
            number = (number + (1 << 30)).min(WRAP - 2);
        }
        assert!([WRAP - 2, WRAP - 1, WRAP + 1, WRAP].into_iter().all(|number| handle(number, 9)));
        assert!(!handle(WRAP - 1, 9) && !handle(WRAP + 2, 8));
        let report = receiver.report(Some(WRAP + 4));
        let (bursts, extents) = (report.loss_bursts.unwrap(), report.reorder_extents.unwrap());
        assert_eq!((receiver.tracker().duplicates(), receiver.tracker().reordered(), receiver.strays()), (1, 1, 1));
        assert_eq!((bursts.count, bursts.sum), (5, receiver.tracker().lost(WRAP + 4)));
        assert_eq!((extents.sum, extents.longest), (1, 1));
        let delay = report.one_way_delay.unwrap();
        assert_eq!((delay.min_us, delay.mean_us, delay.max_us), (4.0, 4.0, 4.0));
    }

    #[test]
    fn datagrams_of_iperf3_are_counted_across_the_wrap_of_their_numbers() {
        let mut receiver = DatagramReceiver::new(DatagramFormat::Iperf3 { wide: false }, 0, 20);
        let mut handle = |number: u64| {
            let mut bytes = [0; 20];
            DatagramHeader { sent_ns: 5000, number }.write(false, &mut bytes);
            receiver.handle(9000, &bytes)
        };
        assert!(handle(1) && handle(2) && !handle(2) && handle(4));
        // The numbers of a long flow, whose gaps are real: a number is completed from the last one.
        let wrap = 1u64 << 32;
        let mut number = 4;
        while number < wrap + 10 {
            number = (number + (1 << 30)).min(wrap + 10);
            assert!(handle(number), "{number}");
        }
        assert!(handle(wrap + 11) && !handle(wrap + 11));
        assert_eq!(receiver.tracker().lost(wrap + 11), wrap + 11 - receiver.tracker().received());
        assert!(!receiver.handle(0, &[0; 19]) && receiver.strays() == 1);
    }
}
