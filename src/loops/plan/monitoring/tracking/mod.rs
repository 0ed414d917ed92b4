//! Actions on side Target, parsed, and the state of the target that they need.
//!
//! | file | content |
//! |---|---|
//! | `rules` | the parsed actions |
//! | `target` | the state of the target, and the change that the loop itself has made |

mod rules;
mod target;

pub(super) use rules::TrackedSource;
pub use rules::TrackingRules;
pub use target::{OwnScaling, PassMemory, TargetNews, TargetReading};
