//! Permissions of accounts, cached for some minutes: whether the operator may impersonate an account, or whether an
//! account may read in another namespace.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::account::AccountId;
use crate::error::Error;
use crate::fairness::largest;
use crate::refusals::{BELIEVED_AFTER, Refusals};

/// Lifetime of a granted permission.
const GRANTED: SignedDuration = SignedDuration::from_mins(5);

/// Lifetime of a refusal, and of any answer that could not be renewed. Short, since an administrator may be creating
/// the binding.
pub const RECHECKED_AFTER: SignedDuration = BELIEVED_AFTER;

/// Minimum time between two requests while a first refusal is not believed yet.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Maximum number of cached permissions. In a full cache, the tenant with most of them loses one.
const MOST: usize = 4096;

/// Namespace for whose objects the permission is checked.
pub trait OfTenant {
    fn tenant(&self) -> &str;
}

impl OfTenant for AccountId {
    fn tenant(&self) -> &str {
        &self.namespace
    }
}

/// Answer to the question whether an account has a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Message why the permission is missing, with advice; None if it is granted.
    pub refusal: Option<String>,
    /// Time of the next request.
    pub expires: Timestamp,
}

/// Cached permissions by the type that identifies them.
pub struct PermissionCache<K> {
    entries: Mutex<HashMap<K, CachedPermission>>,
    /// The first refusal counts.
    believes: bool,
}

impl<K> Default for PermissionCache<K> {
    fn default() -> Self {
        Self { entries: Mutex::default(), believes: false }
    }
}

impl<K: Clone + Eq + Hash + OfTenant> PermissionCache<K> {
    /// Creates a cache that believes the first refusal. For a command that ends before a refusal could be confirmed.
    pub fn believing() -> Self {
        Self { believes: true, ..Self::default() }
    }

    /// Returns the permission. If it is not cached, sends the request, whose error [`Error::Forbidden`] has the message
    /// about the missing permission. Returns an error if there is no answer yet: the API server did not reply, or its
    /// refusal may be passing.
    pub async fn check(
        &self,
        clock: fn() -> Timestamp,
        key: K,
        request: impl Future<Output = Result<(), Error>>,
    ) -> Result<Permission, Error> {
        let cached = self.lock().get(&key).cloned().unwrap_or_else(|| self.unasked(clock()));
        match (&cached.permission, &cached.doubtful) {
            (Some(permission), _) if clock() < permission.expires => return Ok(permission.clone()),
            // Many loops share an account.
            (None, Some((asked, message))) if clock() < *asked + PAUSE => {
                return Err(Error::Doubtful(message.clone()));
            }
            (Some(_) | None, _) => {}
        }
        let (cached, problem) = cached.after(request.await, clock());
        let permission = cached.permission.clone();
        let mut entries = self.lock();
        if entries.len() >= MOST
            && !entries.contains_key(&key)
            && let Some(evicted) = least_needed(&entries)
        {
            entries.remove(&evicted);
        }
        entries.insert(key, cached);
        permission.ok_or(problem.unwrap_or(Error::Broken))
    }

