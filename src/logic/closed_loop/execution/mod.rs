//! The third hop: one decision in, at most one effect out, whatever is killed when.
//!
//! What is to be done is recorded, as an absolute value, before it is done; after a crash the world is looked at before
//! anything is repeated. The target's generation tells whether our change, or anybody's, happened since the claim: as long as
//! it is the same, none did. What cannot be looked at (an event that was sent) is never repeated. Must not know how the
//! target is read or written.
//!
//! | file | what it decides |
//! |---|---|
//! | `types` | the types that the other files share |
//! | `step` | the next step |
//! | `begin` | what a decision is to change; that is recorded |
//! | `goal` | the absolute value that the target is to have |
//! | `resume` | the next step of what is recorded |
//! | `end` | how a decision ended |
//! | `resize` | which pods get other resources, and how far each one is |
//! | `undone` | whether somebody else takes back what this loop did |
//! | `identity`, `texts` | names of what is made; words of messages |

mod begin;
mod end;
pub mod goal;
mod identity;
mod resize;
mod resume;
mod step;
mod texts;
mod types;
mod undone;

#[cfg(test)]
mod tests;

pub use end::after_effect;
pub use identity::{action_name, event_id};
pub use step::next_step;
pub use types::{
    ActionProgress, EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, PendingResize,
    PodResize, PodResources, ResizeTarget, Sent, TargetState, TunedLoop,
};
