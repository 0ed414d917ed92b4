//! The decisions of closed loops: monitoring, decision and execution as pure stages, and the tuning that links loops.
//!
//! Each stage is a total function. Its inputs are its policy (parsed once), its last status, the new input, and the
//! time. Its outputs are the next status and whether that status is worth a write. A stage keeps no state between two
//! calls: after a crash between any two writes, the operator calls the stage again. State that must survive a crash is
//! written to a status before the stage relies on it.
//!
//! | folder or file | content |
//! |---|---|
//! | `monitoring/` | which samples are accepted, which alarms are raised |
//! | `decision/` | which alarm is served, by which rung, and why the others are rejected |
//! | `execution/` | the target value, and the next step, so that each decision has at most one effect |
//! | `track/` | the number of replicas that keeps metrics at their targets, as HorizontalPodAutoscaler has it |
//! | `schedule` | the time windows of actions, limits and bounds |
//! | `tuning/` | how a slow loop finds what to tune in a fast loop, and which tuned policy is in effect |
//! | `sources/` | values from what servers and the API server answer, one file for each kind of source |
//! | `check` | forecast of the loop's decision on given values, for `ganglion check` |
//! | `replay/` | what the stages would have decided on recorded values, on a virtual clock |
//! | `forecast/` | the demand of the near future from that of past seasons, and whether it can be trusted |
//! | `explain/` | the text of `ganglion explain` |
//! | `import/` | loops that do the same as a HorizontalPodAutoscaler or a ScaledObject, and the handover to them |
//! | `validate/` | whether the loop may act: its spec, conflicts on the target, chains of loops, preflights |
//! | `children` | the specs of the loop's three children |
//! | `proposal` | the decision that waits for approval, and the digest to which an approval refers |
//! | `trace` | the spans of a decision, from sample to Ready pod |
//! | `acted` | texts about an action that was carried out |
//! | `common`, `rung` | helpers that several folders use |
//!
//! No two of these folders use each other in both directions, and neither do two files of one folder; `tests/rooms`
//! checks it.
//!
//! # Terms of the API
//!
//! - *Stage*: Monitoring, Decision or Execution, each an API object. Each stage reads the status of the stage
//!   before it.
//! - *Tag*: time and sequence number of a sample. Each stage copies the tag of the sample that it processed.
//! - *Alarm*: a metric is beyond a level. It is *raised* once the value has been beyond `raise` for the time `for`. It
//!   is *cleared* once the value is back at `clear`. Between the two the alarm keeps its state (hysteresis).
//! - *Ladder*: the actions that are declared for an alarm. A *rung* is one of them. The next rung is tried when the
//!   current one reached its bounds, failed, or did not improve the value within `settle`.
//! - *Rank*: the order of the metrics by importance.
//! - *Dwell*: minimum time between two actions. *Budget*: maximum number of actions in a period.
//! - *Claim*: the record of an action in the status of an Execution, written before the action is carried out.

pub mod acted;
pub mod check;
pub mod children;
pub mod common;
pub mod decision;
pub mod execution;
pub mod explain;
pub mod figures;
pub mod forecast;
pub mod import;
pub mod monitoring;
pub mod proposal;
pub mod replay;
pub mod rung;
pub mod schedule;
pub mod sources;
pub mod trace;
pub mod track;
pub mod tuning;
pub mod validate;
pub mod world;

#[cfg(test)]
mod tests;
