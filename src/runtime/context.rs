//! What every controller works with. What one alone needs, stands beside it in that controller.

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::events::Events;
use super::store::Store;
use super::writer::Writer;
use crate::metrics::Metrics;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub store: Store,
    pub writer: Writer,
    /// Of this controller.
    pub events: Events,
    pub metrics: Metrics,
    /// What time it is; a simulation has its own.
    pub clock: fn() -> Timestamp,
    /// Cancelled when passes should come to an end.
    pub stop: CancellationToken,
}

impl Context {
    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Nothing new is begun any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.writer.is_fenced() || self.stop.is_cancelled()
    }
}
