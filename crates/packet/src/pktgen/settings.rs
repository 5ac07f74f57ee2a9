//! The commands that make pktgen send the frames asked for, and what it answers to each. What it cannot do is an error that
//! says so: its frames are datagrams with a TTL of 32, and every range goes on with each frame, not with each flow.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leadline_wire::{FieldOrder, FrameTransport, PacketFlows};

use crate::flows::{count_different, Range};
use crate::frame::{FramePlan, MacAddress, Own, PlanError};

/// The TTL and hop limit of all its frames.
pub const TTL: u8 = 32;
/// Lengths in one mix (MAX_IMIX_ENTRIES).
const MAX_MIX: usize = 20;
/// A command's value; the kernel reads up to 128 bytes, and less of some.
const MAX_VALUE_BYTES: usize = 120;
/// The end of a range of ports is the one behind the last, in 16 bits.
const MAX_LAST_PORT: u32 = 65_534;

/// A command: `name value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value; empty if it has none.
    pub value: String,
}

/// What a device, which is the interface on one thread, has to send.
#[derive(Clone, Copy, Debug)]
pub struct DevicePlan<'a> {
    /// The frames.
    pub plan: &'a FramePlan,
    /// Flows of all threads.
    pub flows: &'a PacketFlows,
    /// What holds where the plan has nothing.
    pub own: Own,
    /// The thread's place.
    pub thread: u32,
    /// Threads.
    pub threads: u32,
    /// Its frames, if they are limited.
    pub number: Option<u64>,
    /// From frame to frame, ns.
    pub delay_ns: u64,
    /// Copies of each frame that the driver gets together.
    pub burst: Option<u32>,
    /// Further commands.
    pub further: &'a BTreeMap<String, String>,
}

/// Options that commands of the user would contradict.
const OWN_OPTIONS: &[(&[&str], &str)] = &[
    (&["count"], "-n"),
    (&["delay", "rate", "ratep"], "--rate; a delay of 5000 ns is --rate 200kpps"),
    (&["pkt_size", "min_pkt_size", "max_pkt_size", "imix_weights"], "--size, with 4 more bytes for the FCS"),
    (&["dst", "dst_min", "dst_max", "dst6", "dst6_min", "dst6_max"], "--dst"),
    (&["src_min", "src_max", "src6"], "--src"),
    (&["dst_mac"], "--dst-mac"),
    (&["src_mac"], "--src-mac"),
    (&["udp_src_min", "udp_src_max"], "--sport"),
    (&["udp_dst_min", "udp_dst_max"], "--dport"),
    (&["vlan_id", "svlan_id"], "--vlan"),
    (&["burst"], "--batch"),
];

/// Returns the time from frame to frame of each thread, in the whole ns that pktgen takes; 0 without a rate.
///
/// # Errors
/// The rate has no such time.
pub fn delay_ns(rate_pps: Option<f64>, threads: u32) -> Result<u64, PlanError> {
    let Some(rate) = rate_pps else { return Ok(0) };
    let delay = (1e9 * f64::from(threads) / rate).round();
    if rate > 0.0 && (1.0..=1e15).contains(&delay) {
        return Ok(delay as u64);
    }
    Err(PlanError(format!("{rate} packets/s: pktgen waits whole ns between packets, at most 11 days")))
}

impl Setting {
    fn new(name: &str, value: impl ToString) -> Self {
        Self { name: name.to_owned(), value: value.to_string() }
    }

    /// The command as it is written, at once.
    pub fn line(&self) -> String {
        format!("{} {}", self.name, self.value).trim_end().to_owned() + "\n"
    }

    /// Reads the answer behind a write that succeeded. Some mistakes succeed, too: the answer then says so, or has another
    /// value; and some commands have no answer, so that the one before is left.
    ///
    /// # Errors
    /// What the kernel made of it.
    pub fn check(&self, answer: &str) -> Result<(), PlanError> {
        if self.name == "imix_weights" {
            return Ok(());
        }
        let refuse = |what: &str| {
            let first = what.lines().next().unwrap_or_default();
            Err(PlanError(format!("pktgen does not take {:?}: {first}", self.line().trim_end())))
        };
        let Some(said) = answer.strip_prefix("OK: ") else { return refuse(answer) };
        match self.name.as_str() {
            "flag" | "clear_counters" | "rate" | "ratep" => return Ok(()),
            _ => {}
        }
        let word = match self.name.as_str() {
            "dst_mac" => "dstmac",
            "src_mac" => "srcmac",
            "dst" => "dst_min",
            name => name,
        };
        match said.strip_prefix(word).and_then(|rest| rest.strip_prefix(['=', ' '])) {
            Some(value) if is_same(value.trim(), &self.value) => Ok(()),
            Some(value) => refuse(&format!("it made {} of it", value.trim())),
            None => refuse("it does not answer to it"),
        }
    }
}

