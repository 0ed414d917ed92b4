//! Fairness between tenants, which are namespaces: none can starve the others.
//!
//! | piece | rule | used for |
//! |---|---|---|
//! | [`RoundRobin`] | tenants take turns; each waits behind at most one item of every other tenant | reconciles (`queue`), polls (`polls`) |
//! | [`TenantCounts`] | number of items that each tenant has now, for a bound per tenant | polls, notifications, cached Secrets |
//! | [`TenantCounts::interval`] | a number of requests per second, of which each tenant gets an equal share | Secrets that cannot be read, refused logins, reports of waits |
//! | [`largest`] | the tenant that loses an entry of a full cache | permissions, refused logins, HTTP clients |
//! | [`FairLimit`] | permits; a tenant gets at most a quarter of them, and waits for its own first | requests and bytes in flight (`outbound`), notifications, ConfigMaps of pools |
//! | [`FairMemory`] | bytes that objects hold; beyond the limit, each namespace may use an equal share | jobs of pools |
//!
//! The admission of actions (`ganglion_actions_plan`) does not use these: it has to survive restarts, so each plan
//! computes it from statuses, and its turns have sizes.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use ganglion_core::facts::Key;
use ganglion_core::world::{Occupancy, OccupancyLimits};

/// Waiting items, the smallest first within their tenant; the tenants take turns.
#[derive(Debug)]
pub struct RoundRobin<N, T> {
    waiting: HashMap<N, BTreeSet<T>>,
    /// Tenants with waiting items, in the order of their turns.
    order: VecDeque<N>,
}

impl<N, T> Default for RoundRobin<N, T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), order: VecDeque::new() }
    }
}

impl<N: Clone + Eq + Hash, T: Ord> RoundRobin<N, T> {
    /// Adds an item. A tenant without waiting items has the last turn.
    pub fn push(&mut self, tenant: N, item: T) {
        match self.waiting.get_mut(&tenant) {
            Some(waiting) => {
                waiting.insert(item);
            }
            None => {
                self.order.push_back(tenant.clone());
                self.waiting.insert(tenant, BTreeSet::from([item]));
            }
        }
    }

    /// Removes an item that need not wait any more.
    pub fn remove(&mut self, tenant: &N, item: &T) {
        let Some(waiting) = self.waiting.get_mut(tenant) else { return };
        waiting.remove(item);
        if waiting.is_empty() {
            self.waiting.remove(tenant);
            self.order.retain(|other| other != tenant);
        }
    }

    /// Takes the first item of the next tenant for which `may` is true.
    pub fn pop(&mut self, may: impl Fn(&N) -> bool) -> Option<T> {
        let turn = self.order.iter().position(may)?;
        let tenant = self.order.remove(turn)?;
        let waiting = self.waiting.get_mut(&tenant)?;
        let item = waiting.pop_first();
        if waiting.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.order.push_back(tenant);
        }
        item
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Number of items of each tenant. Forgets tenants without items.
#[derive(Debug)]
pub struct TenantCounts<N>(HashMap<N, usize>);

impl<N> Default for TenantCounts<N> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<N: Eq + Hash> FromIterator<N> for TenantCounts<N> {
    fn from_iter<I: IntoIterator<Item = N>>(tenants: I) -> Self {
        let mut counts = Self::default();
        tenants.into_iter().for_each(|tenant| counts.add(tenant));
        counts
    }
}

impl<N: Eq + Hash> TenantCounts<N> {
    pub fn add(&mut self, tenant: N) {
        *self.0.entry(tenant).or_default() += 1;
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, tenant: &Q)
    where
        N: std::borrow::Borrow<Q>,
    {
        let Some(count) = self.0.get_mut(tenant) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(tenant);
        }
    }

    pub fn count<Q: Eq + Hash + ?Sized>(&self, tenant: &Q) -> usize
    where
        N: std::borrow::Borrow<Q>,
    {
        self.0.get(tenant).copied().unwrap_or(0)
    }

