//! Parsers of one network namespace's counters: /proc/net/{dev,snmp,snmp6,netstat}.

use leadline_wire::{InterfaceSample, TcpSample, UdpSample};

use super::{decimal, fields, lines, number_after};

/// Returns the rows of /proc/net/dev. Its two header lines have no colon and so are not rows.
pub fn interfaces(dev: &[u8]) -> Vec<InterfaceSample> {
    lines(dev).filter_map(interface).collect()
}

fn interface(line: &[u8]) -> Option<InterfaceSample> {
    // No interface name contains a colon: the kernel refuses it.
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = line[..colon].trim_ascii();
    if name.is_empty() {
        return None;
    }
    let mut columns = fields(&line[colon + 1..]);
    let mut next = || decimal(columns.next()?);
    let (rx_bytes, rx_packets, rx_errors, rx_dropped) = (next()?, next()?, next()?, next()?);
    // fifo, frame, compressed, multicast
    for _ in 0..4 {
        next()?;
    }
    Some(InterfaceSample {
        name: String::from_utf8_lossy(name).into_owned(),
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        tx_bytes: next()?,
        tx_packets: next()?,
        tx_errors: next()?,
        tx_dropped: next()?,
    })
}

/// Returns TCP's counters in /proc/net/snmp, where the kernel sums IPv4 and IPv6. `listen_drops` is in another file
/// and stays `None`.
pub fn tcp(snmp: &[u8]) -> Option<TcpSample> {
    let names = [&b"InSegs"[..], b"OutSegs", b"RetransSegs", b"ActiveOpens", b"PassiveOpens", b"CurrEstab"];
    let values = named(snmp, b"Tcp:", &names)?;
    Some(TcpSample {
        in_segments: values[0]?,
        out_segments: values[1]?,
        retransmitted_segments: values[2]?,
        active_opens: values[3]?,
        passive_opens: values[4]?,
        established: values[5]?,
        listen_drops: None,
    })
}

/// Returns ListenDrops of /proc/net/netstat.
pub fn listen_drops(netstat: &[u8]) -> Option<u64> {
    named(netstat, b"TcpExt:", &[b"ListenDrops"])?[0]
}

/// Returns UDP's counters over IPv4, from /proc/net/snmp.
pub fn udp(snmp: &[u8]) -> Option<UdpSample> {
    udp_sample(named(snmp, b"Udp:", &UDP_NAMES)?)
}

/// Returns UDP's counters over IPv6, from /proc/net/snmp6, which has one name and figure per line.
pub fn udp6(snmp6: &[u8]) -> Option<UdpSample> {
    let mut values = [None; UDP_NAMES.len()];
    for line in lines(snmp6).filter_map(|line| line.strip_prefix(b"Udp6")) {
        for (value, name) in values.iter_mut().zip(UDP_NAMES) {
            *value = value.or_else(|| number_after(line, name));
        }
    }
    udp_sample(values)
}

const UDP_NAMES: [&[u8]; 6] =
    [b"InDatagrams", b"OutDatagrams", b"NoPorts", b"InErrors", b"RcvbufErrors", b"SndbufErrors"];

fn udp_sample(values: [Option<u64>; UDP_NAMES.len()]) -> Option<UdpSample> {
    Some(UdpSample {
        in_datagrams: values[0]?,
        out_datagrams: values[1]?,
        no_ports: values[2]?,
        in_errors: values[3]?,
        receive_buffer_errors: values[4]?,
        send_buffer_errors: values[5]?,
    })
}

/// Returns figures by name from a file of line pairs, where `Tcp: NAME NAME ...` is above `Tcp: 17 -1 ...`. Columns
/// have moved between kernels, so names decide. `None` if the pair is missing.
fn named<const N: usize>(text: &[u8], prefix: &[u8], names: &[&[u8]; N]) -> Option<[Option<u64>; N]> {
    let mut rows = lines(text).filter_map(|line| line.strip_prefix(prefix));
    let (heads, figures) = (rows.next()?, rows.next()?);
    let mut values = [None; N];
    let mut missing = N;
    for (head, figure) in fields(heads).zip(fields(figures)) {
        if let Some(index) = names.iter().position(|name| *name == head) {
            values[index] = decimal(figure);
            missing = missing.saturating_sub(1);
            if missing == 0 {
                break;
            }
        }
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &[u8] = b"Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
        lo:    3193      29    1    2    0     0          0         0     3194      30    3    4    0     0       0          0\n\
        eth0:325168965   15774    0    0    0     0          0         0   758865    7120    0    0    0     0       0          0\n";

    const SNMP: &[u8] = b"Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n\
        Tcp: 1 200 120000 -1 54 3 5 16 2 7041 6990 7 0 30 0\n\
        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
        Udp: 11 1 2 12 3 4 0 0 0\n\
        UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
        UdpLite: 90 90 90 90 90 90 0 0 0\n";

    #[test]
    fn interfaces_with_and_without_a_space_after_the_colon() {
        let rows = interfaces(DEV);
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows[0],
            InterfaceSample {
                name: "lo".into(),
                rx_bytes: 3193,
                rx_packets: 29,
                rx_errors: 1,
                rx_dropped: 2,
                tx_bytes: 3194,
                tx_packets: 30,
                tx_errors: 3,
                tx_dropped: 4,
            }
        );
        assert_eq!((rows[1].name.as_str(), rows[1].rx_bytes, rows[1].tx_packets), ("eth0", 325_168_965, 7120));
    }

    #[test]
    fn tcp_by_name_beside_a_negative_column() {
        let expected = TcpSample {
            in_segments: 7041,
            out_segments: 6990,
            retransmitted_segments: 7,
            active_opens: 54,
            passive_opens: 3,
            established: 2,
            listen_drops: None,
        };
        assert_eq!(tcp(SNMP), Some(expected));
        assert_eq!(tcp(b"Tcp: InSegs\nTcp: 1\n"), None);
        assert_eq!(tcp(b"Tcp: InSegs\n"), None);
    }

    #[test]
    fn udp_over_both_families() {
        let over_ipv4 = UdpSample {
            in_datagrams: 11,
            out_datagrams: 12,
            no_ports: 1,
            in_errors: 2,
            receive_buffer_errors: 3,
            send_buffer_errors: 4,
        };
        assert_eq!(udp(SNMP), Some(over_ipv4));
        let snmp6 = b"Ip6InReceives                   \t99\nUdp6InDatagrams \t11\nUdp6NoPorts  \t1\nUdp6InErrors \t2\n\
            Udp6OutDatagrams \t12\nUdp6RcvbufErrors\t3\nUdp6SndbufErrors   \t4\nUdp6InCsumErrors \t0\n\
            UdpLite6InDatagrams \t90\n";
        assert_eq!(udp6(snmp6), Some(over_ipv4));
        assert_eq!(udp6(b"Udp6InDatagrams \t11\n"), None);
    }

    #[test]
    fn listen_drops_by_name() {
        let netstat = b"TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPHPHits\nTcpExt: 0 4 5 6\n\
            IpExt: InNoRoutes\nIpExt: 0\n";
        assert_eq!(listen_drops(netstat), Some(5));
        assert_eq!(listen_drops(b"TcpExt: SyncookiesSent\nTcpExt: 0\n"), None);
    }
}
