//! One request to a server: https or http, no redirects, limits on time and size, over pooled connections.
//!
//! Where the settings do not list a host, the author of an object does not learn from an error whether one of its ports is
//! open: he could otherwise search networks that only the operator reaches. A refused connection, a timeout, a TLS failure and
//! a reset are one error, which comes at the end of the time; the cause is in the operator's log. He does learn whether a
//! server answers HTTP, and with which status, since that is what the request is for, and whether a name has an address, which
//! the cluster's DNS tells any pod.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Certificate, Client, Method, RequestBuilder, StatusCode, Url, redirect};
use tokio::time::sleep_until;
use tracing::warn;

use super::Error;
use super::address::{Names, RefusedAddress, Resolver, Unresolved};
use super::body::{self, Bounded, Unread};
use super::fair_limit::FairLimit;

/// Maximum number of HTTP clients, one for each set of certificate authorities; the least recently used is dropped.
const CLIENTS: usize = 64;

/// Maximum number of idle connections per host.
const IDLE: usize = 32;

/// HTTP/2: bytes that a server may send before they are read, for one answer and for a connection; bytes of a head.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
const HEAD: u32 = 16 << 10;

/// Minimum time between two lines of the log about servers that do not answer.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Credentials of a request.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Bearer(String),
    Basic { username: String, password: String },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// A request.
#[derive(Clone, Debug)]
pub struct Call {
    /// http or https.
    pub url: String,
    pub auth: Option<Credentials>,
    /// Certificate authorities for the server's certificate, PEM. None: the public ones.
    pub ca: Option<Vec<u8>>,
    /// Timeout, up to the end of the answer.
    pub within: Duration,
    /// Maximum size of the answer in bytes, which depends on what it is read for.
    pub limit: usize,
    /// On whose account the answer's bytes are in flight.
    pub tenant: String,
}

/// An answer of a server, with any status.
pub struct Answer {
    pub status: StatusCode,
    /// None if it was not read.
    body: Option<Bounded>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Answer {
    /// The bytes that were read.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &body.bytes)
    }

    /// The bytes that were read, if the status is a success.
    ///
    /// # Errors
    /// The status is a redirect or an error.
    pub fn good(&self) -> Result<&[u8], Error> {
        good(self.status).map(|()| self.body())
    }
}

/// Checks that the status is a success.
///
/// # Errors
/// It is a redirect or an error.
pub fn good(status: StatusCode) -> Result<(), Error> {
    match status {
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => Err(Error::Redirect(status.as_u16())),
        status => Err(Error::Status(status)),
    }
}

/// Whether the body of an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Body,
    Status,
}

/// The properties that connections of one HTTP client share: trusted authorities, and the port where the API server is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Trust {
    guarded: Option<u16>,
    authorities: TrustedAuthorities,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TrustedAuthorities {
    /// http needs no authorities.
    None,
    Public,
    Only(Vec<u8>),
}

/// Sends requests. One for the process.
pub struct Web {
    names: Names,
    /// Bytes of answers that are in memory at the same time.
    bytes: FairLimit,
    clients: Mutex<HashMap<Trust, (Instant, Client)>>,
    log: Sparse,
}

impl Web {
    /// A sender of requests that resolves hosts with these names and has at most so many bytes of answers in memory.
    #[must_use]
    pub fn new(names: Names, bytes: FairLimit) -> Self {
        // An error means that another part of the process has installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { names, bytes, clients: Mutex::default(), log: Sparse::default() }
    }

