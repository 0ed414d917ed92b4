//! Facts about autoscalers: their targets, and the dimensions that they write.

use k8s_openapi::api::autoscaling::v2::{HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec};
use kube::ResourceExt;

use super::{Identity, texts};
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::foreign::{ContainerPolicy, ForeignTarget, ScaledObject, VerticalPodAutoscaler};
use ganglion_api::marks;

/// Annotation with a fixed number of replicas, which KEDA enforces while it is paused.
const PAUSED_AT: &str = "autoscaling.keda.sh/paused-replicas";

/// Maximum size of the container policies, in bytes, of which each counts [`POLICY`] besides its texts.
const MAX_POLICIES: usize = 4 << 10;

/// See [`MAX_POLICIES`].
const POLICY: usize = 64;

/// The kind of an autoscaler.
// Messages use this order: a ScaledObject before the HorizontalPodAutoscaler that KEDA creates for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AutoscalerKind {
    ScaledObject,
    HorizontalPodAutoscaler,
    VerticalPodAutoscaler,
}

impl AutoscalerKind {
    /// Name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScaledObject => "ScaledObject",
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Self::VerticalPodAutoscaler => "VerticalPodAutoscaler",
        }
    }
}

/// An autoscaler of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoscalerFact {
    pub id: Identity,
    pub kind: AutoscalerKind,
    pub target: TargetRef,
    pub controls: Controls,
}

/// A HorizontalPodAutoscaler.
#[derive(Clone, Debug, PartialEq)]
pub struct HpaFact(pub AutoscalerFact);

/// A ScaledObject of KEDA.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledObjectFact(pub AutoscalerFact);

/// A VerticalPodAutoscaler.
#[derive(Clone, Debug, PartialEq)]
pub struct VpaFact(pub AutoscalerFact);

macro_rules! is_an_autoscaler {
    ($($fact:ty),*) => {
        $(impl std::ops::Deref for $fact {
            type Target = AutoscalerFact;
            fn deref(&self) -> &AutoscalerFact {
                &self.0
            }
        }
        impl std::ops::DerefMut for $fact {
            fn deref_mut(&mut self) -> &mut AutoscalerFact {
                &mut self.0
            }
        })*
    };
}
is_an_autoscaler!(HpaFact, ScaledObjectFact, VpaFact);

/// Dimensions that an autoscaler writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Controls {
    Nothing,
    Replicas,
    /// The number of replicas, only if it is outside of these bounds: both directions are switched off.
    ReplicasOutside {
        min: i32,
        max: i32,
    },
    /// Requests and limits of containers according to these policies; `*` applies to all other containers.
    Resources(Vec<ContainerPolicy>),
}

