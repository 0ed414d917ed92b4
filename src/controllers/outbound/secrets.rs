//! The Secrets that requests name, kept for some minutes: a loop of one request a second costs the API server one read in
//! five minutes, and one in ten seconds if the Secret cannot be read.
//!
//! Bounded in number, for one namespace too. What nobody has used for as long is dropped with the next use of another Secret, or
//! by `drop_unused`, which the owner calls once a minute: a value does not outlive its last use by more than some minutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::{SECRET_AGE, Unanswered};

/// How long an error is kept. It counts as read this long before the end of `SECRET_AGE`, so that requests that want a newer
/// Secret, such as those after a refusal, never get it.
const FAILED_SECRET_AGE: Duration = Duration::from_secs(10);

/// Maximum number of entries; for one namespace, a quarter of it.
const MOST: usize = 256;
const EACH: usize = MOST / 4;

/// Keys of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WantedKeys {
    pub namespace: String,
    pub secret: String,
    pub keys: Vec<String>,
}

/// The values of the keys, in their order.
type Values = Arc<Vec<Vec<u8>>>;

/// The Secrets that are in use.
#[derive(Default)]
pub struct SecretCache(Mutex<HashMap<WantedKeys, Entry>>);

struct Entry {
    used: Instant,
    /// The last read. Locked while the Secret is being read, so that a Secret of many loops is read once.
    read: Slot,
}

type Slot = Arc<AsyncMutex<Option<LastRead>>>;

/// When a Secret was read, and the result.
struct LastRead {
    at: Instant,
    result: Result<Values, Unanswered>,
}

impl LastRead {
    fn now(result: Result<Values, Unanswered>) -> Option<Self> {
        Some(Self { at: Instant::now(), result })
    }

    /// How old the result counts as.
    fn age(&self) -> Duration {
        let aged = if self.result.is_ok() { Duration::ZERO } else { SECRET_AGE - FAILED_SECRET_AGE };
        self.at.elapsed() + aged
    }
}

impl SecretCache {
    /// The values, if they were read within this time; otherwise they are read now.
    ///
    /// # Errors
    /// The Secret cannot be read, or could not be read some seconds ago.
    pub async fn get(
        &self,
        wanted: &WantedKeys,
        age: Duration,
        read: impl Future<Output = Result<Vec<Vec<u8>>, Unanswered>>,
    ) -> Result<Values, Unanswered> {
        let slot = self.slot(wanted);
        let mut known = slot.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.age() < age) {
            return known.result.clone();
        }
        // Remains if the caller does not wait for the end of the read.
        let words = format!("Secret {} cannot be read: the last read took too long", wanted.secret);
        *known = LastRead::now(Err(Unanswered { words, passing: true }));
        let result = read.await.map(Arc::new);
        *known = LastRead::now(result.clone());
        result
    }

    /// Drops what nobody has used for as long as a Secret is used.
    pub fn drop_unused(&self) {
        drop(self.used());
    }

    /// Number of entries.
    #[cfg(test)]
    pub fn kept(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The entries without those that nobody uses any more.
    fn used(&self) -> MutexGuard<'_, HashMap<WantedKeys, Entry>> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, entry| now.duration_since(entry.used) < SECRET_AGE);
        all
    }

    fn slot(&self, wanted: &WantedKeys) -> Slot {
        let now = Instant::now();
        let mut all = self.used();
        if let Some(entry) = all.get_mut(wanted) {
            entry.used = now;
            return Arc::clone(&entry.read);
        }
        let own = all.keys().filter(|key| key.namespace == wanted.namespace).count();
        if own >= EACH || all.len() >= MOST {
            let candidates = all.iter().filter(|(key, _)| own < EACH || key.namespace == wanted.namespace);
            let oldest = candidates.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| all.remove(&oldest));
        }
        let entry = Entry { used: now, read: Slot::default() };
        let slot = Arc::clone(&entry.read);
        all.insert(wanted.clone(), entry);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::super::REFUSED_SECRET_AGE;
    use super::*;

    fn wanted(namespace: &str, secret: usize) -> WantedKeys {
        WantedKeys { namespace: namespace.into(), secret: secret.to_string(), keys: vec!["token".into()] }
    }

    /// The value, and whether it was read now.
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
        let (cache, one) = (SecretCache::default(), wanted("a", 1));
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
        let (cache, one) = (SecretCache::default(), wanted("a", 1));
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

    #[tokio::test(start_paused = true)]
    async fn a_read_that_nobody_waited_for_counts_as_an_error() {
        let (cache, one) = (SecretCache::default(), wanted("a", 1));
        let hangs = cache.get(&one, SECRET_AGE, std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), hangs).await.is_err());
        let error = cache.get(&one, SECRET_AGE, async { Ok(Vec::new()) }).await.unwrap_err();
        assert_eq!(error.words, "Secret 1 cannot be read: the last read took too long");
        tokio::time::advance(FAILED_SECRET_AGE).await;
        assert!(get(&cache, &one, SECRET_AGE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_of_many_loops_is_read_once() {
        let (cache, one) = (SecretCache::default(), wanted("a", 1));
        let all = futures::future::join_all((0..50).map(|_| get(&cache, &one, SECRET_AGE))).await;
        assert_eq!(all.iter().filter(|read| **read).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn secrets_do_not_pile_up_and_one_namespace_does_not_drive_out_others() {
        let cache = SecretCache::default();
        assert!(get(&cache, &wanted("b", 0), SECRET_AGE).await);
        for nth in 0..1000 {
            get(&cache, &wanted("a", nth), SECRET_AGE).await;
        }
        assert!(!get(&cache, &wanted("b", 0), SECRET_AGE).await);
        assert_eq!(cache.kept(), EACH + 1);
        tokio::time::advance(SECRET_AGE).await;
        get(&cache, &wanted("c", 0), SECRET_AGE).await;
        assert_eq!(cache.kept(), 1, "what is not used is dropped");
        cache.drop_unused();
        assert_eq!(cache.kept(), 1, "it is used");
        tokio::time::advance(SECRET_AGE).await;
        cache.drop_unused();
        assert_eq!(cache.kept(), 0, "without another use too");
    }
}
