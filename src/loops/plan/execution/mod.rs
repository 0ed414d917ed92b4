//! The third hop: one decision in, at most one effect out, whatever process is killed when.
//!
//! The goal is recorded as an absolute value before it is written to the target. After a crash, the target is read
//! before anything is repeated. Its generation shows whether we or somebody else changed it since the claim: as long as
//! it is the same, nobody did. An effect that cannot be verified (an event that was sent) is never repeated. Must not
//! know how the target is read or written.
//!
//! | file | content |
//! |---|---|
//! | `types` | types that the other files share: input, target state, effects, steps |
//! | `step` | the next step |
//! | `begin` | the claim of a decision |
//! | `goal` | the absolute value that the target is to have |
//! | `resume` | the next step of a claim |
//! | `end` | the result of an effect, and the end of a decision |
//! | `resize` | which pods are resized, and their progress |
//! | `trial` | what would become of a rung, without a decision |
//! | `undone` | whether somebody else undoes the changes of this loop |
//! | `identity`, `texts` | names of created objects; texts of messages |

mod begin;
mod end;
pub mod goal;
mod identity;
mod resize;
mod resume;
mod step;
mod texts;
mod trial;
mod types;
mod undone;

#[cfg(test)]
mod tests;

pub use end::after_effect;
pub use identity::{action_name, event_id};
pub use step::next_step;
pub use texts::value_text;
pub use trial::{Trial, trial};
pub use types::{
    ActionProgress, EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, PendingResize,
    PodResize, PodResources, ResizeTarget, Sent, TargetState, TunedLoop,
};
