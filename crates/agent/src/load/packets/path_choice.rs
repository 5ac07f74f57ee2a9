//! The choice of a generator's path into an interface.

use leadline_packet::frame::FramePlan;
use leadline_sys::interfaces::{takes_redirected_frames, Interface};
use leadline_wire::{GeneratorPath, PacketGeneratorSpec};

use super::path::{require_bpf, NoPath};
use super::pktgen_sender::require_pktgen;
use super::xdp_sender::MAX_LIVE_FRAME_LENGTH;

/// Returns the fastest path that can be used, and the reason for it.
pub fn choose_path(
    spec: &PacketGeneratorSpec,
    plan: &FramePlan,
    interface: &Interface,
) -> Result<(GeneratorPath, String), NoPath> {
    let by_xdp = || -> Result<(), NoPath> {
        if interface.mac.is_none() && !interface.is_loopback {
            return Err(NoPath::new("no_xdp", format!("{} carries packets without Ethernet", interface.name)));
        }
        if plan.sizes.len() > 1 {
            return Err(NoPath::new("mixed_sizes", "xdp sends frames of one length"));
        }
        if plan.sizes[0].bytes > MAX_LIVE_FRAME_LENGTH {
            let message = format!("xdp sends frames of at most {MAX_LIVE_FRAME_LENGTH} bytes");
            return Err(NoPath::new("long_frames", message));
        }
        require_bpf()?;
        let name = &interface.name;
        match takes_redirected_frames(interface.index) {
            Some(false) => Err(NoPath::new(
                "no_xdp",
                format!(
                    "the driver of {name} takes no frames by XDP; a veth does if its other end has an XDP program or \
                     GRO (`ethtool -K PEER gro on`)"
                ),
            )),
            _ => Ok(()),
        }
    };
    match spec.via {
        GeneratorPath::Xdp => by_xdp().map(|()| (GeneratorPath::Xdp, "asked for".to_owned())),
        GeneratorPath::AfXdp if interface.mac.is_none() => {
            Err(NoPath::new("no_xdp", format!("{} carries packets without Ethernet", interface.name)))
        }
        GeneratorPath::AfXdp | GeneratorPath::AfPacket => Ok((spec.via, "asked for".to_owned())),
        GeneratorPath::Pktgen => require_pktgen().map(|()| (GeneratorPath::Pktgen, "asked for".to_owned())),
        _ => Ok(match by_xdp() {
            Ok(()) => (GeneratorPath::Xdp, "the fastest".to_owned()),
            // What carries no Ethernet has no XDP either.
            Err(no_path) if interface.mac.is_none() => (GeneratorPath::AfPacket, no_path.reason),
            Err(no_path) => (GeneratorPath::AfXdp, no_path.reason),
        }),
    }
}

/// The name of a path, as users write it.
pub fn name_of(path: GeneratorPath) -> &'static str {
    match path {
        GeneratorPath::Auto => "auto",
        GeneratorPath::Xdp => "xdp",
        GeneratorPath::AfXdp => "af_xdp",
        GeneratorPath::AfPacket => "af_packet",
        GeneratorPath::Pktgen => "pktgen",
        GeneratorPath::Pcap => "pcap",
    }
}
