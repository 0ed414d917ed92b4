//! Cache of the Secrets that requests name: a loop with one request a second costs the API server one read in five
//! minutes, or one in ten seconds if the Secret cannot be read. ConfigMaps are cached likewise.
//!
//! Bounded in number, also per namespace, and in bytes. Entries that were not used for [`SECRET_AGE`] are dropped when
//! another Secret is used, or by `drop_unused`, which the owner calls once a minute: a value outlives its last use by a
//! few minutes at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::{SECRET_AGE, Unanswered};
use ganglion_runtime::fairness::{TenantCounts, largest};

/// Lifetime of a cached error, at first: a user may be about to create the Secret. Requests that need a newer Secret,
/// for example after a refusal, never get an error from the cache.
const FAILED_SECRET_AGE: Duration = Duration::from_secs(10);

/// Number of failed reads after which the lifetime of an error doubles with each of them.
const PATIENCE: u32 = 6;

/// Upper limit of the doubled lifetime.
const LONGEST_FAILED_AGE: Duration = Duration::from_secs(300);

/// Maximum number of reads per second of Secrets that cannot be read, all of a cache together: 5,000 machines without
/// their Secrets would otherwise cost the API server 500 requests per second. Namespaces get equal shares.
const FAILED_READS_PER_SECOND: u32 = 5;

/// A namespace gets at most 1/SHARE of the entries.
const SHARE: usize = 4;

/// Maximum size in bytes of the values that any entry may cache. Only the first entries of a namespace may cache larger
/// values; larger values of the others are read for each request.
const SMALL: usize = 8 << 10;
const LARGE_ENTRIES: usize = 64;

/// Maximum size of all cached values in bytes. Beyond it, the namespace with most of them loses its oldest entries.
const BYTES: usize = 48 << 20;

/// Minimum time between two scans for unused entries.
const SWEEP: Duration = Duration::from_secs(10);

/// Kind of an object whose keys are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyedKind {
    Secret,
    ConfigMap,
}

impl KeyedKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}

/// Keys of a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WantedKeys {
    pub namespace: String,
    pub kind: KeyedKind,
    pub name: String,
    pub keys: Vec<String>,
}

/// Values of the keys, in their order.
type Values = Arc<Vec<Vec<u8>>>;

/// Secrets in use.
pub struct SecretCache {
    /// Maximum number of entries.
    most: usize,
    kept: Mutex<Kept>,
}

struct Kept {
    entries: HashMap<WantedKeys, CachedSecret>,
    /// Number of entries of each namespace.
    by_namespace: TenantCounts<String>,
    /// Number of entries of each namespace whose last read failed.
    failing: TenantCounts<String>,
    swept: Instant,
}

struct CachedSecret {
    used: Instant,
    /// Whether the entry may cache large values.
    large: bool,
    /// Size of the cached values.
    bytes: usize,
    /// Consecutive failed reads.
    failures: u32,
    /// Last read. Locked while the Secret is being read, so that concurrent requests share one read.
    read: ReadSlot,
}

type ReadSlot = Arc<AsyncMutex<Option<LastRead>>>;

/// Time and result of the last read of a Secret.
struct LastRead {
    at: Instant,
    /// Lifetime of an error.
    lifetime: Duration,
    result: Result<Values, Unanswered>,
}

impl LastRead {
    fn now(result: Result<Values, Unanswered>, lifetime: Duration) -> Option<Self> {
        Some(Self { at: Instant::now(), lifetime, result })
    }

    /// The result, if it is younger than `age`. None if the Secret must be read.
    fn current(&self, age: Duration) -> Option<Result<Values, Unanswered>> {
        match &self.result {
            Ok(values) => (self.at.elapsed() < age).then(|| Ok(Arc::clone(values))),
            Err(error) => {
                let left = self.lifetime.saturating_sub(self.at.elapsed());
                let again = Some(left);
                (age >= SECRET_AGE && !left.is_zero()).then(|| Err(Unanswered { again, ..error.clone() }))
            }
        }
    }
}

impl Kept {
    /// Lifetime of a cached error in this namespace after this many failed reads.
    fn error_lifetime(&self, namespace: &str, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(PATIENCE).min(8);
        let alone = FAILED_SECRET_AGE.saturating_mul(1 << doublings).min(LONGEST_FAILED_AGE);
        alone.max(self.failing.interval(namespace, FAILED_READS_PER_SECOND))
    }

    fn insert(&mut self, wanted: &WantedKeys, entry: CachedSecret) {
        self.by_namespace.add(wanted.namespace.clone());
        self.entries.insert(wanted.clone(), entry);
    }

