//! The packet engine's frames as pure functions: their layout, the programs that write and count them, and captures.
