//! A fleet of VPN clients.
#![allow(dead_code)]

mod metric;
mod traffic;
