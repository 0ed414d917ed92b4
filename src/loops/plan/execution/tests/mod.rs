//! Tests of the third stage.

mod crashes;
mod goal;
mod resize;
mod steps;
mod trial;
