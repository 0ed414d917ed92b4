//! Requests to servers that users name, and bounded reads of the API server's answers for loops.
//!
//! Bounded in number and in bytes, and fair between namespaces. Secrets are read with the operator's own permissions,
//! which a RoleBinding of the Secret's namespace must grant. ConfigMaps and all other objects are read with the account
//! of the loop, or with the operator's permissions for objects without an account.
//!
//! | file | content |
//! |---|---|
//! | `attempt` | requests with the operator's own permissions to a server that may require a login |
//! | `login` | logins that servers refused |
//! | `session` | sessions of BMCs that refuse Basic authentication |
//! | `objects` | bounded answers of the API server: with which identity, and why one was not read |
//! | `scaler` | questions to external scalers |
//! | `secrets` | cache of Secrets, and of ConfigMaps of objects without an account |

pub mod attempt;
pub mod login;
pub mod objects;
pub mod scaler;
mod secrets;
pub mod session;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use prometheus_client::metrics::counter::Counter;
use reqwest::header::{HeaderName, HeaderValue};

use crate as clients;
use crate::private::AddressOrigin;
use crate::web::{self, Answer, Call, Credentials, Web};
use ganglion_api::refs::{Auth, CaRef, KeyRef, RESERVED_HEADERS, RequestHeader};
use ganglion_core::document::{find, parsed};
use ganglion_core::kind_path::KindPath;
use ganglion_runtime::account::{Account, ObjectPath};
use ganglion_runtime::fairness::FairLimit;
use login::Logins;
pub use objects::Behalf;
use objects::name;
use secrets::{KeyedKind, SecretCache, WantedKeys};
use session::Sessions;

/// Maximum age of a cached Secret.
pub const SECRET_AGE: Duration = Duration::from_secs(300);

/// Maximum age of a cached Secret after a server refused it.
pub const REFUSED_SECRET_AGE: Duration = Duration::from_secs(10);

/// Maximum number of cached Secrets: for the few servers of loops, and for the many machines of NodeConfigs.
const LOOP_SECRETS: usize = 256;
const NODE_SECRETS: usize = 32_768;

/// Maximum length of a key's value in a Secret, in bytes.
const MAX_SECRET: usize = 32 << 10;

/// Maximum length of a list of certificates in a ConfigMap, in bytes: a bundle of the public authorities is about 220
/// KiB.
const MAX_AUTHORITIES: usize = 256 << 10;

/// Maximum number of streams of external scalers. One namespace gets at most a quarter of it.
const STREAMS: usize = 1024;

/// Maximum sizes of answers in bytes, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimits {
    /// One value of a loop.
    pub sample: usize,
    /// One object of the API server.
    pub object: usize,
    /// Pods of a workload, and their metrics.
    pub pods: usize,
    /// One document about a node.
    pub node: usize,
    /// One answer about all nodes.
    pub nodes: usize,
}

/// Sends requests to servers that users name.
pub struct OutboundClient {
    web: Arc<Web>,
    /// Timeout of a request.
    pub request_timeout: Duration,
    /// Limit on concurrent requests.
    pub requests: FairLimit,
    pub limits: AnswerLimits,
    /// Limit on open streams of external scalers.
    streams: FairLimit,
    secrets: SecretCache,
    /// Secrets of objects without an account.
    node_secrets: SecretCache,
    /// Refused logins. One for all users of the client, so that a server sees each wrong password once.
    logins: Logins,
    sessions: Sessions,
}

/// Request as specified by a user.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    pub url: &'a str,
    pub auth: Option<&'a Auth>,
    pub ca: Option<&'a CaRef>,
    pub headers: &'a [RequestHeader],
    pub within: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub struct Unanswered {
    pub words: String,
    /// The request may succeed later, or from another host, without a change by a user.
    pub passing: bool,
    /// Time until a Secret or ConfigMap that cannot be read is read again.
    pub again: Option<Duration>,
}

impl Unanswered {
    /// The request may succeed later.
    pub fn passing(words: String) -> Self {
        Self { words, passing: true, again: None }
    }
}

impl From<clients::Error> for Unanswered {
    fn from(error: clients::Error) -> Self {
        Self { passing: error.is_passing(), words: error.to_string(), again: None }
    }
}

impl From<String> for Unanswered {
    fn from(words: String) -> Self {
        Self { words, passing: false, again: None }
    }
}

impl OutboundClient {
    pub fn new(web: Arc<Web>, request_timeout: Duration, requests: FairLimit, limits: AnswerLimits) -> Self {
        let (secrets, node_secrets) = (SecretCache::new(LOOP_SECRETS), SecretCache::new(NODE_SECRETS));
        Self {
            web,
            request_timeout,
            requests,
            limits,
            streams: FairLimit::new(STREAMS, Counter::default()),
            secrets,
            node_secrets,
            logins: Logins::default(),
            sessions: Sessions::default(),
        }
    }

    /// Sender for requests prepared by [`Self::call`].
    pub fn web(&self) -> &Web {
        &self.web
    }

