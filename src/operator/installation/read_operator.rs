//! Reads the facts about the running operator. The namespace of its Deployment determines the other reads.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::{Api, Client, ResourceExt};

use super::facts::{
    ExtenderFacts, LeaseFact, NotRead, OperatorFacts, ReadResult, RightsFacts, SettingsFacts, SettingsProblem,
};
use super::pods::container;
use super::request::{TIMEOUT, get, labelled, list, timed};
use super::rights::required;
use super::{InstallationOptions, ask, running};
use crate::operator::read::missing_rights;
use crate::operator::settings::{self, Settings};
use ganglion_actions_plan::drain::UserRight;
use ganglion_api::marks;

/// Namespace of the operator if no Deployment shows it.
const NAMESPACE: &str = "ganglion-system";

/// Name of the operator's account if no Deployment shows it.
const ACCOUNT: &str = "ganglion";

/// Kinds of the cluster in kustomize/base: API group, resource.
const INSTALLED: [(&str, &str); 7] = [
    ("", "namespaces"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("scheduling.k8s.io", "priorityclasses"),
];

/// Deployments of the operator, in this namespace or in all; else in the usual one.
async fn deployments(
    client: &Client,
    namespace: Option<&str>,
) -> (String, Vec<String>, ReadResult<Option<Deployment>>) {
    let found = match namespace {
        Some(namespace) => labelled(&Api::<Deployment>::namespaced(client.clone(), namespace)).await,
        None => match labelled(&Api::<Deployment>::all(client.clone())).await {
            Err(NotRead::Forbidden(_)) => labelled(&Api::<Deployment>::namespaced(client.clone(), NAMESPACE)).await,
            found => found,
        },
    };
    let namespaces: BTreeSet<String> =
        found.iter().flatten().filter_map(|deployment| deployment.metadata.namespace.clone()).collect();
    let usual = || namespaces.get(NAMESPACE).or_else(|| namespaces.first()).cloned();
    let home = namespace.map(str::to_owned).or_else(usual).unwrap_or_else(|| NAMESPACE.to_owned());
    let elsewhere = namespaces.into_iter().filter(|namespace| *namespace != home).collect();
    let deployment = found.map(|found| {
        let mut own = found.into_iter().filter(|deployment| deployment.metadata.namespace.as_ref() == Some(&home));
        own.next()
    });
    (home, elsewhere, deployment)
}

/// Reads everything about the operator, its permissions and its extender.
pub async fn operator(client: &Client, options: &InstallationOptions) -> (OperatorFacts, RightsFacts, ExtenderFacts) {
    let (namespace, elsewhere, deployment) = deployments(client, options.namespace.as_deref()).await;
    let running = deployment.as_ref().ok().and_then(Option::as_ref);
    let settings = match &options.settings {
        Some(settings) => SettingsFacts { settings: settings.clone(), source: None, problem: None },
        None => settings_of(client, &namespace, running).await,
    };
    let lease_and_rights = async {
        let lease = lease(client, &namespace, &settings.settings.lease).await;
        let rights = rights(client, &namespace, running, &settings.settings, lease.as_ref().ok()).await;
        (lease, rights)
    };
    let (budgets, services) =
        (Api::namespaced(client.clone(), &namespace), Api::namespaced(client.clone(), &namespace));
    let (slices, secrets) = (Api::namespaced(client.clone(), &namespace), Api::namespaced(client.clone(), &namespace));
    let pods = Api::namespaced(client.clone(), &namespace);
    let (home, (lease, rights), pods, budgets, services, slices, secret) = tokio::join!(
        get::<Namespace>(Api::all(client.clone()), &namespace),
        lease_and_rights,
        labelled(&pods),
        labelled(&budgets),
        labelled(&services),
        list(&slices),
        get::<Secret>(secrets, &settings.settings.placement.tls_secret),
    );
    let extender = ExtenderFacts { services, slices, secret };
    let not_permitted = match &home {
        Ok(None) => not_permitted(client).await,
        Ok(Some(_)) | Err(_) => Ok(Vec::new()),
    };
    (
        OperatorFacts { namespace, elsewhere, home, not_permitted, deployment, pods, settings, lease, budgets },
        rights,
        extender,
    )
}

/// Names what the user may not create, of the kinds in kustomize/base that an administrator of a namespace cannot
/// create.
async fn not_permitted(client: &Client) -> ReadResult<Vec<String>> {
    let rights =
        INSTALLED.map(|(group, resource)| UserRight { verb: "create", group, resource, namespace: None, name: None });
    let missing = timed(missing_rights(client, rights.into())).await?;
    Ok(missing.iter().map(ToString::to_string).collect())
}

/// Reads the settings from the ConfigMap that the Deployment mounts.
async fn settings_of(client: &Client, namespace: &str, deployment: Option<&Deployment>) -> SettingsFacts {
    let mut facts = SettingsFacts { settings: Settings::default(), source: None, problem: None };
    let Some((map, key)) = deployment.and_then(mounted_settings) else { return facts };
    facts.source = Some(format!("ConfigMap {map}"));
    let text = match get::<ConfigMap>(Api::namespaced(client.clone(), namespace), &map).await {
        Ok(found) => found.and_then(|found| found.data).and_then(|mut data| data.remove(&key)),
        Err(error) => {
            facts.problem = Some(SettingsProblem::NotRead(error));
            return facts;
        }
    };
    match text.as_deref().map(Settings::parse) {
        None => facts.problem = Some(SettingsProblem::Missing),
        Some(Ok(settings)) => facts.settings = settings,
        Some(Err(error)) => facts.problem = Some(SettingsProblem::Invalid(error.to_string())),
    }
    facts
}

/// ConfigMap with the settings, and its key.
fn mounted_settings(deployment: &Deployment) -> Option<(String, String)> {
    let variables = container(deployment)?.env.as_ref();
    let path = variables.into_iter().flatten().find(|one| one.name == "GANGLION_SETTINGS")?.value.as_deref()?;
    let key = path.rsplit('/').next().unwrap_or(path).to_owned();
    let volumes = deployment.spec.as_ref()?.template.spec.as_ref()?.volumes.as_ref()?;
    let maps = volumes.iter().filter_map(|volume| Some((volume.name.as_str(), &volume.config_map.as_ref()?.name)));
    let (_, map) = maps.into_iter().find(|(name, _)| *name == "settings")?;
    Some((map.clone(), key))
}

/// Reads the lease. If it looks stale, waits for a renewal: the clocks of two machines may differ.
async fn lease(client: &Client, namespace: &str, settings: &settings::Lease) -> ReadResult<Option<LeaseFact>> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let Some(lease) = get(api.clone(), &settings.name).await? else { return Ok(None) };
    let fact = lease_fact(&lease);
    if fact.holder.is_none() || fact.is_current(Timestamp::now()) {
        return Ok(Some(fact));
    }
    // A holder renews every `retrySeconds`.
    for _ in 0..settings.retry_seconds.saturating_add(2).min(TIMEOUT.as_secs()) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let Ok(Some(again)) = get(api.clone(), &settings.name).await else { continue };
        let again = lease_fact(&again);
        if again.renewed != fact.renewed {
            return Ok(Some(LeaseFact { was_renewed: true, ..again }));
        }
    }
    Ok(Some(fact))
}

