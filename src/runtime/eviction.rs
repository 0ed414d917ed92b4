//! Evictions by the Eviction API, which respects PodDisruptionBudgets, and the refusals that only evictions get.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::core::Status;

use super::context::Context;
use super::error::{Error, retry_after};
use ganglion_core::facts::{Identity, PodFact};
use ganglion_core::world::Origin;

/// Answer to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionAnswer {
    /// The pod terminates.
    Accepted,
    /// The pod does not exist.
    NotFound,
    /// A PodDisruptionBudget currently does not allow the eviction.
    BlockedByBudget(String),
    /// More than one PodDisruptionBudget selects the pod, so the Eviction API refuses to evict it.
    TooManyBudgets(String),
}

/// Evicts the pod if it still has this uid; see [`eviction`]. Also marks the cached pod as terminating: the answer
/// does not contain the new version of the pod. Returns an error only for failures that any request may have.
pub async fn evict(ctx: &Context, pod: &Identity, grace_seconds: Option<u32>) -> Result<EvictionAnswer, Error> {
    let body = eviction(pod, grace_seconds);
    let (api, params) = (ctx.writer.api::<Pod>(&pod.key.namespace), PostParams::default());
    let call = api.create_subresource::<_, Status>("eviction", &pod.key.name, &params, &body);
    // The general classification of errors does not cover the refusals of evictions.
    let answer = ctx.writer.call(async {
        match call.await {
            Err(kube::Error::Api(status)) => Ok(Err(status)),
            answer => answer.map(Ok),
        }
    });
    match answer.await? {
        Ok(_) => {
            mark_ending(ctx, pod);
            Ok(EvictionAnswer::Accepted)
        }
        Err(status) => match refusal(&status) {
            Some(refused) => refused,
            None if status.code == 404 => Ok(EvictionAnswer::NotFound),
            None => Err(kube::Error::Api(status).into()),
        },
    }
}

/// Marks the cached pod as terminating, ahead of the watch.
pub fn mark_ending(ctx: &Context, pod: &Identity) {
    let known = ctx.store.read(|world| world.pod(&pod.key).filter(|known| known.id.uid == pod.uid).cloned());
    if let Some(known) = known {
        ctx.store.apply(PodFact { terminating: true, ..known }, Origin::Own);
    }
}

/// Eviction with the uid as precondition. kube's own `evict` is not used: version 5 misspells `deleteOptions`, and the
/// API server silently ignores the precondition. Without a grace period, the pod's own applies.
pub fn eviction(pod: &Identity, grace_seconds: Option<u32>) -> Eviction {
    Eviction {
        metadata: ObjectMeta {
            namespace: Some(pod.key.namespace.clone()),
            name: Some(pod.key.name.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: grace_seconds.map(i64::from),
            preconditions: Some(Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    }
}

/// Meaning of a refusal that only evictions get; None for a status that any request may get.
pub fn refusal(status: &Status) -> Option<Result<EvictionAnswer, Error>> {
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        429 if causes().any(|cause| cause.reason == "DisruptionBudget") => {
            let words = causes().map(|cause| cause.message.as_str()).find(|words| !words.is_empty());
            Some(Ok(EvictionAnswer::BlockedByBudget(words.unwrap_or(&status.message).to_owned())))
        }
        429 => Some(Err(Error::Throttled(retry_after(status)))),
        500 if status.message.contains("more than one PodDisruptionBudget") => {
            Some(Ok(EvictionAnswer::TooManyBudgets(status.message.clone())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::{StatusCause, StatusDetails};

    fn status(code: u16, message: &str, cause: Option<&str>) -> Status {
        let causes = cause.map(|reason| StatusCause {
            reason: reason.into(),
            message: "The disruption budget web needs 3 healthy pods and has 3 currently".into(),
            field: String::new(),
        });
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.into_iter().collect(),
            retry_after_seconds: 7,
        };
        let mut status = Status::failure(message, "").with_code(code);
        status.details = Some(details);
        status
    }

    #[test]
    fn a_budget_is_distinguished_from_throttling_and_two_budgets_from_a_failure() {
        let text = "Cannot evict pod as it would violate the pod's disruption budget.";
        let words = "The disruption budget web needs 3 healthy pods and has 3 currently".to_owned();
        let budget = refusal(&status(429, text, Some("DisruptionBudget"))).unwrap();
        assert_eq!(budget.unwrap(), EvictionAnswer::BlockedByBudget(words));
        assert!(matches!(refusal(&status(429, "too many requests", None)), Some(Err(Error::Throttled(_)))));
        let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let budgets = refusal(&status(500, text, None)).unwrap();
        assert_eq!(budgets.unwrap(), EvictionAnswer::TooManyBudgets(text.to_owned()));
        assert!(refusal(&status(500, "etcd is away", None)).is_none());
        assert!(refusal(&status(404, "not found", None)).is_none());
    }
}
