//! Requests with the operator's own permissions to a server that may require a login. If the server refuses credentials
//! or certificates, they are read again once. A refused login is not tried again for a while, unless it worked before.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::login::{LockedUntil, Login};
use super::{Behalf, OutboundClient, Outgoing, REFUSED_SECRET_AGE, SECRET_AGE, Unanswered};
use crate as clients;
use crate::web::{self, Call, Credentials};
use ganglion_api::refs::{Auth, CaRef, RequestHeader};
use ganglion_runtime::context::Context;

/// Interval at which an unusable Secret is read again. The server gets no requests meanwhile.
pub const SECRET_PAUSE: Duration = Duration::from_secs(10);

/// Maximum number of reads per second of Secrets whose logins are refused, over all servers. Namespaces get equal
/// shares.
const SECRETS_PER_SECOND: u32 = 5;

/// Dependencies of a request.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub ctx: &'a Context,
    pub outbound: &'a OutboundClient,
}

/// Address, credentials and limits of a server.
pub struct AskedServer<'a> {
    pub url: &'a str,
    /// Namespace of the Secrets and of the ConfigMap.
    pub namespace: &'a str,
    pub auth: Option<Cow<'a, Auth>>,
    pub ca: Option<&'a CaRef>,
    /// Skips certificate verification.
    pub insecure: bool,
    /// Further headers.
    pub headers: &'a [RequestHeader],
    /// Maximum size of an answer in bytes.
    pub limit: usize,
}

/// Why no request is sent to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    pub why: WithheldWhy,
    pub words: String,
    /// Time until the next attempt.
    pub pause: Duration,
}

/// Cause of [`Withheld`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithheldWhy {
    /// A Secret or a ConfigMap cannot be read.
    Unreadable,
    /// The server refused the login.
    Refused,
}

/// Requests to one server.
pub struct Attempt<'a> {
    asker: Asker<'a>,
    server: AskedServer<'a>,
    /// Host and port.
    pub host: String,
    /// Request with its credentials. Callers may change the URL.
    pub call: Call,
    /// Credentials of the Secret. The request may contain the token of a session instead.
    credentials: Option<Credentials>,
    /// Whether a session was already created.
    has_opened: bool,
    /// Whether the Secret was already read again.
    again: bool,
}

impl<'a> Attempt<'a> {
    /// Prepares a request. Fails if a Secret cannot be read or if the server refused its login recently.
    pub async fn prepare(asker: Asker<'a>, server: AskedServer<'a>) -> Result<Self, Withheld> {
        let host = host(server.url);
        let is_refused = server.login(&host).is_some_and(|login| asker.outbound.logins.is_refused(&login));
        let age = if is_refused { REFUSED_SECRET_AGE } else { SECRET_AGE };
        let call = call(asker, &server, age).await?;
        let credentials = call.auth.clone();
        let mut attempt = Self { asker, server, host, call, credentials, has_opened: false, again: is_refused };
        if let Some(until) = attempt.locked() {
            return Err(attempt.refused(until));
        }
        attempt.use_session();
        Ok(attempt)
    }

    /// Uses the session of the login, if there is one.
    fn use_session(&mut self) {
        if let (Some(login), Some(credentials)) = (self.server.login(&self.host), &self.credentials)
            && let Some(token) = self.asker.outbound.sessions.token(&login, credentials)
        {
            self.call.auth = Some(token);
        }
    }

    /// Creates a session for the following requests, once. Returns whether the request must be repeated with it.
    pub async fn opens_session(&mut self) -> bool {
        let (Some(login), false) = (self.server.login(&self.host), self.has_opened) else { return false };
        self.has_opened = true;
        let outbound = self.asker.outbound;
        outbound.sessions.forget(&login);
        self.call.auth = self.credentials.clone();
        match outbound.sessions.open(outbound.web(), login, &self.call).await {
            Ok(token) => self.call.auth = Some(token),
            Err(_) => return false,
        }
        true
    }

