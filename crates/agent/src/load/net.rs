//! What loads over HTTP share below their machines: sockets over io_uring or epoll (`io_backend`), their options and TLS
//! (`options`), the names of their failures (`failure`), and their end (`shutdown`).

pub mod failure;
pub mod io_backend;
pub mod options;
pub mod shutdown;
