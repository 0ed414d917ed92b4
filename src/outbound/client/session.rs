//! Sessions of BMCs that refuse Basic authentication: created by a POST request with the password, and closed when they
//! are no longer used, since a BMC has only a few.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::json;
use tokio::time::Instant;

use super::login::{Login, fingerprint, first_of_largest};
use crate::web::{Call, Credentials, Web};
use crate::{Error, web};

/// Collection of sessions, which the standard names.
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// Maximum number of sessions.
const MOST: usize = 32_768;

/// Time after which an unused session is closed.
const UNUSED: Duration = Duration::from_secs(300);

/// Maximum number of sessions that are closed at the same time.
const CLOSING: usize = 16;

/// Open sessions, by login.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<Login, Session>>);

struct Session {
    /// Digest of the credentials with which it was created.
    credentials: String,
    token: String,
    used: Instant,
    /// Request that closes it.
    close: Call,
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<Login, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Token of the session that was created with these credentials.
    pub fn token(&self, login: &Login, credentials: &Credentials) -> Option<Credentials> {
        let mut all = self.all();
        let session = all.get_mut(login).filter(|session| session.credentials == fingerprint(credentials))?;
        session.used = Instant::now();
        Some(Credentials::Session(session.token.clone()))
    }

    /// Forgets a session that the BMC has ended.
    pub fn forget(&self, login: &Login) {
        self.all().remove(login);
    }

    /// Creates a session. Returns its token.
    pub async fn open(&self, web: &Web, login: Login, call: &Call) -> Result<Credentials, Error> {
        let Some(credentials @ Credentials::Basic { username, password }) = &call.auth else {
            return Err(Error::Unfit("a session needs a username and a password".to_owned()));
        };
        let mut url = web::parse(&call.url)?;
        url.set_path(SESSIONS);
        url.set_query(None);
        let body = json!({"UserName": username, "Password": password}).to_string().into_bytes();
        let bare = Call { url: url.to_string(), auth: None, redirects: false, ..call.clone() };
        let answer = web.ask(&bare, "application/json", body).await?;
        answer.good()?;
        let invalid = || Error::Answer("the session that the server created has no X-Auth-Token".to_owned());
        let token = Credentials::Session(answer.token().ok_or_else(invalid)?.to_owned());
        // Without a path the session is left to end by itself.
        let path = answer.location().and_then(|path| url.join(path).ok()).filter(|path| path.origin() == url.origin());
        let close = Call { url: path.unwrap_or(url).into(), auth: Some(token.clone()), ..bare };
        let Credentials::Session(text) = &token else { return Err(invalid()) };
        let session =
            Session { credentials: fingerprint(credentials), token: text.clone(), used: Instant::now(), close };
        if let Some(oldest) = self.insert(login, session) {
            oldest.end(web).await;
        }
        Ok(token)
    }

    /// Inserts a session. If there are too many, returns that of the namespace with most sessions that was not used for
    /// longest.
    fn insert(&self, login: Login, session: Session) -> Option<Session> {
        let mut all = self.all();
        let oldest = if all.len() >= MOST && !all.contains_key(&login) {
            first_of_largest(&all, |session| session.used)
        } else {
            None
        };
        let removed = oldest.and_then(|oldest| all.remove(&oldest));
        all.insert(login, session);
        removed
    }

    /// Closes the sessions that were not used for a while, or all.
    pub async fn close(&self, web: &Web, unused_only: bool) {
        let now = Instant::now();
        let is_closed = |session: &mut Session| !unused_only || now.duration_since(session.used) >= UNUSED;
        let closed: Vec<Session> = self.all().extract_if(|_, session| is_closed(session)).map(|(_, one)| one).collect();
        let requests = closed.into_iter().map(|session| async move { session.end(web).await });
        stream::iter(requests).buffer_unordered(CLOSING).for_each(|()| async {}).await;
    }
}

impl Session {
    /// Asks the BMC to end the session. A BMC that does not answer, or has not said where, ends it by itself.
    async fn end(&self, web: &Web) {
        if !self.close.url.ends_with(SESSIONS) {
            web.delete(&self.close).await.map(drop).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::AddressOrigin;

    fn login(namespace: &str, nth: usize) -> Login {
        Login { namespace: namespace.into(), host: format!("bmc-{nth}:443"), secret: "bmc".into() }
    }

    fn session() -> Session {
        let close = Call {
            url: format!("https://bmc{SESSIONS}/1"),
            auth: None,
            headers: Vec::new(),
            ca: None,
            insecure: false,
            redirects: false,
            within: Duration::from_secs(1),
            limit: 1024,
            tenant: String::new(),
            origin: AddressOrigin::User,
        };
        Session { credentials: String::new(), token: "t".into(), used: Instant::now(), close }
    }

    #[tokio::test]
    async fn too_many_sessions_cost_the_namespace_with_most_of_them_its_oldest() {
        let sessions = Sessions::default();
        assert!(sessions.insert(login("calm", 0), session()).is_none());
        for nth in 1..MOST {
            assert!(sessions.insert(login("busy", nth), session()).is_none());
        }
        assert!(sessions.insert(login("calm", MOST), session()).is_some());
        let all = sessions.all();
        assert!(all.len() == MOST && all.contains_key(&login("calm", 0)) && !all.contains_key(&login("busy", 1)));
    }
}
