//! `ganglion explain placement`: shows the result of a policy for a pod. Reads all objects from the cluster that the
//! operator would read, and evaluates the policy locally.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cluster::{self, ClusterOptions};
use super::explain_labels;
use super::objects::Error;
use super::output::OutputFormat;
use crate::operator::read;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_core::facts::{NodeFact, PodFact, ReplicaSet, ReplicaSetFact, SlimPod, default_requests};
use ganglion_core::world::{Fact, Origin, World};
use ganglion_placement_plan::explain::{PlacementExplanation, explain as explained, worst_labels};
use ganglion_placement_plan::labels::explain::{LabelExplanation, LabelSubject, explain as labels_explained};
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::question::PlacedPod;
use ganglion_runtime::guard::Guard;

/// Options of `explain placement`.
#[derive(Args, Debug, Clone)]
#[group(id = "asked", required = true, multiple = false, args = ["pod", "file"])]
pub struct PlacementArgs {
    /// Name of the PlacementPolicy.
    #[arg(long, value_name = "NAME")]
    policy: String,
    /// Name of a pod; a pod that is already bound is evaluated as if it were new.
    #[arg(long, value_name = "POD")]
    pod: Option<String>,
    /// File with a pod, YAML or JSON.
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Namespace of the pod. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Namespace of the operator and of its second scheduler, whose configuration may add terms to pods.
    #[arg(long, env = "GANGLION_LEASE_NAMESPACE", value_name = "NS", default_value = "ganglion-system")]
    operator_namespace: String,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Returns the explanation.
pub async fn explain(asked: PlacementArgs) -> Result<String, Error> {
    let (client, namespace) = cluster::open(asked.cluster.clone(), asked.namespace.clone()).await?;
    let policy: Option<PlacementPolicy> = Api::all(client.clone()).get_opt(&asked.policy).await?;
    let compiled = match &policy {
        Some(policy) => CompiledPolicy::compile(policy)
            .map(|compiled| (policy.clone(), compiled))
            .map_err(|(reason, words)| Error::BadPolicy(format!("{}: {words}", reason.as_str()))),
        None => Err(Error::NoPolicy { name: asked.policy.clone() }),
    };
    let pod = the_pod(&asked, &client, &namespace).await?;
    let placed = PlacedPod::from(&pod);
    let mut world = crate::operator::world::world();
    load::<Node, NodeFact>(&mut world, Api::all(client.clone())).await?;
    let (added, takes_part) = tokio::join!(
        explain_labels::added_terms(&client, &asked.operator_namespace, &placed.scheduler),
        explain_labels::takes_part(&client, &placed.key.namespace),
    );
    let (name, policy, is_valid) = (asked.policy.as_str(), policy.as_ref(), compiled.is_ok());
    let subject = LabelSubject { pod: &pod, name, policy, is_valid, added, takes_part };
    let labels = labels_explained(&world, &subject);
    let explanation = match (compiled, labels) {
        (Ok((policy, compiled)), labels) => evaluated(client, world, policy, &compiled, &placed, labels).await?,
        (Err(error), Some(labels)) => PlacementExplanation::by_labels(name, &placed, error.to_string(), labels),
        (Err(error), None) => return Err(error),
    };
    Ok(asked.output.of(&explanation, || explanation.text())?)
}

/// Evaluates the policy in a world with the nodes: for the labels with the pod itself, and for the pod without it.
async fn evaluated(
    client: Client,
    mut world: World,
    policy: PlacementPolicy,
    compiled: &CompiledPolicy,
    placed: &PlacedPod,
    mut labels: Option<LabelExplanation>,
) -> Result<PlacementExplanation, Error> {
    let saved = read::saved_values(&client, &policy).await;
    let typical =
        policy.status.as_ref().and_then(|status| status.labels.as_ref()).map(|labels| labels.typical_request.clone());
    world.apply(policy, Origin::Watch);
    load::<SlimPod, PodFact>(&mut world, Api::all(client.clone())).await?;
    load::<NodeConfig, NodeConfig>(&mut world, Api::all(client.clone())).await?;
    let sets = Api::<ReplicaSet>::namespaced(client, &placed.key.namespace);
    load::<ReplicaSet, ReplicaSetFact>(&mut world, sets).await?;
    let now = Timestamp::now();
    if let Some(labels) = &mut labels {
        labels.add_worst(&compiled.name, &worst_labels(&world, compiled, typical.as_ref(), saved.as_ref(), now));
    }
    if let Some(bound) = world.pod(&placed.key).filter(|pod| pod.id.uid == placed.uid).map(|pod| pod.id.clone()) {
        world.remove::<PodFact>(&bound);
    }
    Ok(PlacementExplanation { labels, ..explained(&world, compiled, placed, saved.as_ref(), now) })
}

/// Parses a pod from YAML. Reads it like an object of the API server: a YAML reader for each type of a pod would add
/// megabytes to the binary.
fn pod_of(yaml: &str) -> Result<Pod, Error> {
    let value: Value = serde_saphyr::from_str(yaml).map_err(|error| Error::NotAPod(error.to_string()))?;
    match serde_json::from_str(&value.to_string()) {
        Ok(Guard(Ok(pod))) => Ok(pod),
        Ok(Guard(Err(unreadable))) => Err(Error::NotAPod(unreadable.error)),
        Err(error) => Err(Error::NotAPod(error.to_string())),
    }
}

async fn the_pod(asked: &PlacementArgs, client: &Client, namespace: &str) -> Result<Pod, Error> {
    let mut pod = match (&asked.file, &asked.pod) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).map_err(|source| Error::File { path: path.clone(), source })?;
            pod_of(&text)?
        }
        (None, name) => {
            let name = name.clone().unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            pods.get_opt(&name).await?.ok_or(Error::NoPod { name, namespace: namespace.to_owned() })?
        }
    };
    // The same defaults that the API server sets for new pods.
    pod.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
    if let Some(spec) = &mut pod.spec {
        default_requests(spec);
    }
    Ok(pod)
}

/// Loads all objects of a kind into the world.
async fn load<K, F>(world: &mut World, api: Api<K>) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    F: Fact + From<K>,
{
    let take = |object| drop(world.apply(F::from(object), Origin::Watch));
    Ok(read::pages(&api, take).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_read_from_yaml_and_a_mistake_is_located() {
        let pod = pod_of("metadata: {name: p}\nspec: {containers: [{name: c, image: i}]}").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("p"));
        let error = pod_of("metadata: {name: p}\nspec: {containers: [{name: c, ports: 80}]}").unwrap_err().to_string();
        assert!(error.contains("spec.containers[0].ports"), "{error}");
        assert!(matches!(pod_of("- p"), Err(Error::NotAPod(_))));
    }
}
