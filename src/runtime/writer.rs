//! Requests of controllers to the API server. Each has a timeout and a classified error, and none is sent once another
//! replica may act.
//!
//! Requests do not ask for warnings about unknown fields: the API server would parse each body twice, and our bodies
//! come from the same types as the schema. Where a CRD may be older, the answer to a status is compared with what was
//! sent, and the spec of a child is validated strictly.

use std::borrow::Cow;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::InvalidUri;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::client::Body;
use kube::core::{Request, Status};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::dropped::dropped_field;
use super::error::Error;
use crate::body::{self, Unread};
use crate::fairness::FairLimit;
use crate::metrics::{LimitLabel, Metrics};
use ganglion_core::document::count_values;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::kind_path::segment;

/// A cluster-scoped or namespaced kind.
pub trait Kube: Resource<DynamicType = (), Scope: ApiScope> + DeserializeOwned + Clone + Debug {}
impl<K: Resource<DynamicType = (), Scope: ApiScope> + DeserializeOwned + Clone + Debug> Kube for K {}

/// Scope of a kind.
pub trait ApiScope: Sized {
    /// The API of a kind in this namespace, or of the cluster.
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, namespace: &str) -> Api<K>;
}

impl ApiScope for NamespaceResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, namespace: &str) -> Api<K> {
        Api::namespaced(client, namespace)
    }
}

impl ApiScope for ClusterResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}

/// Maximum size of the API server's answers that are being read, in bytes, unless the writer shares another limit. One
/// namespace can use a quarter of it.
const IN_FLIGHT: usize = 32 << 20;

/// Namespace in the path of a request; empty if there is none.
fn namespace(request: &http::Request<Vec<u8>>) -> &str {
    let mut segments = request.uri().path().split('/').skip_while(|segment| *segment != "namespaces");
    segments.nth(1).unwrap_or_default()
}

/// Bounds of an answer of the API server whose content users determine.
#[derive(Clone, Copy, Debug)]
pub struct AnswerBounds {
    pub bytes: usize,
    /// Maximum number of JSON values: an object with many small values takes many times its size in memory.
    pub values: usize,
}

impl AnswerBounds {
    /// An object or a subresource.
    pub const OBJECT: Self = Self { bytes: 4 << 20, values: 1 << 15 };
    /// A list of objects, which must be parsed into types that have only the needed fields.
    pub const LIST: Self = Self { bytes: 8 << 20, values: 1 << 21 };

    /// Parses an answer that has at most the number of values.
    pub fn parse<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, Error> {
        if count_values(body) > self.values {
            return Err(Error::Malformed(format!("the answer of the API server has more than {} values", self.values)));
        }
        serde_json::from_slice(body).map_err(|error| Error::Malformed(error.to_string()))
    }
}

/// Receives the key of each object that a controller has written with success.
pub trait WriteObserver: Send + Sync {
    /// The API server's answer to a write of the object with this kind and key is in the store. Must not wait.
    fn written(&self, kind: &'static str, key: &Key);
}

/// Sends requests while this replica holds the lease. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    /// Timeout of a request.
    timeout: Duration,
    /// Cancelled when this replica must not act any more.
    leader: CancellationToken,
    metrics: Metrics,
    /// Limit on bytes of answers to [`Writer::bounded`].
    answers: FairLimit,
    observer: Option<Arc<dyn WriteObserver>>,
}

impl Writer {
    /// A writer that works while `leader` is not cancelled.
    pub fn new(client: Client, timeout: Duration, leader: CancellationToken, metrics: Metrics) -> Self {
        let full = metrics.outbound_full.get_or_create(&LimitLabel { limit: "answers" }).clone();
        Self { client, timeout, leader, metrics, answers: FairLimit::new(IN_FLIGHT, full), observer: None }
    }

    /// Shares this limit on bytes of answers that are being read.
    pub fn within(self, answers: FairLimit) -> Self {
        Self { answers, ..self }
    }

    /// Tells this observer of written objects.
    pub fn observed_by(self, observer: Option<Arc<dyn WriteObserver>>) -> Self {
        Self { observer, ..self }
    }

