//! Sessions of BMCs that refuse Basic authentication: created by a POST request with the password, and closed when they
//! are no longer used, since a BMC has only a few.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::json;
use tokio::time::Instant;

use super::login::{Login, fingerprint};
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
        let (Some(credentials @ Credentials::Basic { username, password }), true) =
            (&call.auth, self.all().len() < MOST)
        else {
            return Err(Error::Full);
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
        self.all().insert(login, session);
        Ok(token)
    }

    /// Closes the sessions that were not used for a while, or all.
    pub async fn close(&self, web: &Web, unused_only: bool) {
        let now = Instant::now();
        let is_closed = |session: &mut Session| !unused_only || now.duration_since(session.used) >= UNUSED;
        let closed: Vec<Session> = self.all().extract_if(|_, session| is_closed(session)).map(|(_, one)| one).collect();
        let closing = closed.into_iter().filter(|session| !session.close.url.ends_with(SESSIONS));
        // A BMC that does not answer ends the session by itself.
        let requests = closing.map(|session| async move { web.delete(&session.close).await.map(drop) });
        stream::iter(requests).buffer_unordered(CLOSING).for_each(|_| async {}).await;
    }
}
