//! The origin of an object: a person, or a tool that would create it again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Labels and annotations of tools that reconcile an object with their repository.
const GITOPS_MARKS: [(&str, &str); 11] = [
    ("argocd.argoproj.io/", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/", "Flux"),
    ("helm.toolkit.fluxcd.io/", "Flux"),
    ("meta.helm.sh/", "Helm"),
    ("helm.sh/", "Helm"),
    ("fleet.cattle.io/", "Fleet"),
    ("objectset.rio.cattle.io/", "Fleet"),
    ("configmanagement.gke.io/", "Config Sync"),
    ("configsync.gke.io/", "Config Sync"),
    ("kapp.k14s.io/", "kapp"),
    // Argo CD's tracking label. Helm uses the same label, also in charts that Flux renders.
    ("app.kubernetes.io/instance", "Argo CD or Helm (label app.kubernetes.io/instance)"),
];

/// Labels and annotations that a restore from a backup writes.
const RESTORE_MARKS: [&str; 2] = ["velero.io/", "k10.kasten.io/"];

/// Prefix of the field managers of kubectl and of our own command line.
const BY_HAND: &str = "kubectl";

/// The tool that manages an object from a repository, according to the object's labels and annotations.
pub fn gitops_manager(meta: &ObjectMeta) -> Option<&'static str> {
    let tool = |(mark, tool): &(&str, &'static str)| is_marked(meta, mark).then_some(*tool);
    GITOPS_MARKS.iter().find_map(tool)
}

/// Whether a person created the object: its first field manager is kubectl, and no GitOps tool or restore has marked
/// it. A tool that uses kubectl and leaves no mark counts as a person.
pub fn is_by_hand(meta: &ObjectMeta) -> bool {
    // The store keeps only the first manager.
    let first = meta.managed_fields.iter().flatten().next().and_then(|entry| entry.manager.as_deref());
    first.is_some_and(|manager| manager.starts_with(BY_HAND))
        && gitops_manager(meta).is_none()
        && !RESTORE_MARKS.iter().any(|mark| is_marked(meta, mark))
}

fn is_marked(meta: &ObjectMeta, prefix: &str) -> bool {
    let (labels, annotations) = (meta.labels.iter().flatten(), meta.annotations.iter().flatten());
    labels.chain(annotations).any(|(key, _)| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::create("kubectl-create", json!({}), true)]
    #[case::server_side("kubectl", json!({}), true)]
    #[case::argo_manager("argocd-controller", json!({}), false)]
    #[case::flux_manager("kustomize-controller", json!({}), false)]
    #[case::unknown("okhttp", json!({}), false)]
    #[case::argo("kubectl-client-side-apply", json!({"annotations": {"argocd.argoproj.io/tracking-id": "a"}}), false)]
    #[case::argo_label("kubectl-client-side-apply", json!({"labels": {"app.kubernetes.io/instance": "a"}}), false)]
    #[case::fleet("kubectl-create", json!({"annotations": {"objectset.rio.cattle.io/id": "a"}}), false)]
    #[case::velero("kubectl-create", json!({"labels": {"velero.io/restore-name": "a"}}), false)]
    #[case::plain_label("kubectl-create", json!({"labels": {"app.kubernetes.io/name": "a"}}), true)]
    fn a_person_is_known_by_the_first_manager_and_the_absence_of_marks(
        #[case] manager: &str,
        #[case] meta: serde_json::Value,
        #[case] expected: bool,
    ) {
        let mut meta: ObjectMeta = serde_json::from_value(meta).expect("metadata");
        assert!(!is_by_hand(&meta), "its creator is unknown");
        meta.managed_fields = serde_json::from_value(json!([{"manager": manager}])).expect("managers");
        assert_eq!(is_by_hand(&meta), expected);
    }
}
