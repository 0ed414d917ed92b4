//! A single request to a server: https or http, bounded in time and size, over pooled connections. Redirects are
//! followed only if the request allows it, and never to another scheme, host or port.
//!
//! If the settings do not list a host, errors do not show the author of an object whether one of its ports is open:
//! otherwise authors could scan networks that only the operator reaches. A refused connection, a timeout, a TLS failure
//! and a reset are the same error, which is returned at the end of the timeout; the cause is in the operator's log.
//! Authors do see whether a server answers, since that is the purpose of the request: the HTTP status, the problem
//! with a certificate, which is needed to trust it, and that a TLS server refuses the handshake. They also see whether
//! a name resolves, which the cluster's DNS tells any pod.

pub mod grpc;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Body, Client, Method, RequestBuilder, Response, StatusCode, Url, redirect};
use tokio::time::sleep_until;
use tracing::warn;

use super::Error;
use super::address::{Names, RefusedAddress, Resolver, TENANT, Unresolved};
use super::partial;
use super::private::{AddressOrigin, AskedAddress, PrivateAccess, advice};
use super::trust::{self, Distrust};
use ganglion_core::document;
use ganglion_runtime::body::{self, BoundedBody, Unread};
use ganglion_runtime::fairness::{FairLimit, largest};
use grpc::GrpcConnection;

/// Maximum memory of all HTTP clients, one for each set of certificate authorities: thousands of BMCs may each have
/// their own certificate. Beyond it, the namespace with most of it loses its least recently used client.
const CLIENT_BYTES: usize = 96 << 20;

/// Memory of a client besides its connections, and that of its authorities in sizes of their PEM: the text, the
/// certificates, and the parsed authorities.
const CLIENT: usize = 9 << 10;
const AUTHORITIES: usize = 3;

/// Time after which an unused HTTP client is dropped: longer than the pause between two polls.
const UNUSED: Duration = Duration::from_secs(2 * 3600);

/// Maximum number of idle connections per host.
const IDLE: usize = 32;

/// Maximum number of redirects that one request follows.
const REDIRECTS: usize = 3;

/// HTTP/2 flow control: bytes that a server may send ahead, per answer and per connection; maximum size of headers.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
const HEAD: u32 = 16 << 10;

/// Header with the token of a Redfish session.
const TOKEN: &str = "x-auth-token";

#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Bearer(String),
    Basic {
        username: String,
        password: String,
    },
    /// Token of a Redfish session.
    Session(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

#[derive(Clone, Debug)]
pub struct Call {
    /// http or https URL.
    pub url: String,
    pub auth: Option<Credentials>,
    /// Further headers. None of them is of the connection or contains credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Certificate authorities for the server's certificate, or that certificate itself, in PEM. None: the public
    /// authorities.
    pub ca: Option<Arc<[u8]>>,
    /// Skips certificate verification; `ca` has no effect.
    pub insecure: bool,
    /// A GET request follows redirects to the same scheme, host and port.
    pub redirects: bool,
    /// Timeout, including the body of the answer.
    pub within: Duration,
    /// Maximum size of the answer in bytes, which depends on its purpose.
    pub limit: usize,
    /// Tenant to which the bytes of the answer are accounted: the namespace that asks, which decides about private
    /// addresses.
    pub tenant: String,
    pub origin: AddressOrigin,
}

/// Answer of a server, with any status.
pub struct Answer {
    pub status: StatusCode,
    /// Target of a redirect.
    location: Option<HeaderValue>,
    /// Token of a new Redfish session.
    token: Option<HeaderValue>,
    /// The server offers Basic authentication.
    pub offers_basic: bool,
    /// None if the body was not read.
    body: Option<BoundedBody>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Answer {
    /// Body, as far as it was read.
    pub fn body(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &body.bytes)
    }

    /// Body, if the status is a success.
    pub fn good(&self) -> Result<&[u8], Error> {
        good(self.status).map(|()| self.body())
    }

    pub(super) fn location(&self) -> Option<&str> {
        self.location.as_ref()?.to_str().ok()
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_ref()?.to_str().ok()
    }

    /// The number at this path of a JSON document: see [`document::path_parts`]. A partial answer has none.
    pub fn number(&self, path: &str) -> Result<String, Error> {
        let document = self.good()?;
        let number = document::number(document, path).map_err(Error::Answer)?;
        let parts = document::path_parts(path).map_err(Error::Answer)?;
        partial::reason(document, &parts).map_or(Ok(number), |reason| Err(Error::Partial(reason)))
    }
}

/// Checks that the status is a success, neither a part of an answer nor a redirect nor an error.
pub fn good(status: StatusCode) -> Result<(), Error> {
    match status {
        StatusCode::PARTIAL_CONTENT => Err(Error::Partial(format!("the server answers {status}"))),
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => Err(Error::Redirect(status.as_u16())),
        status => Err(Error::Status(status)),
    }
}

/// Part of an answer that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedPart {
    Body,
    Status,
}

