//! Whether every watch has delivered its first list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Reports whether every watch has delivered its first list. Cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness(Arc<AwaitedCount>);

/// How many watches have not delivered their first list yet.
#[derive(Default)]
struct AwaitedCount {
    awaited: AtomicUsize,
    changed: Notify,
}

impl Readiness {
    /// Every watch has delivered its first list.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.awaited.load(Ordering::Acquire) == 0
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

    /// Registers a watch, which counts as missing until the returned value reports that it is ready.
    pub(super) fn expect_one(&self) -> Awaited {
        self.0.awaited.fetch_add(1, Ordering::AcqRel);
        Awaited(Some(self.clone()))
    }
}

/// A registered watch.
pub(super) struct Awaited(Option<Readiness>);

impl Awaited {
    /// Reports its first list. Returns true the first time.
    pub fn ready(&mut self) -> bool {
        let Some(all) = self.0.take() else { return false };
        if all.0.awaited.fetch_sub(1, Ordering::AcqRel) == 1 {
            all.0.changed.notify_waiters();
        }
        true
    }
}
