//! Reasons why a pod is more than a replica that can be replaced alone: it is scheduled together with others, or
//! devices are reserved for it by name.

use std::fmt::{Display, Formatter, Result};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Where a mark of a pod is.
#[derive(Clone, Copy)]
enum Place {
    Label,
    Annotation,
}

/// Why replicas of a workload are not moved, created or deleted. Groups have the label or annotation by which they are
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodMembership {
    /// `spec.schedulingGroup`.
    SchedulingGroup,
    VolcanoGroup(&'static str),
    /// The plugin Coscheduling of scheduler-plugins, and schedulers that read its labels.
    CoschedulingGroup(&'static str),
    LeaderWorkerSet(&'static str),
    KueueGroup(&'static str),
    KueueQueue(&'static str),
    /// `spec.resourceClaims`.
    ResourceClaims,
}

/// Makes the membership that a mark shows.
type Membership = fn(&'static str) -> PodMembership;

/// The marks, with their older names.
const MARKS: [(Place, &str, Membership); 9] = [
    (Place::Annotation, "scheduling.k8s.io/group-name", PodMembership::VolcanoGroup),
    (Place::Annotation, "scheduling.volcano.sh/group-name", PodMembership::VolcanoGroup),
    (Place::Label, "scheduling.x-k8s.io/pod-group", PodMembership::CoschedulingGroup),
    (Place::Label, "pod-group.scheduling.sigs.k8s.io", PodMembership::CoschedulingGroup),
    (Place::Label, "pod-group.scheduling.sigs.k8s.io/name", PodMembership::CoschedulingGroup),
    (Place::Label, "leaderworkerset.sigs.k8s.io/name", PodMembership::LeaderWorkerSet),
    (Place::Label, "leaderworkerset.sigs.k8s.io/group-key", PodMembership::LeaderWorkerSet),
    (Place::Label, "kueue.x-k8s.io/pod-group-name", PodMembership::KueueGroup),
    (Place::Label, "kueue.x-k8s.io/queue-name", PodMembership::KueueQueue),
];

impl PodMembership {
    /// The membership of a pod or template with this metadata. `None` if it has none.
    pub fn of(meta: &ObjectMeta, has_group: bool, has_claims: bool) -> Option<Self> {
        let marked = || {
            let is_there = |(place, key, _): &&(Place, &'static str, Membership)| {
                let all = match place {
                    Place::Label => &meta.labels,
                    Place::Annotation => &meta.annotations,
                };
                all.as_ref().and_then(|all| all.get(*key)).is_some_and(|value| !value.is_empty())
            };
            MARKS.iter().find(is_there).map(|(_, key, membership)| membership(key))
        };
        let by_field = || has_claims.then_some(Self::ResourceClaims);
        if has_group { Some(Self::SchedulingGroup) } else { marked().or_else(by_field) }
    }
}

impl Display for PodMembership {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::SchedulingGroup => f.write_str("are scheduled as a group (spec.schedulingGroup)"),
            Self::VolcanoGroup(key) => write!(f, "are scheduled as a group by Volcano (annotation {key})"),
            Self::CoschedulingGroup(key) => write!(f, "are scheduled as a group by Coscheduling (label {key})"),
            Self::LeaderWorkerSet(key) => write!(f, "are replaced as a group by their LeaderWorkerSet (label {key})"),
            Self::KueueGroup(key) => write!(f, "are admitted as a group by Kueue (label {key})"),
            Self::KueueQueue(key) => write!(f, "are admitted by Kueue (label {key})"),
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
    #[case::empty(json!({"labels": {"kueue.x-k8s.io/queue-name": ""}}), json!({"resourceClaims": []}), None)]
    #[case::claims(json!({}), json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}), Some(PodMembership::ResourceClaims))]
    fn pods_and_templates_tell_what_they_belong_to(
        #[case] metadata: Value,
        #[case] mut spec: Value,
        #[case] expected: Option<PodMembership>,
    ) {
        spec["containers"] = json!([]);
        assert_membership(&metadata, &spec, expected);
    }

    #[rstest::rstest]
    #[case::volcano("annotations", "scheduling.k8s.io/group-name", "by Volcano (annotation")]
    #[case::volcano_own("annotations", "scheduling.volcano.sh/group-name", "by Volcano (annotation")]
    #[case::coscheduling("labels", "scheduling.x-k8s.io/pod-group", "by Coscheduling (label")]
    #[case::coscheduling_older("labels", "pod-group.scheduling.sigs.k8s.io", "by Coscheduling (label")]
    #[case::coscheduling_oldest("labels", "pod-group.scheduling.sigs.k8s.io/name", "by Coscheduling (label")]
    #[case::leader("labels", "leaderworkerset.sigs.k8s.io/name", "their LeaderWorkerSet (label")]
    #[case::worker("labels", "leaderworkerset.sigs.k8s.io/group-key", "their LeaderWorkerSet (label")]
    #[case::kueue("labels", "kueue.x-k8s.io/pod-group-name", "as a group by Kueue (label")]
    #[case::queue("labels", "kueue.x-k8s.io/queue-name", "by Kueue (label")]
    fn marks_of_groups_are_read_and_named(#[case] list: &str, #[case] key: &str, #[case] words: &str) {
        let found = PodMembership::of(&serde_json::from_value(json!({list: {key: "g"}})).unwrap(), false, true);
        assert_membership(&json!({list: {key: "g"}}), &json!({"containers": []}), found);
        let text = found.expect("a membership").to_string();
        assert!(text.contains(words) && text.contains(key), "{text}");
        let other = if list == "labels" { "annotations" } else { "labels" };
        for metadata in [json!({list: {key: ""}}), json!({other: {key: "g"}})] {
            assert_membership(&metadata, &json!({"containers": []}), None);
        }
    }

    fn assert_membership(metadata: &Value, spec: &Value, expected: Option<PodMembership>) {
        let object = json!({"metadata": metadata, "spec": spec});
        let pod: SlimPod = serde_json::from_value(object.clone()).expect("a pod");
        assert_eq!(PodFact::from(pod).membership, expected);
        let template: TemplateFact = serde_json::from_str(&object.to_string()).expect("a template");
        assert_eq!(template.membership, expected);
    }
}
