//! TUN devices.