fn lease_fact(lease: &Lease) -> LeaseFact {
    let spec = lease.spec.clone().unwrap_or_default();
    LeaseFact {
        name: lease.name_any(),
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        renewed: spec.renew_time.map(|time| time.0),
        seconds: spec.lease_duration_seconds.unwrap_or(0).into(),
        namespaces: lease.annotations().get(marks::NAMESPACES).cloned(),
        was_renewed: false,
    }
}

async fn rights(
    client: &Client,
    namespace: &str,
    deployment: Option<&Deployment>,
    settings: &Settings,
    lease: Option<&Option<LeaseFact>>,
) -> RightsFacts {
    let template = deployment.and_then(|deployment| deployment.spec.as_ref()?.template.spec.as_ref());
    let account = template.and_then(|spec| spec.service_account_name.clone()).unwrap_or_else(|| ACCOUNT.to_owned());
    let mut watched = deployment.map(running::watched).unwrap_or_default();
    if watched.is_empty() {
        let namespaces = lease.and_then(Option::as_ref).and_then(|lease| lease.namespaces.as_deref());
        watched = running::split(namespaces.unwrap_or_default());
    }
    let required = required(namespace, &watched, &settings.placement.tls_secret);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let (exists, (answers, by_authorizer)) =
        tokio::join!(get(accounts, &account), ask::answers(client, namespace, &account, required));
    RightsFacts { account, exists: exists.map(|found| found.is_some()), watched, answers, by_authorizer }
}
