//! Discovery: the plural of a kind, and whether it has a scale subresource. Cached for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;

use super::context::Context;
use super::error::Error;

/// How long an answer is cached: a CRD may come, go, or get a scale subresource.
const HOLDS: SignedDuration = SignedDuration::from_mins(5);

/// Capacity of the cache, in kinds.
const MOST: usize = 256;

/// What scaling needs to know of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// API version and plural.
    api_version: String,
    plural: String,
    /// It has a scale subresource.
    pub scales: bool,
    /// `spec.replicas` is known to be a field of this kind, so one request is enough.
    pub plain: bool,
}

impl Place {
    /// Path of the kind in this namespace.
    #[must_use]
    pub fn url(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
    }
}

/// An answer, and when it was given.
type Places = HashMap<(String, String), (Timestamp, Place)>;

/// The cache of kinds.
#[derive(Default)]
pub struct Discovery(Mutex<Places>);

impl Discovery {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a kind; none if the API server does not know it.
    ///
    /// # Errors
    /// The API server did not answer.
    pub async fn find(&self, ctx: &Context, api_version: &str, kind: &str) -> Result<Option<Place>, Error> {
        if let Some(place) = plain(api_version, kind) {
            return Ok(Some(place));
        }
        let id = (api_version.to_owned(), kind.to_owned());
        let now = ctx.now();
        let known = self.places().get(&id).filter(|(asked, _)| now.duration_since(*asked) < HOLDS).cloned();
        if let Some((_, place)) = known {
            return Ok(Some(place));
        }
        let client = ctx.writer.client();
        let list = if api_version.contains('/') {
            ctx.writer.call(client.list_api_group_resources(api_version)).await
        } else {
            ctx.writer.call(client.list_core_api_resources(api_version)).await
        };
        let place = match list {
            Ok(list) => place(api_version, kind, &list),
            Err(Error::Gone(_)) => None,
            Err(error) => return Err(error),
        };
        // A missing kind may be installed at any moment.
        if let Some(place) = &place {
            let mut places = self.places();
            if places.len() >= MOST {
                places.clear();
            }
            places.insert(id, (now, place.clone()));
        }
        Ok(place)
    }
}

/// Kubernetes' own scalable kinds, which need no look-up.
fn plain(api_version: &str, kind: &str) -> Option<Place> {
    let plural = match (api_version, kind) {
        ("apps/v1", "Deployment") => "deployments",
        ("apps/v1", "ReplicaSet") => "replicasets",
        ("apps/v1", "StatefulSet") => "statefulsets",
        _ => return None,
    };
    Some(Place { api_version: "apps/v1".to_owned(), plural: plural.to_owned(), scales: true, plain: true })
}

fn place(api_version: &str, kind: &str, list: &APIResourceList) -> Option<Place> {
    let mut own = list.resources.iter().filter(|one| !one.name.contains('/') && one.namespaced);
    let plural = own.find(|one| one.kind == kind)?.name.clone();
    let scale = format!("{plural}/scale");
    let scales = list.resources.iter().any(|one| one.name == scale);
    Some(Place { api_version: api_version.to_owned(), plural, scales, plain: false })
}