/// Connection properties of an HTTP client: trusted authorities, the port on which the API server is refused, and the
/// private addresses that it may reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Trust {
    guarded: Option<u16>,
    access: PrivateAccess,
    authorities: TrustedAuthorities,
    /// Only for calls of gRPC methods.
    grpc: Option<GrpcConnection>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TrustedAuthorities {
    /// http needs no authorities.
    None,
    Public,
    Only(Arc<[u8]>),
    Any,
}

/// HTTP clients by their properties.
type Clients = HashMap<Trust, CachedClient>;

struct CachedClient {
    client: Client,
    used: Instant,
    /// Namespace whose request created the client.
    namespace: String,
    /// Estimate of its memory.
    bytes: usize,
}

/// Drops clients until the others fit.
fn evict(clients: &mut Clients, most: usize) {
    while let Some((namespace, bytes)) = largest(clients.values().map(|cached| (&*cached.namespace, cached.bytes)))
        && bytes > most
    {
        let of_largest = clients.iter().filter(|(_, cached)| cached.namespace == namespace);
        let oldest = of_largest.min_by_key(|(_, cached)| cached.used).map(|(trust, _)| trust.clone());
        oldest.and_then(|oldest| clients.remove(&oldest));
    }
}

/// Sends requests. One instance per process.
pub struct Web {
    names: Names,
    /// Bytes of answers in memory at the same time.
    bytes: FairLimit,
    clients: Mutex<Clients>,
    max_client_bytes: usize,
    log: Sparse,
}

impl Web {
    /// Creates a sender that resolves hosts with `names`. `bytes` limits the total size of answers in memory.
    pub fn new(names: Names, bytes: FairLimit) -> Self {
        // An error means that another part of the process has installed a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { names, bytes, clients: Mutex::default(), max_client_bytes: CLIENT_BYTES, log: Sparse::default() }
    }

    /// Limit on bytes of answers, for answers that arrive over other connections.
    pub fn bytes(&self) -> &FairLimit {
        &self.bytes
    }

    pub async fn get(&self, call: &Call) -> Result<Answer, Error> {
        let end = tokio::time::Instant::now() + call.within;
        let mut url = parse(&call.url)?;
        let mut left = if call.redirects { REDIRECTS } else { 0 };
        loop {
            let answer = self.send(call, &url, end, Method::GET, WantedPart::Body, |request| request).await?;
            match next(&url, &answer).filter(|_| left > 0) {
                Some(next) => url = next,
                None => return Ok(answer),
            }
            left -= 1;
        }
    }

    /// Checks whether a POST request may be sent. The address of a name is checked only when the request is sent.
    pub async fn check_post(&self, call: &Call) -> Result<(), Error> {
        let url = parse(&call.url)?;
        let asked = asked(call, &url, &Method::POST);
        let access = PrivateAccess::of(&self.names.rules().private, asked, call.origin);
        self.client(&url, call, asked, &access, None).await.map(drop)
    }

