//! The commands of frames as they are asked for, and answers that Debian's 6.1 gave.

use leadline_wire::{AddressRange, FrameSize, FrameSpec, PortRange, VlanSpec};

use super::*;

const OWN: Own = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], Some(IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1))));

fn addresses(first: &str, last: &str, order: FieldOrder) -> AddressRange {
    AddressRange { first: first.to_owned(), last: last.to_owned(), order }
}

fn ports(first: u16, last: u16) -> PortRange {
    PortRange { first, last, order: FieldOrder::InTurn }
}

/// The seed's settings: 64 bytes to one address.
fn build_seed_frame() -> FrameSpec {
    FrameSpec {
        sizes: vec![FrameSize { bytes: 64, count: 1 }],
        source_mac: None,
        destination_mac: None,
        vlans: Vec::new(),
        outer: None,
        sources: None,
        destinations: addresses("198.18.0.2", "198.18.0.2", FieldOrder::InTurn),
        transport: FrameTransport::Udp,
        source_ports: ports(1024, 65_535),
        destination_ports: ports(9, 9),
        ttl: TTL,
        dscp: 0,
        has_udp_checksum: false,
        template: None,
    }
}

fn flows(count: u32) -> PacketFlows {
    PacketFlows { count, order: FieldOrder::InTurn, zipf: None, seed: 1 }
}

