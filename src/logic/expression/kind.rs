//! The types a value in an expression can have.
//!
//! Owns their names as users read them; no rules about which go together.

use std::fmt;

/// The type of a value in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// true or false.
    Bool,
    /// A whole number of 64 bits.
    Int,
    /// A number with a fraction.
    Double,
    /// Text.
    Text,
}

impl Kind {
    /// Whether it can be computed with.
    #[must_use]
    pub fn is_number(self) -> bool {
        match self {
            Self::Int | Self::Double => true,
            Self::Bool | Self::Text => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "a bool",
            Self::Int => "an int",
            Self::Double => "a double",
            Self::Text => "a string",
        })
    }
}
