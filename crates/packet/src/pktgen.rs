//! The kernel's packet generator (pktgen): the commands for the frames asked for (`settings`), the texts of its files
//! (`status`), and what its frames say about themselves (`header`).

pub mod header;
pub mod settings;
pub mod status;
