//! What loads over HTTP share below their machines: addresses of names (`names`, `resolver`), sockets over io_uring or epoll
//! (`dialler`, `io_backend`, `inputs`), their options and TLS (`options`), the names of their failures (`failure`), and their end
//! (`shutdown`).

pub mod dialler;
pub mod failure;
pub mod inputs;
pub mod io_backend;
pub mod names;
pub mod options;
pub mod resolver;
pub mod shutdown;
