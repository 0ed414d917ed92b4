//! Requests to servers that users name: with Secrets that the loop's account may read, limited in number, fair by namespace.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::closed_loop::source::{Auth, CaRef, KeyRef};
use crate::clients::web::{Call, Credentials, Web};
use crate::logic::closed_loop::validate::names::is_name;
use crate::runtime::account::{Account, ObjectPath};
use crate::runtime::error::Error;

/// One namespace may hold at most 1/SHARE of all permits.
const SHARE: usize = 4;

/// Sends requests to servers that users name.
pub struct OutboundClient {
    pub web: Arc<Web>,
    /// Timeout of a request.
    pub request_timeout: Duration,
    pub limiter: RequestLimiter,
}

/// Limits concurrent requests: in total, and per namespace, so that no namespace can block the others.
pub struct RequestLimiter {
    all: Arc<Semaphore>,
    each: usize,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Permits one request until it is dropped.
pub struct RequestPermit {
    _all: OwnedSemaphorePermit,
    _each: OwnedSemaphorePermit,
}

impl RequestLimiter {
    /// Allows this number of concurrent requests in total.
    #[must_use]
    pub fn new(requests: usize) -> Self {
        let requests = requests.clamp(1, Semaphore::MAX_PERMITS);
        let (all, each) = (Arc::new(Semaphore::new(requests)), requests.div_ceil(SHARE));
        Self { all, each, namespaces: Mutex::default() }
    }

    /// Waits for a permit.
    pub async fn acquire(&self, namespace: &str) -> RequestPermit {
        let own = {
            let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            // Drops semaphores that nobody uses.
            if namespaces.len() > 1024 {
                namespaces.retain(|_, own| Arc::strong_count(own) > 1);
            }
            Arc::clone(namespaces.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
        };
        // The semaphores are never closed, so the first attempt succeeds.
        loop {
            if let (Ok(each), Ok(all)) =
                (Arc::clone(&own).acquire_owned().await, Arc::clone(&self.all).acquire_owned().await)
            {
                return RequestPermit { _all: all, _each: each };
            }
        }
    }
}

/// A request with credentials and certificate authorities. Secrets are read for each request, so that deleting one, or
/// revoking the right to read it, takes effect at once.
///
/// # Errors
/// A Secret, ConfigMap or key is missing or may not be read; the text says which.
pub async fn call(
    account: &Account,
    url: &str,
    auth: Option<&Auth>,
    ca: Option<&CaRef>,
    within: Duration,
) -> Result<Call, String> {
    let auth = match auth {
        None => None,
        Some(Auth { bearer: Some(key), .. }) => Some(Credentials::Bearer(text(&secret(account, key).await?, key)?)),
        Some(Auth { basic: Some(secret), .. }) => {
            let data = secret_data(account, &secret.name).await?;
            let part = |part: &str| {
                let key = KeyRef { name: secret.name.clone(), key: part.to_owned() };
                text(&taken(&data, &key)?, &key)
            };
            Some(Credentials::Basic { username: part("username")?, password: part("password")? })
        }
        Some(Auth { bearer: None, basic: None }) => return Err("auth names neither bearer nor basic".to_owned()),
    };
    let ca = match ca {
        None => None,
        Some(CaRef { secret: Some(key), .. }) => Some(secret(account, key).await?),
        Some(CaRef { config_map: Some(key), .. }) => Some(config(account, key).await?),
        Some(CaRef { secret: None, config_map: None }) => {
            return Err("ca names neither secret nor configMap".to_owned());
        }
    };
    Ok(Call { url: url.to_owned(), auth, ca, within })
}

async fn secret(account: &Account, key: &KeyRef) -> Result<Vec<u8>, String> {
    taken(&secret_data(account, &key.name).await?, key)
}

async fn secret_data(account: &Account, secret: &str) -> Result<BTreeMap<String, ByteString>, String> {
    let url = format!("/api/v1/namespaces/{}/secrets", account.namespace);
    let path = ObjectPath { url: &url, name: name(secret)?, subresource: None };
    match account.get::<Secret>(path).await {
        Ok(found) => Ok(found.data.unwrap_or_default()),
        Err(error) => Err(unread(account, &format!("Secret {secret}"), error)),
    }
}

async fn config(account: &Account, key: &KeyRef) -> Result<Vec<u8>, String> {
    let url = format!("/api/v1/namespaces/{}/configmaps", account.namespace);
    let path = ObjectPath { url: &url, name: name(&key.name)?, subresource: None };
    let found = match account.get::<ConfigMap>(path).await {
        Ok(found) => found,
        Err(error) => return Err(unread(account, &format!("ConfigMap {}", key.name), error)),
    };
    let text = found.data.and_then(|mut data| data.remove(&key.key)).map(String::into_bytes);
    let bytes = || found.binary_data.and_then(|mut data| data.remove(&key.key)).map(|bytes| bytes.0);
    text.or_else(bytes).ok_or_else(|| format!("ConfigMap {} has no key {}", key.name, key.key))
}

fn taken(data: &BTreeMap<String, ByteString>, key: &KeyRef) -> Result<Vec<u8>, String> {
    let found = data.get(&key.key).map(|bytes| bytes.0.clone());
    found.ok_or_else(|| format!("Secret {} has no key {}", key.name, key.key))
}

/// Text from a Secret, without trailing line ends, which editors add.
fn text(bytes: &[u8], key: &KeyRef) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("key {} of Secret {} is not text", key.key, key.name))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Checks a name that a user wrote before it becomes part of a URL path.
///
/// # Errors
/// It is not a valid object name.
pub fn name(text: &str) -> Result<&str, String> {
    is_name(text).then_some(text).ok_or_else(|| format!("{text:?} is not a valid object name"))
}

/// Explains why an object could not be read.
pub fn unread(account: &Account, what: &str, error: Error) -> String {
    match error {
        Error::Forbidden(refused) => account.words(&refused),
        Error::Gone(_) => format!("there is no {what} in namespace {}", account.namespace),
        Error::Unavailable(error) => match *error {
            kube::Error::Api(status) => {
                format!("{what} cannot be read: the API server answers {}: {}", status.code, status.message)
            }
            error => format!("{what} cannot be read: the API server failed: {error}"),
        },
        error => format!("{what} cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_namespace_cannot_use_up_what_all_share() {
        let limiter = RequestLimiter::new(8);
        let _held = (limiter.acquire("a").await, limiter.acquire("a").await);
        assert!(tokio::time::timeout(Duration::from_secs(1), limiter.acquire("a")).await.is_err());
        assert!(tokio::time::timeout(Duration::from_secs(1), limiter.acquire("b")).await.is_ok());
    }
}
