//! No parser panics, whatever the bytes: noise, and real files that were cut and overwritten at random.

use std::fs;

use leadline_observe::parse;
use proptest::prelude::*;

/// Returns the files whose damaged copies are parsed, as this kernel writes them, and a few that it may lack.
fn real_files() -> Vec<Vec<u8>> {
    let paths = [
        "/proc/stat",
        "/proc/meminfo",
        "/proc/pressure/cpu",
        "/proc/self/net/softnet_stat",
        "/proc/self/net/dev",
        "/proc/self/net/snmp",
        "/proc/self/net/snmp6",
        "/proc/self/net/netstat",
        "/proc/self/net/route",
        "/proc/self/net/ipv6_route",
        "/proc/self/stat",
        "/proc/self/status",
        "/proc/self/uid_map",
        "/proc/cpuinfo",
        "/etc/os-release",
    ];
    let mut files: Vec<Vec<u8>> = paths.iter().filter_map(|path| fs::read(path).ok()).collect();
    files.push(b"usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nthrottled_usec 7\n".to_vec());
    files.push(b"user 150\nsystem 25\n".to_vec());
    files.push(b"Cpus_allowed_list:\t0-3,8-4294967295\n".to_vec());
    files
}

fn every_parser(text: &[u8]) {
    parse::machine::cpus(text);
    parse::machine::memory(text);
    parse::machine::pressure(text);
    parse::machine::softnet(text);
    parse::network::interfaces(text);
    parse::network::tcp(text);
    parse::network::udp(text);
    parse::network::udp6(text);
    parse::network::listen_drops(text);
    parse::process::times(text);
    parse::process::status(text);
    parse::cgroup::cpu_stat(text);
    parse::cgroup::cpuacct_usage_s(text);
    parse::cgroup::cpuacct_stat_s(text);
    parse::cgroup::bytes(text);
    parse::routes::ipv4(text);
    parse::routes::ipv6(text);
    parse::host::cpu_model(text);
    parse::host::distribution(text);
    parse::host::allowed_cpus(text);
    parse::host::effective_capabilities(text);
    parse::host::groups(text);
    parse::host::is_initial_user_namespace(text);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise(text in prop::collection::vec(any::<u8>(), 0..2048)) {
        every_parser(&text);
    }

    #[test]
    fn words_that_parsers_look_for(words in prop::collection::vec(prop::sample::select(WORDS), 0..64)) {
        every_parser(words.concat().as_bytes());
    }

    #[test]
    fn damaged_files(
        file in prop::sample::select(real_files()),
        length in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"09 \n\t:-af\xff\x00)("[..])), 0..24),
    ) {
        let mut text = file;
        text.truncate(length.index(text.len() + 1));
        for (place, byte) in damage {
            if !text.is_empty() {
                let place = place.index(text.len());
                text[place] = byte;
            }
        }
        every_parser(&text);
    }

    /// Well-formed files are parsed into the values from which they were made.
    #[test]
    fn interfaces_come_back(name in "[a-z][a-z0-9._@-]{0,14}", figures in prop::array::uniform16(any::<u64>())) {
        let columns: Vec<String> = figures.iter().map(u64::to_string).collect();
        let text = format!("{name:>6}:{}\n", columns.join(" "));
        let found = parse::network::interfaces(text.as_bytes());
        prop_assert_eq!(found.len(), 1);
        let row = &found[0];
        prop_assert_eq!(&row.name, &name);
        let received = [row.rx_bytes, row.rx_packets, row.rx_errors, row.rx_dropped];
        let sent = [row.tx_bytes, row.tx_packets, row.tx_errors, row.tx_dropped];
        prop_assert_eq!((&received[..], &sent[..]), (&figures[..4], &figures[8..12]));
    }
}

const WORDS: &[&str] = &[
    "cpu",
    "cpu0",
    " ",
    "\n",
    "\t",
    ":",
    "-1",
    "0",
    "18446744073709551615",
    "18446744073709551616",
    "ffffffffffffffff",
    "Tcp:",
    "Udp:",
    "TcpExt:",
    "InSegs",
    "ListenDrops",
    "Udp6InDatagrams",
    "some",
    "full",
    "total=",
    "VmRSS:",
    "(",
    ")",
    "usage_usec",
    "MemTotal:",
    "MemAvailable:",
    "Cpus_allowed_list:",
    "-",
    ",",
    "CapEff:",
    "PRETTY_NAME=",
    "\"",
    "'",
    "00000000000000000000000000000000",
    "00000000",
    "0001",
    "lo",
];
