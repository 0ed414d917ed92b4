//! Logins that servers refused: no poll of the server tries the same credentials again for a while, since many BMCs
//! lock an account after a few wrong passwords.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::web::Credentials;
use ganglion_core::digest::digest;
use ganglion_runtime::fairness::largest;

/// Maximum number of entries. In a full list, the namespace with most of them loses its oldest.
const MOST: usize = 32_768;

/// Pause after the first refusal; it doubles with each further refusal.
const FIRST: Duration = Duration::from_secs(300);

/// Upper limit of the pause.
const LONGEST: Duration = Duration::from_secs(3600);

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

/// Refused logins.
#[derive(Default)]
pub struct Logins(Mutex<HashMap<Login, Refused>>);

/// Last refusal of a login.
struct Refused {
    /// Digest of the credentials, which are not stored themselves.
    credentials: String,
    /// Consecutive refusals.
    count: u32,
    until: Instant,
    /// Wall-clock time of `until`, for messages.
    shown: Timestamp,
}

/// End of a lockout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedUntil {
    pub at: Instant,
    pub shown: Timestamp,
}

impl Logins {
    fn all(&self) -> MutexGuard<'_, HashMap<Login, Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the login was refused and not accepted since, with any credentials.
    pub fn is_refused(&self, login: &Login) -> bool {
        self.all().contains_key(login)
    }

    /// End of the lockout of these credentials; None if they may be tried.
    pub fn locked(&self, login: &Login, credentials: &Credentials) -> Option<LockedUntil> {
        let all = self.all();
        let refused = all.get(login).filter(|refused| refused.credentials == fingerprint(credentials))?;
        (refused.until > Instant::now()).then_some(LockedUntil { at: refused.until, shown: refused.shown })
    }

    /// Records that the server refused these credentials.
    pub fn refuse(&self, login: Login, credentials: &Credentials, now: Timestamp) -> LockedUntil {
        let credentials = fingerprint(credentials);
        let mut all = self.all();
        if all.len() >= MOST && !all.contains_key(&login) {
            let full = largest(all.keys().map(|login| (login.namespace.as_str(), 1)));
            let of_largest =
                all.iter().filter(|(login, _)| full.is_some_and(|(namespace, _)| login.namespace == namespace));
            let oldest = of_largest.min_by_key(|(_, refused)| refused.until).map(|(login, _)| login.clone());
            oldest.and_then(|oldest| all.remove(&oldest));
        }
        let before = all.get(&login).filter(|refused| refused.credentials == credentials);
        // Another poll of the server may have been in flight during the refusal: both count as one.
        if let Some(known) = before.filter(|refused| refused.until > Instant::now()) {
            return LockedUntil { at: known.until, shown: known.shown };
        }
        let count = before.map_or(0, |refused| refused.count).saturating_add(1);
        let lockout = pause(count);
        let shown =
            SignedDuration::try_from(lockout).ok().and_then(|lockout| now.checked_add(lockout).ok()).unwrap_or(now);
        let until = Instant::now() + lockout;
        all.insert(login, Refused { credentials, count, until, shown });
        LockedUntil { at: until, shown }
    }

    /// Records that the server accepted the login.
    pub fn accept(&self, login: &Login) {
        self.all().remove(login);
    }
}

fn fingerprint(credentials: &Credentials) -> String {
    match credentials {
        Credentials::Bearer(token) => digest(&["bearer", token], 32),
        Credentials::Basic { username, password } => digest(&["basic", username, password], 32),
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
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_credentials_are_not_tried_again_for_longer_each_time_and_others_at_once() {
        let (logins, begun) = (Logins::default(), Instant::now());
        let minutes = |locked: LockedUntil| locked.at.duration_since(begun).as_secs() / 60;
        let first = logins.refuse(login(), &password("a"), Timestamp::UNIX_EPOCH);
        assert_eq!((minutes(first), first.shown.as_second()), (5, 300));
        assert_eq!(logins.refuse(login(), &password("a"), Timestamp::UNIX_EPOCH), first, "a poll that was under way");
        assert_eq!(logins.locked(&login(), &password("a")), Some(first));
        assert_eq!(logins.locked(&login(), &password("b")), None);
        assert_eq!(logins.locked(&Login { host: "other:443".into(), ..login() }, &password("a")), None);
        tokio::time::advance(Duration::from_secs(300)).await;
        assert_eq!(logins.locked(&login(), &password("a")), None);
        assert_eq!(minutes(logins.refuse(login(), &password("a"), Timestamp::UNIX_EPOCH)), 15);
        assert_eq!(minutes(logins.refuse(login(), &password("b"), Timestamp::UNIX_EPOCH)), 10, "another password");
        assert!(logins.is_refused(&login()));
        logins.accept(&login());
        assert!(!logins.is_refused(&login()));
        assert_eq!(logins.locked(&login(), &password("b")), None);
    }
}
