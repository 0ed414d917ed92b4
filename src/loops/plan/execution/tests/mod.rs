//! Tests of the third stage.

mod crashes;
mod goal;
mod ownership;
mod resize;
mod steps;
mod trial;
