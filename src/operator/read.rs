//! Reads the cluster for short commands, with the user's permissions.

use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::operator::admission;
use crate::operator::settings::Settings;
use ganglion_actions_plan::drain::UserRight;
use ganglion_api::foreign::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::{PolicyBindingFact, PolicyFact};
use ganglion_core::policies::PolicyProblem;
use ganglion_core::world::{Fact, Origin, World};
use ganglion_placement_plan::learned::LearnedValues;
use ganglion_runtime::context::Context;
use ganglion_runtime::events;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::Writer;

/// Number of objects in one page of a list: a page of pods takes a few megabytes.
const PAGE: u32 = 500;

/// Number of concurrent reviews of rights.
const REVIEWS_AT_ONCE: usize = 8;

/// Reads all objects of a kind, page by page.
pub async fn pages<K>(api: &Api<K>, mut take: impl FnMut(K)) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// Context for the operator's code in a command. The leader term has this name.
pub fn context(client: &Client, store: Store, settings: &Settings, command: &str) -> Context {
    let metrics = Metrics::new();
    let stop = CancellationToken::new();
    let (events, _) = events::line(&metrics);
    Context {
        store,
        writer: Writer::new(client.clone(), settings.request_timeout(), stop.clone(), metrics.clone()),
        events,
        metrics,
        clock: Timestamp::now,
        term: command.into(),
        stop,
    }
}

/// Saved values of a policy, if the user can read them; otherwise the policy learns from the pods again.
pub async fn saved_values(client: &Client, policy: &PlacementPolicy) -> Option<LearnedValues> {
    let (namespace, name) = policy.status.as_ref()?.memory.as_ref()?.split_once('/')?;
    let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await.ok()??;
    LearnedValues::read(&found, Timestamp::now()).ok()
}

/// Why the operator does not act on objects of this kind; None if the admission policies of the kind are in force.
pub async fn policy_problem(client: &Client, kind: &str) -> Result<Option<PolicyProblem>, kube::Error> {
    let mut world = World::default();
    world.guard(admission::guards());
    load::<ValidatingAdmissionPolicy, PolicyFact>(client, &mut world).await?;
    load::<ValidatingAdmissionPolicyBinding, PolicyBindingFact>(client, &mut world).await?;
    Ok(world.policy_problem(kind))
}

/// Reads all objects of a cluster-scoped kind into the world.
async fn load<K, F>(client: &Client, world: &mut World) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
    F: Fact + From<K>,
{
    for object in Api::<K>::all(client.clone()).list(&ListParams::default()).await?.items {
        world.apply(F::from(object), Origin::Watch);
    }
    Ok(())
}

/// Rights of these that the user does not have.
pub async fn missing_rights(client: &Client, rights: Vec<UserRight>) -> Result<Vec<UserRight>, kube::Error> {
    let one = async |right: UserRight| {
        let (resource, subresource) = right.resource.split_once('/').unzip();
        let resource_attributes = Some(ResourceAttributes {
            group: Some(right.group.to_owned()),
            resource: Some(resource.unwrap_or(right.resource).to_owned()),
            subresource: subresource.map(str::to_owned),
            verb: Some(right.verb.to_owned()),
            namespace: right.namespace.clone(),
            name: right.name.clone(),
            ..ResourceAttributes::default()
        });
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..SelfSubjectAccessReviewSpec::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        Ok::<Option<UserRight>, kube::Error>((!allowed).then_some(right))
    };
    let answers: Vec<Option<UserRight>> = stream::iter(rights).map(one).buffered(REVIEWS_AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}
