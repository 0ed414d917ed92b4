//! Whether the operator may impersonate the service accounts of loops. Answers are cached for some minutes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::account::Account;
use super::context::Context;
use super::error::Error;

/// Lifetime of a granted right.
const GRANTED: SignedDuration = SignedDuration::from_mins(5);

/// Lifetime of a refusal. Short, since an administrator may be creating the binding.
const REFUSED: SignedDuration = SignedDuration::from_secs(10);

/// Minimum duration of a refusal before it is reported: an API server that has just started answers before it has
/// loaded its roles.
const DOUBT: SignedDuration = SignedDuration::from_secs(5);

/// Delay between two trials of an account without an answer.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// Maximum number of cached accounts.
const MOST: usize = 4096;

/// Cached answer for an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImpersonationAnswer {
    /// Message why the operator may not impersonate the account, with advice; None if it may.
    pub refused: Option<String>,
    /// Time of the next trial.
    pub until: Timestamp,
}

/// Cached state of an account.
#[derive(Clone, Debug, Default)]
struct Known {
    answer: Option<ImpersonationAnswer>,
    doubt: Option<Doubt>,
}

/// Refusals since the last success.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Doubt {
    since: Timestamp,
    /// Time and text of the last refusal.
    last: Timestamp,
    refused: String,
}

impl Known {
    /// State after this reply to a trial.
    fn after(self, reply: &Result<(), Error>, account: &Account, now: Timestamp) -> Self {
        let keep = |until: Timestamp| self.answer.clone().map(|answer| ImpersonationAnswer { until, ..answer });
        match reply {
            Ok(()) => Self { answer: Some(ImpersonationAnswer { refused: None, until: now + GRANTED }), doubt: None },
            Err(Error::Forbidden(refused)) => {
                let since = self.doubt.as_ref().map_or(now, |doubt| doubt.since);
                let answer = if now.duration_since(since) < DOUBT {
                    keep(now + DOUBT)
                } else {
                    Some(ImpersonationAnswer { refused: Some(account.words(refused)), until: now + REFUSED })
                };
                Self { answer, doubt: Some(Doubt { since, last: now, refused: refused.clone() }) }
            }
            Err(_) => Self { answer: keep(now + REFUSED), doubt: self.doubt },
        }
    }
}

/// Cached states by namespace and account.
#[derive(Default)]
pub struct Impersonation(Mutex<HashMap<(String, String), Known>>);

impl Impersonation {
    fn known(&self) -> MutexGuard<'_, HashMap<(String, String), Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the operator may impersonate this account. Returns an error if there is no answer yet: the API server
    /// did not reply, or its refusal may be temporary.
    pub async fn ask(&self, ctx: &Context, account: &Account) -> Result<ImpersonationAnswer, Error> {
        let id = (account.namespace.clone(), account.name.clone());
        let known = self.known().get(&id).cloned().unwrap_or_default();
        if let Some(answer) = known.answer.as_ref().filter(|answer| ctx.now() < answer.until) {
            return Ok(answer.clone());
        }
        // Many loops share an account.
        if let (None, Some(doubt)) = (&known.answer, &known.doubt)
            && ctx.now() < doubt.last + PAUSE
        {
            return Err(Error::Doubtful(doubt.refused.clone()));
        }
        let reply = account.try_out().await;
        let known = known.after(&reply, account, ctx.now());
        let mut all = self.known();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(id, known.clone());
        drop(all);
        match (known.answer, reply) {
            (Some(answer), _) => Ok(answer),
            (None, Err(Error::Forbidden(refused))) => Err(Error::Doubtful(refused)),
            (None, Err(error)) => Err(error),
            // A success always leaves an answer.
            (None, Ok(())) => Err(Error::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::metrics::Metrics;
    use crate::writer::Writer;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn refused() -> Result<(), Error> {
        Err(Error::Forbidden("User \"o\" cannot impersonate resource \"serviceaccounts\"".to_owned()))
    }

    #[tokio::test]
    async fn a_refusal_counts_once_it_has_lasted() {
        let (service, _handle) = tower_test::mock::pair::<http::Request<_>, http::Response<kube::client::Body>>();
        let writer = Writer::new(
            Client::new(service, "n"),
            std::time::Duration::from_secs(1),
            CancellationToken::new(),
            Metrics::new(),
        );
        let account = Account { writer, namespace: "shop".into(), name: "web".into(), manager: "m" };
        let after = |known: Known, reply: &Result<(), Error>, second| known.after(reply, &account, at(second));
        let said = |known: &Known| known.answer.clone().map(|answer| answer.refused.is_some());

        // Nothing is known before the refusal has lasted.
        let known = after(Known::default(), &refused(), 0);
        assert_eq!(said(&known), None);
        let known = after(known, &refused(), 5);
        assert_eq!(said(&known), Some(true));
        // It is granted at once.
        let known = after(known, &Ok(()), 6);
        assert_eq!((said(&known), known.answer.as_ref().unwrap().until), (Some(false), at(6) + GRANTED));
        // An API server that restarts takes nothing back, nor does one that does not answer.
        let known = after(known, &refused(), 400);
        assert_eq!(said(&known), Some(false));
        let known = after(known, &Err(Error::Broken), 401);
        assert_eq!((said(&known), known.doubt.as_ref().map(|doubt| doubt.since)), (Some(false), Some(at(400))));
        let known = after(known, &refused(), 405);
        assert_eq!(said(&known), Some(true));
    }
}
