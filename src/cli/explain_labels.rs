//! Reads the objects beside a policy and a pod that decide which terms with labels the pod has: the configuration of
//! the component `scheduler`, and the namespace of the pod.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, Client};
use serde_json::Value;

use ganglion_placement_plan::labels::explain::NAMESPACE_LABEL;
use ganglion_placement_plan::labels::terms::LabelTerms;
use ganglion_runtime::error::failure;

/// Name of the Deployment of the component `scheduler`. Kustomize adds a digest to that of its ConfigMap.
const SCHEDULER: &str = "ganglion-scheduler";

const CONFIGURATION: &str = "KubeSchedulerConfiguration";

/// Terms that the component `scheduler` in this namespace adds to the pods of a scheduler, or the reason why they are
/// not known.
pub async fn added_terms(client: &Client, namespace: &str, scheduler: &str) -> Result<Vec<LabelTerms>, String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments.get_opt(SCHEDULER).await;
    let name = deployment.as_ref().ok().and_then(Option::as_ref).and_then(map_name).unwrap_or(SCHEDULER);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let found =
        maps.get_opt(name).await.map_err(|error| format!("ConfigMap {namespace}/{name}: {}", failure(&error)))?;
    let Some(found) = found else {
        return Err(match &deployment {
            Err(error) => format!("Deployment {namespace}/{SCHEDULER}: {}", failure(error)),
            Ok(None) => format!("there is no Deployment {namespace}/{SCHEDULER}"),
            Ok(Some(_)) => format!("there is no ConfigMap {namespace}/{name}"),
        });
    };
    let texts = found.data.iter().flat_map(|data| data.values());
    let mut read = texts.filter_map(|text| serde_saphyr::from_str::<Value>(text).ok());
    let configuration = read.find(|value| value["kind"] == CONFIGURATION);
    let configuration = configuration.ok_or_else(|| format!("ConfigMap {namespace}/{name} has no {CONFIGURATION}"))?;
    LabelTerms::of_profile(&configuration, scheduler)
        .ok_or_else(|| format!("ConfigMap {namespace}/{name} has no profile for this scheduler"))
}

/// Name of the first ConfigMap that a Deployment mounts.
fn map_name(deployment: &Deployment) -> Option<&str> {
    let spec = deployment.spec.as_ref()?.template.spec.as_ref()?;
    spec.volumes.iter().flatten().find_map(|volume| Some(volume.config_map.as_ref()?.name.as_str()))
}

/// Whether the API server adds terms to pods of a namespace; None if the user cannot read it.
pub async fn takes_part(client: &Client, namespace: &str) -> Option<bool> {
    let (label, value) = NAMESPACE_LABEL;
    let found = Api::<Namespace>::all(client.clone()).get_opt(namespace).await.ok()??;
    let labels = found.metadata.labels.unwrap_or_default();
    Some(labels.get(label).is_some_and(|found| found == value))
}