    fn unasked(&self, now: Timestamp) -> CachedPermission {
        let refusals = if self.believes { Refusals::believed(now) } else { Refusals::default() };
        CachedPermission { permission: None, refusals, doubtful: None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, CachedPermission>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permission of the tenant with most of them that expires first.
fn least_needed<K: Clone + OfTenant>(entries: &HashMap<K, CachedPermission>) -> Option<K> {
    let (tenant, _) = largest(entries.keys().map(|key| (key.tenant(), 1)))?;
    let of_largest = entries.iter().filter(|(key, _)| key.tenant() == tenant);
    let first = of_largest.min_by_key(|(_, cached)| cached.permission.as_ref().map(|permission| permission.expires))?;
    Some(first.0.clone())
}

/// State of one permission.
#[derive(Clone, Debug, Default)]
struct CachedPermission {
    permission: Option<Permission>,
    refusals: Refusals,
    /// Time and message of the last refusal that was not believed.
    doubtful: Option<(Timestamp, String)>,
}

impl CachedPermission {
    /// State after this reply, and why the reply is no answer. A reply that is no answer, such as during a restart of
    /// the API server, leaves the last answer in effect.
    fn after(mut self, reply: Result<(), Error>, now: Timestamp) -> (Self, Option<Error>) {
        let problem = match reply {
            Ok(()) => {
                self.refusals.clear_forbidden();
                self.permission = Some(Permission { refusal: None, expires: now + GRANTED });
                return (self, None);
            }
            Err(Error::Forbidden(message)) => match self.refusals.note_forbidden(&message, now) {
                Ok(()) => {
                    self.permission = Some(Permission { refusal: Some(message), expires: now + RECHECKED_AFTER });
                    return (self, None);
                }
                Err(doubtful) => {
                    self.doubtful = Some((now, message));
                    doubtful
                }
            },
            Err(error) => error,
        };
        if let Some(permission) = &mut self.permission {
            permission.expires = now + RECHECKED_AFTER;
        }
        (self, Some(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn refused() -> Result<(), Error> {
        Err(Error::Forbidden("User \"o\" cannot impersonate resource \"serviceaccounts\"".to_owned()))
    }

    fn is_refused(cached: &CachedPermission) -> Option<bool> {
        cached.permission.as_ref().map(|permission| permission.refusal.is_some())
    }

    #[test]
    fn a_refusal_counts_once_it_has_lasted() {
        // Nothing is known before the refusal has lasted.
        let (cached, problem) = CachedPermission::default().after(refused(), at(0));
        assert_eq!(is_refused(&cached), None);
        assert!(matches!(problem, Some(Error::Doubtful(_))));
        let (cached, _) = cached.after(refused(), at(10));
        assert_eq!(is_refused(&cached), Some(true));
        // It is granted at once.
        let (cached, _) = cached.after(Ok(()), at(11));
        assert_eq!(cached.permission, Some(Permission { refusal: None, expires: at(11) + GRANTED }));
        // An API server that restarts takes nothing back, nor does one that does not answer.
        let (cached, _) = cached.after(refused(), at(400));
        assert_eq!(cached.permission, Some(Permission { refusal: None, expires: at(410) }));
        let (cached, _) = cached.after(Err(Error::Broken), at(401));
        assert_eq!(cached.permission, Some(Permission { refusal: None, expires: at(411) }));
        let (cached, _) = cached.after(refused(), at(410));
        assert_eq!(is_refused(&cached), Some(true));
        let (cached, problem) = cached.after(Err(Error::Broken), at(420));
        assert_eq!(is_refused(&cached), Some(true));
        assert!(matches!(problem, Some(Error::Broken)));
    }

    impl OfTenant for &str {
        fn tenant(&self) -> &str {
            self.split('/').next().unwrap_or_default()
        }
    }

    impl OfTenant for String {
        fn tenant(&self) -> &str {
            self.split('/').next().unwrap_or_default()
        }
    }

    #[tokio::test]
    async fn a_tenant_with_many_accounts_evicts_only_its_own() {
        let clock: fn() -> Timestamp = || Timestamp::UNIX_EPOCH;
        let cache = PermissionCache::<String>::default();
        let ask = |key: String| cache.check(clock, key, async { Ok(()) });
        ask("small/web".to_owned()).await.unwrap();
        for at in 0..MOST + 100 {
            ask(format!("large/{at}")).await.unwrap();
        }
        assert!(cache.lock().len() <= MOST);
        cache.check(clock, "small/web".to_owned(), async { unreachable!() }).await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_is_asked_for_once_until_it_expires() {
        let clock: fn() -> Timestamp = || Timestamp::UNIX_EPOCH;
        let cache = PermissionCache::default();
        assert_eq!(cache.check(clock, "web", async { Ok(()) }).await.unwrap().refusal, None);
        assert_eq!(cache.check(clock, "web", async { unreachable!() }).await.unwrap().refusal, None);
        assert!(cache.check(clock, "job", async { refused() }).await.is_err());
        // A first refusal that is doubtful is not repeated by each loop of the account.
        assert!(cache.check(clock, "job", async { unreachable!() }).await.is_err());
        let believing = PermissionCache::believing();
        assert!(believing.check(clock, "job", async { refused() }).await.unwrap().refusal.is_some());
    }
}
