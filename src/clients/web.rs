//! One request to a server: https or http, no redirects, limits on time and size, over pooled connections.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::CONTENT_TYPE;
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode, Url, redirect};

use super::Error;
use super::address::{Names, RefusedAddress, Resolver};

/// Maximum size of an answer in bytes.
pub const MAX_BODY: usize = 1 << 20;

/// Maximum number of HTTP clients, one for each set of certificate authorities; the least recently used is dropped.
const CLIENTS: usize = 64;

/// Maximum number of idle connections per host.
const IDLE: usize = 32;

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
}

/// An answer of a server, with any status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: StatusCode,
    /// At most [`MAX_BODY`] bytes.
    pub body: Vec<u8>,
}

impl Answer {
    /// The answer, if its status is a success.
    ///
    /// # Errors
    /// The status is a redirect or an error.
    pub fn good(self) -> Result<Self, Error> {
        match self.status {
            status if status.is_success() => Ok(self),
            status if status.is_redirection() => Err(Error::Redirect(status.as_u16())),
            status => Err(Error::Status(status.to_string())),
        }
    }
}

/// The properties that connections of one HTTP client share: trusted authorities, and whether the API server's addresses are
/// refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Trust {
    guarded: bool,
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
    clients: Mutex<HashMap<Trust, (Instant, Client)>>,
}

impl Web {
    /// A sender of requests that resolves hosts with these names.
    #[must_use]
    pub fn new(names: Names) -> Self {
        // An error means that another part of the process has installed one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { names, clients: Mutex::default() }
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn get(&self, call: &Call) -> Result<Answer, Error> {
        self.send(call, Method::GET, |request| request).await
    }

    /// Sends a POST request with this body, at most once.
    ///
    /// # Errors
    /// There is no answer. The request may have arrived unless the error says that it was not sent.
    pub async fn post(&self, call: &Call, content_type: &str, body: Vec<u8>) -> Result<Answer, Error> {
        self.send(call, Method::POST, |request| request.header(CONTENT_TYPE, content_type).body(body)).await
    }

    async fn send(
        &self,
        call: &Call,
        method: Method,
        with: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, Error> {
        let work = async {
            let url = parse(&call.url)?;
            let client = self.client(&url, call.ca.as_deref()).await?;
            let request = client.request(method, url);
            let request = match &call.auth {
                None => request,
                Some(Credentials::Bearer(token)) => request.bearer_auth(token),
                Some(Credentials::Basic { username, password }) => request.basic_auth(username, Some(password)),
            };
            read(with(request).send().await.map_err(|error| failure(&error))?).await
        };
        // The pool retries only requests that were never written.
        tokio::time::timeout(call.within, work).await.unwrap_or(Err(Error::Timeout(call.within)))
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
        let guarded = url.port_or_known_default().is_some_and(|port| self.names.is_api_port(port));
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
            .user_agent(concat!("ganglion/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Resolver { names: self.names.clone(), guarded: trust.guarded });
        let builder = match &trust.authorities {
            TrustedAuthorities::None => builder.tls_certs_only([]),
            TrustedAuthorities::Public => builder,
            TrustedAuthorities::Only(pem) => builder.tls_certs_only(authorities(pem)?),
        };
        builder.build().map_err(|error| Error::Unfit(format!("the certificates cannot be used: {}", root(&error))))
    }
}

fn authorities(pem: &[u8]) -> Result<Vec<Certificate>, Error> {
    let found = Certificate::from_pem_bundle(pem)
        .map_err(|error| Error::Unfit(format!("the authority's certificates cannot be read: {}", root(&error))))?;
    if found.is_empty() {
        return Err(Error::Unfit("there is no PEM certificate where the authority's should be".to_owned()));
    }
    Ok(found)
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

/// Reads an answer up to the size limit.
async fn read(mut response: Response) -> Result<Answer, Error> {
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(Error::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, body })
}

fn failure(error: &reqwest::Error) -> Error {
    let mut cause = error.source();
    while let Some(one) = cause {
        if let Some(refused) = one.downcast_ref::<RefusedAddress>() {
            return Error::Refused(refused.to_string());
        }
        cause = one.source();
    }
    match error {
        error if error.is_builder() => Error::Unfit(format!("the request cannot be made: {}", root(error))),
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