    /// Number of tenants that have an item.
    pub fn tenants(&self) -> usize {
        self.0.len()
    }

    /// Whether no tenant has an item.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Interval at which each item of a tenant may cause a request, if all items together may cause so many requests
    /// per second. Tenants get equal shares: the number of items of one does not delay those of another.
    pub fn interval<Q: Eq + Hash + ?Sized>(&self, tenant: &Q, per_second: u32) -> Duration
    where
        N: std::borrow::Borrow<Q>,
    {
        let requests = self.count(tenant).saturating_mul(self.tenants());
        Duration::from_secs(1).saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX)) / per_second.max(1)
    }
}

/// Returns the tenant with the largest sum of these sizes, and the sum of all of them; None if there are none. If
/// several tenants are equally large, the last one by name counts.
pub fn largest<'a>(sizes: impl IntoIterator<Item = (&'a str, usize)>) -> Option<(&'a str, usize)> {
    let (mut sums, mut all) = (HashMap::<&str, usize>::new(), 0);
    for (tenant, size) in sizes {
        *sums.entry(tenant).or_default() += size;
        all += size;
    }
    let (tenant, _) = sums.into_iter().max_by_key(|(tenant, sum)| (*sum, *tenant))?;
    Some((tenant, all))
}

/// A tenant gets at most 1/SHARE of the limit.
const SHARE: usize = 4;

/// Number of tenants above which those without a permit are dropped.
const TENANTS: usize = 1024;

/// Limited number of permits; clones share them.
#[derive(Clone)]
pub struct FairLimit {
    all: Arc<Semaphore>,
    each: usize,
    tenants: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
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
pub struct LimitFull;

impl FairLimit {
    /// Creates a limit of this size. The counter counts requests that had to wait or were refused.
    pub fn new(size: usize, full: Counter) -> Self {
        // The number of permits in one request is a u32.
        let size = size.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self { all: Arc::new(Semaphore::new(size)), each: size.div_ceil(SHARE), tenants: Arc::default(), full }
    }