    /// Fetches a sample of a loop. If the server refuses the Secret, it is read again, and if it has changed, the
    /// request is repeated.
    pub async fn get(&self, account: &Account, request: Outgoing<'_>) -> Result<Answer, Unanswered> {
        let call = self.call(account.into(), request, SECRET_AGE).await?;
        let mut answer = self.web.get(&call).await;
        let refused = answer.as_ref().is_ok_and(|answer| answer.good().is_err_and(|error| error.is_refusal()));
        let has_secret = request.auth.is_some() || request.headers.iter().any(|header| header.secret.is_some());
        if refused && has_secret {
            let again = self.call(account.into(), request, REFUSED_SECRET_AGE).await?;
            if again.auth != call.auth || again.headers != call.headers {
                answer = self.web.get(&again).await;
            }
        }
        answer.map_err(Unanswered::from)
    }

    /// Checks the address of a POST request, and reads the current version of its Secrets and ConfigMap.
    pub async fn prepare(&self, account: &Account, request: Outgoing<'_>) -> Result<(), Unanswered> {
        web::parse(request.url).map_err(|error| error.to_string())?;
        let call = self.call(account.into(), request, Duration::ZERO).await?;
        Ok(self.web.check_post(&call).await?)
    }

    /// Creates a request with credentials and certificate authorities from Secrets that are not older than `age`. The
    /// maximum size of the answer is that of a loop's sample. Error texts name the missing or unreadable object or key.
    pub async fn call(&self, on: Behalf<'_>, request: Outgoing<'_>, age: Duration) -> Result<Call, Unanswered> {
        let auth = match request.auth {
            None => None,
            Some(Auth { bearer: Some(key), .. }) => {
                let [token] = self.secret(on, &key.name, [&key.key], age).await?;
                Some(Credentials::Bearer(text(&token, &key.name, &key.key)?))
            }
            Some(Auth { basic: Some(secret), .. }) => {
                let keys = ["username", "password"];
                let [username, password] = self.secret(on, &secret.name, keys, age).await?;
                let part = |bytes: &[u8], key| text(bytes, &secret.name, key);
                Some(Credentials::Basic { username: part(&username, keys[0])?, password: part(&password, keys[1])? })
            }
            Some(Auth { bearer: None, basic: None }) => {
                return Err("auth names neither bearer nor basic".to_owned().into());
            }
        };
        let ca = match request.ca {
            None => None,
            Some(CaRef { secret: Some(key), .. }) => {
                let [ca] = self.secret(on, &key.name, [&key.key], age).await?;
                Some(ca.into())
            }
            Some(CaRef { config_map: Some(key), .. }) => Some(self.config(on, key, age).await?.into()),
            Some(CaRef { secret: None, config_map: None }) => {
                return Err("ca names neither secret nor configMap".to_owned().into());
            }
        };
        let mut headers = Vec::with_capacity(request.headers.len());
        for header in request.headers {
            headers.push(self.header(on, header, age).await?);
        }
        let (url, tenant) = (request.url.to_owned(), on.namespace().to_owned());
        let (within, limit) = (request.within, self.limits.sample);
        Ok(Call {
            url,
            auth,
            headers,
            ca,
            insecure: false,
            redirects: false,
            within,
            limit,
            tenant,
            origin: AddressOrigin::User,
        })
    }

