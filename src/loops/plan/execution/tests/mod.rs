//! Tests of the third stage.

mod crashes;
mod deferral;
mod deferral_crashes;
mod goal;
mod ownership;
mod resize;
mod resize_refusals;
mod steps;
mod trial;
