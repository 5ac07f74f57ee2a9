//! Tests of the reliability layer in virtual time: its windows and times, then both ends over a link that drops,
//! repeats and reorders.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn acks(ids: &[u32]) -> Acks {
    ids.iter().copied().collect()
}

/// The ids of the packets that are due.
fn due(reliable: &mut Reliable, now_ns: u64) -> Vec<u32> {
    std::iter::from_fn(|| reliable.next_transmission(now_ns).map(|packet| packet.id)).collect()
}

#[test]
fn send_window_is_six_packets_from_the_oldest() {
    let mut reliable = Reliable::new();
    for number in 0..6 {
        assert!(reliable.send(0, Opcode::Control, &[number]));
    }
    assert!(!reliable.can_send() && !reliable.send(0, Opcode::Control, b"seventh"));
    assert_eq!(due(&mut reliable, 0), [0, 1, 2, 3, 4, 5]);
    reliable.acknowledged(1, &acks(&[1, 2, 3]));
    assert!(!reliable.can_send(), "packet 0 is still in flight");
    reliable.acknowledged(1, &acks(&[0]));
    assert!(reliable.can_send() && !reliable.all_acknowledged());
    reliable.acknowledged(1, &acks(&[4, 5]));
    assert!(reliable.all_acknowledged() && reliable.deadline().is_none());
    assert_eq!(reliable.sent.capacity(), 0);
}

#[test]
fn retransmission_timeout_doubles() {
    let mut reliable = Reliable::new();
    assert!(reliable.send(7, Opcode::HardResetClientV2, b""));
    let (mut now_ns, mut times) = (0, Vec::new());
    while times.len() < 6 {
        now_ns = reliable.deadline().expect("the packet is in flight");
        let packet = reliable.next_transmission(now_ns).expect("the packet is due");
        assert_eq!(packet, Outgoing { opcode: Opcode::HardResetClientV2, id: 0, payload: b"" });
        assert_eq!(reliable.next_transmission(now_ns), None);
        times.push(now_ns - 7);
    }
    assert_eq!(times, [0, 2, 6, 14, 30, 62].map(|second| second * SECOND));
    assert_eq!(reliable.retransmits(), 5);
    reliable.acknowledged(now_ns, &acks(&[0]));
    assert_eq!(reliable.deadline(), None);
}

#[test]
fn three_later_acknowledgements_trigger_a_fast_retransmit() {
    let mut reliable = Reliable::new();
    for _ in 0..5 {
        assert!(reliable.send(0, Opcode::Control, b"x"));
    }
    due(&mut reliable, 0);
    reliable.acknowledged(10, &acks(&[1, 2]));
    assert_eq!(due(&mut reliable, 10), [0; 0]);
    reliable.acknowledged(11, &acks(&[4]));
    assert_eq!((reliable.deadline(), due(&mut reliable, 11)), (Some(11), vec![0]));
    assert_eq!((reliable.retransmits(), reliable.deadline()), (1, Some(2 * SECOND)));
}

#[test]
fn acknowledgement_of_an_unsent_packet_is_ignored() {
    let mut reliable = Reliable::new();
    assert!(reliable.send(0, Opcode::Control, b"x"));
    due(&mut reliable, 0);
    for _ in 0..9 {
        reliable.acknowledged(1, &acks(&[1, 2, 77, u32::MAX / 2, u32::MAX]));
    }
    assert_eq!((due(&mut reliable, 1), reliable.deadline()), (vec![], Some(2 * SECOND)));
}

#[test]
fn receive_window_holds_twelve_packets_and_delivers_in_order() {
    let mut reliable = Reliable::new();
    for id in (1..12).rev() {
        assert_eq!(reliable.received(id, &[id.to_le_bytes()[0]]), Accepted::New);
        assert_eq!(reliable.received(id, b"another"), Accepted::Repeated);
    }
    assert_eq!(reliable.received(12, b""), Accepted::OutsideWindow);
    assert_eq!(reliable.received(u32::MAX, b""), Accepted::Repeated);
    assert_eq!(reliable.received(0, &[0; LONGEST_PAYLOAD + 1]), Accepted::TooLong);
    assert_eq!(reliable.next_in_order(), None);
    assert_eq!(reliable.received(0, &[0]), Accepted::New);
    let handed: Vec<_> = std::iter::from_fn(|| reliable.next_in_order()).collect();
    assert_eq!(handed, (0..12).map(|id| vec![id]).collect::<Vec<_>>());
    assert_eq!(reliable.waiting.capacity(), 0);
    assert_eq!(reliable.received(0, b""), Accepted::Repeated);
    assert_eq!(reliable.received(12, b""), Accepted::New);
}

#[test]
fn due_acknowledgements_go_first_and_recent_ones_repeat() {
    let mut reliable = Reliable::new();
    for id in 0..5 {
        let _ = reliable.received(id, b"");
    }
    assert!(reliable.acks_due());
    assert_eq!(reliable.take_acks(PIGGYBACKED_ACKS).as_slice(), [0, 1, 2, 3]);
    assert!(reliable.acks_due());
    assert_eq!(reliable.take_acks(PIGGYBACKED_ACKS).as_slice(), [4, 0, 1, 2]);
    assert!(!reliable.acks_due());
    assert_eq!(reliable.take_acks(Acks::MAX).as_slice(), [4, 0, 1, 2, 3]);
    let _ = reliable.received(2, b"");
    assert_eq!(reliable.take_acks(2).as_slice(), [2, 4]);
    assert_eq!(reliable.take_acks(0).len(), 0);
}

