//! Tests of the third hop.

mod crashes;
mod goal;
mod resize;
mod steps;
mod trial;