fn further(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The commands of thread `thread` of `threads`, as lines without their ends.
fn lines_of(
    spec: &FrameSpec,
    flows: &PacketFlows,
    (thread, threads): (u32, u32),
    more: &[(&str, &str)],
) -> Result<Vec<String>, String> {
    let plan = FramePlan::parse(spec, flows, false).map_err(|error| error.0)?;
    let device = DevicePlan {
        plan: &plan,
        flows,
        own: OWN,
        thread,
        threads,
        number: Some(1_000_000),
        delay_ns: 5000,
        burst: None,
        further: &further(more),
    };
    let settings = device.settings().map_err(|error| error.0)?;
    Ok(settings.iter().map(|setting| setting.line().trim_end().to_owned()).collect())
}

fn lines(spec: &FrameSpec, count: u32) -> Vec<String> {
    lines_of(spec, &flows(count), (0, 1), &[]).unwrap()
}

#[test]
fn seeds_script_has_these_commands() {
    let expected = [
        "count 1000000",
        "delay 5000",
        "dst_mac 02:00:00:00:00:02",
        "src_mac 02:00:00:00:00:01",
        "pkt_size 64",
        "src_min 198.18.0.1",
        "src_max 198.18.0.1",
        "dst_min 198.18.0.2",
        "dst_max 198.18.0.2",
        "udp_src_min 1024",
        "udp_src_max 1024",
        "udp_dst_min 9",
        "udp_dst_max 9",
        "tos 00",
        "clone_skb 0",
    ];
    assert_eq!(lines_of(&build_seed_frame(), &flows(1), (0, 1), &[("clone_skb", "0")]).unwrap(), expected);
}

#[test]
fn flows_are_as_many_values_of_a_range_and_ports_end_behind_the_last() {
    let found = lines(&build_seed_frame(), 1000);
    assert!(
        found.contains(&"udp_src_min 1024".to_owned()) && found.contains(&"udp_src_max 2024".to_owned()),
        "{found:?}"
    );
    let spec = FrameSpec {
        source_ports: ports(5, 5),
        destinations: addresses("198.18.0.2", "198.18.0.9", FieldOrder::InTurn),
        ..build_seed_frame()
    };
    let found = lines(&spec, 8);
    assert!(
        found.contains(&"dst_max 198.18.0.9".to_owned()) && found.contains(&"udp_src_max 5".to_owned()),
        "{found:?}"
    );
}

#[test]
fn random_ranges_have_their_flags_and_an_end_behind_the_last() {
    let spec = FrameSpec {
        destinations: addresses("198.18.0.2", "198.18.0.9", FieldOrder::Random),
        destination_ports: PortRange { first: 1, last: 65_535, order: FieldOrder::Random },
        ..build_seed_frame()
    };
    let found = lines(&spec, 4);
    for expected in ["dst_max 198.18.0.10", "udp_dst_max 65535", "flag IPDST_RND", "flag UDPDST_RND"] {
        assert!(found.contains(&expected.to_owned()), "{expected}: {found:?}");
    }
}

#[test]
fn threads_have_their_own_source_ports_and_queues() {
    let of = |thread| lines_of(&build_seed_frame(), &flows(8), (thread, 2), &[]).unwrap();
    let (first, second) = (of(0), of(1));
    assert!(
        first.contains(&"udp_src_min 1024".to_owned()) && first.contains(&"udp_src_max 1028".to_owned()),
        "{first:?}"
    );
    assert!(
        second.contains(&"udp_src_min 1028".to_owned()) && second.contains(&"udp_src_max 1032".to_owned()),
        "{second:?}"
    );
    assert!(second.contains(&"flag QUEUE_MAP_CPU".to_owned()));
    assert!(lines_of(&build_seed_frame(), &flows(9), (0, 2), &[]).unwrap_err().contains("9 flows"));
}

#[test]
fn tags_classes_checksums_and_mixes_have_their_commands() {
    let tag = |protocol, number, priority| VlanSpec { protocol, first: number, last: number, priority };
    let spec = FrameSpec {
        vlans: vec![tag(0x88a8, 100, 1), tag(0x8100, 7, 5)],
        sizes: vec![FrameSize { bytes: 68, count: 7 }, FrameSize { bytes: 1514, count: 1 }],
        dscp: 46,
        has_udp_checksum: true,
        ..build_seed_frame()
    };
    let found = lines(&spec, 1);
    for expected in
        ["vlan_id 7", "vlan_p 5", "svlan_id 100", "svlan_p 1", "imix_weights 68,7 1514,1", "tos b8", "flag UDPCSUM"]
    {
        assert!(found.contains(&expected.to_owned()), "{expected}: {found:?}");
    }
    // A second tag has no place before the first one is set.
    let place = |name: &str| found.iter().position(|line| line.starts_with(name)).unwrap();
    assert!(place("vlan_id") < place("svlan_id"));
}

#[test]
fn packets_over_ipv6_have_single_addresses() {
    let spec = FrameSpec {
        sizes: vec![FrameSize { bytes: 80, count: 1 }],
        sources: Some(addresses("fd00::1", "fd00::1", FieldOrder::InTurn)),
        destinations: addresses("fd00::2", "fd00::9", FieldOrder::InTurn),
        ..build_seed_frame()
    };
    let found = lines(&spec, 1);
    for expected in ["src6 fd00::1", "dst6 fd00::2", "traffic_class 00", "flag UDPCSUM"] {
        assert!(found.contains(&expected.to_owned()), "{expected}: {found:?}");
    }
    assert!(lines_of(&spec, &flows(8), (0, 1), &[]).unwrap_err().contains("IPv6"));
}

#[test]
fn what_pktgen_cannot_do_is_said() {
    let refused = |spec: FrameSpec, word: &str| {
        let error = lines_of(&spec, &flows(1), (0, 1), &[]).unwrap_err();
        assert!(error.contains(word), "{error}");
    };
    let tags = vec![VlanSpec { protocol: 0x8100, first: 1, last: 9, priority: 0 }];
    refused(FrameSpec { ttl: 64, ..build_seed_frame() }, "TTL");
    refused(FrameSpec { transport: FrameTransport::IcmpEcho, ..build_seed_frame() }, "UDP");
    refused(FrameSpec { template: Some("02".repeat(14)), ..build_seed_frame() }, "template");
    refused(FrameSpec { vlans: tags, sizes: vec![FrameSize { bytes: 68, count: 1 }], ..build_seed_frame() }, "VID_RND");
    let zipf = PacketFlows { zipf: Some(1.0), ..flows(2) };
    assert!(lines_of(&build_seed_frame(), &zipf, (0, 1), &[]).unwrap_err().contains("Zipf"));
    let random = PacketFlows { order: FieldOrder::Random, ..flows(2) };
    assert!(lines_of(&build_seed_frame(), &random, (0, 1), &[]).unwrap_err().contains("at random"));
    let spec = FrameSpec { destination_ports: ports(1, 3), ..build_seed_frame() };
    assert!(
        lines_of(&spec, &flows(4), (0, 1), &[]).unwrap_err().contains("12"),
        "4 source ports by 3 destination ports"
    );
    let spec = FrameSpec { source_ports: ports(65_000, 65_535), ..build_seed_frame() };
    assert!(lines_of(&spec, &flows(536), (0, 1), &[]).unwrap_err().contains("65534"));
}

#[test]
fn further_commands_are_behind_ours_unless_an_option_has_them() {
    let found = lines_of(
        &build_seed_frame(),
        &flows(1),
        (0, 1),
        &[("flag", "NODE,!UDPCSUM"), ("tos", "03"), ("queue_map_min", "1")],
    );
    let found = found.unwrap();
    assert_eq!(found[found.len() - 4..], ["flag NODE", "flag !UDPCSUM", "queue_map_min 1", "tos 03"]);
    for (name, value, word) in [
        ("count", "5", "-n"),
        ("delay", "5000", "--rate"),
        ("burst", "8", "--batch"),
        ("Count", "5", "small letters"),
        ("spi", "1\ncount 5", "short"),
    ] {
        let error = lines_of(&build_seed_frame(), &flows(1), (0, 1), &[(name, value)]).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn rates_become_whole_ns_of_each_thread() {
    assert_eq!(delay_ns(None, 2), Ok(0));
    assert_eq!((delay_ns(Some(200_000.0), 1), delay_ns(Some(200_000.0), 2)), (Ok(5000), Ok(10_000)));
    assert_eq!(delay_ns(Some(3_000_000.0), 1), Ok(333));
    assert!(delay_ns(Some(1e10), 1).is_err() && delay_ns(Some(0.0), 1).is_err());
}

/// What Debian's 6.1 answered to commands whose write succeeded.
#[test]
fn answers_say_what_the_kernel_made_of_a_command() {
    let good = [
        ("count", "1000", "OK: count=1000"),
        ("pkt_size", "64", "OK: pkt_size=64"),
        ("dst", "198.18.0.2", "OK: dst_min=198.18.0.2"),
        ("dst_mac", "02:00:00:00:00:02", "OK: dstmac 02:00:00:00:00:02"),
        ("dst6", "fd00:0::2", "OK: dst6=fd00::2"),
        ("tos", "b8", "OK: tos=0xb8"),
        ("flag", "UDPCSUM", "OK: flags=0x41"),
        ("mpls", "1,00000002", "OK: mpls=00000001,00000002"),
        ("xmit_mode", "queue_xmit", "OK: xmit_mode=queue_xmit"),
        ("ratep", "200000", "OK: rate=200000"),
        // It has no answer: this one is of the command before.
        ("imix_weights", "60,7 590,4", "OK: spi=0"),
    ];
    for (name, value, answer) in good {
        assert_eq!(Setting::new(name, value).check(answer), Ok(()), "{name}");
    }
    let bad = [
        ("count", "abc", "OK: count=0", "it made 0"),
        ("pkt_size", "20", "OK: pkt_size=42", "it made 42"),
        ("udp_dst_max", "70000", "OK: udp_dst_max=4464", "it made 4464"),
        ("mpls", "zz", "OK: mpls=", "it made"),
        ("tos", "8", "ERROR: tos must be 00-ff", "tos must be"),
        ("node", "7", "ERROR: node not possible", "node not possible"),
        ("flag", "NOSUCH", "Flag -:NOSUCH:- unknown\nAvailable flags, ...", "unknown"),
        ("xmit_mode", "nonsense", "xmit_mode -:nonsense:- unknown\nAvailable modes: ...", "unknown"),
        ("burst", "8", "OK: count=1000", "does not answer"),
    ];
    for (name, value, answer, word) in bad {
        let error = Setting::new(name, value).check(answer).unwrap_err().0;
        assert!(error.contains(word) && !error.contains('\n'), "{error}");
    }
}
