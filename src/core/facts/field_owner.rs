//! Owners of fields: the manager that will write a field again, and the one that wrote it last.
//!
//! One notion for every field of somebody else's object that the operator changes. A manager owns a field if it applies
//! it: by server-side apply, or by a client that stores its last manifest in an annotation. A manager that wrote a
//! field by an update does not own it: the API server sets defaults before it records the fields of an update, so the
//! creator of a workload has replicas that its manifest leaves out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;
use serde_json::value::RawValue;

use ganglion_api::marks;

/// Annotation with the manifest that `kubectl apply` or Argo CD last applied without server-side apply, as JSON.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How a manager applies a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyMethod {
    ServerSide,
    /// By a patch that the client computes from the annotation with its last manifest.
    ClientSide,
}

/// Manager that will write a field again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldOwner {
    pub manager: String,
    pub method: ApplyMethod,
    /// Time of its last server-side apply.
    pub applied_at: Option<Timestamp>,
}

impl FieldOwner {
    /// Manager that uses server-side apply.
    pub fn server_side(manager: impl Into<String>, applied_at: Option<Timestamp>) -> Self {
        Self { manager: manager.into(), method: ApplyMethod::ServerSide, applied_at }
    }
}

impl std::fmt::Display for FieldOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.manager)
    }
}

/// Path of a field in an object.
#[derive(Clone, Debug)]
pub struct FieldPath<'a>(Vec<FieldStep<'a>>);

