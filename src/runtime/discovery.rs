//! Discovery: the plural of a kind, whether it has a scale subresource, the path of its number of replicas, whether the
//! API server serves a subresource that older versions lack, its version, in which version it serves an API with
//! metrics, and what features a node declares. Answers are cached: five minutes, and [`MISSING_HOLDS`] for what does
//! not exist.
//!
//! Only the CustomResourceDefinition of a kind has the path of its number of replicas: neither the lists of API
//! versions nor the OpenAPI documents contain it. Without the permission to read the definition, the path is unknown.
//!
//! Users name the API version and the kind. A text that is not an API version causes no request. Answers are bounded in
//! bytes, and kinds that do not exist cannot evict others from the cache.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;

use super::context::Context;
use super::error::Error;
use super::writer::{AnswerBounds, Writer};
use ganglion_core::items::Items;
use ganglion_core::kind_path::{BadSegment, KindPath, segment};
use ganglion_core::metrics_api::MetricsApi;

/// Lifetime of a cached answer. A CRD may be installed, removed, or gain a scale subresource.
const HOLDS: SignedDuration = SignedDuration::from_mins(5);

/// Lifetime of the answer that a kind does not exist. It may be installed at any moment.
const MISSING_HOLDS: SignedDuration = SignedDuration::from_secs(10);

/// Lifetime of an answer without the definition of the kind. The API server refuses requests until it has loaded its
/// roles.
const UNDEFINED_HOLDS: SignedDuration = SignedDuration::from_secs(30);

/// Maximum number of cached answers about kinds that exist, and of those about kinds that do not. Beyond it, the oldest
/// is dropped.
const MOST: usize = 256;

/// Bounds of the list of an API version. The largest lists of Kubernetes have 20 KiB.
pub const LIST: AnswerBounds = AnswerBounds { bytes: 1 << 20, values: 1 << 16 };

/// Maximum number of resources of an API version that are read.
const RESOURCES: usize = 4096;

/// Bounds of a CustomResourceDefinition. etcd stores at most 1.5 MiB; its schemas are not kept.
pub const DEFINITION: AnswerBounds = AnswerBounds { bytes: 4 << 20, values: 1 << 18 };

/// Maximum number of versions of a CustomResourceDefinition that are read.
const VERSIONS: usize = 64;

/// Fields of a CustomResourceDefinition that are used.
#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    versions: Items<DefinedVersion, VERSIONS>,
}

#[derive(Deserialize)]
struct DefinedVersion {
    name: String,
    #[serde(default)]
    subresources: Option<DefinedSubresources>,
}

#[derive(Deserialize)]
struct DefinedSubresources {
    #[serde(default)]
    scale: Option<DefinedScale>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinedScale {
    spec_replicas_path: String,
}

/// Bounds of the description of an API group.
const GROUP: AnswerBounds = AnswerBounds { bytes: 64 << 10, values: 1 << 12 };

/// Fields of an `APIGroup` that are used.
#[derive(Deserialize)]
struct ServedGroup {
    versions: Items<ServedVersion, VERSIONS>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServedVersion {
    group_version: String,
}

/// Fields of an `APIResourceList` that are used.
#[derive(Deserialize)]
pub struct ServedResources {
    #[serde(default)]
    resources: Items<ServedResource, RESOURCES>,
}

#[derive(Deserialize)]
struct ServedResource {
    name: String,
    kind: String,
    namespaced: bool,
}

/// A kind as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredKind {
    api_version: String,
    pub plural: String,
    /// The kind has a scale subresource.
    pub has_scale: bool,
    /// `spec.replicas` is certainly a field of this kind, so one request is enough.
    pub replicas_in_spec: bool,
    /// Path of the number of replicas, such as `spec.replicas`; None if it is unknown, or if there is no scale
    /// subresource.
    pub replicas_path: Option<String>,
}

impl DiscoveredKind {
    /// Path of the kind in this namespace.
    pub fn path(&self, namespace: &str) -> Result<KindPath, BadSegment> {
        KindPath::namespaced(&self.api_version, namespace, &self.plural)
    }
}

/// Answers by API version and kind, with the time of discovery.
struct CachedAnswers<T>(HashMap<(String, String), (Timestamp, T)>);

impl<T> Default for CachedAnswers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Clone> CachedAnswers<T> {
    fn get(&self, id: &(String, String), now: Timestamp, holds: SignedDuration) -> Option<T> {
        let (at, answer) = self.0.get(id)?;
        (now.duration_since(*at) < holds).then(|| answer.clone())
    }

