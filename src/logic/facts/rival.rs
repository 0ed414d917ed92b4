//! What is read of autoscalers that may act on a loop's target.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt;

use super::Identity;
use crate::api::closed_loop::TargetRef;
use crate::api::foreign::{ContainerPolicy, ForeignTarget, ScaledObject, VerticalPodAutoscaler};
use crate::logic::closed_loop::validate::conflict::ClaimantKind;

/// Annotation by which KEDA is told not to scale.
const PAUSED: &str = "autoscaling.keda.sh/paused";

/// Annotation by which KEDA is told to hold a number of replicas.
const PAUSED_AT: &str = "autoscaling.keda.sh/paused-replicas";

/// An autoscaler.
#[derive(Clone, Debug, PartialEq)]
pub struct RivalFact {
    pub id: Identity,
    pub kind: ClaimantKind,
    pub target: TargetRef,
    pub grip: Grip,
}

/// What an autoscaler writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Grip {
    Nothing,
    Replicas,
    /// Requests and limits of containers: these policies, the one named `*` for all others.
    Resources(Vec<ContainerPolicy>),
}

impl Grip {
    /// Whether it writes this dimension of its target; see [`crate::logic::closed_loop::rung::dimension`].
    #[must_use]
    pub fn holds(&self, dimension: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Replicas => dimension == "replicas",
            Self::Resources(policies) => {
                let Some((container, resource)) = dimension.split_once('/') else { return false };
                let named = |name: &str| policies.iter().find(|policy| policy.container_name == name);
                let Some(policy) = named(container).or_else(|| named("*")) else {
                    return matches!(resource, "cpu" | "memory");
                };
                policy.mode.as_deref() != Some("Off")
                    && policy.controlled_resources.as_ref().is_none_or(|all| all.iter().any(|one| one == resource))
            }
        }
    }
}

fn target(target: &ForeignTarget) -> TargetRef {
    TargetRef {
        api_version: target.api_version.clone().unwrap_or_else(|| "apps/v1".to_owned()),
        kind: target.kind.clone().unwrap_or_else(|| "Deployment".to_owned()),
        name: target.name.clone(),
    }
}

impl From<&HorizontalPodAutoscaler> for RivalFact {
    fn from(scaler: &HorizontalPodAutoscaler) -> Self {
        let scaled = scaler.spec.as_ref().map(|spec| spec.scale_target_ref.clone()).unwrap_or_default();
        let scaled = ForeignTarget { api_version: scaled.api_version, kind: Some(scaled.kind), name: scaled.name };
        Self {
            id: (&scaler.metadata).into(),
            kind: ClaimantKind::HorizontalPodAutoscaler,
            target: target(&scaled),
            grip: Grip::Replicas,
        }
    }
}

impl From<&ScaledObject> for RivalFact {
    fn from(scaler: &ScaledObject) -> Self {
        let says = |annotation: &str| scaler.annotations().get(annotation).map(String::as_str);
        let paused = says(PAUSED) == Some("true") && says(PAUSED_AT).is_none();
        Self {
            id: (&scaler.metadata).into(),
            kind: ClaimantKind::ScaledObject,
            target: target(&scaler.spec.scale_target_ref),
            grip: if paused { Grip::Nothing } else { Grip::Replicas },
        }
    }
}

impl From<&VerticalPodAutoscaler> for RivalFact {
    fn from(scaler: &VerticalPodAutoscaler) -> Self {
        let off = scaler.spec.update_policy.update_mode.as_deref() == Some("Off");
        let policies = scaler.spec.resource_policy.container_policies.clone();
        Self {
            id: (&scaler.metadata).into(),
            kind: ClaimantKind::VerticalPodAutoscaler,
            target: target(&scaler.spec.target_ref),
            grip: if off { Grip::Nothing } else { Grip::Resources(policies) },
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn vertical(spec: Value) -> RivalFact {
        let object = json!({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "vpa"}, "spec": spec});
        (&serde_json::from_value::<VerticalPodAutoscaler>(object).unwrap()).into()
    }

    #[rstest]
    #[case(json!({}), &["app/cpu", "app/memory"])]
    #[case(json!({"updatePolicy": {"updateMode": "Off"}}), &[])]
    #[case(json!({"resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": ["cpu"]}]}}), &["app/cpu"])]
    #[case(json!({"resourcePolicy": {"containerPolicies": [{"containerName": "app", "mode": "Off"}, {"containerName": "*"}]}}), &[])]
    #[case(json!({"resourcePolicy": {"containerPolicies": [{"containerName": "side", "mode": "Off"}]}}), &["app/cpu", "app/memory"])]
    fn a_vertical_autoscaler_holds_what_its_policies_say(#[case] mut spec: Value, #[case] held: &[&str]) {
        spec["targetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let rival = vertical(spec);
        let all = ["app/cpu", "app/memory", "replicas", "placement"];
        let holds: Vec<&str> = all.into_iter().filter(|one| rival.grip.holds(one)).collect();
        assert_eq!(holds, held);
    }

    #[rstest]
    #[case(json!({}), true)]
    #[case(json!({"autoscaling.keda.sh/paused": "true"}), false)]
    #[case(json!({"autoscaling.keda.sh/paused": "true", "autoscaling.keda.sh/paused-replicas": "3"}), true)]
    fn a_scaled_object_holds_the_replicas_of_a_deployment(#[case] annotations: Value, #[case] held: bool) {
        let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": "so", "annotations": annotations},
            "spec": {"scaleTargetRef": {"name": "web"}, "triggers": []}});
        let rival: RivalFact = (&serde_json::from_value::<ScaledObject>(object).unwrap()).into();
        assert_eq!((rival.target.kind.as_str(), rival.grip.holds("replicas")), ("Deployment", held));
        assert!(!rival.grip.holds("app/cpu"));
    }
}