    /// The limit on bytes of answers, for those that come over another connection.
    #[must_use]
    pub fn bytes(&self) -> &FairLimit {
        &self.bytes
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn get(&self, call: &Call) -> Result<Answer, Error> {
        self.send(call, Method::GET, Wanted::Body, |request| request).await
    }

    /// Sends a POST request with this body, at most once. Only the status of the answer is read.
    ///
    /// # Errors
    /// There is no answer. The request may have arrived unless the error says that it was not sent.
    pub async fn post(&self, call: &Call, content_type: &str, body: Vec<u8>) -> Result<Answer, Error> {
        self.send_body(call, content_type, body, Wanted::Status).await
    }

    /// Sends a POST request with this body, at most once, and reads the answer.
    ///
    /// # Errors
    /// There is no answer. The request may have arrived unless the error says that it was not sent.
    pub async fn ask(&self, call: &Call, content_type: &str, body: Vec<u8>) -> Result<Answer, Error> {
        self.send_body(call, content_type, body, Wanted::Body).await
    }

    async fn send_body(&self, call: &Call, content_type: &str, body: Vec<u8>, wanted: Wanted) -> Result<Answer, Error> {
        let with = |request: RequestBuilder| request.header(CONTENT_TYPE, content_type).body(body);
        self.send(call, Method::POST, wanted, with).await
    }

    async fn send(
        &self,
        call: &Call,
        method: Method,
        wanted: Wanted,
        with: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, Error> {
        let end = tokio::time::Instant::now() + call.within;
        let url = parse(&call.url)?;
        let work = async {
            let client = self.client(&url, call.ca.as_deref()).await?;
            let request = client.request(method, url.clone());
            let request = match &call.auth {
                None => request,
                Some(Credentials::Bearer(token)) => request.bearer_auth(token),
                Some(Credentials::Basic { username, password }) => request.basic_auth(username, Some(password)),
            };
            let response = with(request).send().await.map_err(|error| failure(&error))?;
            let status = response.status();
            let body = match wanted {
                Wanted::Status => None,
                Wanted::Body => {
                    let body = body::read(Body::from(response), call.limit, &self.bytes, &call.tenant).await;
                    Some(body.map_err(|unread| match unread {
                        Unread::TooLong => Error::TooLong(call.limit),
                        Unread::Full => Error::Full,
                        Unread::Broken(error) => failure(&error),
                    })?)
                }
            };
            Ok(Answer { status, body })
        };
        // The pool retries only requests that were never written.
        let done = tokio::time::timeout_at(end, work).await.unwrap_or(Err(Error::Timeout(call.within)));
        match done {
            Err(error @ (Error::Unreachable(_) | Error::Broken(_) | Error::Timeout(_))) => {
                Err(self.hidden(&url, error, end).await)
            }
            done => done,
        }
    }

    /// See the head of this file.
    async fn hidden(&self, url: &Url, error: Error, end: tokio::time::Instant) -> Error {
        let host = url.host_str().unwrap_or_default();
        if self.names.rules().shows_cause(host) {
            return error;
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if let Some(suppressed) = self.log.turn(Instant::now()) {
            warn!(host, port, %error, suppressed, "a server that a user names does not answer");
        }
        sleep_until(end).await;
        Error::NoAnswer(format!("{host}:{port}"))
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Trust, (Instant, Client)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of HTTP clients.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.clients().len()
    }

    /// The HTTP client for this URL and these authorities.
    async fn client(&self, url: &Url, ca: Option<&[u8]>) -> Result<Client, Error> {
        let guarded = url.port_or_known_default().and_then(|port| self.names.guarded(port));
        if let Some(host) = url.host_str().filter(|host| self.names.rules().denies(host)) {
            return Err(Error::Refused(format!("{host} is denied (setting outbound.deniedHosts)")));
        }
        // IP addresses are not resolved, so they are checked here; names are checked at the connection.
        if let Some(address) = url.host_str().filter(|_| url.domain().is_none()) {
            self.names.allowed(address, guarded).await.map_err(|why| Error::Refused(why.to_string()))?;
        }
        let authorities = match (url.scheme(), ca) {
            ("http", _) => TrustedAuthorities::None,
            (_, Some(pem)) => TrustedAuthorities::Only(pem.to_vec()),
            (_, None) => TrustedAuthorities::Public,
        };
        let trust = Trust { guarded, authorities };
        let now = Instant::now();
        if let Some((used, client)) = self.clients().get_mut(&trust) {
            *used = now;
            return Ok(client.clone());
        }
        let client = self.build(&trust)?;
        let mut clients = self.clients();
        if clients.len() >= CLIENTS {
            let oldest = clients.iter().min_by_key(|(_, (used, _))| *used).map(|(trust, _)| trust.clone());
            oldest.and_then(|oldest| clients.remove(&oldest));
        }
        clients.insert(trust, (now, client.clone()));
        Ok(client)
    }

    fn build(&self, trust: &Trust) -> Result<Client, Error> {
        // A proxy would resolve names without checking addresses.
        let builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .pool_max_idle_per_host(IDLE)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEAD)
            .user_agent(concat!("ganglion/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Resolver { names: self.names.clone(), guarded: trust.guarded });
        let builder = match &trust.authorities {
            TrustedAuthorities::None => builder.tls_certs_only([]),
            TrustedAuthorities::Public => builder,
            TrustedAuthorities::Only(pem) => builder.tls_certs_only(authorities(pem)?),
        };
        builder.build().map_err(|_| Error::Unfit(NO_AUTHORITY.to_owned()))
    }
}

/// The parser's own words may quote the Secret or ConfigMap.
const NO_AUTHORITY: &str = "ca: there is no certificate in PEM that can be used";

fn authorities(pem: &[u8]) -> Result<Vec<Certificate>, Error> {
    let found = Certificate::from_pem_bundle(pem).ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| Error::Unfit(NO_AUTHORITY.to_owned()))
}

/// Parses a URL that a user wrote.
///
/// # Errors
/// The URL is invalid or not allowed.
pub fn parse(text: &str) -> Result<Url, Error> {
    let url = Url::parse(text).map_err(|error| Error::Refused(format!("it cannot be read: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Error::Refused("only http and https are allowed".to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Refused("it contains a user or password: name a Secret in auth instead".to_owned()));
    }
    Ok(url)
}

fn failure(error: &reqwest::Error) -> Error {
    let mut cause = error.source();
    while let Some(one) = cause {
        if let Some(refused) = one.downcast_ref::<RefusedAddress>() {
            return Error::Refused(refused.to_string());
        }
        if let Some(Unresolved(words)) = one.downcast_ref() {
            return Error::Unresolved(words.clone());
        }
        cause = one.source();
    }
    match error {
        // Such as a line end in a token.
        error if error.is_builder() => {
            Error::Unfit("the request cannot be made: check its address and credentials".to_owned())
        }
        error if error.is_connect() => Error::Unreachable(root(error)),
        error => Error::Broken(root(error)),
    }
}

/// The innermost cause: the outer ones repeat the address.
fn root(error: &reqwest::Error) -> String {
    let mut words = None;
    let mut cause = error.source();
    while let Some(one) = cause {
        words = Some(one.to_string());
        cause = one.source();
    }
    words.unwrap_or_else(|| "no cause is known".to_owned())
}

/// Lets a line of the log pass at most once in [`LOG_PAUSE`].
#[derive(Default)]
struct Sparse(Mutex<(Option<Instant>, u64)>);

impl Sparse {
    /// Whether there may be a line now; then how many were left out before it.
    fn turn(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, left_out) = &mut *state;
        if last.is_some_and(|last| now.duration_since(last) < LOG_PAUSE) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}
