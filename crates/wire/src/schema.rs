//! The derive of each type's JSON Schema: schemars' with the feature `schema`, which the generator of `contract/` needs,
//! and otherwise one that makes nothing.

#[cfg(not(feature = "schema"))]
pub(crate) use leadline_no_schema::JsonSchema;
#[cfg(feature = "schema")]
pub(crate) use schemars::JsonSchema;
