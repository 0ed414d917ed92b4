//! Readiness of the watches: whether every watch has delivered its first list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Reports whether every watch has delivered its first list; cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Number of watches without a first list.
    missing: AtomicUsize,
    changed: Notify,
}

impl Readiness {
    /// Whether every watch has delivered its first list.
    pub fn is_ready(&self) -> bool {
        self.0.missing.load(Ordering::Acquire) == 0
    }

    /// Returns when every watch has delivered its first list.
    pub async fn ready(&self) {
        loop {
            let changed = self.0.changed.notified();
            if self.is_ready() {
                return;
            }
            changed.await;
        }
    }

    /// Registers a watch. It counts as missing until [`Awaited::ready`] is called.
    pub fn expect_one(&self) -> Awaited {
        self.0.missing.fetch_add(1, Ordering::AcqRel);
        Awaited(Some(self.clone()))
    }
}

/// A registered watch.
pub struct Awaited(Option<Readiness>);

impl Awaited {
    /// Whether the first list has not been reported.
    pub fn is_waiting(&self) -> bool {
        self.0.is_some()
    }

    /// Reports the first list. Returns true for the first call, false for later ones.
    pub fn ready(&mut self) -> bool {
        let Some(all) = self.0.take() else { return false };
        if all.0.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            all.0.changed.notify_waiters();
        }
        true
    }
}
