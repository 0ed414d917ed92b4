//! Where the objects of a kind are: its plural, and whether it can be scaled. Asked of the API server once in a while.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;

use crate::api::closed_loop::TargetRef;
use crate::controllers::closed_loop::ClosedLoopController;
use crate::controllers::error::Error;
use crate::logic::closed_loop::execution::TargetState;

/// How long what was asked holds: a CRD may come, go, or get a scale subresource.
const HOLDS: SignedDuration = SignedDuration::from_mins(5);

/// At most so many kinds are remembered.
const MOST: usize = 256;

/// A kind, as far as scaling needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// API version and plural.
    api_version: String,
    plural: String,
    /// It has a scale subresource.
    pub scales: bool,
    /// Its own spec tells the replicas, so that one request is enough.
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

/// The kinds that were asked for, and when.
pub type Kinds = HashMap<(String, String), (Timestamp, Option<Place>)>;

/// Where the target's kind is; none where the API server does not know it.
///
/// # Errors
/// The API server could not be asked.
pub async fn find(ctx: &ClosedLoopController, target: &TargetRef) -> Result<Option<Place>, Error> {
    if let Some(place) = plain(target) {
        return Ok(Some(place));
    }
    let id = (target.api_version.clone(), target.kind.clone());
    let now = ctx.now();
    let known = ctx.state.kinds().get(&id).filter(|(asked, _)| now.duration_since(*asked) < HOLDS).cloned();
    if let Some((_, place)) = known {
        return Ok(place);
    }
    let list = if target.api_version.contains('/') {
        ctx.timed(ctx.client.list_api_group_resources(&target.api_version)).await
    } else {
        ctx.timed(ctx.client.list_core_api_resources(&target.api_version)).await
    };
    let place = match list {
        Ok(list) => place(target, &list),
        Err(Error::Gone(_)) => None,
        Err(error) => return Err(error),
    };
    let mut kinds = ctx.state.kinds();
    if kinds.len() >= MOST {
        kinds.clear();
    }
    // A kind that is not there may be installed at any moment.
    if place.is_some() {
        kinds.insert(id, (now, place.clone()));
    }
    Ok(place)
}

/// The kinds of Kubernetes' own that are scaled most.
fn plain(target: &TargetRef) -> Option<Place> {
    let plural = match (target.api_version.as_str(), target.kind.as_str()) {
        ("apps/v1", "Deployment") => "deployments",
        ("apps/v1", "ReplicaSet") => "replicasets",
        ("apps/v1", "StatefulSet") => "statefulsets",
        _ => return None,
    };
    Some(Place { api_version: "apps/v1".to_owned(), plural: plural.to_owned(), scales: true, plain: true })
}

/// What is said of a target whose kind the API server does not know.
pub fn unknown(target: &TargetRef) -> TargetState {
    TargetState::NotFound(unknown_words(target))
}

/// The same, where something was about to be done to it.
pub fn gone(target: &TargetRef) -> Error {
    Error::Gone(unknown_words(target))
}

fn unknown_words(target: &TargetRef) -> String {
    format!("the API server knows no kind {} in {}", target.kind, target.api_version)
}

fn place(target: &TargetRef, list: &APIResourceList) -> Option<Place> {
    let mut own = list.resources.iter().filter(|one| !one.name.contains('/') && one.namespaced);
    let plural = own.find(|one| one.kind == target.kind)?.name.clone();
    let scale = format!("{plural}/scale");
    let scales = list.resources.iter().any(|one| one.name == scale);
    Some(Place { api_version: target.api_version.clone(), plural, scales, plain: false })
}