    /// Waits for this number of permits, at most the share of one tenant.
    pub async fn acquire(&self, tenant: &str, amount: usize) -> FairPermit {
        let own = self.semaphore(tenant);
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

    fn semaphore(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() > TENANTS {
            tenants.retain(|_, own| Arc::strong_count(own) > 1);
        }
        Arc::clone(tenants.entry(tenant.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }
}

impl FairPermit {
    /// Takes more permits if they are available. Never waits: two holders that wait for more would deadlock.
    pub fn grow(&mut self, amount: usize) -> Result<(), LimitFull> {
        let grown = u32::try_from(amount).ok().and_then(|amount| {
            let each = self.each.semaphore().clone().try_acquire_many_owned(amount).ok()?;
            Some((each, self.all.semaphore().clone().try_acquire_many_owned(amount).ok()?))
        });
        let Some((each, all)) = grown else {
            self.full.inc();
            return Err(LimitFull);
        };
        self.each.merge(each);
        self.all.merge(all);
        Ok(())
    }
}

/// Memory that objects hold, by namespace.
#[derive(Debug, Default)]
pub struct FairMemory(Mutex<Holdings>);

#[derive(Debug, Default)]
struct Holdings {
    occupancy: Occupancy,
    by_object: HashMap<Key, usize>,
}

impl FairMemory {
    pub fn new(limits: OccupancyLimits) -> Self {
        Self(Mutex::new(Holdings { occupancy: Occupancy::new(limits), by_object: HashMap::new() }))
    }

    /// Sets the bytes that an object holds. Returns false and changes nothing if its namespace has no room for more.
    pub fn hold(&self, object: &Key, bytes: usize) -> bool {
        self.with(|holdings| {
            let before = holdings.by_object.get(object).copied().unwrap_or(0);
            if !holdings.occupancy.admits(&object.namespace, before, bytes) {
                return false;
            }
            holdings.occupancy.replace(&object.namespace, before, bytes);
            if bytes == 0 {
                holdings.by_object.remove(object);
            } else {
                holdings.by_object.insert(object.clone(), bytes);
            }
            true
        })
    }

    /// Bytes that a namespace may add.
    pub fn free(&self, namespace: &str) -> usize {
        self.with(|holdings| holdings.occupancy.free(namespace))
    }

    /// Maximum bytes of one namespace.
    pub fn per_namespace(&self) -> usize {
        self.with(|holdings| holdings.occupancy.limits.per_namespace)
    }

    fn with<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_take_turns_and_one_that_may_not_keeps_its_turn() {
        let mut waiting = RoundRobin::default();
        for item in 0..4 {
            waiting.push("a", item);
        }
        waiting.push("b", 4);
        waiting.remove(&"a", &1);
        assert_eq!(waiting.pop(|tenant| *tenant != "a"), Some(4));
        assert_eq!(waiting.pop(|tenant| *tenant != "a"), None);
        waiting.push("b", 5);
        let order: Vec<_> = std::iter::from_fn(|| waiting.pop(|_| true)).collect();
        assert_eq!(order, [0, 5, 2, 3]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_tally_forgets_tenants_without_items() {
        let mut tally = TenantCounts::default();
        tally.add("a".to_owned());
        tally.add("a".to_owned());
        tally.remove("a");
        assert_eq!((tally.count("a"), tally.count("b")), (1, 0));
        tally.remove("a");
        tally.remove("a");
        assert!(tally.is_empty());
    }

    #[test]
    fn tenants_share_a_rate_equally() {
        let counts: TenantCounts<&str> = std::iter::repeat_n("a", 1000).chain(["b"]).collect();
        assert_eq!(counts.interval("a", 5), Duration::from_secs(400));
        assert_eq!(counts.interval("b", 5), Duration::from_millis(400));
        assert_eq!(counts.interval("c", 5), Duration::ZERO);
    }

    #[test]
    fn the_largest_tenant_is_found_by_the_sum_of_its_sizes() {
        assert_eq!(largest([("a", 2), ("b", 3), ("a", 2)]), Some(("a", 7)));
        assert_eq!(largest([("a", 1), ("b", 1)]), Some(("b", 2)));
        assert_eq!(largest([]), None);
    }

    #[test]
    fn a_namespace_gets_its_memory_back() {
        let memory = FairMemory::new(OccupancyLimits { per_namespace: 100, in_all: 150 });
        let [one, other, third] = [("a", "one"), ("b", "one"), ("c", "one")].map(|(at, name)| Key::new(at, name));
        assert!(memory.hold(&one, 100) && !memory.hold(&Key::new("a", "two"), 1));
        assert!(memory.hold(&other, 50));
        assert!(memory.hold(&third, 50) && !memory.hold(&third, 101), "its share, although all is occupied");
        assert!(memory.hold(&one, 10));
        assert_eq!(memory.free("a"), 40);
        for object in [&one, &other, &third] {
            assert!(memory.hold(object, 0));
        }
        assert_eq!((memory.free("a"), memory.with(|holdings| holdings.by_object.len())), (100, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_cannot_use_up_what_all_share() {
        let full = Counter::default();
        let limit = FairLimit::new(8, full.clone());
        let mut held = limit.acquire("a", 1).await;
        assert_eq!(held.grow(1), Ok(()));
        assert_eq!(held.grow(1), Err(LimitFull));
        let soon = Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, limit.acquire("a", 1)).await.is_err());
        assert!(tokio::time::timeout(soon, limit.acquire("b", 2)).await.is_ok());
        assert_eq!(full.get(), 2);
        drop(held);
        assert!(tokio::time::timeout(soon, limit.acquire("a", 100)).await.is_ok(), "at most its part");
    }
}
