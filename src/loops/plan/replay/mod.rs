//! Replays of loops: decisions that a loop would have made on recorded values. The stages of the controllers run on a
//! virtual clock.
//!
//! Nothing is read or changed here. The target, too, is simulated: it has the values at the start that the user gives,
//! and each action takes effect at once. The report lists what the history does not contain.
//!
//! | file | content |
//! |---|---|
//! | `recording` | the recorded values, with their gaps |
//! | `csv` | a recording from a CSV file |
//! | `target` | the simulated target |
//! | `effect` | models of the effect of actions on the recorded values |
//! | `rules` | the parsed spec of the loop, and what the history lacks |
//! | `stages` | one pass of each stage, with the inputs that its controller has |
//! | `clock` | steps from one event to the next |
//! | `tally` | counts and times |
//! | `report` | the result |

mod clock;
mod csv;
mod effect;
mod recording;
mod report;
mod rules;
mod stages;
mod tally;
mod target;

#[cfg(test)]
mod tests;

pub use clock::replay;
pub use csv::{CsvError, read_csv};
pub use effect::{EffectError, EffectModel};
pub use recording::{RecordedSample, Recording, RecordingError, recorded_decisions};
pub use report::{
    AlarmTime, HeldTime, MetricValues, ReplayReport, ReplayTotals, ReplayedDecision, TargetChange, UnknownTime,
};
pub use rules::{ReplayError, ReplayOptions, ReplayRules};
pub use stages::{Arrivals, ReplayedStages, StageStatus};
pub use target::{LoopTarget, REPLICAS};
