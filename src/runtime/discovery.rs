//! Discovery: the plural of a kind, and whether it has a scale subresource. Answers are cached for five minutes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;

use super::context::Context;
use super::error::Error;

/// Lifetime of a cached answer. A CRD may be installed, removed, or gain a scale subresource.
const HOLDS: SignedDuration = SignedDuration::from_mins(5);

/// Maximum number of cached kinds.
const MOST: usize = 256;

/// A kind as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredKind {
    api_version: String,
    pub plural: String,
    /// The kind has a scale subresource.
    pub has_scale: bool,
    /// `spec.replicas` is certainly a field of this kind, so one request is enough.
    pub replicas_in_spec: bool,
}

impl DiscoveredKind {
    /// Path of the kind in this namespace.
    pub fn url(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
    }
}

/// Discovered kinds by API version and kind, with the time of discovery.
type Kinds = HashMap<(String, String), (Timestamp, DiscoveredKind)>;

/// The cache of kinds.
#[derive(Default)]
pub struct Discovery(Mutex<Kinds>);

impl Discovery {
    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a kind; None if the API server does not serve it.
    pub async fn find(&self, ctx: &Context, api_version: &str, kind: &str) -> Result<Option<DiscoveredKind>, Error> {
        if let Some(found) = well_known(api_version, kind) {
            return Ok(Some(found));
        }
        let id = (api_version.to_owned(), kind.to_owned());
        let now = ctx.now();
        let known = self.kinds().get(&id).filter(|(asked, _)| now.duration_since(*asked) < HOLDS).cloned();
        if let Some((_, found)) = known {
            return Ok(Some(found));
        }
        let client = ctx.writer.client();
        let list = if api_version.contains('/') {
            ctx.writer.call(client.list_api_group_resources(api_version)).await
        } else {
            ctx.writer.call(client.list_core_api_resources(api_version)).await
        };
        let found = match list {
            Ok(list) => discovered(api_version, kind, &list),
            Err(Error::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        // A missing kind is not cached, since it may be installed at any moment.
        if let Some(found) = &found {
            let mut kinds = self.kinds();
            if kinds.len() >= MOST {
                kinds.clear();
            }
            kinds.insert(id, (now, found.clone()));
        }
        Ok(found)
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
    })
}

fn discovered(api_version: &str, kind: &str, list: &APIResourceList) -> Option<DiscoveredKind> {
    let mut own = list.resources.iter().filter(|one| !one.name.contains('/') && one.namespaced);
    let plural = own.find(|one| one.kind == kind)?.name.clone();
    let scale = format!("{plural}/scale");
    let has_scale = list.resources.iter().any(|one| one.name == scale);
    Some(DiscoveredKind { api_version: api_version.to_owned(), plural, has_scale, replicas_in_spec: false })
}