#[test]
fn packet_numbers_wrap_around() {
    let mut sender = Reliable { next_send: u32::MAX - 1, ..Reliable::new() };
    let mut receiver = Reliable { next_receive: u32::MAX - 1, ..Reliable::new() };
    let mut handed = Vec::new();
    for number in 0..4 {
        assert!(sender.send(0, Opcode::Control, &[number]));
        let packet = sender.next_transmission(0).expect("the packet is new");
        assert_eq!(receiver.received(packet.id, packet.payload), Accepted::New);
        handed.extend(receiver.next_in_order());
        let acks = receiver.take_acks(1);
        sender.acknowledged(0, &acks);
    }
    assert!(sender.all_acknowledged());
    assert_eq!(handed, [[0], [1], [2], [3]]);
}

/// What the link does with a packet.
#[derive(Clone, Copy, Debug)]
enum Delivery {
    Lost,
    /// Arrives after this many tens of milliseconds, each time.
    Comes {
        after: u8,
        again: Option<u8>,
    },
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        1 => Just(Delivery::Lost),
        3 => (any::<u8>(), prop::option::weighted(0.2, any::<u8>())).prop_map(|(after, again)| Delivery::Comes { after, again }),
    ]
}

/// A packet in transit.
struct InFlight {
    at_ns: u64,
    to: usize,
    acks: Acks,
    packet: Option<(u32, Vec<u8>)>,
}

/// Exchanges messages between both ends over the link. Returns what each end received, and when everything was done.
fn exchange(messages: [&[Vec<u8>]; 2], deliveries: &[Delivery]) -> ([Vec<Vec<u8>>; 2], u64) {
    let mut ends = [Reliable::new(), Reliable::new()];
    let mut queued = [0, 0];
    let mut received = [Vec::new(), Vec::new()];
    let mut in_transit: Vec<InFlight> = Vec::new();
    let (mut now_ns, mut used) = (0, 0);
    loop {
        for (from, end) in ends.iter_mut().enumerate() {
            while let Some(payload) = messages[from].get(queued[from]).filter(|_| end.can_send()) {
                assert!(end.send(now_ns, Opcode::Control, payload));
                queued[from] += 1;
            }
            loop {
                let packet = end.next_transmission(now_ns).map(|packet| (packet.id, packet.payload.to_vec()));
                if packet.is_none() && !end.acks_due() {
                    break;
                }
                let most = if packet.is_some() { PIGGYBACKED_ACKS } else { Acks::MAX };
                let acks = end.take_acks(most);
                // After the listed deliveries the link is perfect.
                let delivery = deliveries.get(used).copied().unwrap_or(Delivery::Comes { after: 1, again: None });
                used += 1;
                if let Delivery::Comes { after, again } = delivery {
                    for after in [Some(after), again].into_iter().flatten() {
                        let at_ns = now_ns + u64::from(after) * SECOND / 100;
                        in_transit.push(InFlight { at_ns, to: 1 - from, acks, packet: packet.clone() });
                    }
                }
            }
            assert!(end.sent.len() <= 6 && end.waiting.len() <= 12);
        }
        let next = in_transit.iter().map(|packet| packet.at_ns).chain(ends.iter().filter_map(Reliable::deadline)).min();
        let Some(next_ns) = next else { return (received, now_ns) };
        now_ns = now_ns.max(next_ns);
        let (arrived, still): (Vec<_>, Vec<_>) = in_transit.into_iter().partition(|packet| packet.at_ns <= now_ns);
        in_transit = still;
        for InFlight { to, acks, packet, .. } in arrived {
            ends[to].acknowledged(now_ns, &acks);
            if let Some((id, payload)) = packet {
                let _ = ends[to].received(id, &payload);
            }
            received[to].extend(std::iter::from_fn(|| ends[to].next_in_order()));
        }
    }
}

proptest! {
    #[test]
    fn reliable_layer_delivers_once_and_in_order_over_any_link(
        first in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..40),
        second in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..40),
        deliveries in prop::collection::vec(delivery(), 0..300),
    ) {
        let (received, _) = exchange([&first, &second], &deliveries);
        prop_assert_eq!(received, [second, first]);
    }

    #[test]
    fn arbitrary_packets_keep_the_reliable_layer_in_bounds(
        steps in prop::collection::vec((0u32..40, prop::collection::vec(any::<u32>(), 0..8), 0u64..5), 0..200),
    ) {
        let mut reliable = Reliable::new();
        let mut now_ns = 0;
        for (id, acknowledged, seconds) in steps {
            now_ns += seconds * SECOND;
            let _ = reliable.received(id, b"payload");
            let _ = reliable.send(now_ns, Opcode::Control, b"mine");
            let _ = reliable.next_in_order();
            reliable.acknowledged(now_ns, &acks(&acknowledged));
            prop_assert!(due(&mut reliable, now_ns).len() <= 6);
            prop_assert!(reliable.sent.len() <= 6 && reliable.waiting.len() <= 12);
            prop_assert!(reliable.deadline().is_none_or(|deadline| deadline > now_ns));
        }
    }
}

#[test]
fn third_of_packets_lost_delays_and_delivers_all() {
    let messages: Vec<_> = (0..30).map(|number| vec![number]).collect();
    let (_, without_loss) = exchange([&messages, &messages], &[]);
    // Squares modulo a prime, so that losses do not synchronise with retransmissions.
    let lossy: Vec<_> = (0..200u64)
        .map(|number| match number * number % 101 % 3 {
            0 => Delivery::Lost,
            _ => Delivery::Comes { after: 1, again: None },
        })
        .collect();
    let (received, with_loss) = exchange([&messages, &messages], &lossy);
    assert_eq!(received, [messages.clone(), messages]);
    assert!(without_loss < 2 * SECOND && with_loss >= 2 * SECOND, "{without_loss} {with_loss}");
}
