//! Deserializes any node of a document without expecting a type, so that the reader can report a wrong type in its own
//! words.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value that can be made from any node. The default for each kind of node is `other`.
pub trait Shape: Sized {
    /// Makes a value from a node of this kind, such as `a number`; `empty` is null.
    fn other(kind: &'static str) -> Self;

    fn text(_: &str) -> Self {
        Self::other("a text")
    }

    fn whole(_: u64) -> Self {
        Self::other("a number")
    }

    fn list<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::other("a list"))
    }

    fn object<'de, A: MapAccess<'de>>(mut members: A) -> Result<Self, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::other("an object"))
    }
}

/// Deserializes any node as `T`.
pub struct Node<T>(pub T);

impl<'de, T: Shape> Deserialize<'de> for Node<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any(PhantomData)).map(Self)
    }
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Shape> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        Ok(T::whole(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_i128<E>(self, _: i128) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_u128<E>(self, _: u128) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::other("a number"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::other("true or false"))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::other("empty"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<T, A::Error> {
        T::list(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::object(members)
    }
}