    /// Drops the least recently used entry of one namespace, or of all.
    fn drop_oldest(&mut self, namespace: Option<&str>) {
        let candidates =
            self.entries.iter().filter(|(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace));
        let oldest = candidates.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest {
            self.remove(&oldest);
        }
    }

    /// Drops entries that were not used for [`SECRET_AGE`].
    fn sweep(&mut self, now: Instant) {
        self.swept = now;
        let is_unused = |key: &WantedKeys, entry: &CachedSecret| {
            // Kept until it is read again, so that its failures are counted.
            let longest = SECRET_AGE.max(self.error_lifetime(&key.namespace, entry.failures).saturating_mul(2));
            now.duration_since(entry.used) >= if entry.failures > 0 { longest } else { SECRET_AGE }
        };
        let unused = self.entries.iter().filter(|(key, entry)| is_unused(key, entry));
        let unused: Vec<WantedKeys> = unused.map(|(key, _)| key.clone()).collect();
        for key in unused {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &WantedKeys) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.by_namespace.remove(&key.namespace);
        if entry.failures > 0 {
            self.failing.remove(&key.namespace);
        }
    }
}

impl SecretCache {
    /// Creates a cache with at most this number of entries.
    pub fn new(most: usize) -> Self {
        let (entries, by_namespace, failing) = Default::default();
        let kept = Kept { entries, by_namespace, failing, swept: Instant::now() };
        Self { most, kept: Mutex::new(kept) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached values if they are younger than `age`; otherwise reads them. An error is cached for some
    /// seconds.
    pub async fn get(
        &self,
        wanted: &WantedKeys,
        age: Duration,
        read: impl Future<Output = Result<Vec<Vec<u8>>, Unanswered>>,
    ) -> Result<Values, Unanswered> {
        let (slot, large) = self.slot(wanted);
        let mut known = slot.lock().await;
        if let Some(result) = known.as_ref().and_then(|known| known.current(age)) {
            return result;
        }
        // Remains if the caller is cancelled during the read.
        let words = format!("{} {} cannot be read: the last read took too long", wanted.kind.as_str(), wanted.name);
        let lifetime = self.count_failure(wanted);
        let failed = |error| Unanswered { again: Some(lifetime), ..error };
        *known = LastRead::now(Err(Unanswered::passing(words)), lifetime);
        let result = read.await.map(Arc::new).map_err(failed);
        if result.is_ok() {
            self.count_success(wanted);
        }
        let bytes = result.as_ref().map_or(0, |values| values.iter().map(Vec::len).sum());
        if large || bytes <= SMALL {
            *known = LastRead::now(result.clone(), lifetime);
            self.set_size(wanted, bytes);
        } else {
            *known = None;
        }
        result
    }

    /// Counts a read as failed until it succeeds. Returns the lifetime of its error.
    fn count_failure(&self, wanted: &WantedKeys) -> Duration {
        let mut kept = self.kept();
        // The entry may have been dropped while the caller waited for another read.
        let Some(entry) = kept.entries.get_mut(wanted) else { return FAILED_SECRET_AGE };
        entry.failures = entry.failures.saturating_add(1);
        let failures = entry.failures;
        if failures == 1 {
            kept.failing.add(wanted.namespace.clone());
        }
        kept.error_lifetime(&wanted.namespace, failures)
    }

    fn count_success(&self, wanted: &WantedKeys) {
        let mut kept = self.kept();
        if kept.entries.get_mut(wanted).is_some_and(|entry| std::mem::take(&mut entry.failures) > 0) {
            kept.failing.remove(&wanted.namespace);
        }
    }

    /// Sets the size of an entry's values, and drops entries until the others fit.
    fn set_size(&self, wanted: &WantedKeys, bytes: usize) {
        let mut kept = self.kept();
        if let Some(entry) = kept.entries.get_mut(wanted) {
            entry.bytes = bytes;
        }
        let sizes = |kept: &Kept| {
            let sizes = kept.entries.iter().map(|(key, entry)| (key.namespace.as_str(), entry.bytes));
            largest(sizes).map(|(namespace, all)| (namespace.to_owned(), all))
        };
        while let Some((namespace, all)) = sizes(&kept)
            && all > BYTES
        {
            kept.drop_oldest(Some(&namespace));
        }
    }

    /// Drops entries that were not used for [`SECRET_AGE`].
    pub fn drop_unused(&self) {
        self.kept().sweep(Instant::now());
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.kept().entries.len()
    }

    /// Last read, and whether large values may be cached.
    fn slot(&self, wanted: &WantedKeys) -> (ReadSlot, bool) {
        let now = Instant::now();
        let mut kept = self.kept();
        if now.duration_since(kept.swept) >= SWEEP {
            kept.sweep(now);
        }
        if let Some(entry) = kept.entries.get_mut(wanted) {
            entry.used = now;
            return (Arc::clone(&entry.read), entry.large);
        }
        if kept.by_namespace.count(&wanted.namespace) >= self.most / SHARE {
            kept.drop_oldest(Some(&wanted.namespace));
        } else if kept.entries.len() >= self.most {
            kept.drop_oldest(None);
        }
        let (read, large) = (ReadSlot::default(), kept.by_namespace.count(&wanted.namespace) < LARGE_ENTRIES);
        kept.insert(wanted, CachedSecret { used: now, large, bytes: 0, failures: 0, read: Arc::clone(&read) });
        (read, large)
    }
}

#[cfg(test)]
mod tests {
    use super::super::REFUSED_SECRET_AGE;
    use super::*;

    const MOST: usize = 256;
    const EACH: usize = MOST / SHARE;

    fn wanted(namespace: &str, secret: usize) -> WantedKeys {
        let (namespace, name) = (namespace.into(), secret.to_string());
        WantedKeys { namespace, kind: KeyedKind::Secret, name, keys: vec!["token".into()] }
    }

    /// Returns whether the value was read now.
    async fn get(cache: &SecretCache, wanted: &WantedKeys, age: Duration) -> bool {
        let mut read = false;
        let reads = async {
            read = true;
            tokio::task::yield_now().await;
            Ok(vec![b"open".to_vec()])
        };
        cache.get(wanted, age, reads).await.unwrap();
        read
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_is_read_again_after_its_time_and_after_a_refusal() {
        let (cache, one) = (SecretCache::new(MOST), wanted("a", 1));
        assert!(get(&cache, &one, SECRET_AGE).await);
        tokio::time::advance(SECRET_AGE / 2).await;
        assert!(!get(&cache, &one, SECRET_AGE).await);
        assert!(get(&cache, &one, Duration::from_secs(10)).await, "refused");
        assert!(!get(&cache, &one, Duration::from_secs(10)).await, "refused again at once");
        tokio::time::advance(SECRET_AGE).await;
        assert!(get(&cache, &one, SECRET_AGE).await);
        assert!(cache.get(&one, Duration::ZERO, async { Err("gone".to_owned().into()) }).await.is_err());
        assert!(
            cache.get(&one, SECRET_AGE, async { Ok(Vec::new()) }).await.is_err(),
            "what cannot be read is not used"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_cannot_be_read_is_not_asked_for_at_each_poll() {
        let (cache, one) = (SecretCache::new(MOST), wanted("a", 1));
        let mut reads = 0;
        for _ in 0..60 {
            let read = async {
                reads += 1;
                Err("there is no Secret 1".to_owned().into())
            };
            let error = cache.get(&one, SECRET_AGE, read).await.unwrap_err();
            assert_eq!(error.words, "there is no Secret 1");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(reads, 6, "in a minute");
        for age in [REFUSED_SECRET_AGE, Duration::ZERO] {
            assert!(cache.get(&one, age, async { Err("gone".to_owned().into()) }).await.is_err());
            assert!(get(&cache, &one, age).await, "an error is no answer to who wants a Secret of {age:?}");
        }
        assert!(!get(&cache, &one, SECRET_AGE).await, "it can be read now");
    }

    /// Number of reads of these missing Secrets within this time. Each is used again when its error has ended.
    async fn reads(cache: &SecretCache, secrets: usize, time: Duration) -> usize {
        let (mut reads, end) = (0, Instant::now() + time);
        let mut due: std::collections::BTreeSet<(Instant, usize)> =
            (0..secrets).map(|one| (Instant::now(), one)).collect();
        while let Some((at, secret)) = due.pop_first()
            && at < end
        {
            tokio::time::sleep_until(at).await;
            let read = async {
                reads += 1;
                Err("there is no such Secret".to_owned().into())
            };
            let error = cache.get(&wanted(&secret.to_string(), secret), SECRET_AGE, read).await.unwrap_err();
            due.insert((Instant::now() + error.again.unwrap(), secret));
        }
        reads
    }

    #[tokio::test(start_paused = true)]
    async fn many_missing_secrets_cost_few_reads() {
        let few = reads(&SecretCache::new(MOST), 1, Duration::from_hours(1)).await;
        assert!((12..=24).contains(&few), "{few}");
        for secrets in [300, 1_000] {
            let cache = SecretCache::new(8192);
            let all = reads(&cache, secrets, Duration::from_secs(600)).await;
            assert!(all <= secrets * 2 + 5 * 600, "{all} reads of {secrets} Secrets in ten minutes");
            // Once they exist, they cost what others cost.
            for secret in 0..secrets {
                assert!(get(&cache, &wanted(&secret.to_string(), secret), REFUSED_SECRET_AGE).await);
            }
            assert!(cache.kept().failing.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn missing_secrets_of_one_namespace_do_not_delay_those_of_others() {
        let cache = SecretCache::new(8192);
        let lifetime = async |one: &WantedKeys| {
            let read = async { Err("there is no such Secret".to_owned().into()) };
            cache.get(one, SECRET_AGE, read).await.unwrap_err().again.unwrap()
        };
        for secret in 0..1000 {
            lifetime(&wanted("a", secret)).await;
        }
        assert_eq!(lifetime(&wanted("b", 0)).await, FAILED_SECRET_AGE);
        assert!(lifetime(&wanted("a", 1000)).await >= Duration::from_secs(400));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_nobody_waited_for_counts_as_an_error() {
        let (cache, one) = (SecretCache::new(MOST), wanted("a", 1));
        let hangs = cache.get(&one, SECRET_AGE, std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), hangs).await.is_err());
        let error = cache.get(&one, SECRET_AGE, async { Ok(Vec::new()) }).await.unwrap_err();
        assert_eq!(error.words, "Secret 1 cannot be read: the last read took too long");
        tokio::time::advance(FAILED_SECRET_AGE).await;
        assert!(get(&cache, &one, SECRET_AGE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_of_many_loops_is_read_once() {
        let (cache, one) = (SecretCache::new(MOST), wanted("a", 1));
        let all = futures::future::join_all((0..50).map(|_| get(&cache, &one, SECRET_AGE))).await;
        assert_eq!(all.iter().filter(|read| **read).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn secrets_do_not_pile_up_and_one_namespace_does_not_drive_out_others() {
        let cache = SecretCache::new(MOST);
        assert!(get(&cache, &wanted("b", 0), SECRET_AGE).await);
        for nth in 0..1000 {
            get(&cache, &wanted("a", nth), SECRET_AGE).await;
        }
        assert!(!get(&cache, &wanted("b", 0), SECRET_AGE).await);
        assert_eq!(cache.len(), EACH + 1);
        tokio::time::advance(SECRET_AGE).await;
        get(&cache, &wanted("c", 0), SECRET_AGE).await;
        assert_eq!(cache.len(), 1, "what is not used is dropped");
        cache.drop_unused();
        assert_eq!(cache.len(), 1, "it is used");
        tokio::time::advance(SECRET_AGE).await;
        cache.drop_unused();
        assert_eq!(cache.len(), 0, "without another use too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_with_long_values_loses_its_own() {
        let cache = SecretCache::new(4096);
        assert!(get(&cache, &wanted("b", 0), SECRET_AGE).await);
        for nth in 0..LARGE_ENTRIES {
            let long = async { Ok(vec![vec![b'x'; 1 << 20]]) };
            cache.get(&wanted("a", nth), SECRET_AGE, long).await.unwrap();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(cache.len(), BYTES >> 20, "one entry is of another namespace");
        assert!(!get(&cache, &wanted("b", 0), SECRET_AGE).await);
        assert!(get(&cache, &wanted("a", 0), SECRET_AGE).await, "the oldest");
    }

    #[tokio::test(start_paused = true)]
    async fn long_values_are_kept_for_the_first_entries_of_a_namespace_only() {
        let cache = SecretCache::new(4096);
        let long = async |nth, bytes: usize| {
            let mut read = false;
            let reads = async {
                read = true;
                Ok(vec![vec![b'x'; bytes]])
            };
            assert_eq!(cache.get(&wanted("a", nth), SECRET_AGE, reads).await.unwrap()[0].len(), bytes);
            read
        };
        for nth in 0..LARGE_ENTRIES + 2 {
            assert!(long(nth, SMALL + 1).await);
        }
        assert!(!long(0, SMALL + 1).await);
        assert!(long(LARGE_ENTRIES, SMALL + 1).await, "read for each request");
        assert!(long(LARGE_ENTRIES + 2, SMALL).await && !long(LARGE_ENTRIES + 2, SMALL).await);
    }
}
