//! Asks whether the operator's account has its permissions: the authorizer of the API server, or, if the user may not
//! ask that about others, the roles and bindings.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::facts::{NotRead, ReadResult, RequiredRight, RightObject};
use super::request::{list, timed};
use super::roles::{AccountRules, RolesAndBindings, groups, user};

/// Number of concurrent questions.
const AT_ONCE: usize = 16;

/// Each permission, and whether the account has it.
type RightAnswers = Vec<(RequiredRight, bool)>;

/// Returns the answers, and whether the authorizer gave them.
pub async fn answers(
    client: &Client,
    namespace: &str,
    account: &str,
    required: Vec<RequiredRight>,
) -> (ReadResult<RightAnswers>, bool) {
    match by_authorizer(client, namespace, account, &required).await {
        Err(NotRead::Forbidden(refusal)) => {
            let answers = by_roles(client, namespace, account, required).await;
            // Without either permission, the better one is named.
            let is_refused = matches!(answers, Err(NotRead::Forbidden(_)));
            (if is_refused { Err(NotRead::Forbidden(refusal)) } else { answers }, false)
        }
        answers => (answers, true),
    }
}

async fn by_authorizer(
    client: &Client,
    namespace: &str,
    account: &str,
    required: &[RequiredRight],
) -> ReadResult<RightAnswers> {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let ask = async |right: &RequiredRight| {
        let review = review(namespace, account, right);
        let answer = timed(api.create(&PostParams::default(), &review)).await?;
        Ok::<_, NotRead>((right.clone(), answer.status.is_some_and(|status| status.allowed)))
    };
    let Some((first, others)) = required.split_first() else { return Ok(Vec::new()) };
    // One refusal stands for all.
    let mut answers = vec![ask(first).await?];
    answers.extend(stream::iter(others).map(ask).buffered(AT_ONCE).try_collect::<Vec<_>>().await?);
    Ok(answers)
}

fn review(namespace: &str, account: &str, right: &RequiredRight) -> SubjectAccessReview {
    let mut spec = SubjectAccessReviewSpec {
        user: Some(user(namespace, account)),
        groups: Some(groups(namespace).into()),
        ..SubjectAccessReviewSpec::default()
    };
    let verb = Some(right.verb.clone());
    match &right.object {
        RightObject::Path(path) => {
            spec.non_resource_attributes = Some(NonResourceAttributes { path: Some(path.clone()), verb });
        }
        RightObject::Resource { group, resource, name } => {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                name: name.clone(),
                namespace: right.namespace.clone(),
                verb,
                ..ResourceAttributes::default()
            });
        }
    }
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}

async fn by_roles(
    client: &Client,
    namespace: &str,
    account: &str,
    required: Vec<RequiredRight>,
) -> ReadResult<RightAnswers> {
    let (cluster_roles, cluster_bindings) = (Api::all(client.clone()), Api::all(client.clone()));
    let (cluster_roles, cluster_bindings) = tokio::try_join!(list(&cluster_roles), list(&cluster_bindings))?;
    let mut all = RolesAndBindings { cluster_roles, cluster_bindings, ..RolesAndBindings::default() };
    let places: BTreeSet<&str> = required.iter().filter_map(|right| right.namespace.as_deref()).collect();
    for place in places {
        let (roles, bindings) = (Api::namespaced(client.clone(), place), Api::namespaced(client.clone(), place));
        let (roles, bindings) = tokio::try_join!(list(&roles), list(&bindings))?;
        all.roles.extend(roles);
        all.bindings.extend(bindings);
    }
    let rules = AccountRules::new(&all, namespace, account);
    Ok(required
        .into_iter()
        .map(|right| {
            let holds = rules.allow(&right);
            (right, holds)
        })
        .collect())
}
