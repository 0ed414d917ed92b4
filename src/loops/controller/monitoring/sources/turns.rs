//! Which metrics of a loop are queried: none twice at the same time, and none forgotten that was due meanwhile.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Metrics whose query runs.
#[derive(Debug, Default)]
pub struct QueryTurns {
    running: BTreeSet<String>,
    /// Metrics that became due while their query ran.
    due: BTreeSet<String>,
}

impl QueryTurns {
    /// Returns the metrics of these whose query does not run; the caller starts their queries.
    pub fn start(&mut self, metrics: BTreeSet<String>) -> BTreeSet<String> {
        let (running, free): (BTreeSet<_>, BTreeSet<_>) =
            metrics.into_iter().partition(|metric| self.running.contains(metric));
        self.due.extend(running);
        self.running.extend(free.iter().cloned());
        free
    }

    /// Whether a query runs that is not late: one of a metric that became due again meanwhile is awaited no longer.
    pub fn are_awaited(&self) -> bool {
        self.running.iter().any(|metric| !self.due.contains(metric))
    }

    /// Notes that the query of this metric has ended. Returns the metric if the caller must start its query again.
    pub fn end(&mut self, metric: &str) -> BTreeSet<String> {
        self.running.remove(metric);
        match self.due.take(metric) {
            Some(metric) => self.start(BTreeSet::from([metric])),
            None => BTreeSet::new(),
        }
    }
}

/// Metrics that something has woken.
#[derive(Debug, Default)]
pub struct WokenMetrics {
    metrics: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl WokenMetrics {
    pub fn insert(&self, metric: &str) {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).insert(metric.to_owned());
        self.changed.notify_one();
    }

    /// Takes the metrics as soon as there are any, but not before this time. Takes nothing if it is cancelled.
    pub async fn take(&self, from: Instant) -> BTreeSet<String> {
        sleep_until(from).await;
        self.changed.notified().await;
        std::mem::take(&mut *self.metrics.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(metrics: &[&str]) -> BTreeSet<String> {
        metrics.iter().map(|metric| (*metric).to_owned()).collect()
    }

    #[test]
    fn a_metric_that_is_due_meanwhile_is_queried_once_more() {
        let mut turns = QueryTurns::default();
        assert_eq!(turns.start(set(&["a", "b"])), set(&["a", "b"]));
        assert_eq!(turns.start(set(&["a"])), set(&[]));
        assert_eq!(turns.start(set(&["a", "c"])), set(&["c"]));
        assert_eq!(turns.end("b"), set(&[]));
        assert_eq!(turns.end("a"), set(&["a"]), "it is due, once");
        assert_eq!(turns.start(set(&["b"])), set(&["b"]));
        assert_eq!(turns.end("a"), set(&[]));
    }
}
