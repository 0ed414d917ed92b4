//! Types of values in expressions.
//!
//! Owns the names that users see; `rules` owns the type rules.

use std::fmt;

/// Type of a value in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// true or false.
    Bool,
    /// A 64-bit integer.
    Int,
    /// A floating-point number.
    Double,
    /// Text.
    Text,
}

impl Kind {
    /// Whether values of this type are numbers.
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
