//! Ordered lists without duplicates: pushed routes, name servers, option texts. Lookup uses hashes, because a server
//! may push thousands of items repeatedly. The caller limits their number.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A list without duplicates, in insertion order.
#[derive(Clone, PartialEq, Eq)]
pub struct Listed<T: Eq + Hash> {
    order: Vec<T>,
    known: HashSet<T>,
}

/// The text of an option, which is found by that text.
#[derive(Clone)]
pub struct Text {
    text: Arc<str>,
    /// The index among the updatable options, if it is one.
    pub(super) kind: Option<u8>,
}

impl<T: Clone + Eq + Hash> Listed<T> {
    /// Adds `item` unless the list contains it; returns whether it was new.
    pub fn push(&mut self, item: T) -> bool {
        let is_new = self.known.insert(item.clone());
        if is_new {
            self.order.push(item);
        }
        is_new
    }

    /// Whether the list contains an item.
    pub fn contains<Q: Eq + Hash + ?Sized>(&self, item: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.known.contains(item)
    }

    /// Removes the items for which `goes` returns true.
    pub fn remove(&mut self, mut goes: impl FnMut(&T) -> bool) {
        let known = &mut self.known;
        self.order.retain(|item| {
            let gone = goes(item);
            if gone {
                known.remove(item);
            }
            !gone
        });
    }
}

impl<T: Eq + Hash> Default for Listed<T> {
    fn default() -> Self {
        Self { order: Vec::new(), known: HashSet::new() }
    }
}

impl<T: Eq + Hash> Deref for Listed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.order
    }
}

impl<T: Eq + Hash + fmt::Debug> fmt::Debug for Listed<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.order.fmt(formatter)
    }
}

impl Text {
    pub(super) fn new(text: &str, kind: Option<u8>) -> Self {
        Self { text: text.into(), kind }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static COMPARED: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Clone, Debug)]
    struct Counted(u32);

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted {}

    #[test]
    fn listed_items_keep_order_and_are_unique() {
        let mut listed = Listed::default();
        let new: Vec<bool> = [3, 1, 3, 2].into_iter().map(|item| listed.push(item)).collect();
        assert_eq!((new, &listed[..]), (vec![true, true, false, true], &[3, 1, 2][..]));
        listed.remove(|item| *item == 1);
        assert!(!listed.contains(&1) && listed.contains(&2));
        assert!(listed.push(1));
        assert_eq!(&listed[..], [3, 2, 1]);
    }

    #[test]
    fn insertion_does_not_scan_the_list() {
        let mut listed = Listed::default();
        for item in 0..4096 {
            listed.push(Counted(item));
        }
        assert!(listed.contains(&Counted(4095)) && !listed.push(Counted(7)));
        // A few hashes are partly equal; a linear search would need eight million comparisons.
        assert!(COMPARED.get() < 4096, "{}", COMPARED.get());
    }
}
