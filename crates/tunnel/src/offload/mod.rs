//! What a TUN device with offloads trades in: TCP and UDP packets of up to 64 KiB that are yet to be segmented, with checksums
//! yet to be filled in, behind a `virtio_net_hdr` (VIRTIO 1.2, section 5.1.6). `Segmenter` makes ordinary packets of one,
//! `Coalescer` makes one of ordinary packets, so that the kernel's cost per packet is paid once for dozens. Pure bytes;
//! anything odd passes as it is.

pub(crate) mod checksum;
mod coalesce;
mod header;
pub(crate) mod layout;
mod segment;

pub use coalesce::Coalescer;
pub use header::{Header, FRAME_MAX_BYTES, HEADER_BYTES};
pub use layout::PACKET_MAX_BYTES;
pub use segment::Segmenter;

#[cfg(test)]
mod tests;
