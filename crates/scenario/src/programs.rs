//! What users do. A program is resumed for one user at a time, with the end of an exchange if the user awaited one, and
//! returns why the user does not go on.

pub mod flow;
