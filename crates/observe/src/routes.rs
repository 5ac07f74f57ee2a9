//! The routes of the calling thread's network namespace. The agent adds interfaces and their addresses, which need
//! getifaddrs.

use std::fs;

use leadline_wire::RouteView;

use crate::parse;

/// Returns the routes that are up, IPv4 first; a family that the kernel lacks has none.
pub fn routes() -> Vec<RouteView> {
    let read = |name: &str| fs::read(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let mut list = parse::routes::ipv4(&read("route"));
    list.extend(parse::routes::ipv6(&read("ipv6_route")));
    list
}