    /// Sends a POST request with this body and these headers, at most once. Reads only the status of the answer. On an
    /// error the request may have arrived, unless the error says that it was not sent.
    pub async fn post(&self, call: &Call, headers: HeaderMap, body: Vec<u8>) -> Result<Answer, Error> {
        let end = tokio::time::Instant::now() + call.within;
        let with = |request: RequestBuilder| request.headers(headers).body(body);
        self.send(call, &parse(&call.url)?, end, Method::POST, WantedPart::Status, with).await
    }

    /// Sends a POST request with this body, at most once, and reads the answer. On an error the request may have
    /// arrived, unless the error says that it was not sent.
    pub async fn ask(&self, call: &Call, content_type: &'static str, body: Vec<u8>) -> Result<Answer, Error> {
        // Replaces a content type among the headers of the call.
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        let with = |request: RequestBuilder| request.headers(headers).body(body);
        let end = tokio::time::Instant::now() + call.within;
        self.send(call, &parse(&call.url)?, end, Method::POST, WantedPart::Body, with).await
    }

    /// Sends a DELETE request. Reads only the status of the answer.
    pub async fn delete(&self, call: &Call) -> Result<Answer, Error> {
        let end = tokio::time::Instant::now() + call.within;
        let url = parse(&call.url)?;
        self.send(call, &url, end, Method::DELETE, WantedPart::Status, |request| request).await
    }

