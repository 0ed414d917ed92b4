//! Shared limit on concurrent requests or on bytes in flight.
//!
//! Each tenant (a namespace) gets at most a share of the limit, so that none can starve the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A tenant gets at most 1/SHARE of the limit.
const SHARE: usize = 4;

/// Number of tenants above which those without a permit are dropped.
const TENANTS: usize = 1024;

/// Limited number of permits.
pub struct FairLimit {
    all: Arc<Semaphore>,
    each: usize,
    tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Counts requests that found too few permits.
    full: Counter,
}

/// Permits, returned when dropped.
pub struct FairPermit {
    all: OwnedSemaphorePermit,
    each: OwnedSemaphorePermit,
    full: Counter,
}

/// Too few permits are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl FairLimit {
    /// Creates a limit of this size. The counter counts requests that had to wait or were refused.
    pub fn new(size: usize, full: Counter) -> Self {
        // The number of permits in one request is a u32.
        let size = size.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self { all: Arc::new(Semaphore::new(size)), each: size.div_ceil(SHARE), tenants: Mutex::default(), full }
    }

    /// Waits for this number of permits, at most the share of one tenant.
    pub async fn take(&self, tenant: &str, amount: usize) -> FairPermit {
        let own = self.of(tenant);
        // The share of a tenant fits in a u32.
        let amount = amount.min(self.each) as u32;
        let left = own.available_permits().min(self.all.available_permits());
        if left < amount as usize {
            self.full.inc();
        }
        // The semaphores are never closed, so the first attempt succeeds. Waiting for the tenant's own permits first
        // prevents a tenant that used up its share from blocking the common queue.
        loop {
            if let (Ok(each), Ok(all)) =
                (own.clone().acquire_many_owned(amount).await, self.all.clone().acquire_many_owned(amount).await)
            {
                return FairPermit { all, each, full: self.full.clone() };
            }
        }
    }

    fn of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() > TENANTS {
            tenants.retain(|_, own| Arc::strong_count(own) > 1);
        }
        Arc::clone(tenants.entry(tenant.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }
}

impl FairPermit {
    /// Takes more permits if they are available. Never waits: two holders that wait for more would deadlock.
    pub fn grow(&mut self, amount: usize) -> Result<(), Full> {
        let grown = u32::try_from(amount).ok().and_then(|amount| {
            let each = self.each.semaphore().clone().try_acquire_many_owned(amount).ok()?;
            Some((each, self.all.semaphore().clone().try_acquire_many_owned(amount).ok()?))
        });
        let Some((each, all)) = grown else {
            self.full.inc();
            return Err(Full);
        };
        self.each.merge(each);
        self.all.merge(all);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_tenant_cannot_use_up_what_all_share() {
        let full = Counter::default();
        let limit = FairLimit::new(8, full.clone());
        let mut held = limit.take("a", 1).await;
        assert_eq!(held.grow(1), Ok(()));
        assert_eq!(held.grow(1), Err(Full));
        let soon = Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, limit.take("a", 1)).await.is_err());
        assert!(tokio::time::timeout(soon, limit.take("b", 2)).await.is_ok());
        assert_eq!(full.get(), 2);
        drop(held);
        assert!(tokio::time::timeout(soon, limit.take("a", 100)).await.is_ok(), "at most its part");
    }
}