    fn put(&mut self, id: (String, String), now: Timestamp, answer: T) {
        if self.0.len() >= MOST && !self.0.contains_key(&id) {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(id, _)| id.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(id, (now, answer));
    }
}

/// Bounds of the answer to a question about one node. A node with many images and volumes has 100 KiB.
const NODE: AnswerBounds = AnswerBounds { bytes: 1 << 20, values: 1 << 16 };

/// Maximum number of declared features of a node that are read.
const FEATURES: usize = 256;

/// Fields of the version of the API server that are used.
#[derive(Deserialize)]
struct ServerVersion {
    minor: String,
}

/// Fields of a `NodeList` that are used.
#[derive(Deserialize)]
struct DeclaringNodes {
    items: Items<DeclaringNode, 1>,
}

#[derive(Deserialize)]
struct DeclaringNode {
    #[serde(default)]
    status: DeclaredFeatures,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeclaredFeatures {
    #[serde(default)]
    declared_features: Items<String, FEATURES>,
}

/// The cache of kinds, subresources, the version, and the features of nodes.
#[derive(Default)]
pub struct Discovery {
    found: Mutex<CachedAnswers<DiscoveredKind>>,
    missing: Mutex<CachedAnswers<()>>,
    /// Whether a subresource is served.
    subresources: Mutex<CachedAnswers<bool>>,
    minor_version: Mutex<CachedAnswers<Option<u32>>>,
    /// Whether a node declares a feature; None for a node that does not exist.
    features: Mutex<CachedAnswers<Option<bool>>>,
    /// Index of the version of an API with metrics that is served.
    versions: Mutex<CachedAnswers<usize>>,
}

fn lock<T>(answers: &Mutex<T>) -> MutexGuard<'_, T> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Discovery {
    /// Looks up a kind; None if the API server does not serve it, or if the text is no API version.
    pub async fn find(&self, ctx: &Context, api_version: &str, kind: &str) -> Result<Option<DiscoveredKind>, Error> {
        match well_known(api_version, kind) {
            Some(found) => Ok(Some(found)),
            None => self.find_other(&ctx.writer, ctx.now(), api_version, kind).await,
        }
    }

    async fn find_other(
        &self,
        writer: &Writer,
        now: Timestamp,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<DiscoveredKind>, Error> {
        let Ok(path) = KindPath::of_version(api_version) else { return Ok(None) };
        let id = (api_version.to_owned(), kind.to_owned());
        if let Some(found) = lock(&self.found).get(&id, now, HOLDS) {
            return Ok(Some(found));
        }
        if lock(&self.missing).get(&id, now, MISSING_HOLDS).is_some() {
            return Ok(None);
        }
        let found = list(writer, &path).await?.and_then(|list| discovered(api_version, kind, &list));
        let Some(mut found) = found else {
            lock(&self.missing).put(id, now, ());
            return Ok(None);
        };
        let mut at = now;
        if found.has_scale {
            found.replicas_path = replicas_path(writer, &found).await?;
            if found.replicas_path.is_none() {
                at = now - (HOLDS - UNDEFINED_HOLDS);
            }
        }
        lock(&self.found).put(id, at, found.clone());
        Ok(Some(found))
    }

    /// Returns the API version in which an API with metrics is served, the preferred one of several; None if the API
    /// server does not know the group.
    pub async fn metrics_version(&self, ctx: &Context, api: &MetricsApi) -> Result<Option<&'static str>, Error> {
        self.metrics_version_at(&ctx.writer, ctx.now(), api).await
    }

    async fn metrics_version_at(
        &self,
        writer: &Writer,
        now: Timestamp,
        api: &MetricsApi,
    ) -> Result<Option<&'static str>, Error> {
        let id = (api.group.to_owned(), String::new());
        if let Some(found) = lock(&self.versions).get(&id, now, HOLDS) {
            return Ok(api.versions.get(found).copied());
        }
        if lock(&self.missing).get(&id, now, MISSING_HOLDS).is_some() {
            return Ok(None);
        }
        let request = http::Request::get(format!("/apis/{}", api.group)).body(Vec::new());
        let request = request.map_err(|error| Error::Malformed(error.to_string()))?;
        let served = match writer.bounded::<ServedGroup>(request, GROUP).await {
            Ok(group) => group.versions.kept,
            Err(Error::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let is_served = |version: &&'static str| served.iter().any(|one| one.group_version == **version);
        match api.versions.iter().position(&is_served) {
            Some(index) => lock(&self.versions).put(id, now, index),
            None => lock(&self.missing).put(id, now, ()),
        }
        Ok(api.versions.iter().copied().find(|version| is_served(version)))
    }

    /// Forgets the version of an API with metrics, which may be served in another one from now on.
    pub fn forget_metrics_version(&self, api: &MetricsApi) {
        lock(&self.versions).0.remove(&(api.group.to_owned(), String::new()));
    }

    /// Whether the API server serves this subresource, such as `pods/resize` of `v1`.
    pub async fn serves(&self, ctx: &Context, api_version: &str, name: &str) -> Result<bool, Error> {
        self.serves_at(&ctx.writer, ctx.now(), api_version, name).await
    }

    async fn serves_at(&self, writer: &Writer, now: Timestamp, api_version: &str, name: &str) -> Result<bool, Error> {
        let id = (api_version.to_owned(), name.to_owned());
        if let Some(is_served) = lock(&self.subresources).get(&id, now, HOLDS) {
            return Ok(is_served);
        }
        let list = list(writer, &KindPath::of_version(api_version)?).await?;
        let is_served = list.is_some_and(|list| list.resources.kept.iter().any(|one| one.name == name));
        lock(&self.subresources).put(id, now, is_served);
        Ok(is_served)
    }
}

impl Discovery {
    /// Minor version of the API server, such as 36; None if it cannot be read as a number.
    pub async fn minor_version(&self, ctx: &Context) -> Result<Option<u32>, Error> {
        let id = (String::new(), "version".to_owned());
        if let Some(minor) = lock(&self.minor_version).get(&id, ctx.now(), HOLDS) {
            return Ok(minor);
        }
        let request = http::Request::get("/version").body(Vec::new());
        let request = request.map_err(|error| Error::Malformed(error.to_string()))?;
        let version: ServerVersion = ctx.writer.bounded(request, LIST).await?;
        // Some providers add a sign: 36+.
        let minor = version.minor.trim_end_matches(|sign: char| !sign.is_ascii_digit()).parse().ok();
        lock(&self.minor_version).put(id, ctx.now(), minor);
        Ok(minor)
    }