impl Controls {
    /// Whether the autoscaler writes this dimension of its target: `replicas`, or `container/resource`.
    pub fn holds(&self, dimension: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Replicas | Self::ReplicasOutside { .. } => dimension == "replicas",
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

impl Controls {
    /// Whether the autoscaler writes this resource of a container, whichever it is.
    pub fn holds_any(&self, resource: &str) -> bool {
        let holds = |container: &str| self.holds(&format!("{container}/{resource}"));
        match self {
            Self::Nothing | Self::Replicas | Self::ReplicasOutside { .. } => false,
            // `*` also stands for the containers without a policy.
            Self::Resources(policies) => holds("*") || policies.iter().any(|policy| holds(&policy.container_name)),
        }
    }
}

fn target(target: &ForeignTarget) -> TargetRef {
    TargetRef {
        api_version: texts::name(target.api_version.as_deref().unwrap_or("apps/v1")),
        kind: texts::name(target.kind.as_deref().unwrap_or("Deployment")),
        name: texts::name(&target.name),
    }
}

fn size(policies: &[ContainerPolicy]) -> usize {
    let size = |policy: &ContainerPolicy| {
        let resources =
            policy.controlled_resources.iter().flatten().map(|resource| resource.len().saturating_add(POLICY));
        let texts = policy.container_name.len().saturating_add(policy.mode.as_ref().map_or(0, String::len));
        resources.fold(texts.saturating_add(POLICY), usize::saturating_add)
    };
    policies.iter().map(size).fold(0, usize::saturating_add)
}

/// Policy of a direction in which a HorizontalPodAutoscaler does not scale.
const DISABLED: &str = "Disabled";

/// Returns the dimension that a HorizontalPodAutoscaler writes. With both directions switched off, it still returns to
/// its bounds.
fn controls(spec: Option<&HorizontalPodAutoscalerSpec>) -> Controls {
    let Some(spec) = spec else { return Controls::Replicas };
    let is_off = |rules: &Option<HPAScalingRules>| {
        rules.as_ref().is_some_and(|rules| rules.select_policy.as_deref() == Some(DISABLED))
    };
    match &spec.behavior {
        Some(behavior) if is_off(&behavior.scale_up) && is_off(&behavior.scale_down) => {
            Controls::ReplicasOutside { min: spec.min_replicas.unwrap_or(1), max: spec.max_replicas }
        }
        _ => Controls::Replicas,
    }
}

impl From<HorizontalPodAutoscaler> for HpaFact {
    fn from(scaler: HorizontalPodAutoscaler) -> Self {
        let controls = controls(scaler.spec.as_ref());
        let scaled = scaler.spec.as_ref().map(|spec| spec.scale_target_ref.clone()).unwrap_or_default();
        let scaled = ForeignTarget { api_version: scaled.api_version, kind: Some(scaled.kind), name: scaled.name };
        Self(AutoscalerFact {
            id: (&scaler.metadata).into(),
            kind: AutoscalerKind::HorizontalPodAutoscaler,
            target: target(&scaled),
            controls,
        })
    }
}

impl From<ScaledObject> for ScaledObjectFact {
    fn from(scaler: ScaledObject) -> Self {
        let says = |annotation: &str| scaler.annotations().get(annotation).map(String::as_str);
        let paused = says(marks::KEDA_PAUSED) == Some("true") && says(PAUSED_AT).is_none();
        Self(AutoscalerFact {
            id: (&scaler.metadata).into(),
            kind: AutoscalerKind::ScaledObject,
            target: target(&scaler.spec.scale_target_ref),
            controls: if paused { Controls::Nothing } else { Controls::Replicas },
        })
    }
}

impl From<VerticalPodAutoscaler> for VpaFact {
    fn from(scaler: VerticalPodAutoscaler) -> Self {
        let off = scaler.spec.update_policy.update_mode.as_deref() == Some("Off");
        // Without its policies, an autoscaler counts as one that writes the resources of all containers.
        let policies = scaler.spec.resource_policy.container_policies.clone();
        let policies = if size(&policies) > MAX_POLICIES { Vec::new() } else { policies };
        Self(AutoscalerFact {
            id: (&scaler.metadata).into(),
            kind: AutoscalerKind::VerticalPodAutoscaler,
            target: target(&scaler.spec.target_ref),
            controls: if off { Controls::Nothing } else { Controls::Resources(policies) },
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn vertical(spec: Value) -> AutoscalerFact {
        let object = json!({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "vpa"}, "spec": spec});
        VpaFact::from(serde_json::from_value::<VerticalPodAutoscaler>(object).unwrap()).0
    }

    #[rstest]
    #[case(json!({}), &["app/cpu", "app/memory"])]
    #[case(json!({"updatePolicy": {"updateMode": "Off"}}), &[])]
    #[case(json!({"resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": ["cpu"]}]}}), &["app/cpu"])]
    #[case(json!({"resourcePolicy": {"containerPolicies": [{"containerName": "app", "mode": "Off"}, {"containerName": "*"}]}}), &[])]
    #[case(json!({"resourcePolicy": {"containerPolicies": [{"containerName": "side", "mode": "Off"}]}}), &["app/cpu", "app/memory"])]
    fn a_vertical_autoscaler_holds_what_its_policies_say(#[case] mut spec: Value, #[case] held: &[&str]) {
        spec["targetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let scaler = vertical(spec);
        let all = ["app/cpu", "app/memory", "replicas", "placement"];
        let holds: Vec<&str> = all.into_iter().filter(|one| scaler.controls.holds(one)).collect();
        assert_eq!(holds, held);
    }

    #[rstest]
    #[case(json!([]), true)]
    #[case(json!([{"containerName": "*", "mode": "Off"}]), false)]
    #[case(json!([{"containerName": "app", "mode": "Off"}]), true)]
    #[case(json!([{"containerName": "app"}, {"containerName": "*", "mode": "Off"}]), true)]
    #[case(json!([{"containerName": "app", "controlledResources": ["cpu"]}, {"containerName": "*", "mode": "Off"}]), false)]
    fn a_vertical_autoscaler_holds_the_memory_of_a_container(#[case] policies: Value, #[case] held: bool) {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let scaler = vertical(json!({"targetRef": target, "resourcePolicy": {"containerPolicies": policies}}));
        assert_eq!(scaler.controls.holds_any("memory"), held);
    }

    #[rstest]
    #[case(json!({}), Controls::Replicas)]
    #[case(json!({"behavior": {}}), Controls::Replicas)]
    #[case(json!({"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}), Controls::Replicas)]
    #[case(
        json!({"behavior": {"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"selectPolicy": "Max"}}}),
        Controls::Replicas
    )]
    #[case(
        json!({"behavior": {"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"selectPolicy": "Disabled"}}}),
        Controls::ReplicasOutside { min: 1, max: 9 }
    )]
    fn a_horizontal_autoscaler_that_is_off_only_keeps_its_bounds(#[case] mut spec: Value, #[case] held: Controls) {
        spec["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        spec["maxReplicas"] = json!(9);
        let scaler: HorizontalPodAutoscaler =
            serde_json::from_value(json!({"metadata": {"name": "hpa"}, "spec": spec})).unwrap();
        let fact = HpaFact::from(scaler).0;
        assert_eq!(fact.controls, held);
        assert!(fact.controls.holds("replicas") && !fact.controls.holds_any("cpu"));
    }

    #[test]
    fn too_many_policies_count_as_if_all_containers_were_held() {
        let off = |count: usize| -> Vec<Value> {
            (0..count).map(|at| json!({"containerName": format!("c{at}"), "mode": "Off"})).collect()
        };
        for (count, holds) in [(30, false), (30_000, true)] {
            let scaler = vertical(json!({
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "resourcePolicy": {"containerPolicies": off(count)},
            }));
            assert_eq!(scaler.controls.holds("c1/cpu"), holds, "{count}");
        }
    }

    #[rstest]
    #[case(json!({}), true)]
    #[case(json!({"autoscaling.keda.sh/paused": "true"}), false)]
    #[case(json!({"autoscaling.keda.sh/paused": "true", "autoscaling.keda.sh/paused-replicas": "3"}), true)]
    fn a_scaled_object_holds_the_replicas_of_a_deployment(#[case] annotations: Value, #[case] held: bool) {
        let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": "so", "annotations": annotations},
            "spec": {"scaleTargetRef": {"name": "web"}, "triggers": []}});
        let scaler = ScaledObjectFact::from(serde_json::from_value::<ScaledObject>(object).unwrap()).0;
        assert_eq!((scaler.target.kind.as_str(), scaler.controls.holds("replicas")), ("Deployment", held));
        assert!(!scaler.controls.holds("app/cpu"));
    }
}
