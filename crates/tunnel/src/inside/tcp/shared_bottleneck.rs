//! Tests of many streams through one gateway in virtual time: a link with a fixed rate and a short queue that drops
//! excess packets.

use std::collections::VecDeque;

use super::{Buffers, Connection, Stack};
use crate::timer::earlier;

/// The link's rate, bytes per second; the queue's size, packets; the delay of each direction, ns.
const RATE: u64 = 12_500_000;
const QUEUE: usize = 90;
const ONE_WAY_NS: u64 = 500_000;

struct SharedBottleneck {
    near: Vec<(Stack, Connection)>,
    far: Vec<(Stack, Connection)>,
    /// Packets in the queue: stream and bytes; and when the first one leaves.
    queue: VecDeque<(usize, Vec<u8>)>,
    leaves_ns: u64,
    /// Packets in transit: arrival time, stream, and whether they go up.
    in_transit: VecDeque<(u64, usize, bool, Vec<u8>)>,
    dropped: u64,
}

/// Returns the bytes that arrive within the time, the retransmitted segments, and the dropped packets.
fn goodput(streams: usize, buffer: usize, length_ns: u64) -> (u64, u64, u64) {
    let up = Buffers { receive_bytes: 2048, send_bytes: buffer };
    let down = Buffers { receive_bytes: 1 << 20, send_bytes: 2048 };
    let mut shared_bottleneck = SharedBottleneck {
        near: Vec::new(),
        far: Vec::new(),
        queue: VecDeque::new(),
        leaves_ns: 0,
        in_transit: VecDeque::new(),
        dropped: 0,
    };
    for index in 0..streams {
        let own = [10, 8, 1 + (index >> 8) as u8, index as u8].into();
        let mut near = Stack::new(Some(own), None, 1500, index as u64, 0);
        let mut far = Stack::new(Some([192, 168, 7, 1].into()), None, 1500, 77 + index as u64, 0);
        let waiting = far.listen(0, "192.168.7.1:5201".parse().unwrap(), down);
        let connection = near.connect(0, "192.168.7.1:5201".parse().unwrap(), up).unwrap();
        shared_bottleneck.near.push((near, connection));
        shared_bottleneck.far.push((far, waiting));
    }
    let (mut now_ns, mut arrived) = (0u64, 0u64);
    while now_ns < length_ns {
        let mut next_ns = None;
        for index in 0..streams {
            let (stack, connection) = &mut shared_bottleneck.near[index];
            stack.fill(now_ns, *connection);
            let (queue, dropped, leaves_ns) =
                (&mut shared_bottleneck.queue, &mut shared_bottleneck.dropped, &mut shared_bottleneck.leaves_ns);
            stack.poll(now_ns, &mut |packet| {
                if queue.len() >= QUEUE {
                    *dropped += 1;
                } else {
                    if queue.is_empty() {
                        *leaves_ns = (*leaves_ns).max(now_ns) + packet.len() as u64 * 1_000_000_000 / RATE;
                    }
                    queue.push_back((index, packet.to_vec()));
                }
                true
            });
            next_ns = earlier(next_ns, stack.deadline_ns(now_ns));
            let (stack, connection) = &mut shared_bottleneck.far[index];
            arrived += stack.read(*connection, <[u8]>::len) as u64;
            let in_transit = &mut shared_bottleneck.in_transit;
            stack.poll(now_ns, &mut |packet| {
                in_transit.push_back((now_ns + ONE_WAY_NS, index, false, packet.to_vec()));
                true
            });
            next_ns = earlier(next_ns, stack.deadline_ns(now_ns));
        }
        next_ns = earlier(next_ns, shared_bottleneck.in_transit.front().map(|packet| packet.0));
        if !shared_bottleneck.queue.is_empty() {
            next_ns = earlier(next_ns, Some(shared_bottleneck.leaves_ns));
        }
        now_ns = now_ns.max(next_ns.expect("a timer, or a packet in transit"));
        while shared_bottleneck.leaves_ns <= now_ns && !shared_bottleneck.queue.is_empty() {
            let (index, packet) = shared_bottleneck.queue.pop_front().unwrap();
            shared_bottleneck.in_transit.push_back((shared_bottleneck.leaves_ns + ONE_WAY_NS, index, true, packet));
            if let Some((_, next)) = shared_bottleneck.queue.front() {
                shared_bottleneck.leaves_ns += next.len() as u64 * 1_000_000_000 / RATE;
            }
        }
        shared_bottleneck.in_transit.make_contiguous().sort_by_key(|packet| packet.0);
        while shared_bottleneck.in_transit.front().is_some_and(|packet| packet.0 <= now_ns) {
            let (_, index, is_up, packet) = shared_bottleneck.in_transit.pop_front().unwrap();
            let (stack, _) = if is_up { &mut shared_bottleneck.far[index] } else { &mut shared_bottleneck.near[index] };
            stack.handle(now_ns, &packet);
        }
    }
    let again = shared_bottleneck.near.iter().map(|(stack, connection)| stack.retransmits(*connection)).sum();
    (arrived, again, shared_bottleneck.dropped)
}

#[test]
fn many_streams_share_a_gateway_at_full_goodput() {
    for (streams, least) in [(1, 0.75), (8, 0.5)] {
        let (arrived, again, dropped) = goodput(streams, 256 << 10, 2_000_000_000);
        let share = arrived as f64 / (2 * RATE) as f64;
        let packets = arrived / 1400;
        assert!(share > least, "{streams}: {share:.2} of the rate");
        // smoltcp's own congestion control drops four packets for each delivered one here.
        assert!(
            dropped * 5 < packets && again < packets,
            "{streams}: {dropped} dropped, {again} sent again of {packets}"
        );
    }
}
