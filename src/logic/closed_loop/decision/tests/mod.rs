//! Tests of the second hop.

mod decide;
mod limits;
mod release;
