//! The Secrets that requests name, kept for some minutes: a loop of one request a second costs the API server one read in
//! five minutes.
//!
//! Bounded in number, for one namespace too. What nobody has used for as long is dropped with the next use of another Secret.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::{SECRET_AGE, Unanswered};

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
    /// When it was read, and what. Locked while it is being read, so that a Secret of many loops is read once.
    read: Slot,
}

type Slot = Arc<AsyncMutex<Option<(Instant, Values)>>>;

impl SecretCache {
    /// The values, if they were read within this time; otherwise they are read now. An error is not kept.
    ///
    /// # Errors
    /// The Secret cannot be read.
    pub async fn get(
        &self,
        wanted: &WantedKeys,
        age: Duration,
        read: impl Future<Output = Result<Vec<Vec<u8>>, Unanswered>>,
    ) -> Result<Values, Unanswered> {
        let slot = self.slot(wanted);
        let mut known = slot.lock().await;
        if let Some((_, values)) = known.as_ref().filter(|(read, _)| read.elapsed() < age) {
            return Ok(Arc::clone(values));
        }
        *known = None;
        let values = Arc::new(read.await?);
        *known = Some((Instant::now(), Arc::clone(&values)));
        Ok(values)
    }

    fn slot(&self, wanted: &WantedKeys) -> Slot {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, entry| now.duration_since(entry.used) < SECRET_AGE);
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
        assert!(get(&cache, &one, SECRET_AGE).await, "what cannot be read is not used");
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
        assert_eq!(cache.0.lock().unwrap().len(), EACH + 1);
        tokio::time::advance(SECRET_AGE).await;
        get(&cache, &wanted("c", 0), SECRET_AGE).await;
        assert_eq!(cache.0.lock().unwrap().len(), 1, "what is not used is dropped");
    }
}