#[derive(Clone, Copy, Debug)]
enum FieldStep<'a> {
    Member(&'a str),
    /// Item of a list, with its value. Managers identify items by their keys, not by their position.
    Item(Option<&'a Value>),
}

impl<'a> FieldPath<'a> {
    /// Path that leads through no list.
    pub fn of_members(path: &[&'a str]) -> Self {
        Self(path.iter().copied().map(FieldStep::Member).collect())
    }

    /// `spec.replicas`.
    pub fn replicas() -> Self {
        Self::of_members(&["spec", "replicas"])
    }

    /// Path of a field in this object: names, and the indexes of items of lists.
    pub fn new(object: &'a Value, path: &[&'a str]) -> Self {
        let mut parent = Some(object);
        let mut steps = Vec::with_capacity(path.len());
        for part in path.iter().copied() {
            if let Some(Value::Array(items)) = parent {
                parent = part.parse::<usize>().ok().and_then(|index| items.get(index));
                steps.push(FieldStep::Item(parent));
            } else {
                parent = parent.and_then(|parent| parent.get(part));
                steps.push(FieldStep::Member(part));
            }
        }
        Self(steps)
    }

    /// Manager that will write the field again. Fields that the operator itself applies do not count, nor do those that
    /// a user handed over to it ([`marks::HANDOVER_MANAGER`]).
    pub fn owner(&self, meta: &ObjectMeta) -> Option<FieldOwner> {
        let entries = meta.managed_fields.as_deref().unwrap_or_default();
        if let Some(entry) =
            entries.iter().find(|entry| is_apply(entry) && !is_ours(entry) && self.owns(entry, entries))
        {
            let manager = entry.manager.clone().unwrap_or_default();
            return Some(FieldOwner::server_side(manager, entry.time.as_ref().map(|time| time.0)));
        }
        let manifest = meta.annotations.as_ref()?.get(LAST_APPLIED)?;
        let annotation = Self::of_members(&["metadata", "annotations", LAST_APPLIED]);
        is_in_manifest(manifest, &self.0).then(|| FieldOwner {
            manager: annotation.last_writer(meta).unwrap_or_else(|| "kubectl apply".to_owned()),
            method: ApplyMethod::ClientSide,
            applied_at: None,
        })
    }

    /// Field manager that last wrote this field, except the execution of a loop.
    pub fn last_writer(&self, meta: &ObjectMeta) -> Option<String> {
        let entries = meta.managed_fields.as_deref().unwrap_or_default();
        let held = entries
            .iter()
            .filter(|entry| entry.manager.as_deref() != Some(marks::EXECUTION_MANAGER) && self.owns(entry, entries));
        held.max_by_key(|entry| entry.time.as_ref().map(|time| time.0)).and_then(|entry| entry.manager.clone())
    }

    /// Whether this manager has the field.
    pub fn has_manager(&self, meta: &ObjectMeta, manager: &str) -> bool {
        let entries = meta.managed_fields.as_deref().unwrap_or_default();
        entries.iter().any(|entry| entry.manager.as_deref() == Some(manager) && self.owns(entry, entries))
    }

    /// Whether the manager of this entry has the field, or a list or map as a whole that contains it.
    fn owns(&self, entry: &ManagedFieldsEntry, entries: &[ManagedFieldsEntry]) -> bool {
        for depth in 1..=self.0.len() {
            match fields_at(entry, &self.0[..depth]) {
                None => return false,
                Some(Value::Object(members)) if members.is_empty() && depth < self.0.len() => {
                    // An empty set of members: the whole list or map, unless other managers have parts of it.
                    let has_parts = |other| fields_at(other, &self.0[..depth]).is_some_and(|fields| !is_empty(fields));
                    return !entries.iter().any(has_parts);
                }
                Some(_) => {}
            }
        }
        true
    }
}

/// Path of the number of replicas, such as `spec.size`, as writes of the scale subresource show it: the API server
/// records each with the field of the object that it changed. None: nobody has scaled the object yet.
pub fn scaled_path(meta: &ObjectMeta) -> Option<String> {
    let entries = meta.managed_fields.as_deref().unwrap_or_default();
    entries.iter().filter(|entry| entry.subresource.as_deref() == Some("scale")).find_map(only_field)
}

/// Path of the only field that the manager of the entry has.
fn only_field(entry: &ManagedFieldsEntry) -> Option<String> {
    let (mut path, mut fields) = (Vec::new(), &entry.fields_v1.as_ref()?.0);
    while !is_empty(fields) {
        let mut members = fields.as_object()?.iter().filter(|(key, _)| *key != ".");
        let (key, inner) = members.next().filter(|_| members.next().is_none())?;
        path.push(key.strip_prefix("f:")?);
        fields = inner;
    }
    (path.first() == Some(&"spec") && path.len() > 1).then(|| path.join("."))
}

/// Whether this manager has applied the object after this time, and thus has left out what it no longer owns. Fields
/// that another manager takes over do not change the time.
pub fn has_applied_since(meta: &ObjectMeta, manager: &str, since: Timestamp) -> bool {
    let mut entries = meta.managed_fields.iter().flatten();
    entries.any(|entry| {
        is_apply(entry)
            && entry.manager.as_deref() == Some(manager)
            && entry.time.as_ref().is_some_and(|time| time.0 > since)
    })
}

fn is_apply(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() == Some("Apply")
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref().is_some_and(|manager| manager.starts_with(marks::MANAGERS))
}

fn is_empty(fields: &Value) -> bool {
    fields.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Set of the fields below this path that the manager of the entry has.
fn fields_at<'v>(entry: &'v ManagedFieldsEntry, path: &[FieldStep]) -> Option<&'v Value> {
    let mut fields = &entry.fields_v1.as_ref()?.0;
    for step in path {
        fields = match step {
            FieldStep::Member(name) => fields.get(format!("f:{name}"))?,
            FieldStep::Item(value) => {
                let value = (*value)?;
                let mut items = fields.as_object()?.iter();
                items.find(|(key, _)| is_key_of(key, value)).map(|(_, fields)| fields)?
            }
        };
    }
    Some(fields)
}

/// Whether this key identifies the item: `k:` with its key members, or `v:` with its value.
fn is_key_of(key: &str, item: &Value) -> bool {
    if let Some(value) = key.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item);
    }
    let keys: Option<BTreeMap<String, Value>> = key.strip_prefix("k:").and_then(|keys| serde_json::from_str(keys).ok());
    keys.is_some_and(|keys| keys.iter().all(|(name, value)| item.get(name) == Some(value)))
}

