//! The texts of pktgen's files: those of a device, which is an interface on one thread, and those of a thread. The reader
//! keeps what is known and skips what newer kernels add.

use thiserror::Error;

/// Why a text is none of pktgen's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("pktgen's file has no {0}")]
pub struct StatusError(&'static str);

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Frames to send; 0 is no end.
    pub count: u64,
    /// The shortest frame without FCS, bytes.
    pub min_frame_bytes: u32,
    /// The longest frame.
    pub max_frame_bytes: u32,
    /// Time from frame to frame, ns; 0 for as fast as it goes.
    pub delay_ns: u64,
    /// Further copies of each frame.
    pub clone_skb: u64,
    /// Copies of each frame that the driver gets together.
    pub burst: u64,
    /// Names of flags.
    pub flags: Vec<String>,
    /// How frames enter the interface, if it is not the usual way.
    pub xmit_mode: Option<String>,
    /// Lengths of a mix with their weights.
    pub mix: Vec<(u32, u64)>,
    /// Frames sent by length of the mix.
    pub mix_counts: Vec<(u32, u64)>,
    /// Frames that the interface took.
    pub sent: u64,
    /// Frames that it did not take.
    pub errors: u64,
    /// When it started, µs of the monotonic clock; 0 if it did not.
    pub started_us: u64,
    /// When it stopped, or what time it is.
    pub stopped_us: u64,
    /// Time that it waited for the next frame to be due, µs.
    pub idle_us: u64,
    /// The answer to the last command, or the end of the run.
    pub result: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// From start to stop, µs.
    pub elapsed_us: u64,
    /// Of this, what it did not wait.
    pub busy_us: u64,
    /// Frames that the interface took.
    pub sent: u64,
    /// Fragments of the last frame; -1 if there was none.
    pub fragments: i64,
    /// Frames that the interface did not take.
    pub errors: u64,
}

/// The devices of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadStatus {
    /// Its devices, running ones first.
    pub devices: Vec<String>,
    /// The answer to the last command.
    pub result: String,
}

impl DeviceStatus {
    /// Reads the file of a device.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        let (settings, rest) = text.split_once("Current:").ok_or(StatusError("line \"Current:\""))?;
        let (current, result) = rest.split_once("Result:").ok_or(StatusError("line \"Result:\""))?;
        let number = |part: &str, name: &str| value(part, name).and_then(read_leading_number);
        let required = |part, name: &'static str| number(part, name).ok_or(StatusError(name));
        let length = |name| required(settings, name).map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Ok(Self {
            count: required(settings, "count ")?,
            min_frame_bytes: length("min_pkt_size:")?,
            max_frame_bytes: length("max_pkt_size:")?,
            delay_ns: required(settings, "delay:")?,
            clone_skb: required(settings, "clone_skb:")?,
            burst: number(settings, "burst:").unwrap_or(1),
            flags: line(settings, "Flags:").split_whitespace().map(str::to_owned).collect(),
            xmit_mode: value(settings, "xmit_mode:").map(str::to_owned),
            mix: pairs(line(settings, "imix_weights:")),
            mix_counts: pairs(line(current, "imix_size_counts:")),
            sent: required(current, "pkts-sofar:")?,
            errors: required(current, "errors:")?,
            started_us: required(current, "started:")?,
            stopped_us: required(current, "stopped:")?,
            idle_us: required(current, "idle:")?,
            result: result.trim().to_owned(),
        })
    }

    /// Reads how the last run ended; `None` if it did not.
    pub fn run_result(&self) -> Option<RunResult> {
        let (elapsed, rest) = self.result.strip_prefix("OK: ")?.split_once("(c")?;
        let (busy, rest) = rest.split_once("+d")?;
        let (_, rest) = rest.split_once("usec,")?;
        let (sent, rest) = rest.split_once('(')?;
        let fragments = rest.split_once("byte,")?.1.split_once("frags)")?.0;
        Some(RunResult {
            elapsed_us: elapsed.trim().parse().ok()?,
            busy_us: busy.trim().parse().ok()?,
            sent: sent.trim().parse().ok()?,
            fragments: fragments.trim().parse().ok()?,
            errors: read_leading_number(value(rest, "errors:")?)?,
        })
    }

    /// Whether frames are copied: copies have the number of the first.
    pub fn repeats_numbers(&self) -> bool {
        self.clone_skb > 0 || self.burst > 1
    }

    /// Whether frames enter the stack as if the interface had received them.
    pub fn is_receiving(&self) -> bool {
        self.xmit_mode.as_deref() == Some("netif_receive")
    }
}

