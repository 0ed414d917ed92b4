//! Lists in answers that store only their first items.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// First `KEPT` items of a list, and its length. Null counts as an empty list: servers written in Go encode it so.
pub struct Items<T, const KEPT: usize> {
    pub kept: Vec<T>,
    pub count: usize,
}

impl<T, const KEPT: usize> Default for Items<T, KEPT> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const KEPT: usize> Deserialize<'de> for Items<T, KEPT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor(PhantomData))
    }
}

struct ItemsVisitor<T, const KEPT: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const KEPT: usize> Visitor<'de> for ItemsVisitor<T, KEPT> {
    type Value = Items<T, KEPT>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Items::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < KEPT {
            let Some(item) = items.next_element()? else { break };
            kept.push(item);
        }
        let mut count = kept.len();
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Items { kept, count })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("null", &[], 0)]
    #[case("[]", &[], 0)]
    #[case("[1]", &[1], 1)]
    #[case("[1, 2]", &[1, 2], 2)]
    #[case(r#"[1, 2, "x", {"y": []}]"#, &[1, 2], 4)]
    fn the_first_items_are_kept_and_all_are_counted(#[case] text: &str, #[case] kept: &[u8], #[case] count: usize) {
        let found: Items<u8, 2> = serde_json::from_str(text).unwrap();
        assert_eq!((found.kept.as_slice(), found.count), (kept, count));
    }

    #[rstest]
    #[case("5")]
    #[case(r#"[1, "x"]"#)]
    #[case("[1, 2, 3")]
    fn another_form_is_an_error(#[case] text: &str) {
        assert!(serde_json::from_str::<Items<u8, 2>>(text).is_err());
    }
}
