//! Logins that servers refused: no poll of the server tries the same credentials again for a while, since many BMCs
//! lock an account after a few wrong passwords. A login that worked gets a few tries first, since some BMCs refuse the
//! right password now and then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::web::Credentials;
use ganglion_core::digest::digest;
use ganglion_runtime::fairness::{TenantCounts, largest};

/// Maximum number of entries. In a full list, the namespace with most of them loses its oldest.
const MOST: usize = 32_768;

/// Pause after the first refusal; it doubles with each further refusal.
const FIRST: Duration = Duration::from_secs(300);

/// Upper limit of the pause.
const LONGEST: Duration = Duration::from_secs(3600);

/// Number of consecutive refusals of a login that worked before the first pause.
const TRIES: u32 = 3;

/// Time before the same credentials are tried again, after this many consecutive refusals.
fn pause(refusals: u32) -> Duration {
    FIRST.saturating_mul(2_u32.saturating_pow(refusals.saturating_sub(1).min(8))).min(LONGEST)
}

/// Login: namespace, host and port, Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Login {
    pub namespace: String,
    pub host: String,
    pub secret: String,
}

/// Logins that were refused or worked.
#[derive(Default)]
pub struct Logins(Mutex<HashMap<Login, TriedLogin>>);

/// Last answer to a login.
struct TriedLogin {
    /// Digest of the credentials, which are not stored themselves.
    credentials: String,
    answer: LoginAnswer,
    /// Time of the answer, or of the end of a lockout.
    at: Instant,
}

enum LoginAnswer {
    /// The login worked, and was refused this many times since.
    Worked { refusals: u32 },
    /// Consecutive lockouts. `shown`: wall-clock time of the end of the last one, for messages.
    Locked { count: u32, shown: Timestamp },
}

/// End of a lockout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedUntil {
    pub at: Instant,
    pub shown: Timestamp,
}

impl Logins {
    fn all(&self) -> MutexGuard<'_, HashMap<Login, TriedLogin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last answer to the login was a refusal, with any credentials.
    pub fn is_refused(&self, login: &Login) -> bool {
        self.all().get(login).is_some_and(|tried| !matches!(tried.answer, LoginAnswer::Worked { refusals: 0 }))
    }

    /// Interval at which each locked login of a namespace may cause a request, if all together may cause so many per
    /// second. Lockouts that have ended while nobody tried again count, too.
    pub fn interval(&self, namespace: &str, per_second: u32) -> Duration {
        let all = self.all();
        let locked = all.iter().filter(|(_, tried)| tried.locked_until().is_some());
        let locked: TenantCounts<&str> = locked.map(|(login, _)| login.namespace.as_str()).collect();
        locked.interval(namespace, per_second)
    }

    /// End of the lockout of these credentials; None if they may be tried.
    pub fn locked(&self, login: &Login, credentials: &Credentials) -> Option<LockedUntil> {
        let all = self.all();
        let tried = all.get(login).filter(|tried| tried.credentials == fingerprint(credentials))?;
        tried.locked_until().filter(|until| until.at > Instant::now())
    }

    /// Records that the server refused these credentials. None if they may be tried again at the next poll.
    pub fn refuse(&self, login: Login, credentials: &Credentials, now: Timestamp) -> Option<LockedUntil> {
        let credentials = fingerprint(credentials);
        let mut all = self.all();
        let before = all.get_mut(&login).filter(|tried| tried.credentials == credentials);
        let count = match before {
            None => 1,
            Some(tried) => {
                // Another poll of the server may have been in flight during the refusal: both count as one.
                if let Some(until) = tried.locked_until().filter(|until| until.at > Instant::now()) {
                    return Some(until);
                }
                match &mut tried.answer {
                    LoginAnswer::Worked { refusals } if *refusals + 1 < TRIES => {
                        *refusals += 1;
                        return None;
                    }
                    LoginAnswer::Worked { .. } => 1,
                    LoginAnswer::Locked { count, .. } => count.saturating_add(1),
                }
            }
        };
        let lockout = pause(count);
        let shown =
            SignedDuration::try_from(lockout).ok().and_then(|lockout| now.checked_add(lockout).ok()).unwrap_or(now);
        let at = Instant::now() + lockout;
        insert(&mut all, login, TriedLogin { credentials, answer: LoginAnswer::Locked { count, shown }, at });
        Some(LockedUntil { at, shown })
    }

    /// Records that the server accepted these credentials.
    pub fn accept(&self, login: Login, credentials: &Credentials) {
        let (credentials, answer) = (fingerprint(credentials), LoginAnswer::Worked { refusals: 0 });
        insert(&mut self.all(), login, TriedLogin { credentials, answer, at: Instant::now() });
    }
}

