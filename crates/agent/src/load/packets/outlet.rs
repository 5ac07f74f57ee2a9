//! Where frames are written before they leave, and the ways out.

use std::io;

use leadline_sys::frames::FrameOutlet;
use leadline_sys::xdp_outlet::XdpOutlet;

/// Memory for frames that leave together.
pub trait Outlet: Send {
    /// For how many frames there is room now, up to the wanted ones.
    fn room(&mut self, wanted: usize) -> io::Result<usize>;
    /// Memory for a frame of this length.
    fn slot(&mut self, slot: usize, length: usize) -> &mut [u8];
    /// Sends the frames of the slots `from` up to, and without, `to`; returns how many were taken.
    fn send(&mut self, from: usize, to: usize) -> io::Result<usize>;
    /// Whether frames that were taken have not left.
    fn has_waiting(&mut self) -> io::Result<bool>;
}

impl Outlet for FrameOutlet {
    fn room(&mut self, wanted: usize) -> io::Result<usize> {
        Ok(wanted)
    }

    fn slot(&mut self, slot: usize, length: usize) -> &mut [u8] {
        FrameOutlet::slot(self, slot, length)
    }

    fn send(&mut self, from: usize, to: usize) -> io::Result<usize> {
        FrameOutlet::send(self, from, to)
    }

    fn has_waiting(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}

impl Outlet for XdpOutlet {
    fn room(&mut self, wanted: usize) -> io::Result<usize> {
        XdpOutlet::room(self, wanted)
    }

    fn slot(&mut self, slot: usize, length: usize) -> &mut [u8] {
        XdpOutlet::slot(self, slot, length)
    }

    fn send(&mut self, from: usize, to: usize) -> io::Result<usize> {
        XdpOutlet::send(self, from, to).map(|()| to - from)
    }

    fn has_waiting(&mut self) -> io::Result<bool> {
        self.count_outstanding().map(|parts| parts > 0)
    }
}
