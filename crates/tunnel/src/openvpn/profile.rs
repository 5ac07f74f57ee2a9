//! A client's profile, an `.ovpn` file with every file that it refers to in an inline block: read into what the fleet's machine
//! needs. Owns which options are obeyed. One that cannot be obeyed is refused with its line, and one that means nothing to clients
//! without a host of their own is listed. It reads no file, and no error of its tells a key or a password.

use self::lines::directives;
use self::parser::Parser;

pub use self::error::ProfileError;
pub use self::settings::{Family, Ignored, Profile, Remote, Transport, VerifyName, WrapProfile};
pub use self::suites::TlsVersion;

mod error;
mod ignored;
mod lines;
mod option_table;
mod parser;
mod settings;
mod suites;
#[cfg(test)]
mod tests;

/// Read a profile.
///
/// # Errors
/// The first option that cannot be obeyed, or what is missing.
pub fn parse(text: &str) -> Result<Profile, ProfileError> {
    let mut parser = Parser::default();
    for directive in directives(text, 1)? {
        parser.read(directive)?;
    }
    parser.finish()
}