impl TriedLogin {
    fn locked_until(&self) -> Option<LockedUntil> {
        match self.answer {
            LoginAnswer::Worked { .. } => None,
            LoginAnswer::Locked { shown, .. } => Some(LockedUntil { at: self.at, shown }),
        }
    }
}

/// Inserts an entry. If the list is full, the namespace with most entries loses its oldest: first one that worked,
/// which costs it only its tries.
fn insert(all: &mut HashMap<Login, TriedLogin>, login: Login, tried: TriedLogin) {
    if all.len() >= MOST && !all.contains_key(&login) {
        let oldest = first_of_largest(all, |tried| (tried.locked_until().is_some(), tried.at));
        oldest.and_then(|oldest| all.remove(&oldest));
    }
    all.insert(login, tried);
}

/// The first login, in this order, of the namespace with most logins.
pub(super) fn first_of_largest<T, K: Ord>(all: &HashMap<Login, T>, order: impl Fn(&T) -> K) -> Option<Login> {
    let (full, _) = largest(all.keys().map(|login| (login.namespace.as_str(), 1)))?;
    let of_largest = all.iter().filter(|(login, _)| login.namespace == full);
    of_largest.min_by_key(|(_, one)| order(one)).map(|(login, _)| login.clone())
}

pub(super) fn fingerprint(credentials: &Credentials) -> String {
    match credentials {
        Credentials::Bearer(token) => digest(&["bearer", token], 32),
        Credentials::Basic { username, password } => digest(&["basic", username, password], 32),
        Credentials::Session(token) => digest(&["session", token], 32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_5_10_20_40_and_60_minutes() {
        let minutes: Vec<u64> = (1..=7).map(|refusals| pause(refusals).as_secs() / 60).collect();
        assert_eq!(minutes, [5, 10, 20, 40, 60, 60, 60]);
        assert_eq!(pause(u32::MAX), LONGEST);
    }

    fn login() -> Login {
        Login { namespace: "n".into(), host: "bmc:443".into(), secret: "s".into() }
    }

    fn password(word: &str) -> Credentials {
        Credentials::Basic { username: "admin".into(), password: word.into() }
    }

    #[test]
    fn a_namespace_with_many_refused_logins_lifts_no_lockout_of_others() {
        let logins = Logins::default();
        logins.refuse(login(), &password("a"), Timestamp::UNIX_EPOCH);
        for nth in 0..=MOST {
            let other = Login { namespace: "other".into(), host: nth.to_string(), ..login() };
            logins.refuse(other, &password("a"), Timestamp::UNIX_EPOCH);
        }
        assert_eq!(logins.all().len(), MOST);
        assert!(logins.locked(&login(), &password("a")).is_some());
        assert!(logins.interval("n", 5) < Duration::from_secs(1), "its Secret is read as often as without others");
        assert!(logins.interval("other", 5) > Duration::from_hours(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_credentials_are_not_tried_again_for_longer_each_time_and_others_at_once() {
        let (logins, begun) = (Logins::default(), Instant::now());
        let minutes = |locked: LockedUntil| locked.at.duration_since(begun).as_secs() / 60;
        let refuse = |word: &str| logins.refuse(login(), &password(word), Timestamp::UNIX_EPOCH).unwrap();
        let first = refuse("a");
        assert_eq!((minutes(first), first.shown.as_second()), (5, 300));
        assert_eq!(refuse("a"), first, "a poll that was under way");
        assert_eq!(logins.locked(&login(), &password("a")), Some(first));
        assert_eq!(logins.locked(&login(), &password("b")), None);
        assert_eq!(logins.locked(&Login { host: "other:443".into(), ..login() }, &password("a")), None);
        tokio::time::advance(Duration::from_secs(300)).await;
        assert_eq!(logins.locked(&login(), &password("a")), None);
        assert_eq!(minutes(refuse("a")), 15);
        assert_eq!(minutes(refuse("b")), 10, "another password");
        assert!(logins.is_refused(&login()));
        logins.accept(login(), &password("b"));
        assert!(!logins.is_refused(&login()));
        assert_eq!(logins.locked(&login(), &password("b")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_that_worked_gets_a_few_tries_and_a_new_one_none() {
        let logins = Logins::default();
        let refuse = |word: &str| logins.refuse(login(), &password(word), Timestamp::UNIX_EPOCH);
        logins.accept(login(), &password("a"));
        for _ in 0..2 {
            assert_eq!((refuse("a"), refuse("a")), (None, None));
            assert!(logins.is_refused(&login()), "the Secret is read again");
            logins.accept(login(), &password("a"));
        }
        assert_eq!((refuse("a"), refuse("a")), (None, None));
        assert!(refuse("a").is_some());
        // After the pause, it counts as a new one, as does another password.
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(refuse("a").is_some());
        logins.accept(login(), &password("a"));
        assert!(refuse("b").is_some());
    }
}