    /// Whether the node declares this feature; None if there is no such node.
    pub async fn declares(&self, ctx: &Context, node: &str, feature: &str) -> Result<Option<bool>, Error> {
        self.declares_at(&ctx.writer, ctx.now(), node, feature).await
    }

    async fn declares_at(
        &self,
        writer: &Writer,
        now: Timestamp,
        node: &str,
        feature: &str,
    ) -> Result<Option<bool>, Error> {
        let id = (node.to_owned(), feature.to_owned());
        if let Some(declares) = lock(&self.features).get(&id, now, HOLDS) {
            return Ok(declares);
        }
        // The operator may list nodes, not get them.
        let path = format!("{}/nodes", KindPath::of_version("v1")?.as_str());
        let params = ListParams::default().fields(&format!("metadata.name={}", segment(node)?));
        let request = Request::new(path).list(&params).map_err(|error| Error::Malformed(error.to_string()))?;
        let nodes: DeclaringNodes = writer.bounded(request, NODE).await?;
        let found = nodes.items.kept.into_iter().next();
        let declares = found.map(|node| node.status.declared_features.kept.iter().any(|one| one == feature));
        // A node that lacks the feature may be upgraded at any moment.
        let at = if declares == Some(true) { now } else { now - (HOLDS - UNDEFINED_HOLDS) };
        lock(&self.features).put(id, at, declares);
        Ok(declares)
    }
}

/// Reads the path of the number of replicas from the definition of the kind. None if there is no definition, as for
/// kinds of other API servers, or if the operator may not read it.
async fn replicas_path(writer: &Writer, kind: &DiscoveredKind) -> Result<Option<String>, Error> {
    let Some((group, version)) = kind.api_version.split_once('/') else { return Ok(None) };
    let path = KindPath::of_version("apiextensions.k8s.io/v1")?;
    let path = format!("{}/customresourcedefinitions/{}.{group}", path.as_str(), kind.plural);
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| Error::Malformed(error.to_string()))?;
    let definition: Definition = match writer.bounded(request, DEFINITION).await {
        Ok(definition) => definition,
        Err(Error::NotFound(_) | Error::Forbidden(_) | Error::Doubtful(_) | Error::Denied(_) | Error::Malformed(_)) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let served = definition.spec.versions.kept.into_iter().find(|one| one.name == version);
    let scale = served.and_then(|one| one.subresources).and_then(|subresources| subresources.scale);
    // A JSON path without lists, such as `.spec.size`.
    Ok(scale.and_then(|scale| Some(scale.spec_replicas_path.strip_prefix('.')?.to_owned())))
}

/// Lists the resources of an API version; None if the API server does not serve the version.
async fn list(writer: &Writer, path: &KindPath) -> Result<Option<ServedResources>, Error> {
    let request = http::Request::get(path.as_str()).body(Vec::new());
    let request = request.map_err(|error| Error::Malformed(error.to_string()))?;
    match writer.bounded(request, LIST).await {
        Ok(list) => Ok(Some(list)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Built-in scalable kinds, which need no discovery request.
fn well_known(api_version: &str, kind: &str) -> Option<DiscoveredKind> {
    let plural = match (api_version, kind) {
        ("apps/v1", "Deployment") => "deployments",
        ("apps/v1", "ReplicaSet") => "replicasets",
        ("apps/v1", "StatefulSet") => "statefulsets",
        _ => return None,
    };
    Some(DiscoveredKind {
        api_version: "apps/v1".to_owned(),
        plural: plural.to_owned(),
        has_scale: true,
        replicas_in_spec: true,
        replicas_path: Some("spec.replicas".to_owned()),
    })
}

fn discovered(api_version: &str, kind: &str, list: &ServedResources) -> Option<DiscoveredKind> {
    let resources = &list.resources.kept;
    let mut own = resources.iter().filter(|one| !one.name.contains('/') && one.namespaced);
    let plural = own.find(|one| one.kind == kind)?.name.clone();
    let scale = format!("{plural}/scale");
    let has_scale = resources.iter().any(|one| one.name == scale);
    Some(DiscoveredKind {
        api_version: api_version.to_owned(),
        plural,
        has_scale,
        replicas_in_spec: false,
        replicas_path: None,
    })
}

#[cfg(test)]
mod tests;
