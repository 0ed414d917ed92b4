//! Facts about ReplicaSets and their pod templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use k8s_openapi::api::core::v1::{NodeSelector, PodSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::slim::SlimTemplate;
use super::stateful_set::is_gated;
use super::workload::scale;
use super::{
    Identity, Owner, PodConstraints, PodMembership, Requests, ScaleFact, Selector, cores, default_requests, group,
    requests, texts,
};
use ganglion_api::marks;

/// Annotation of WAO, on pods and ReplicaSets: the share of a ReplicaSet's pods that is spread over nodes.
pub const SPREAD_RATE: &str = "wao.bitmedia.co.jp/podspread-rate";

/// A ReplicaSet as the API server sends it. The type of k8s-openapi would drop fields of the template that are newer
/// than that type.
#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "k8s_openapi::api::apps::v1::ReplicaSet")]
pub struct ReplicaSet {
    pub metadata: ObjectMeta,
    pub spec: Option<ReplicaSetSpec>,
    pub status: Option<ReplicaSetStatus>,
}

/// See [`ReplicaSet`].
#[derive(Deserialize, Clone, Debug)]
pub struct ReplicaSetSpec {
    pub replicas: Option<i32>,
    pub selector: LabelSelector,
    pub template: Option<TemplateFact>,
    #[serde(rename = "minReadySeconds")]
    pub min_ready_seconds: Option<i32>,
}

/// A pod template: the JSON that the API server sent, from which pods are created, and the fields that planners read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateFact {
    pub json: Box<str>,
    pub labels: BTreeMap<String, String>,
    /// The pod deletion cost.
    pub cost: Option<String>,
    /// Effective requests of the template's pods.
    pub requests: Requests,
    /// CPU in millicores, as the agent `power` counts it.
    pub cores: i64,
    pub node_selector: BTreeMap<String, String>,
    /// The required node affinity.
    pub node_affinity: Option<NodeSelector>,
    pub tolerations: Vec<Toleration>,
    /// The template has the operator's scheduling gate.
    pub gated: bool,
    /// PersistentVolumeClaims that the pods share.
    pub claims: Vec<String>,
    /// Constraints between its pods and others.
    pub constraints: Option<Box<PodConstraints>>,
    pub membership: Option<PodMembership>,
}

impl<'de> Deserialize<'de> for TemplateFact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let template: SlimTemplate = serde_json::from_str(json.get()).map_err(D::Error::custom)?;
        let meta = template.metadata.unwrap_or_default();
        let spec = template.spec.unwrap_or_default();
        let (claims, membership) = (spec.claims(), spec.membership(&meta));
        let mut spec = PodSpec::from(spec);
        default_requests(&mut spec);
        let requests = requests(&spec);
        let cores = cores(&spec);
        let labels = meta.labels.unwrap_or_default();
        let constraints = PodConstraints::of_template(&spec, &labels);
        let affinity = spec.affinity.and_then(|affinity| affinity.node_affinity);
        Ok(Self {
            json: json.into(),
            cost: meta.annotations.and_then(|all| all.get(marks::DELETION_COST).map(|text| texts::name(text))),
            labels,
            requests,
            cores,
            claims,
            constraints,
            membership,
            node_selector: spec.node_selector.unwrap_or_default(),
            node_affinity: affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution),
            tolerations: spec.tolerations.unwrap_or_default(),
            gated: is_gated(spec.scheduling_gates.as_deref()),
        })
    }
}

/// A ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaSetFact {
    pub id: Identity,
    /// Labels that serve as those of an owner of another kind. Empty for a Deployment's ReplicaSets: the Deployment has
    /// its own.
    pub labels: BTreeMap<String, String>,
    pub scale: ScaleFact,
    pub controller: Option<Owner>,
    /// API version of the controller; empty if there is no controller.
    pub controller_version: String,
    pub selector: Selector,
    pub revision: Option<String>,
    /// The annotation [`SPREAD_RATE`].
    pub spread_rate: Option<String>,
    /// Seconds for which a pod must be Ready to be available.
    pub min_ready_seconds: i32,
    /// The ReplicaSet controller has not observed the latest spec.
    pub behind: bool,
    /// The ReplicaSet controller's message while it cannot create pods.
    pub create_failure: Option<String>,
    pub terminating: bool,
    /// The pod template. Only for ReplicaSets with replicas, since the templates of old revisions are not used.
    pub template: Option<Arc<TemplateFact>>,
    /// Labels, selector and the texts of the template are not kept; see [`super::Reducible`].
    pub reduced: bool,
}

impl ReplicaSetFact {
    /// Labels of every pod of the set.
    pub fn pod_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.template.as_ref().map(|template| template.labels.clone()).unwrap_or_default();
        labels.extend(self.selector.labels.clone());
        labels
    }
}

impl From<ReplicaSet> for ReplicaSetFact {
    fn from(ReplicaSet { metadata: meta, spec, status }: ReplicaSet) -> Self {
        let scale = scale(&meta, spec.as_ref().and_then(|spec| spec.replicas));
        let observed = status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        let annotation =
            |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).map(|text| texts::name(text));
        let conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        let (controller, controller_version) = (Owner::controller_of(&meta), Owner::version_in(&meta));
        let is_deployment = |owner: &Owner| owner.kind == "Deployment" && group(&controller_version) == "apps";
        let is_of_deployment = controller.as_ref().is_some_and(is_deployment);
        Self {
            id: (&meta).into(),
            labels: meta.labels.clone().filter(|_| !is_of_deployment).unwrap_or_default(),
            controller,
            controller_version,
            behind: observed < meta.generation.unwrap_or(0),
            selector: spec.as_ref().map(|spec| Selector::from(&spec.selector)).unwrap_or_default(),
            min_ready_seconds: spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0).max(0),
            revision: annotation(marks::REVISION),
            spread_rate: annotation(SPREAD_RATE),
            create_failure: conditions
                .filter(|one| one.type_ == "ReplicaFailure" && one.status == "True")
                .find(|failure| failure.reason.as_deref() == Some("FailedCreate"))
                .map(|failure| texts::message(failure.message.as_deref().unwrap_or_default())),
            terminating: meta.deletion_timestamp.is_some(),
            template: spec.filter(|_| scale.replicas > 0).and_then(|spec| spec.template).map(Arc::new),
            scale,
            reduced: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_template_is_kept_as_it_was_sent() {
        let template = json!({"spec": {"hostnameOverride": "web", "containers": [{"name": "c", "later": {"a": [1]}}]}});
        let set = json!({"metadata": {"name": "web"}, "spec": {"selector": {}, "template": template}});
        let set: ReplicaSet = serde_json::from_str(&set.to_string()).unwrap();
        let fact = ReplicaSetFact::from(set);
        assert_eq!(&*fact.template.unwrap().json, template.to_string());
    }

    #[test]
    fn the_pods_of_a_template_request_what_they_limit() {
        let resources = json!({"limits": {"cpu": "2", "memory": "1Ki"}, "requests": {"cpu": "1"}});
        let template = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        let template: TemplateFact = serde_json::from_str(&template.to_string()).unwrap();
        assert_eq!((template.requests.cpu, template.requests.memory), (1000, 1024));
    }

    #[test]
    fn the_rate_that_its_pods_are_spread_by_is_kept() {
        let set = json!({"metadata": {"name": "web", "annotations": {SPREAD_RATE: "0.5"}}});
        let set: ReplicaSet = serde_json::from_str(&set.to_string()).unwrap();
        assert_eq!(ReplicaSetFact::from(set).spread_rate.as_deref(), Some("0.5"));
    }
}
