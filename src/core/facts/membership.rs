//! Reasons why a pod is more than a replica that can be replaced alone: it is scheduled together with others, or
//! devices are reserved for it by name.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Volcano's annotation of pods that are scheduled together.
const VOLCANO_GROUP: &str = "scheduling.k8s.io/group-name";

/// Labels of Kueue: pods that are admitted together, and pods that wait in a queue.
const KUEUE: [&str; 2] = ["kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/queue-name"];

/// Why replicas of a workload are not moved, created or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodMembership {
    /// `spec.schedulingGroup`.
    SchedulingGroup,
    VolcanoGroup,
    KueueGroup,
    KueueQueue,
    /// `spec.resourceClaims`.
    ResourceClaims,
}

impl PodMembership {
    /// The membership of a pod or template with this metadata. `None` if it has none.
    pub fn of(meta: &ObjectMeta, has_group: bool, has_claims: bool) -> Option<Self> {
        let has = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().is_some_and(|map| map.get(key).is_some_and(|value| !value.is_empty()))
        };
        let [group, queue] = KUEUE.map(|key| has(&meta.labels, key));
        let found = [
            (has_group, Self::SchedulingGroup),
            (has(&meta.annotations, VOLCANO_GROUP), Self::VolcanoGroup),
            (group, Self::KueueGroup),
            (queue, Self::KueueQueue),
            (has_claims, Self::ResourceClaims),
        ];
        found.into_iter().find(|(is_there, _)| *is_there).map(|(_, membership)| membership)
    }
}

impl Display for PodMembership {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::SchedulingGroup => f.write_str("are scheduled as a group (spec.schedulingGroup)"),
            Self::VolcanoGroup => write!(f, "are scheduled as a group by Volcano (annotation {VOLCANO_GROUP})"),
            Self::KueueGroup => write!(f, "are admitted as a group by Kueue (label {})", KUEUE[0]),
            Self::KueueQueue => write!(f, "are admitted by Kueue (label {})", KUEUE[1]),
            Self::ResourceClaims => f.write_str("hold ResourceClaims (spec.resourceClaims)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::facts::{PodFact, PodMembership, SlimPod, TemplateFact};

    #[rstest::rstest]
    #[case::none(json!({"labels": {"app": "web"}}), json!({}), None)]
    #[case::group(json!({}), json!({"schedulingGroup": {"podGroupName": "g"}}), Some(PodMembership::SchedulingGroup))]
    #[case::volcano(json!({"annotations": {"scheduling.k8s.io/group-name": "g"}}), json!({}), Some(PodMembership::VolcanoGroup))]
    #[case::kueue(json!({"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}), json!({}), Some(PodMembership::KueueGroup))]
    #[case::queue(json!({"labels": {"kueue.x-k8s.io/queue-name": "q"}}), json!({}), Some(PodMembership::KueueQueue))]
    #[case::empty(json!({"labels": {"kueue.x-k8s.io/queue-name": ""}}), json!({"resourceClaims": []}), None)]
    #[case::claims(json!({}), json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}), Some(PodMembership::ResourceClaims))]
    fn pods_and_templates_tell_what_they_belong_to(
        #[case] metadata: Value,
        #[case] mut spec: Value,
        #[case] expected: Option<PodMembership>,
    ) {
        spec["containers"] = json!([]);
        let object = json!({"metadata": metadata, "spec": spec});
        let pod: SlimPod = serde_json::from_value(object.clone()).expect("a pod");
        assert_eq!(PodFact::from(pod).membership, expected);
        let template: TemplateFact = serde_json::from_str(&object.to_string()).expect("a template");
        assert_eq!(template.membership, expected);
    }
}