/// Whether a manifest contains the field. Parses nothing else: a manifest may have hundreds of kilobytes. An item of a
/// list is found by its name. A client writes a list without names as a whole.
fn is_in_manifest(manifest: &str, path: &[FieldStep]) -> bool {
    let Some((step, rest)) = path.split_first() else { return manifest.trim() != "null" };
    match step {
        FieldStep::Member(name) => {
            let members: Option<BTreeMap<String, &RawValue>> = serde_json::from_str(manifest).ok();
            members.and_then(|members| members.get(*name).copied()).is_some_and(|next| is_in_manifest(next.get(), rest))
        }
        FieldStep::Item(value) => {
            let items: Option<Vec<&RawValue>> = serde_json::from_str(manifest).ok();
            let Some(items) = items else { return false };
            let Some(name) = value.and_then(|value| value.get("name")) else { return true };
            let is_named = |item: &&RawValue| {
                let item: Option<BTreeMap<String, Value>> = serde_json::from_str(item.get()).ok();
                item.is_some_and(|item| item.get("name") == Some(name))
            };
            items.into_iter().find(is_named).is_some_and(|item| is_in_manifest(item.get(), rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::facts::DeploymentFact;

    const KUBECTL: &str = "kubectl-client-side-apply";

    fn entry(manager: &str, operation: &str, fields: &serde_json::Value) -> ManagedFieldsEntry {
        let entry = json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields});
        serde_json::from_value(entry).unwrap()
    }

    #[rstest]
    #[case::applied("flux", "Apply", "f:replicas", None, Some("flux"))]
    #[case::applied_without_replicas("flux", "Apply", "f:template", None, None)]
    #[case::kubectl_scale("kubectl", "Update", "f:replicas", None, None)]
    // The default set by the API server became the creator's field.
    #[case::argo_left_it_out("argocd-controller", "Update", "f:replicas", Some(r#"{"spec": {"template": {}}}"#), None)]
    #[case::argo_has_it(
        "argocd-controller",
        "Update",
        "f:replicas",
        Some(r#"{"spec": {"replicas": 3}}"#),
        Some(KUBECTL)
    )]
    #[case::somebody_scaled("kubectl", "Update", "f:replicas", Some(r#"{"spec": {"replicas": 3}}"#), Some(KUBECTL))]
    #[case::our_own("ganglion/execution", "Update", "f:replicas", Some(r#"{"spec": {"replicas": 3}}"#), Some(KUBECTL))]
    #[case::helm("helm", "Update", "f:replicas", None, None)]
    #[case::empty("kubectl", "Update", "f:replicas", Some(r#"{"spec": {"replicas": null}}"#), None)]
    #[case::elsewhere(
        "kubectl",
        "Update",
        "f:replicas",
        Some(r#"{"replicas": 3, "spec": {"template": {"replicas": 3}}}"#),
        None
    )]
    #[case::no_json("kubectl", "Update", "f:replicas", Some("{"), None)]
    #[case::no_object("kubectl", "Update", "f:replicas", Some(r#"{"spec": 1}"#), None)]
    fn replicas_belong_to_who_will_write_them_again(
        #[case] manager: &str,
        #[case] operation: &str,
        #[case] field: &str,
        #[case] applied: Option<&str>,
        #[case] owner: Option<&str>,
    ) {
        let annotated = json!({"f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}}});
        let meta = ObjectMeta {
            managed_fields: Some(vec![
                entry(manager, operation, &json!({"f:spec": {field: {}}})),
                entry(KUBECTL, "Update", &annotated),
            ]),
            annotations: applied.map(|text| BTreeMap::from([(LAST_APPLIED.to_owned(), text.to_owned())])),
            ..ObjectMeta::default()
        };
        let found = FieldPath::replicas().owner(&meta);
        assert_eq!(found.as_ref().map(|found| found.manager.as_str()), owner);
        let deployment = Deployment { metadata: meta, ..Deployment::default() };
        assert_eq!(DeploymentFact::from(deployment).scale.owned_by, found);
    }

    #[rstest]
    #[case("scale", json!({"f:spec": {"f:size": {}}}), Some("spec.size"))]
    #[case("scale", json!({"f:spec": {"f:pool": {".": {}, "f:size": {}}}}), Some("spec.pool.size"))]
    #[case("scale", json!({"f:spec": {"f:size": {}, "f:rate": {}}}), None)]
    #[case("scale", json!({"f:spec": {}}), None)]
    #[case("scale", json!({"f:status": {"f:size": {}}}), None)]
    #[case("scale", json!({}), None)]
    #[case("scale", json!("spec"), None)]
    #[case("status", json!({"f:spec": {"f:size": {}}}), None)]
    fn a_write_of_the_scale_shows_the_path_of_the_replicas(
        #[case] subresource: &str,
        #[case] fields: Value,
        #[case] path: Option<&str>,
    ) {
        let scaled =
            ManagedFieldsEntry { subresource: Some(subresource.to_owned()), ..entry("hpa", "Update", &fields) };
        let other = entry("flux", "Apply", &json!({"f:spec": {"f:rate": {}}}));
        let meta = ObjectMeta { managed_fields: Some(vec![other, scaled]), ..ObjectMeta::default() };
        assert_eq!(scaled_path(&meta).as_deref(), path);
    }

    #[test]
    fn an_applier_whose_fields_are_unknown_is_called_by_its_command() {
        let applied = BTreeMap::from([(LAST_APPLIED.to_owned(), r#"{"spec": {"replicas": 0}}"#.to_owned())]);
        let meta = ObjectMeta { annotations: Some(applied), ..ObjectMeta::default() };
        let owner = FieldPath::replicas().owner(&meta).unwrap();
        assert_eq!((owner.manager.as_str(), owner.method), ("kubectl apply", ApplyMethod::ClientSide));
    }

    /// A Deployment with an injected sidecar before its own container.
    fn deployment() -> Value {
        let limits = json!({"limits": {"memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "32Mi"}});
        json!({"spec": {"replicas": 3, "template": {"spec": {"containers": [
            {"name": "proxy", "args": ["-v"]}, {"name": "app", "args": ["-v"], "resources": limits},
        ]}}}})
    }

    fn template(container: &str, fields: &Value) -> Value {
        let key = format!("k:{{\"name\":\"{container}\"}}");
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {key: fields}}}}})
    }

    fn applier_of(path: &str, fields: &[(&str, &str, Value)], manifest: Option<Value>) -> Option<String> {
        let annotations = manifest.map(|manifest| [(LAST_APPLIED.to_owned(), manifest.to_string())].into());
        let entries = fields.iter().map(|(manager, operation, fields)| entry(manager, operation, fields));
        let managed_fields = Some(entries.collect());
        let meta = ObjectMeta { managed_fields, annotations, ..ObjectMeta::default() };
        let path: Vec<&str> = path.split('.').collect();
        FieldPath::new(&deployment(), &path).owner(&meta).map(|owner| owner.manager)
    }

    const MEMORY: &str = "spec.template.spec.containers.1.resources.limits.memory";
    const ARG: &str = "spec.template.spec.containers.1.args.0";

    #[rstest]
    #[case::the_field(MEMORY, "app", json!({"f:resources": {"f:limits": {"f:memory": {}}}}), true)]
    #[case::another_field(MEMORY, "app", json!({"f:resources": {"f:requests": {"f:memory": {}}}}), false)]
    #[case::another_container(MEMORY, "proxy", json!({"f:resources": {"f:limits": {"f:memory": {}}}}), false)]
    #[case::a_list_as_a_whole(ARG, "app", json!({"f:args": {}}), true)]
    #[case::part_of_a_subtree("spec.template.spec", "app", json!({"f:image": {}}), true)]
    fn a_field_in_a_list_belongs_to_who_applies_it(
        #[case] path: &str,
        #[case] container: &str,
        #[case] fields: Value,
        #[case] is_owned: bool,
    ) {
        let applied = [("argocd-controller", "Apply", template(container, &fields))];
        assert_eq!(applier_of(path, &applied, None), is_owned.then(|| "argocd-controller".to_owned()));
        let updated = [("argocd-controller", "Update", template(container, &fields))];
        assert_eq!(applier_of(path, &updated, None), None);
    }

    #[test]
    fn an_empty_map_in_a_manifest_owns_no_member_that_others_added() {
        let applied = ("flux", "Apply", template("app", &json!({"f:resources": {}})));
        let added = ("someone", "Update", template("app", &json!({"f:resources": {"f:limits": {"f:memory": {}}}})));
        let fields = [applied, added];
        assert_eq!(applier_of(MEMORY, &fields, None), None);
        let owner = applier_of("spec.template.spec.containers.1.resources", &fields, None);
        assert_eq!(owner.as_deref(), Some("flux"), "the map itself is the applier's");
    }

    #[rstest]
    #[case::another_value("a", false)]
    #[case::the_value("b", true)]
    fn an_item_of_a_set_belongs_to_who_applies_its_value(#[case] value: &str, #[case] is_owned: bool) {
        let object = json!({"metadata": {"finalizers": ["a", "b"]}});
        let key = format!("v:\"{value}\"");
        let fields = entry("flux", "Apply", &json!({"f:metadata": {"f:finalizers": {key: {}}}}));
        let meta = ObjectMeta { managed_fields: Some(vec![fields]), ..ObjectMeta::default() };
        let owner = FieldPath::new(&object, &["metadata", "finalizers", "1"]).owner(&meta);
        assert_eq!(owner.is_some(), is_owned);
    }

    #[test]
    fn the_last_writer_is_the_latest_one_but_no_execution() {
        let written = |manager, time: &str| {
            let mut entry = entry(manager, "Update", &json!({"f:spec": {"f:replicas": {}}}));
            entry.time = serde_json::from_value(json!(time)).unwrap();
            entry
        };
        let entries = vec![
            written("argocd-controller", "2026-11-26T10:00:01Z"),
            written("kubectl", "2026-11-26T10:00:03Z"),
            written("helm", "2026-11-26T10:00:02Z"),
            written(marks::EXECUTION_MANAGER, "2026-11-26T10:00:04Z"),
        ];
        let meta = ObjectMeta { managed_fields: Some(entries), ..ObjectMeta::default() };
        assert_eq!(FieldPath::replicas().last_writer(&meta).as_deref(), Some("kubectl"));
    }

    #[rstest]
    #[case::in_another_order(
        MEMORY, json!([{"name": "app", "resources": {"limits": {"memory": "64Mi"}}}, {"name": "log"}]), true)]
    #[case::without_the_field(MEMORY, json!([{"name": "app", "resources": {"limits": {"cpu": "1"}}}]), false)]
    #[case::of_another_container(MEMORY, json!([{"name": "log", "resources": {"limits": {"memory": "1"}}}]), false)]
    #[case::in_a_list_without_names(ARG, json!([{"name": "app", "args": ["-q"]}]), true)]
    #[case::without_the_list(ARG, json!([{"name": "app"}]), false)]
    #[case::no_list(MEMORY, json!({"name": "app"}), false)]
    fn a_field_in_a_list_belongs_to_who_has_it_in_a_manifest(
        #[case] path: &str,
        #[case] containers: Value,
        #[case] is_owned: bool,
    ) {
        let manifest = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let owner = applier_of(path, &[], Some(manifest));
        assert_eq!(owner, is_owned.then(|| "kubectl apply".to_owned()));
    }

    #[test]
    fn a_field_that_a_user_handed_over_has_no_owner() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let handed_over = (marks::HANDOVER_MANAGER, "Apply", replicas.clone());
        assert_eq!(applier_of("spec.replicas", std::slice::from_ref(&handed_over), None), None);
        let owner = applier_of("spec.replicas", &[handed_over, ("flux", "Apply", replicas)], None);
        assert_eq!(owner.as_deref(), Some("flux"));
    }

    #[test]
    fn only_a_later_apply_of_the_manager_itself_counts() {
        let time = "2026-11-26T10:00:00Z";
        let with_time = |manager, operation| {
            let mut entry = entry(manager, operation, &json!({}));
            entry.time = serde_json::from_value(json!(time)).unwrap();
            ObjectMeta { managed_fields: Some(vec![entry]), ..ObjectMeta::default() }
        };
        let [before, at]: [Timestamp; 2] = ["2026-11-26T09:59:59Z", time].map(|text| text.parse().unwrap());
        assert!(has_applied_since(&with_time("flux", "Apply"), "flux", before));
        assert!(!has_applied_since(&with_time("flux", "Apply"), "flux", at));
        assert!(!has_applied_since(&with_time("flux", "Update"), "flux", before));
        assert!(!has_applied_since(&with_time("other", "Apply"), "flux", before));
    }
}
