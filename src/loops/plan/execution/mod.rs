//! The third stage: each decision has at most one effect, no matter which process is killed when.
//!
//! The goal is recorded as an absolute value before it is written to the target. After a crash, the target is read
//! before any effect is repeated. Its generation shows whether anybody, including us, has changed its spec since the
//! claim: while it is the same, nobody has. An effect that cannot be verified (an event that was sent) is never
//! repeated. Must not know how the target is read or written.
//!
//! | file | content |
//! |---|---|
//! | `types` | types that the other files share: input, target state, effects, steps |
//! | `step` | the next step, and the claim of a decision |
//! | `goal` | the absolute value for the target |
//! | `composition` | the resources of a pod, and which resizes the API server or the kubelet would refuse |
//! | `resume` | the next step of a claim |
//! | `ownership` | who else applies the field that a rung changes, and how it is handed over |
//! | `replicas` | what to do about a target that sets no number of replicas |
//! | `end` | the result of an effect, and the end of a decision |
//! | `recorded` | statuses with their conditions |
//! | `resize` | the choice of pods to resize, and their progress |
//! | `deferral` | resizes that a kubelet defers for too long, and how they are taken back |
//! | `trial` | the result of a rung if it were carried out, without a decision |
//! | `undone` | whether somebody else undoes the changes of this loop |
//! | `texts` | texts of messages; names of created objects |

mod composition;
mod deferral;
mod end;
pub mod goal;
pub mod ownership;
mod recorded;
pub mod replicas;
mod resize;
mod resume;
mod step;
mod texts;
mod trial;
mod types;
mod undone;

#[cfg(test)]
mod tests;

pub use composition::{ContainerAmounts, POD_LEVEL_FEATURE, PodComposition, PodNode, pod_level_refusal};
pub use deferral::{is_due, rung_to_read};
pub use end::after_effect;
pub use step::next_step;
pub use texts::{action_name, event_id, value_text};
pub use trial::{Trial, trial};
pub use types::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, OwnedField, PendingResize,
    PodResize, PodResources, ResizeTarget, Sent, TargetState, TunedLoop, WorkloadActionState,
};
pub use undone::{UndoneField, undone_fields};