/// Whether two texts are of one value: numbers of other notations, and addresses.
fn is_same(answer: &str, asked: &str) -> bool {
    let bare = |text: &str| text.trim_start_matches("0x").to_ascii_lowercase();
    let address = |text: &str| text.parse::<IpAddr>().ok();
    bare(answer) == bare(asked)
        || address(answer).is_some_and(|found| Some(found) == address(asked))
        || answer.parse::<u64>().is_ok_and(|found| asked.parse() == Ok(found))
        || is_same_list(answer, asked)
}

/// MPLS labels: eight hex digits each, as many as were given or fewer.
fn is_same_list(answer: &str, asked: &str) -> bool {
    let labels =
        |text: &str| -> Option<Vec<u32>> { text.split(',').map(|label| u32::from_str_radix(label, 16).ok()).collect() };
    labels(answer).is_some_and(|found| Some(found) == labels(asked))
}

impl DevicePlan<'_> {
    /// Returns the commands, in order; the user's are behind ours.
    ///
    /// # Errors
    /// Something is asked for that pktgen cannot do.
    pub fn settings(&self) -> Result<Vec<Setting>, PlanError> {
        self.refuse_unable()?;
        let mut settings = vec![
            Setting::new("count", self.number.unwrap_or(0)),
            Setting::new("delay", self.delay_ns),
            Setting::new("dst_mac", mac_text(self.plan.destination_mac.unwrap_or(self.own.1))),
            Setting::new("src_mac", mac_text(self.plan.source_mac.unwrap_or(self.own.0))),
        ];
        settings.push(self.lengths()?);
        let mut flags = self.addresses(&mut settings)?;
        flags.extend(self.ports(&mut settings)?);
        let tags = match self.plan.vlans.as_slice() {
            [outer, inner] => vec![("svlan", outer), ("vlan", inner)],
            [tag] => vec![("vlan", tag)],
            _ => Vec::new(),
        };
        for (name, tag) in tags.iter().rev() {
            settings.push(Setting::new(&format!("{name}_id"), tag.numbers.first));
            settings.push(Setting::new(&format!("{name}_p"), tag.priority));
        }
        let octet = format!("{:02x}", self.plan.dscp << 2);
        settings.push(Setting::new(if self.plan.is_v4() { "tos" } else { "traffic_class" }, octet));
        if self.plan.has_udp_checksum || !self.plan.is_v4() {
            flags.push("UDPCSUM");
        }
        // Each thread has the queue of its CPU.
        if self.threads > 1 {
            flags.push("QUEUE_MAP_CPU");
        }
        settings.extend(flags.into_iter().map(|flag| Setting::new("flag", flag)));
        settings.extend(self.burst.map(|burst| Setting::new("burst", burst)));
        for (name, value) in self.further {
            settings.extend(read_further(name, value)?);
        }
        Ok(settings)
    }

    fn refuse_unable(&self) -> Result<(), PlanError> {
        let plan = self.plan;
        let many = self.flows.count > 1;
        let reasons = [
            (plan.template.is_some(), "frames of a template"),
            (plan.transport != FrameTransport::Udp, "anything but UDP datagrams"),
            (plan.outer.is_some(), "packets in a tunnel"),
            (plan.ttl != TTL, "a TTL of its user: its own is 32"),
            (plan.is_timed, "times of the receiver's clock (--stamp-every): its own have µs of the time of day"),
            (
                plan.vlans.iter().any(|tag| tag.numbers.count > 1),
                "ranges of VLANs; --pktgen flag=VID_RND has them at random",
            ),
            (many && self.flows.zipf.is_some(), "flows by Zipf's law"),
            (many && self.flows.order == FieldOrder::Random, "flows at random; random ranges differ with each packet"),
        ];
        match reasons.iter().find(|(is_asked, _)| *is_asked) {
            Some((_, what)) => Err(PlanError(format!("pktgen does not send {what}"))),
            None => Ok(()),
        }
    }

    fn lengths(&self) -> Result<Setting, PlanError> {
        match self.plan.sizes.as_slice() {
            [size] => Ok(Setting::new("pkt_size", size.bytes)),
            sizes if sizes.len() <= MAX_MIX => {
                let pairs: Vec<String> = sizes.iter().map(|size| format!("{},{}", size.bytes, size.count)).collect();
                Ok(Setting::new("imix_weights", pairs.join(" ")))
            }
            sizes => Err(PlanError(format!("{} sizes: pktgen mixes up to {MAX_MIX}", sizes.len()))),
        }
    }

    /// The values of a range that frames have: of one flow the first one, of several as many as there are flows.
    fn span<T>(&self, range: &Range<T>) -> u128 {
        match range.order {
            _ if self.flows.count == 1 => 1,
            FieldOrder::InTurn => range.count.min(self.flows.count.into()),
            FieldOrder::Random => range.count,
        }
    }

    fn addresses(&self, settings: &mut Vec<Setting>) -> Result<Vec<&'static str>, PlanError> {
        let single = |address| Range { first: address, count: 1, order: FieldOrder::InTurn };
        let source = self.plan.sources.or(self.own.2.map(single));
        let ends = [("src", "IPSRC_RND", source), ("dst", "IPDST_RND", Some(self.plan.destinations))];
        let mut flags = Vec::new();
        for (name, flag, range) in ends {
            let Some(range) = range else { continue };
            let span = self.span(&range);
            match range.first {
                IpAddr::V6(first) if span == 1 => settings.push(Setting::new(&format!("{name}6"), first)),
                IpAddr::V6(_) => return Err(PlanError("pktgen does not send ranges of IPv6 addresses".to_owned())),
                IpAddr::V4(first) => {
                    let is_random = span > 1 && range.order == FieldOrder::Random;
                    // At random the last one is never sent, in turn it is.
                    let distance = span as u32 - u32::from(!is_random);
                    let last = u32::from(first).saturating_add(distance);
                    settings.push(Setting::new(&format!("{name}_min"), first));
                    settings.push(Setting::new(&format!("{name}_max"), std::net::Ipv4Addr::from(last)));
                    flags.extend(is_random.then_some(flag));
                }
            }
        }
        Ok(flags)
    }

    /// Ports. Each thread has its own part of the source ports, by which a receiver tells its frames from others.
    fn ports(&self, settings: &mut Vec<Setting>) -> Result<Vec<&'static str>, PlanError> {
        let all = self.span(&self.plan.source_ports);
        let threads = u128::from(self.threads);
        if threads > 1 && (all % threads != 0 || u128::from(self.flows.count) % threads != 0) {
            let message = "threads of pktgen have the same number of flows and of source ports each";
            return Err(PlanError(format!("{} flows, {all} source ports: {message}", self.flows.count)));
        }
        let part = (all / threads) as u32;
        self.check_flows(part.into())?;
        let first = u32::from(self.plan.source_ports.first) + self.thread * part;
        let destination = u32::from(self.plan.destination_ports.first);
        let ends = [
            ("src", "UDPSRC_RND", first, part, self.plan.source_ports.order),
            (
                "dst",
                "UDPDST_RND",
                destination,
                self.span(&self.plan.destination_ports) as u32,
                self.plan.destination_ports.order,
            ),
        ];
        let mut flags = Vec::new();
        for (name, flag, first, span, order) in ends {
            let last = first + span - 1;
            if span > 1 && last > MAX_LAST_PORT && order == FieldOrder::InTurn {
                return Err(PlanError(format!("ports {first} to {last}: pktgen's ranges end at {MAX_LAST_PORT}")));
            }
            let behind = if span > 1 { (last + 1).min(MAX_LAST_PORT + 1) } else { first };
            settings.push(Setting::new(&format!("udp_{name}_min"), first));
            settings.push(Setting::new(&format!("udp_{name}_max"), behind));
            flags.extend((span > 1 && order == FieldOrder::Random).then_some(flag));
        }
        Ok(flags)
    }

    /// Refuses flows that are not those that the ranges make when each goes on with every frame.
    fn check_flows(&self, source_ports: u128) -> Result<(), PlanError> {
        let plan = self.plan;
        let mut counts = vec![
            (source_ports, plan.source_ports.order),
            (self.span(&plan.destination_ports), plan.destination_ports.order),
            (self.span(&plan.destinations), plan.destinations.order),
        ];
        counts.extend(plan.sources.iter().map(|sources| (self.span(sources), sources.order)));
        let made = count_different(&counts).map(|made| made * u128::from(self.threads));
        match made.filter(|made| *made != u128::from(self.flows.count)) {
            None => Ok(()),
            Some(made) => {
                let message = "pktgen goes on in every range with each packet, which makes";
                Err(PlanError(format!("{} flows: {message} {made} of these ranges", self.flows.count)))
            }
        }
    }
}

/// Reads a further command of the user; flags may be several.
fn read_further(name: &str, value: &str) -> Result<Vec<Setting>, PlanError> {
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    if !is_name(name) || value.len() > MAX_VALUE_BYTES || !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let message = format!("--pktgen {name:?}={value:?}: a command has a name of small letters and a short value");
        return Err(PlanError(message));
    }
    if let Some((_, option)) = OWN_OPTIONS.iter().find(|(names, _)| names.contains(&name)) {
        return Err(PlanError(format!("--pktgen {name}: use {option}")));
    }
    if name != "flag" {
        return Ok(vec![Setting::new(name, value)]);
    }
    Ok(value.split(',').map(|flag| Setting::new("flag", flag.trim())).collect())
}

fn mac_text(mac: MacAddress) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests;
