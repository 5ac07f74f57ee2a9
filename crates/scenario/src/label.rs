//! What figures are kept for: requests and transactions of one name.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use leadline_wire::scenario::LabelKind;

/// What figures are kept for.
#[derive(Debug)]
pub struct Label {
    /// The name.
    pub name: LabelName,
    /// Request or transaction.
    pub kind: LabelKind,
    /// Index of its population.
    pub population: u32,
    /// Names of its checks.
    pub checks: Vec<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Whether lists of samples never have it.
    pub is_hidden: bool,
}

/// The name of a label: known from the beginning, or found while a replay reads its source.
#[derive(Debug, Default)]
pub struct LabelName(OnceLock<String>);

impl LabelName {
    /// Names it, unless it has a name.
    pub fn set(&self, name: String) {
        let _ = self.0.set(name);
    }

    /// Whether it has a name.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.0.get().is_some()
    }
}

impl From<String> for LabelName {
    fn from(name: String) -> Self {
        Self(OnceLock::from(name))
    }
}

impl std::ops::Deref for LabelName {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.get().map_or("", String::as_str)
    }
}