    /// Tells the observer that this object was written, and that the answer is in the store.
    pub fn wrote(&self, kind: &'static str, key: &Key) {
        if let Some(observer) = &self.observer {
            observer.written(kind, key);
        }
    }

    /// The client, for requests that are sent through [`Writer::call`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The API of a kind in this namespace, or of the cluster.
    pub fn api<K: Kube>(&self, namespace: &str) -> Api<K> {
        K::Scope::api(self.client.clone(), namespace)
    }

    /// Whether this replica must not act any more.
    pub fn is_fenced(&self) -> bool {
        self.leader.is_cancelled()
    }

    /// Returns when this replica must not act any more.
    pub async fn fenced(&self) {
        self.leader.cancelled().await;
    }

    /// Sends a request. Fails without sending it if this replica must not act any more.
    pub async fn call<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        if self.is_fenced() {
            return Err(Error::NotLeader);
        }
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::Timeout(self.timeout)),
        }
    }

    /// Sends a request. Returns the response unread, whatever its status; the caller must bound the body.
    pub async fn send(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Body>, Error> {
        self.call(self.client.send(request.map(Body::from))).await
    }

    /// Sends a request whose path, selector or answer contains text of a user, and parses the answer within its bounds.
    pub async fn bounded<T: DeserializeOwned>(
        &self,
        request: http::Request<Vec<u8>>,
        bounds: AnswerBounds,
    ) -> Result<T, Error> {
        let namespace = namespace(&request).to_owned();
        let read = async {
            let (head, body) = self.client.send(request.map(Body::from)).await?.into_parts();
            Ok((head.status, body::read(body, bounds.bytes, &self.answers, &namespace).await))
        };
        let (status, body) = self.call(read).await?;
        let body = body.map_err(|unread| match unread {
            Unread::Broken(broken) => Error::from(broken),
            Unread::Full => Error::Full,
            Unread::TooLong => {
                Error::Malformed(format!("the answer of the API server has more than {} bytes", bounds.bytes))
            }
        })?;
        if !status.is_success() {
            let refused = bounds.parse::<Status>(&body.bytes).unwrap_or_else(|_| Status::failure("", ""));
            return Err(kube::Error::Api(refused.with_code(status.as_u16()).boxed()).into());
        }
        bounds.parse(&body.bytes)
    }

    /// Counts and times a write. `effect` is its name in metrics and logs.
    pub async fn counted<T>(
        &self,
        effect: &'static str,
        write: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        let done = write.await;
        let outcome = done.as_ref().map_or_else(|error| error.class().word(), |_| "ok");
        self.metrics.effect(effect, outcome, begun.elapsed());
        if done.is_ok() {
            info!(effect, "done");
        }
        done
    }

    /// Reads an object; None if it does not exist.
    pub async fn get<K: Kube>(&self, key: &Key) -> Result<Option<K>, Error> {
        self.call(self.api::<K>(&key.namespace).get_opt(segment(&key.name)?)).await
    }

    /// Creates an object with this field manager.
    pub async fn create<K: Kube>(&self, manager: &str, namespace: &str, object: &impl Serialize) -> Result<K, Error> {
        self.post(manager, namespace, object, false).await
    }

    /// Creates an object of a kind of the operator. Fails with [`Error::Dropped`], and creates nothing, if the CRD does
    /// not have one of the fields.
    pub async fn create_whole<K: Kube>(
        &self,
        manager: &str,
        namespace: &str,
        object: &impl Serialize,
    ) -> Result<K, Error> {
        let request = strict(creation::<K>(manager, namespace, object, false)?);
        self.call(self.client.request(request.map_err(|error| Error::Malformed(error.to_string()))?)).await
    }

    /// Creates an object in a dry run: returns what admission would make of it, and stores nothing.
    pub async fn create_dry<K: Kube>(
        &self,
        manager: &str,
        namespace: &str,
        object: &impl Serialize,
    ) -> Result<K, Error> {
        self.post(manager, namespace, object, true).await
    }

    async fn post<K: Kube>(
        &self,
        manager: &str,
        namespace: &str,
        object: &impl Serialize,
        dry_run: bool,
    ) -> Result<K, Error> {
        self.call(self.client.request(creation::<K>(manager, namespace, object, dry_run)?)).await
    }

    /// Patches an object with this field manager. A server-side apply takes over fields that other managers own.
    pub async fn patch<K: Kube>(
        &self,
        manager: &str,
        key: &Key,
        patch: &Patch<impl Serialize + Debug>,
    ) -> Result<K, Error> {
        let params = match patch {
            Patch::Apply(_) => applying(manager),
            _ => changing(manager),
        };
        self.call(self.api::<K>(&key.namespace).patch(&key.name, &params, patch)).await
    }

    /// Deletes the object if it still has this uid. Returns the object if finalizers delay its deletion.
    pub async fn delete<K: Kube>(&self, object: &Identity) -> Result<Option<K>, Error> {
        let api = self.api::<K>(&object.key.namespace);
        let left = self.call(api.delete(&object.key.name, &only(object))).await?.left();
        Ok(left.filter(|left| left.meta().finalizers.as_ref().is_some_and(|all| !all.is_empty())))
    }

    /// Applies a status with this field manager and without a resourceVersion: several writers may own parts of it.
    pub async fn apply_status<K: Kube>(
        &self,
        manager: &str,
        object: &Identity,
        status: &(impl Serialize + Debug),
    ) -> Result<K, Error> {
        let body = StatusBody::of::<K>(object, None, status);
        let api = self.api::<K>(&object.key.namespace);
        self.call(api.patch_status(&object.key.name, &applying(manager), &Patch::Apply(&body))).await
    }

    /// Replaces the status if the object still has this resourceVersion. This is cheaper for the API server than an
    /// apply, and a request that arrives after a later write is refused. Fails with [`Error::Dropped`] if the API
    /// server stored only a part of the status.
    pub async fn replace_status<K: Kube>(
        &self,
        manager: &str,
        object: &Identity,
        status: &(impl Serialize + Debug),
    ) -> Result<K, Error> {
        let Key { namespace, name } = &object.key;
        let body = StatusBody::of::<K>(object, Some(&object.version), status);
        let body = serde_json::to_vec(&body).map_err(|error| Error::Malformed(error.to_string()))?;
        let manager = manager.replace('/', "%2F");
        let path = path::<K>(namespace);
        let uri = format!("{path}/{name}/status?fieldManager={manager}&fieldValidation=Ignore");
        let request = http::Request::put(uri).header(http::header::CONTENT_TYPE, "application/json").body(body.clone());
        let request = request.map_err(|error| Error::Malformed(error.to_string()))?;
        let answer = self.call(self.client.request_text(request)).await?;
        let malformed = |error: serde_json::Error| Error::Malformed(error.to_string());
        let sent: StoredStatus = serde_json::from_slice(&body).map_err(malformed)?;
        let stored: StoredStatus = serde_json::from_str(&answer).map_err(malformed)?;
        match dropped_field(&Value::Object(sent.status), &Value::Object(stored.status)) {
            Some(path) => Err(Error::Dropped(format!("status.{path}"))),
            None => serde_json::from_str(&answer).map_err(malformed),
        }
    }

    /// Reads the status of an object as it is stored, whether the object parses or not; None if the object does not
    /// exist.
    pub async fn get_status<K: Kube>(&self, key: &Key) -> Result<Option<Map<String, Value>>, Error> {
        let request = Request::new(path::<K>(&key.namespace)).get(&key.name, &GetParams::default());
        let request = request.map_err(|error| Error::Malformed(error.to_string()))?;
        match self.call(self.client.request::<StoredStatus>(request)).await {
            Ok(stored) => Ok(Some(stored.status)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Patches an object by a JSON patch, which contains its own preconditions.
    pub async fn patch_json<K: Kube>(&self, manager: &str, key: &Key, patch: JsonPatch) -> Result<K, Error> {
        self.patch(manager, key, &Patch::Json::<()>(patch.into())).await
    }

    /// Patches an object of a kind of the operator by a JSON patch, which contains its own preconditions. Fails with
    /// [`Error::Dropped`], and changes nothing, if the CRD does not have one of the fields.
    pub async fn patch_whole<K: Kube>(&self, manager: &str, key: &Key, patch: JsonPatch) -> Result<K, Error> {
        let api = self.api::<K>(&key.namespace);
        let params = changing(manager).validation_strict();
        self.call(api.patch(&key.name, &params, &Patch::Json::<()>(patch.into()))).await
    }

    /// Patches a status by a JSON patch, which contains its own preconditions.
    pub async fn patch_status<K: Kube>(&self, manager: &str, key: &Key, patch: JsonPatch) -> Result<K, Error> {
        let api = self.api::<K>(&key.namespace);
        self.call(api.patch_status(&key.name, &changing(manager), &Patch::Json::<()>(patch.into()))).await
    }
}

/// An object reduced to its status.
#[derive(Deserialize)]
struct StoredStatus {
    #[serde(default)]
    status: Map<String, Value>,
}

/// The body of a status write.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a, S> {
    api_version: Cow<'static, str>,
    kind: Cow<'static, str>,
    metadata: StatusHead<'a>,
    status: &'a S,
}

/// The metadata of a status write.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct StatusHead<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    /// Precondition: the uid.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    /// Precondition: the resourceVersion.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}

impl<'a, S> StatusBody<'a, S> {
    fn of<K: Kube>(object: &'a Identity, version: Option<&'a str>, status: &'a S) -> Self {
        let uid = Some(object.uid.as_str()).filter(|uid| !uid.is_empty());
        let Key { namespace, name } = &object.key;
        let metadata = StatusHead { namespace, name, uid, resource_version: version };
        Self { api_version: K::api_version(&()), kind: K::kind(&()), metadata, status }
    }
}

/// URL path of the objects of a kind; the namespace is empty for a cluster-scoped kind.
fn path<K: Kube>(namespace: &str) -> String {
    K::url_path(&(), Some(namespace).filter(|namespace| !namespace.is_empty()))
}

/// Delete parameters with the uid as precondition.
pub fn only(id: &Identity) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions { uid: Some(id.uid.to_string()), resource_version: None })
}

