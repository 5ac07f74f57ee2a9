//! OpenVPN as machines: a client and a server of its own kind that are given packets and a time and say what to send.
//! The protocol is what the C implementation does (2.4 to 2.7); where its published description differs, the code counts.

pub mod digest;
pub mod framing;
pub mod packet;
pub mod reliable;
pub mod side;
pub mod wrap;