    async fn send(
        &self,
        call: &Call,
        url: &Url,
        end: tokio::time::Instant,
        method: Method,
        wanted: WantedPart,
        with: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer, Error> {
        let asked = asked(call, url, &method);
        let access = PrivateAccess::of(&self.names.rules().private, asked, call.origin);
        let work = async {
            let client = self.client(url, call, asked, &access, None).await?;
            let request = authorized(client.request(method.clone(), url.clone()), call)?;
            let sent = TENANT.scope(call.tenant.clone(), with(request).send()).await;
            let response = sent.map_err(|error| failure(&error, asked))?;
            self.read(call, response, wanted).await
        };
        // The pool retries only requests of which no byte was written.
        self.in_time(call, asked, &access, end, work).await
    }

    /// Runs a request within its time, and hides the cause of a failed connection.
    async fn in_time<T>(
        &self,
        call: &Call,
        asked: AskedAddress<'_>,
        access: &PrivateAccess,
        end: tokio::time::Instant,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let done = tokio::time::timeout_at(end, work).await.unwrap_or(Err(Error::Timeout(call.within)));
        match done {
            Err(error @ (Error::Unreachable(_) | Error::Broken(_) | Error::Timeout(_))) => {
                Err(self.hidden(asked, access, error, end).await)
            }
            done => done,
        }
    }

    async fn read(&self, call: &Call, response: Response, wanted: WantedPart) -> Result<Answer, Error> {
        let (status, headers) = (response.status(), response.headers());
        let (location, token) = (headers.get(LOCATION).cloned(), headers.get(TOKEN).cloned());
        let schemes = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|header| header.to_str().ok());
        let offers_basic = schemes
            .flat_map(|header| header.split(','))
            .any(|scheme| scheme.trim_start().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic")));
        let body = match wanted {
            WantedPart::Status => None,
            WantedPart::Body => {
                let body = body::read(Body::from(response), call.limit, &self.bytes, &call.tenant).await;
                Some(body.map_err(|unread| match unread {
                    Unread::TooLong => Error::TooLong(call.limit),
                    Unread::Full => Error::Full,
                    Unread::Broken(error) => Error::Broken(root(&error)),
                })?)
            }
        };
        Ok(Answer { status, location, token, offers_basic, body })
    }

    /// Hides the cause of a failed connection; see the documentation of this module.
    async fn hidden(
        &self,
        asked: AskedAddress<'_>,
        access: &PrivateAccess,
        error: Error,
        end: tokio::time::Instant,
    ) -> Error {
        let (AskedAddress { host, port, .. }, rules) = (asked, self.names.rules());
        if rules.shows_cause(host) || access.is_named(&rules.private) {
            return error;
        }
        if let Some(suppressed) = self.log.suppressed(Instant::now()) {
            warn!(host, port, %error, suppressed, "no answer from a server that a user names");
        }
        sleep_until(end).await;
        Error::NoAnswer(format!("{host}:{port}"))
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the memory of all HTTP clients.
    #[cfg(test)]
    pub(super) fn with_client_bytes(self, max_client_bytes: usize) -> Self {
        Self { max_client_bytes, ..self }
    }

    /// Number of HTTP clients of a namespace, or of all.
    #[cfg(test)]
    pub(super) fn kept(&self, namespace: Option<&str>) -> usize {
        let is_of = |cached: &&CachedClient| namespace.is_none_or(|namespace| namespace == cached.namespace);
        self.clients().values().filter(is_of).count()
    }

    /// HTTP client for this URL and the authorities of the request.
    async fn client(
        &self,
        url: &Url,
        call: &Call,
        asked: AskedAddress<'_>,
        access: &PrivateAccess,
        grpc: Option<GrpcConnection>,
    ) -> Result<Client, Error> {
        let guarded = url.port_or_known_default().and_then(|port| self.names.guarded(port));
        if let Some(host) = url.host_str().filter(|host| self.names.rules().denies(host)) {
            return Err(Error::Refused(format!("{host} is denied (setting outbound.deniedHosts)")));
        }
        // Addresses are not resolved, so they are checked here; names are checked when the connection is made.
        if let Some(address) = url.host_str().filter(|_| url.domain().is_none()) {
            let allowed = self.names.allowed(address, guarded, access, &call.tenant).await;
            allowed.map_err(|why| match why.downcast::<RefusedAddress>() {
                Ok(refused) => refusal(&refused, asked),
                Err(other) => Error::Refused(other.to_string()),
            })?;
        }
        let authorities = match (url.scheme(), &call.ca) {
            ("http", _) => TrustedAuthorities::None,
            _ if call.insecure => TrustedAuthorities::Any,
            (_, Some(pem)) => TrustedAuthorities::Only(pem.clone()),
            (_, None) => TrustedAuthorities::Public,
        };
        let trust = Trust { guarded, access: access.clone(), authorities, grpc };
        let now = Instant::now();
        if let Some(cached) = self.clients().get_mut(&trust) {
            cached.used = now;
            return Ok(cached.client.clone());
        }
        let client = self.build(&trust)?;
        let pem = match &trust.authorities {
            TrustedAuthorities::Only(pem) => pem.len(),
            TrustedAuthorities::None | TrustedAuthorities::Public | TrustedAuthorities::Any => 0,
        };
        let identity = trust.grpc.as_ref().and_then(|grpc| Some(grpc.identity.as_ref()?.len())).unwrap_or(0);
        let (namespace, bytes) = (call.tenant.clone(), CLIENT + AUTHORITIES * (pem + identity));
        let mut clients = self.clients();
        clients.retain(|_, cached| now.duration_since(cached.used) < UNUSED);
        clients.insert(trust, CachedClient { client: client.clone(), used: now, namespace, bytes });
        evict(&mut clients, self.max_client_bytes);
        Ok(client)
    }

    fn build(&self, trust: &Trust) -> Result<Client, Error> {
        // A proxy would resolve names without checking the addresses.
        let builder = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .pool_max_idle_per_host(IDLE)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEAD)
            .user_agent(concat!("ganglion/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Resolver { names: self.names.clone(), guarded: trust.guarded, access: trust.access.clone() });
        let identity = trust.grpc.as_ref().and_then(|grpc| grpc.identity.as_deref());
        let builder = match &trust.grpc {
            None => builder,
            Some(_) => builder.http2_prior_knowledge().no_gzip().no_deflate().connect_timeout(grpc::CONNECT),
        };
        let builder = match &trust.authorities {
            TrustedAuthorities::None => builder.tls_certs_only([]),
            TrustedAuthorities::Public => match identity {
                None => builder,
                Some(pem) => {
                    let identity = reqwest::Identity::from_pem(pem);
                    builder.identity(identity.map_err(|_| Error::Unfit(NO_IDENTITY.to_owned()))?)
                }
            },
            TrustedAuthorities::Only(pem) => {
                let mut config = trust::only(pem).ok_or_else(|| Error::Unfit(NO_AUTHORITY.to_owned()))?;
                if let Some(pem) = identity {
                    config.client_auth_cert_resolver =
                        trust::identity(pem).ok_or_else(|| Error::Unfit(NO_IDENTITY.to_owned()))?;
                }
                if trust.grpc.is_some() {
                    config.alpn_protocols = vec![b"h2".to_vec()];
                }
                builder.tls_backend_preconfigured(config)
            }
            TrustedAuthorities::Any => builder.tls_danger_accept_invalid_certs(true),
        };
        builder.build().map_err(|_| Error::Unfit(NO_AUTHORITY.to_owned()))
    }
}

/// Adds the headers and credentials of a call to its request.
fn authorized(request: RequestBuilder, call: &Call) -> Result<RequestBuilder, Error> {
    let request = request.headers(HeaderMap::from_iter(call.headers.iter().cloned()));
    Ok(match &call.auth {
        None => request,
        Some(Credentials::Bearer(token)) => request.bearer_auth(token),
        Some(Credentials::Basic { username, password }) => request.basic_auth(username, Some(password)),
        Some(Credentials::Session(token)) => request.header(TOKEN, sensitive(token)?),
    })
}

/// The parser's error text may quote the Secret or ConfigMap.
const NO_AUTHORITY: &str = "ca: there is no usable certificate in PEM";
const NO_IDENTITY: &str = "certificate: there is no usable certificate with its key in PEM";

/// Value of a header that no log shows.
fn sensitive(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(token).map_err(|_| Error::Unfit("the token is not valid".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Target of a redirect, if it is on the same server.
fn next(url: &Url, answer: &Answer) -> Option<Url> {
    if !matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let next = url.join(answer.location.as_ref()?.to_str().ok()?).ok()?;
    // A user and password in the target would replace the request's credentials.
    parse(next.as_str()).ok().filter(|next| next.origin() == url.origin())
}

/// Parses a URL from a user. Only http and https without user information are allowed.
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

fn asked<'a>(call: &'a Call, url: &'a Url, method: &'a Method) -> AskedAddress<'a> {
    let host = url.host_str().unwrap_or_default();
    AskedAddress { namespace: &call.tenant, method, host, port: url.port_or_known_default().unwrap_or_default() }
}

/// Refusal of an address, with the line of the settings that would permit it, if there is one.
fn refusal(refused: &RefusedAddress, asked: AskedAddress<'_>) -> Error {
    if refused.is_private() {
        return Error::Refused(format!("{refused}: {}", advice(asked)));
    }
    Error::Refused(refused.to_string())
}

fn failure(error: &reqwest::Error, asked: AskedAddress<'_>) -> Error {
    for cause in trust::causes(error) {
        if let Some(refused) = cause.downcast_ref::<RefusedAddress>() {
            return refusal(refused, asked);
        }
        if let Some(Unresolved(words)) = cause.downcast_ref() {
            return Error::Unresolved(words.clone());
        }
    }
    if let Some(why) = Distrust::find_in(error) {
        return Error::Certificate(why);
    }
    if trust::is_incompatible(error) {
        return Error::Incompatible;
    }
    match error {
        // For example a line end in a token.
        error if error.is_builder() => {
            Error::Unfit("the request cannot be made: check its address and credentials".to_owned())
        }
        error if error.is_connect() => Error::Unreachable(root(error)),
        error => Error::Broken(root(error)),
    }
}

/// Innermost cause: the outer ones repeat the address.
pub(super) fn root(error: &reqwest::Error) -> String {
    let words = trust::causes(error).skip(1).last().map(ToString::to_string);
    words.unwrap_or_else(|| "no cause is known".to_owned())
}

/// Minimum time between two log lines about servers that do not answer.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Rate limit for log lines that many requests could write: at most one log line per [`LOG_PAUSE`].
#[derive(Default)]
struct Sparse(Mutex<(Option<Instant>, u64)>);

impl Sparse {
    /// Returns the number of suppressed lines if a line may be logged now.
    fn suppressed(&self, now: Instant) -> Option<u64> {
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
