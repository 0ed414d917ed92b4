//! The reasons of closed loops: one closed set of words, used alike for conditions, decisions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::reasons::reasons;

reasons! {
    /// Why a loop, or one of its hops, is as it is, or why an alarm was passed over. The docs of each word say what it means
    /// to the user.
    LoopReason:

    // The loop.
    /// The loop and its children are there and work.
    Running,
    /// `spec.mode` is Paused.
    Paused,
    /// The children are being made.
    Starting,
    /// A field of the spec cannot be read; the message says which and what would be right.
    SpecInvalid,
    /// A field of the spec asks for what this version cannot do yet; the message names it.
    NotSupported,
    /// An object of a child's name is there and not ours.
    NotOwned,
    /// The loop tunes, by way of others, itself.
    Circle,
    /// More than three loops stand on one another.
    TooDeep,
    /// The loop's interval is under five times the dwell and settle of the loop that it tunes.
    TimescaleOverlap,
    /// Another loop, which came first, acts on the same target and dimension.
    LoopConflict,
    /// An autoscaler acts on the same target and dimension.
    AutoscalerConflict,

    // Why an alarm was passed over.
    /// Another alarm was served in this iteration.
    Outranked,
    /// No action is declared for the alarm.
    NoAction,
    /// No rung of the ladder is left.
    Exhausted,
    /// The least time between two actions is not over.
    Dwell,
    /// The budget of actions is used up.
    Budget,
    /// The effect of the last such action cannot be judged yet.
    Settling,
    /// Too many reversals: capacity is not lowered for now.
    Damped,
    /// Too many reversals: nothing is done for now.
    Frozen,
    /// The action is not done at this time.
    OutsideWindow,
    /// The value is unknown, so that nothing is done, or nothing that lowers capacity.
    UnknownValue,
    /// The decision before is still being carried out.
    InFlight,
    /// A proposal waits for `spec.approve`.
    AwaitsApproval,
    /// The loop's Execution is not there yet.
    NoExecutor,
    /// The expression gave 0, less, or no number.
    NotSelected,

    // How a decision ended.
    /// The alarm was served.
    Served,
    /// mode: DryRun; the alarm would have been served.
    DryRun,
    /// mode: Approve; the decision is a proposal.
    Proposed,
    /// The alarm of a proposal is over, or the policy is another: it counts no more.
    Withdrawn,
    /// A min or max left nothing to do.
    Limited,
    /// It could not be carried out; the message says why.
    Failed,
    /// What became of it cannot be known; it is not done again.
    Lost,

    // How an execution is.
    /// Nothing was to be done yet.
    Idle,
    /// It is recorded what will be done.
    Claimed,
    /// The effect is under way.
    Executing,
    /// It was done.
    Done,
    /// The target was changed by another in between; nothing was done.
    Overtaken,
    /// The target does not exist.
    TargetNotFound,
    /// The target has no such field, or cannot be scaled.
    NotScalable,
    /// Somebody else writes the replicas again and again; the message names who.
    ReplicasOwnedElsewhere,
    /// What the loop did was undone three times within ten minutes; the message names by whom.
    FieldConflict,
    /// The loop's service account may not do this; the message names verb and resource.
    Forbidden,
    /// The other loop does not let this one change that.
    NotTunable,
    /// Another loop or autoscaler has the target.
    Blocked,
    /// It did not end in time.
    TimedOut,

    // How watching is.
    /// Every metric has a value.
    Watching,
    /// Some metric has no value.
    SomeUnknown,
    /// No sample has come yet.
    NoSample,
    /// A sample was not younger than the last one.
    OutOfOrder,
    /// A sample came again.
    Repeated,
    /// A sample's time lies in the future.
    FromFuture,
    /// A sample's time cannot be read.
    Unreadable,
}
