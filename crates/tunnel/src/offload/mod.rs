//! Packets of a TUN device with offloads: TCP and UDP packets of up to 64 KiB that are not segmented and have no
//! complete checksums, after a `virtio_net_hdr` (VIRTIO 1.2, section 5.1.6). `Segmenter` splits one into ordinary
//! packets, and `Coalescer` combines ordinary packets, so that the kernel's cost per packet is paid once for dozens.
//! Has no side effects; unusual packets pass unchanged.

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
