//! `derive(JsonSchema)` for builds without schemars, which nothing needs but the generator of `contract/`: its derives
//! are a tenth of an agent's compile time. See docs/decisions/0017-an-agent-within-minutes.md.

use proc_macro::TokenStream;

/// Makes nothing; takes the attributes that schemars' own derive takes.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn derive_nothing(_: TokenStream) -> TokenStream {
    TokenStream::new()
}