impl ThreadStatus {
    /// Reads the file of a thread.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        let (lists, result) = text.split_once("Result:").ok_or(StatusError("line \"Result:\""))?;
        let of = |name: &str| line(lists, name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Ok(Self { devices: [of("Running:"), of("Stopped:")].concat(), result: result.trim().to_owned() })
    }
}

/// The word behind a name, which is a word of its own: `burst:` is not found in `max_burst:`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut places = text.match_indices(name);
    let own = places.find(|(at, _)| text[..*at].chars().next_back().is_none_or(char::is_whitespace));
    text[own?.0 + name.len()..].split_whitespace().next()
}

/// The rest of the line behind a name.
fn line<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.trim_start().strip_prefix(name)).unwrap_or_default()
}

/// A number that may have its unit behind it.
fn read_leading_number(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// `60,7 590,4`.
fn pairs(text: &str) -> Vec<(u32, u64)> {
    let pair = |word: &str| {
        let (first, second) = word.split_once(',')?;
        Some((first.parse().ok()?, second.parse().ok()?))
    };
    text.split_whitespace().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Debian's 6.1 behind a run of the seed's settings.
    const ENDED: &str = "\
Params: count 2000  min_pkt_size: 64  max_pkt_size: 64
     frags: 0  delay: 5000  clone_skb: 0  ifname: p0@0
     flows: 0 flowlen: 0
     queue_map_min: 0  queue_map_max: 0
     dst_min: 198.18.0.2  dst_max: 
     src_min:   src_max: 
     src_mac: fe:b2:d3:5b:cc:7f dst_mac: 02:00:00:00:00:02
     udp_src_min: 9  udp_src_max: 9  udp_dst_min: 9  udp_dst_max: 9
     src_mac_count: 0  dst_mac_count: 0
     Flags: 
Current:
     pkts-sofar: 2000  errors: 0
     started: 9709135us  stopped: 9786370us idle: 68us
     seq_num: 2001  cur_dst_mac_offset: 0  cur_src_mac_offset: 0
     cur_saddr: 198.18.0.1  cur_daddr: 198.18.0.2
     cur_udp_dst: 9  cur_udp_src: 9
     cur_queue_map: 0
     flows: 0
Result: OK: 77234(c77165+d68) usec, 2000 (64byte,0frags)
  25895pps 13Mb/sec (13258240bps) errors: 0
";

    /// The same while a mix is sent, without an end.
    const RUNNING: &str = "\
Params: count 0  min_pkt_size: 64  max_pkt_size: 64
     imix_weights: 60,7 590,4 1514,1 
     frags: 0  delay: 0  clone_skb: 0  ifname: p0@0
     flows: 0 flowlen: 0
     queue_map_min: 0  queue_map_max: 0
     dst_min: 198.18.0.2  dst_max: 198.18.0.9
     src_min: 198.18.0.1  src_max: 
     src_mac: fe:b2:d3:5b:cc:7f dst_mac: 02:00:00:00:00:02
     udp_src_min: 1000  udp_src_max: 1010  udp_dst_min: 9  udp_dst_max: 9
     src_mac_count: 0  dst_mac_count: 0
     mpls: 00000000
     xmit_mode: netif_receive
     Flags: UDPCSUM  QUEUE_MAP_CPU  
Current:
     pkts-sofar: 40742  errors: 3
     imix_size_counts: 60,24767 590,14126 1514,3849 
     started: 10144954us  stopped: 10846488us idle: 0us
     seq_num: 40743  cur_dst_mac_offset: 0  cur_src_mac_offset: 0
     cur_saddr: 198.18.0.1  cur_daddr: 198.18.0.8
     cur_udp_dst: 9  cur_udp_src: 1002
     cur_queue_map: 0
     flows: 0
Result: Starting
";

    #[test]
    fn run_of_the_seeds_settings_is_read() {
        let status = DeviceStatus::parse(ENDED).unwrap();
        assert_eq!((status.count, status.min_frame_bytes, status.max_frame_bytes), (2000, 64, 64));
        assert_eq!((status.delay_ns, status.clone_skb, status.burst), (5000, 0, 1));
        assert_eq!((status.sent, status.errors), (2000, 0));
        assert_eq!((status.started_us, status.stopped_us, status.idle_us), (9_709_135, 9_786_370, 68));
        assert!(status.flags.is_empty() && status.mix.is_empty() && !status.repeats_numbers());
        let expected = RunResult { elapsed_us: 77_234, busy_us: 77_165, sent: 2000, fragments: 0, errors: 0 };
        assert_eq!(status.run_result(), Some(expected));
    }

    #[test]
    fn mix_that_runs_has_its_counts_and_no_result() {
        let status = DeviceStatus::parse(RUNNING).unwrap();
        assert_eq!(status.mix, [(60, 7), (590, 4), (1514, 1)]);
        assert_eq!(status.mix_counts, [(60, 24_767), (590, 14_126), (1514, 3849)]);
        assert_eq!(status.flags, ["UDPCSUM", "QUEUE_MAP_CPU"]);
        assert_eq!((status.errors, status.run_result(), status.is_receiving()), (3, None, true));
    }

    #[test]
    fn run_on_an_interface_that_is_down_has_no_frame() {
        let text = ENDED.replace("usec, 2000 (64byte,0frags)", "usec, 0 (64byte,-1frags)");
        let result = DeviceStatus::parse(&text).unwrap().run_result().unwrap();
        assert_eq!((result.sent, result.fragments), (0, -1));
    }

    #[test]
    fn burst_is_read_where_the_kernel_shows_it() {
        let text = ENDED.replace("     Flags: ", "     burst: 32\n     Flags: ");
        assert!(DeviceStatus::parse(&text).unwrap().repeats_numbers());
    }

    #[test]
    fn answers_to_commands_are_no_results_of_runs() {
        for answer in ["Idle", "OK: count=1000", "OK: dstmac 02:00:00:00:00:02", ""] {
            let text = format!("{}Result: {answer}\n", ENDED.split("Result:").next().unwrap());
            let status = DeviceStatus::parse(&text).unwrap();
            assert_eq!((status.result.as_str(), status.run_result()), (answer, None));
        }
    }

    #[test]
    fn devices_of_a_thread_are_read() {
        let parse = |text: &str| ThreadStatus::parse(text).unwrap();
        assert_eq!(parse("Running: \nStopped: \nResult: NA\n").devices, Vec::<String>::new());
        let status = parse("Running: p0@0 \nStopped: p1@0 eth2 \nResult: OK: add_device=p0@0\n");
        assert_eq!(
            (status.devices.join(" "), status.result.as_str()),
            ("p0@0 p1@0 eth2".to_owned(), "OK: add_device=p0@0")
        );
    }

    proptest! {
        #[test]
        fn texts_with_damage_are_errors_or_numbers(at in 0usize..900, letter: char) {
            let mut text = RUNNING.to_owned();
            let place = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.insert(place, letter);
            let _ = DeviceStatus::parse(&text).map(|status| status.run_result());
            let _ = DeviceStatus::parse(&text[..place]).map(|status| status.run_result());
            let _ = ThreadStatus::parse(&text[..place]);
        }
    }
}
