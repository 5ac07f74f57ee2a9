//! Streams against a peer in the same process.

use super::*;
use leadline_testkit::until;
use std::io::Write;
use std::net::TcpListener;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn sending(socket: TcpStream) -> StreamFlow {
    StreamFlow::new(0, socket, Role::Send, Arc::default())
}

fn one_sender(socket: TcpStream, paced: Option<PacedBlocks>, length_ns: u64) -> (Span, WorkerReport) {
    let work = StreamWork::plain(1 << 16, paced, 1_000_000_000);
    let at_ns = monotonic_ns();
    let span = Span { at_ns, end_ns: at_ns + length_ns };
    (span, drive(vec![sending(socket)], work, span, &ControlSignal::default(), "tcp-send").unwrap())
}

#[test]
fn a_stall_that_lasts_to_the_end_belongs_to_the_flow() {
    // The receiver never reads: the sender blocks as soon as the buffers are full.
    for paced in [None, PacedBlocks::new(80_000_000_000, 1 << 16)] {
        until("the flow fills the buffers within its time", || {
            let (near, _far) = pair();
            let (span, report) = one_sender(near, paced, 1_000_000_000);
            // A block that is due before the end and leaves after a pause ends the flow later.
            (report.flows[0].sent_bytes > 0 && report.flows[0].end_ns <= Some(span.end_ns))
                .then(|| assert_eq!(report.flows[0].end_ns, Some(span.end_ns)))
        });
    }
}

#[test]
fn a_flow_that_fails_ends_there() {
    let (near, far) = pair();
    drop(far);
    let (span, report) = one_sender(near, None, 30_000_000_000);
    assert!(report.flows[0].end_ns.unwrap() < span.end_ns);
    assert_eq!(report.errors.values().sum::<u64>(), 1, "{:?}", report.errors);
}

#[test]
fn a_low_rate_is_sent_in_small_blocks() {
    let blocks = PacedBlocks::new(1_000_000, 1 << 17).unwrap();
    assert_eq!((blocks.block_bytes, blocks.pace.due_ns(100)), (1250, 1_000_000_000));
    assert_eq!(PacedBlocks::new(1 << 40, 1 << 17).unwrap().block_bytes, 1 << 17);
    assert_eq!(PacedBlocks::new(1, 1 << 17).unwrap().block_bytes, 1);
    let bursts = PacedBlocks::in_bursts(8_000_000, 1000, 20).unwrap();
    assert_eq!((bursts.block_bytes, [0, 19, 20].map(|block| bursts.due_ns(block))), (1000, [0, 0, 20_000_000]));
}

#[test]
fn a_rate_beyond_the_schedule_is_refused() {
    assert_eq!(PacedBlocks::new(0, 1000), None);
    assert_eq!(PacedBlocks::new(u64::MAX, 1), None);
    assert_eq!(PacedBlocks::new(0, 0), None);
}

#[test]
fn time_without_room_is_not_the_senders_own() {
    let mut send_buffer = SendBuffer::default();
    assert_eq!(send_buffer.late_ns(150, 100), 50);
    send_buffer.filled();
    send_buffer.drained(400);
    assert_eq!((send_buffer.late_ns(410, 200), send_buffer.late_ns(450, 440)), (10, 10));
    // It woke up for another reason: there was room all the time.
    send_buffer.drained(900);
    assert_eq!(send_buffer.late_ns(910, 450), 460);
}

#[test]
fn spent_budget_ends_the_stream_before_the_span_does() {
    let (near, mut far) = pair();
    let flow = StreamFlow { budget: Some(Arc::new(ByteBudget::new(100_001))), ..sending(near) };
    let at_ns = monotonic_ns();
    let span = Span { at_ns, end_ns: at_ns + 30_000_000_000 };
    let reader = std::thread::spawn(move || io::copy(&mut far, &mut io::sink()).unwrap());
    let work = StreamWork::plain(1 << 16, None, 1_000_000_000);
    let report = drive(vec![flow], work, span, &ControlSignal::default(), "tcp-send").unwrap();
    assert_eq!((report.flows[0].sent_bytes, reader.join().unwrap()), (100_001, 100_001));
    assert!(report.flows[0].end_ns.unwrap() < span.end_ns);
    let kernel = report.flows[0].tcp.as_ref().unwrap();
    assert!(kernel.samples > 0 && kernel.sent_bytes == Some(100_001), "{kernel:?}");
}

#[test]
fn receiver_that_discards_counts_every_byte() {
    let (mut near, far) = pair();
    let writer = std::thread::spawn(move || near.write_all(&[7; 1_000_003]));
    let counters: Arc<FlowCounters> = Arc::default();
    let flow = StreamFlow::new(0, far, Role::Receive, Arc::clone(&counters));
    let at_ns = monotonic_ns();
    let span = Span { at_ns, end_ns: at_ns + 30_000_000_000 };
    let work = StreamWork { receive: ReceiveMethod::Discard, ..StreamWork::plain(1 << 16, None, 1_000_000_000) };
    let report = drive(vec![flow], work, span, &ControlSignal::default(), "tcp-receive").unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(report.flows[0].received_bytes, 1_000_003);
    assert!(report.flows[0].tcp.as_ref().unwrap().receive_window_bytes.is_some());
    assert!(counters.progress(0, false).receive_window_bytes.is_some());
}
