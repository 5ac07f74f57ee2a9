//! A client's profile: an `.ovpn` file with every referenced file in an inline block, parsed into the machine's
//! settings. Owns which options are supported. An option that cannot be supported is refused with its line; one
//! without effect on clients without a host of their own is listed as ignored. Reads no file, and no error contains a
//! key or a password.

use self::lines::directives;
use self::parser::Parser;

pub use self::error::ProfileError;
pub use self::settings::{Family, Ignored, Profile, Remote, VerifyName, WrapProfile};
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

/// Parses a profile.
///
/// # Errors
/// The first unsupported option, or what is missing.
pub fn parse(text: &str) -> Result<Profile, ProfileError> {
    let mut parser = Parser::default();
    for directive in directives(text, 1)? {
        parser.read(directive)?;
    }
    parser.finish()
}
