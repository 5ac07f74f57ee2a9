//! Raw frames: generators that send them into an interface, and receivers that count them. A generator and a receiver are
//! two tasks, on one host or on two; a test's number in each frame ties them together.
//!
//! `link` is the interface and the way to the next hop. `generator` chooses a path into it and runs its threads: each is a
//! `sender` (`xdp_sender`, `socket_sender`, `capture_sender`, `pktgen_sender`). `receiver` does so for the way out, by a `counter`
//! (`xdp_counter`, `socket_counter`).

mod capture_sender;
mod counter;
mod generator;
mod link;
mod outlet;
mod path;
mod path_choice;
mod pktgen_sender;
mod receiver;
mod report;
mod sender;
mod socket_counter;
mod socket_sender;
#[cfg(test)]
mod tests;
mod xdp_counter;
mod xdp_sender;

pub use generator::prepare as prepare_generator;
pub use receiver::prepare as prepare_receiver;