/// Parameters of a forced server-side apply with this field manager.
fn applying(manager: &str) -> PatchParams {
    PatchParams::apply(manager).force().validation_ignore()
}

/// The request that creates an object.
fn creation<K: Kube>(
    manager: &str,
    namespace: &str,
    object: &impl Serialize,
    dry_run: bool,
) -> Result<http::Request<Vec<u8>>, Error> {
    let malformed = |error: &dyn std::error::Error| Error::Malformed(error.to_string());
    let params = PostParams { field_manager: Some(manager.to_owned()), dry_run };
    let body = serde_json::to_vec(object).map_err(|error| malformed(&error))?;
    Request::new(path::<K>(namespace)).create(&params, body).map_err(|error| malformed(&error))
}

/// The request, such that the API server refuses fields that the schema of the kind does not have. `PostParams` has no
/// field for it.
pub fn strict(mut request: http::Request<Vec<u8>>) -> Result<http::Request<Vec<u8>>, InvalidUri> {
    let uri = request.uri();
    let separator = if uri.query().is_some() { "&" } else { "?" };
    let uri = format!("{uri}{separator}fieldValidation=Strict");
    *request.uri_mut() = uri.parse()?;
    Ok(request)
}

/// Parameters of any other patch with this field manager.
fn changing(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }.validation_ignore()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_many_values_is_not_parsed() {
        let bounds = AnswerBounds { bytes: 64, values: 3 };
        assert_eq!(bounds.parse::<Vec<u8>>(b"[0,1]").unwrap(), [0, 1]);
        let error = bounds.parse::<Vec<u8>>(b"[0,1,2]").unwrap_err();
        assert!(matches!(error, Error::Malformed(words) if words.ends_with("has more than 3 values")));
    }

    #[test]
    fn an_answer_counts_for_the_namespace_in_its_path() {
        let path = |path: &str| namespace(&http::Request::get(path).body(Vec::new()).unwrap()).to_owned();
        assert_eq!(path("/apis/apps/v1/namespaces/shop/deployments/web"), "shop");
        assert_eq!(path("/apis/apps/v1?limit=1"), "");
    }
}