    /// Processes the result of a request: `error`, or None if the request itself succeeded. Returns whether the request
    /// must be repeated with a newer Secret. Fails if the server refuses the login.
    pub async fn repeats(&mut self, error: Option<&clients::Error>) -> Result<bool, Withheld> {
        let login = self.server.login(&self.host);
        let Some(error) = error else {
            if let (Some(login), Some(credentials)) = (login, &self.credentials) {
                self.asker.outbound.logins.accept(login, credentials);
            }
            return Ok(false);
        };
        let is_refusal = error.is_refusal() && login.is_some();
        // The value of a header may be that of a former Secret.
        let has_old_header = error.is_refusal() && self.server.headers.iter().any(|header| header.secret.is_some());
        if !is_refusal && !has_old_header && !is_distrust(error) {
            return Ok(false);
        }
        if !self.again {
            self.again = true;
            let newer = call(self.asker, &self.server, REFUSED_SECRET_AGE).await?;
            if newer.auth != self.credentials || newer.ca != self.call.ca || newer.headers != self.call.headers {
                self.credentials.clone_from(&newer.auth);
                self.call = Call { url: self.call.url.clone(), ..newer };
                return Ok(true);
            }
        }
        match (login, &self.credentials) {
            (Some(login), Some(credentials)) if is_refusal => {
                match self.asker.outbound.logins.refuse(login, credentials, self.asker.ctx.now()) {
                    Some(until) => Err(self.refused(until)),
                    None => Ok(false),
                }
            }
            _ => Ok(false),
        }
    }

    fn locked(&self) -> Option<LockedUntil> {
        let login = self.server.login(&self.host)?;
        self.asker.outbound.logins.locked(&login, self.credentials.as_ref()?)
    }

    fn refused(&self, until: LockedUntil) -> Withheld {
        let secret = self.server.secret().unwrap_or_default();
        let words = format!(
            "{} refuses the login of Secret {secret}: it is tried again at {}, or as soon as the Secret changes",
            self.host,
            time(until.shown)
        );
        let left = until.at.saturating_duration_since(Instant::now());
        // Each attempt reads the Secret.
        let fair = self.asker.outbound.logins.interval(self.server.namespace, SECRETS_PER_SECOND);
        Withheld { why: WithheldWhy::Refused, words, pause: left.min(SECRET_PAUSE.max(fair)) }
    }
}

impl AskedServer<'_> {
    /// Name of the Secret with the credentials.
    fn secret(&self) -> Option<&str> {
        let auth = self.auth.as_ref()?;
        let bearer = auth.bearer.as_ref().map(|key| key.name.as_str());
        bearer.or_else(|| auth.basic.as_ref().map(|secret| secret.name.as_str()))
    }

    fn login(&self, host: &str) -> Option<Login> {
        let secret = self.secret()?.to_owned();
        Some(Login { namespace: self.namespace.to_owned(), host: host.to_owned(), secret })
    }
}

/// Whether the certificate of the server is not trusted; a newer authority may help.
fn is_distrust(error: &clients::Error) -> bool {
    matches!(error, clients::Error::Certificate(_))
}

fn time(at: Timestamp) -> String {
    at.strftime("%H:%M UTC").to_string()
}

async fn call(asker: Asker<'_>, server: &AskedServer<'_>, age: Duration) -> Result<Call, Withheld> {
    let Asker { ctx, outbound } = asker;
    let AskedServer { url, namespace, auth, ca, insecure, headers, limit } = server;
    let auth = auth.as_deref();
    let on = Behalf::Operator { writer: &ctx.writer, namespace };
    let request = Outgoing { url, auth, ca: *ca, headers, within: outbound.request_timeout };
    let call = outbound.call(on, request, age).await.map_err(|Unanswered { words, again, .. }| Withheld {
        why: WithheldWhy::Unreadable,
        words,
        pause: again.unwrap_or(SECRET_PAUSE),
    })?;
    Ok(Call { limit: *limit, insecure: *insecure, ..call })
}

/// Host and port of a URL. All URLs of one server have the same.
pub fn host(url: &str) -> String {
    let parsed = web::parse(url).ok();
    let named = parsed.as_ref().and_then(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?)));
    named.unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests;