    /// Name and value of a header. The schema refuses reserved names too, but a spec may be older than its rule.
    async fn header(
        &self,
        on: Behalf<'_>,
        header: &RequestHeader,
        age: Duration,
    ) -> Result<(HeaderName, HeaderValue), Unanswered> {
        let unfit = |why: &str| Unanswered::from(format!("header {}: {why}", header.name));
        let name: HeaderName = header.name.parse().map_err(|_| unfit("this is no name of a header"))?;
        if RESERVED_HEADERS.contains(&name.as_str()) {
            return Err(unfit("it cannot be set; use auth for credentials"));
        }
        let content = match (&header.value, &header.secret) {
            (Some(value), _) => value.clone(),
            (None, Some(key)) => {
                let [value] = self.secret(on, &key.name, [&key.key], age).await?;
                text(&value, &key.name, &key.key)?
            }
            (None, None) => return Err(unfit("it has neither value nor secret")),
        };
        let mut value = HeaderValue::from_str(&content).map_err(|_| unfit("its value contains a control character"))?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    /// Value of one key of a Secret that is not older than `age`. Error texts name the missing or unreadable object or
    /// key.
    pub async fn key(&self, on: Behalf<'_>, secret: &str, key: &str, age: Duration) -> Result<Vec<u8>, Unanswered> {
        let [value] = self.secret(on, secret, [key], age).await?;
        Ok(value)
    }

    /// Drops the Secrets that no request has used for [`SECRET_AGE`].
    pub fn drop_unused_secrets(&self) {
        self.secrets.drop_unused();
        self.node_secrets.drop_unused();
    }

    /// Closes the sessions of BMCs that no request has used for a while.
    pub async fn close_unused_sessions(&self) {
        self.sessions.close(&self.web, true).await;
    }

    /// Closes all sessions of BMCs.
    pub async fn close_sessions(&self) {
        self.sessions.close(&self.web, false).await;
    }

    /// Number of Secrets in memory.
    pub fn secrets_kept(&self) -> usize {
        self.secrets.len() + self.node_secrets.len()
    }

    fn cache(&self, on: Behalf<'_>) -> &SecretCache {
        match on {
            Behalf::Account(_) => &self.secrets,
            Behalf::Operator { .. } => &self.node_secrets,
        }
    }

    /// Values of these keys.
    async fn secret<const N: usize>(
        &self,
        on: Behalf<'_>,
        name: &str,
        keys: [&str; N],
        age: Duration,
    ) -> Result<[Vec<u8>; N], Unanswered> {
        let wanted = WantedKeys {
            namespace: on.namespace().to_owned(),
            kind: KeyedKind::Secret,
            name: name.to_owned(),
            keys: keys.map(str::to_owned).to_vec(),
        };
        let values = self.cache(on).get(&wanted, age, self.read_secret(on, &wanted)).await?;
        // The cache returns one value per key.
        values.as_slice().to_vec().try_into().map_err(|_| format!("Secret {name} cannot be read").into())
    }

    /// Reads a Secret with the operator's own permissions.
    async fn read_secret(&self, on: Behalf<'_>, wanted: &WantedKeys) -> Result<Vec<Vec<u8>>, Unanswered> {
        let (secret, namespace) = (&wanted.name, &wanted.namespace);
        let kind = KindPath::namespaced("v1", namespace, "secrets").map_err(|error| error.to_string())?;
        let opened = on.open_as_operator(ObjectPath { kind: &kind, name: name(secret)?, subresource: None }).await;
        let body = self.body(namespace, opened, self.limits.object).await;
        let body = body.map_err(|error| Unanswered {
            passing: error.is_passing(),
            words: error.for_operator(namespace, &format!("Secret {secret}")),
            again: None,
        })?;
        let mut values = Vec::with_capacity(wanted.keys.len());
        for key in &wanted.keys {
            let value =
                bytes_of(&body.bytes, "data", key).ok_or_else(|| format!("Secret {secret} has no key {key}"))?;
            if value.len() > MAX_SECRET {
                return Err(format!("key {key} of Secret {secret} has more than {MAX_SECRET} bytes").into());
            }
            values.push(value);
        }
        Ok(values)
    }

    /// Certificates in a ConfigMap. They are not cached if they were read with an account, since other accounts may
    /// lack the permission.
    async fn config(&self, on: Behalf<'_>, key: &KeyRef, age: Duration) -> Result<Vec<u8>, Unanswered> {
        if let Behalf::Account(_) = on {
            return self.read_config(on, key).await;
        }
        let wanted = WantedKeys {
            namespace: on.namespace().to_owned(),
            kind: KeyedKind::ConfigMap,
            name: key.name.clone(),
            keys: vec![key.key.clone()],
        };
        let read = async { Ok(vec![self.read_config(on, key).await?]) };
        let values = self.cache(on).get(&wanted, age, read).await?;
        Ok(values.first().cloned().unwrap_or_default())
    }

    async fn read_config(&self, on: Behalf<'_>, key: &KeyRef) -> Result<Vec<u8>, Unanswered> {
        let kind = KindPath::namespaced("v1", on.namespace(), "configmaps").map_err(|error| error.to_string())?;
        let path = ObjectPath { kind: &kind, name: name(&key.name)?, subresource: None };
        let what = format!("ConfigMap {}", key.name);
        let body = self.body(on.namespace(), on.open(path).await, self.limits.object).await;
        let body = body.map_err(|error| Unanswered {
            passing: error.is_passing(),
            words: on.words(error, &what),
            again: None,
        })?;
        let text = find(&body.bytes, &["data", &key.key]).and_then(|text| parsed::<String>(text.as_bytes()).ok());
        let found = text.map(String::into_bytes).or_else(|| bytes_of(&body.bytes, "binaryData", &key.key));
        let found = found.ok_or_else(|| format!("{what} has no key {}", key.key))?;
        if found.len() > MAX_AUTHORITIES {
            return Err(format!("key {} of {what} has more than {MAX_AUTHORITIES} bytes", key.key).into());
        }
        Ok(found)
    }
}

/// Decodes the value of a key in this field of an object. The other keys are skipped.
fn bytes_of(object: &[u8], field: &str, key: &str) -> Option<Vec<u8>> {
    let ByteString(bytes) = parsed(find(object, &[field, key])?.as_bytes()).ok()?;
    Some(bytes)
}

/// Decodes text from a Secret, without trailing line ends, which editors add.
fn text(bytes: &[u8], secret: &str, key: &str) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("key {key} of Secret {secret} is not text"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
