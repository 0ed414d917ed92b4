//! For every template, the pod differs from it as required and in nothing else.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;
use ganglion_api::workload_action::status::SetRef;
use ganglion_core::facts::Key;

const NODE: &str = "node-7";
const REQUIRED: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";

fn new() -> NewPod {
    NewPod {
        key: Key::new("space", "web-5d9c-abcdef01"),
        place: PodPlace::On(NODE.into()),
        slot: "0123456789abcdef".into(),
        set: SetRef { name: "web-5d9c".into(), uid: "uid-1".into() },
        label: "pod-template-hash".into(),
    }
}

/// An object with these members. Each may be missing, and a member may be added that no version of Kubernetes has yet.
fn object(members: Vec<(&'static str, BoxedStrategy<Option<Value>>)>) -> BoxedStrategy<Value> {
    let newer = option::of(Just(json!({"newer": [1, {"a": null}]})));
    let known: Vec<_> = members
        .into_iter()
        .map(|(name, value)| value.prop_map(move |value| Some((name.to_owned(), value?))).boxed())
        .collect();
    (known, newer)
        .prop_map(|(known, newer)| {
            let newer = newer.map(|value| ("newer".to_owned(), value));
            Value::Object(known.into_iter().flatten().chain(newer).collect())
        })
        .boxed()
}

fn sometimes(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Option<Value>> {
    option::of(value).boxed()
}

fn requirement() -> impl Strategy<Value = Value> {
    ("[a-c]", prop_oneof!["In", "NotIn", "Exists"], vec("[x-z]", 0..3))
        .prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values}))
}

fn requirements(most: usize) -> BoxedStrategy<Option<Value>> {
    sometimes(prop_oneof![vec(requirement(), 0..most).prop_map(Value::Array), Just(Value::Null)])
}

fn spec() -> BoxedStrategy<Value> {
    let term = object(vec![("matchExpressions", requirements(3)), ("matchFields", requirements(2))]);
    let required = object(vec![("nodeSelectorTerms", sometimes(vec(term, 0..4).prop_map(Value::Array)))]);
    let node_affinity = object(vec![("requiredDuringSchedulingIgnoredDuringExecution", sometimes(required))]);
    let affinity = object(vec![("nodeAffinity", sometimes(node_affinity))]);
    let container = object(vec![("name", Just(Some(json!("web"))).boxed())]);
    object(vec![
        ("affinity", sometimes(affinity)),
        ("nodeName", sometimes("[a-z]{1,3}".prop_map(Value::from))),
        (
            "containers",
            Just(()).prop_flat_map(move |()| vec(container.clone(), 1)).prop_map(|all| Some(json!(all))).boxed(),
        ),
    ])
}

fn template() -> BoxedStrategy<Value> {
    let key = prop_oneof!["[a-c]", Just("pod-template-hash".to_owned())];
    let map = || sometimes(btree_map(key.clone(), "[a-z]{1,3}", 0..4).prop_map(|map| json!(map)));
    let metadata = object(vec![("labels", map()), ("annotations", map())]);
    object(vec![("metadata", sometimes(metadata)), ("spec", sometimes(spec()))])
}

fn made(template: &Value) -> Value {
    pod(&template.to_string(), &new(), SpreadForm::Merged).unwrap()
}

/// The terms of the required node affinity.
fn terms(spec: &Value) -> Vec<Value> {
    let terms = spec.pointer(&format!("{REQUIRED}/nodeSelectorTerms"));
    terms.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn is_pin(field: &Value) -> bool {
    *field == json!({"key": "metadata.name", "operator": "In", "values": [NODE]})
}

/// The term without its pin, and the number of its pins.
fn without_pin(mut term: Value) -> (Value, usize) {
    let Some(fields) = term.get_mut("matchFields").and_then(Value::as_array_mut) else { return (term, 0) };
    let before = fields.len();
    fields.retain(|field| !is_pin(field));
    let pins = before - fields.len();
    (term, pins)
}

/// Whether both are equal apart from members that are null or empty.
fn alike(one: &Value, other: &Value) -> bool {
    bare(json!({ "a": one })) == bare(json!({ "a": other }))
}

fn bare(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            *members = std::mem::take(members).into_iter().map(|(name, value)| (name, bare(value))).collect();
            members.retain(|_, value| !matches!(value, Value::Null) && *value != json!([]) && *value != json!({}));
        }
        Value::Array(items) => *items = std::mem::take(items).into_iter().map(bare).collect(),
        _ => {}
    }
    value
}

proptest! {
    #[test]
    fn no_term_lets_it_run_anywhere_else(template in template()) {
        let (before, after) = (terms(&template["spec"]), terms(&made(&template)["spec"]));
        prop_assert!(!after.is_empty());
        let (left, pins): (Vec<Value>, Vec<usize>) = after.into_iter().map(without_pin).unzip();
        if !before.is_empty() && before.iter().all(is_empty) {
            prop_assert!(left == before && pins.iter().all(|pins| *pins == 0), "it fits no node, as before");
            return Ok(());
        }
        prop_assert!(pins.iter().all(|pins| *pins == 1));
        let kept: Vec<Value> = before.into_iter().filter(|term| !is_empty(term)).map(bare).collect();
        let left: Vec<Value> = left.into_iter().map(bare).filter(|term| !is_empty(term)).collect();
        prop_assert_eq!(kept, left);
    }

    #[test]
    fn everything_else_is_as_in_the_template(mut template in template()) {
        let mut pod = made(&template);
        if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.remove("pod-template-hash");
        }
        let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
        prop_assert_eq!(labels.remove(marks::ROLE).unwrap(), marks::ROLE_REPLACEMENT);
        prop_assert!(alike(&pod["metadata"]["labels"], &template["metadata"]["labels"]));
        let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
        prop_assert_eq!(annotations.remove(marks::SLOT).unwrap(), json!(new().slot));
        prop_assert_eq!(annotations.remove(marks::ROLE).unwrap(), marks::ROLE_REPLACEMENT);
        prop_assert!(alike(&pod["metadata"]["annotations"], &template["metadata"]["annotations"]));

        prop_assert_eq!(&pod["spec"]["nodeName"], &Value::Null, "the scheduler must see it");
        for spec in [&mut template["spec"], &mut pod["spec"]] {
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("nodeName");
            }
            if let Some(required) = spec.pointer_mut(REQUIRED).and_then(Value::as_object_mut) {
                required.remove("nodeSelectorTerms");
            }
        }
        prop_assert!(alike(&template["spec"], &pod["spec"]), "{}", pod["spec"]);
    }
}

#[test]
fn the_set_is_its_plain_owner() {
    let pod = made(&json!({}));
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c", "uid": "uid-1",
        "controller": false, "blockOwnerDeletion": false,
    });
    assert_eq!(pod["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(pod["metadata"]["name"], "web-5d9c-abcdef01");
    assert_eq!(pod["metadata"].get("generateName"), None);
}

#[test]
fn each_alternative_is_pinned() {
    let expression = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    let required = json!({"nodeSelectorTerms": [expression("gpu"), {}, expression("ssd")]});
    let node_affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
    let pod = made(&json!({"spec": {"affinity": {"nodeAffinity": node_affinity}}}));
    let terms = terms(&pod["spec"]);
    assert_eq!(terms.len(), 2, "the empty one matched nothing and would now match the node");
    assert!(terms.iter().all(|term| term["matchFields"].as_array().unwrap().iter().any(is_pin)));
}

#[test]
fn labels_and_an_exclusion_are_in_each_alternative() {
    let own = json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": []}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}});
    let template = json!({"metadata": {}, "spec": {"affinity": affinity, "containers": []}}).to_string();
    let labels = [("disk".to_owned(), "ssd".to_owned())].into();
    let place = PodPlace::Any { labels, except: vec![NODE.into(), "n2".into()] };
    let made = pod(&template, &NewPod { place, ..new() }, SpreadForm::Merged).expect("a pod");
    let expected = json!([{
        "matchExpressions": [
            {"key": "zone", "operator": "Exists"}, {"key": "disk", "operator": "In", "values": ["ssd"]}],
        "matchFields": [
            {"key": "metadata.name", "operator": "NotIn", "values": [NODE]},
            {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}],
    }]);
    assert_eq!(terms(&made["spec"]), *expected.as_array().unwrap());
    let free = NewPod { place: PodPlace::Any { labels: Default::default(), except: Vec::new() }, ..new() };
    assert_eq!(
        pod(&template, &free, SpreadForm::Merged).expect("a pod")["spec"]["affinity"],
        affinity,
        "nothing is added"
    );
}

#[test]
fn another_structure_is_not_guessed_at() {
    for template in
        [json!([]), json!({"spec": 1}), json!({"spec": {"affinity": []}}), json!({"metadata": {"labels": 1}})]
    {
        assert_eq!(pod(&template.to_string(), &new(), SpreadForm::Merged), None, "{template}");
    }
}

/// A selector of other pods by labels, and one by the keys of labels.
fn selecting(keys: &Value, mismatched: &Value) -> Value {
    json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": keys,
        "mismatchLabelKeys": mismatched})
}

#[test]
fn the_label_that_is_added_later_is_in_the_selectors_that_name_it() {
    let hash = json!(["pod-template-hash"]);
    let affinity = |keys: &Value, mismatched: &Value| {
        let term = selecting(keys, mismatched);
        json!({
            "requiredDuringSchedulingIgnoredDuringExecution": [term, selecting(&json!(["app"]), &json!([]))],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
        })
    };
    let template = json!({
        "metadata": {"labels": {"app": "web", "pod-template-hash": "5d9c"}},
        "spec": {
            "topologySpreadConstraints": [selecting(&hash, &json!([])), selecting(&json!([]), &json!([]))],
            "affinity": {"podAffinity": affinity(&hash, &json!([])), "podAntiAffinity": affinity(&json!([]), &hash)},
        },
    });
    let made = made(&template);
    let added = |path: &str| {
        let selector = made["spec"].pointer(&format!("{path}/labelSelector")).expect("a selector");
        assert_eq!(selector["matchLabels"], json!({"app": "web"}));
        selector.get("matchExpressions").map(|all| all[0]["operator"].as_str().unwrap_or_default().to_owned())
    };
    let required =
        |kind: &str, at: usize| format!("/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution/{at}");
    let preferred =
        |kind: &str| format!("/affinity/{kind}/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm");
    assert_eq!(added("/topologySpreadConstraints/0").as_deref(), Some("In"));
    assert_eq!(added("/topologySpreadConstraints/1"), None);
    for (kind, operator) in [("podAffinity", "In"), ("podAntiAffinity", "NotIn")] {
        assert_eq!(added(&required(kind, 0)).as_deref(), Some(operator));
        assert_eq!(added(&required(kind, 1)), None, "the API server adds the labels that the pod has");
        assert_eq!(added(&preferred(kind)).as_deref(), Some(operator));
    }
    let expressions = &made["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"];
    assert_eq!(*expressions, json!([{"key": "pod-template-hash", "operator": "In", "values": ["5d9c"]}]));
}

/// Requirements that the API server adds for keys of labels are removed; others stay.
#[test]
fn an_admitted_pod_gives_the_template_back() {
    let keys = json!(["app", "pod-template-hash", "missing"]);
    let template = json!({
        "metadata": {"labels": {"app": "web", "pod-template-hash": "5d9c"}},
        "spec": {
            "topologySpreadConstraints": [selecting(&keys, &json!([])), selecting(&json!([]), &json!([]))],
            "affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [selecting(&json!([]), &keys)],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "matchLabelKeys": keys}}],
            }},
        },
    });
    let mut admitted = template.clone();
    let own = json!({"key": "tier", "operator": "In", "values": ["front"]});
    let added = |operator: &str| {
        json!([own, {"key": "app", "operator": operator, "values": ["web"]},
            {"key": "pod-template-hash", "operator": operator, "values": ["5d9c"]}])
    };
    let required = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector";
    for (path, operator) in [("/spec/topologySpreadConstraints/0/labelSelector", "In"), (required, "NotIn")] {
        admitted.pointer_mut(path).expect("a selector")["matchExpressions"] = added(operator);
    }
    let found: Value = serde_json::from_str(&as_template(admitted).expect("a pod")).expect("JSON");
    let mut expected = template;
    for path in ["/spec/topologySpreadConstraints/0/labelSelector", required] {
        expected.pointer_mut(path).expect("a selector")["matchExpressions"] = json!([own]);
    }
    assert_eq!(found, expected);
    assert_eq!(as_template(json!({"metadata": {}})), None);
}

/// The ReplicaSet is its controller, which webhooks look at.
#[test]
fn a_sibling_is_what_the_set_would_create() {
    let template = json!({"metadata": {"labels": {"a": "b"}, "name": "x", "uid": "y"}, "spec": {"containers": []}});
    let pod = sibling(&template.to_string(), &new()).expect("a pod");
    assert_eq!(pod["spec"], template["spec"]);
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c", "uid": "uid-1",
        "controller": true, "blockOwnerDeletion": false,
    });
    let metadata =
        json!({"generateName": "web-5d9c-", "namespace": "space", "labels": {"a": "b"}, "ownerReferences": [owner]});
    assert_eq!(pod["metadata"], metadata);
    assert_eq!(sibling("[]", &new()), None);
}

#[test]
fn a_term_without_a_selector_gets_none() {
    let term = json!({"topologyKey": "zone", "matchLabelKeys": ["pod-template-hash"]});
    let template = json!({"metadata": {"labels": {"pod-template-hash": "5d9c"}},
        "spec": {"topologySpreadConstraints": [term]}});
    assert_eq!(made(&template)["spec"]["topologySpreadConstraints"], json!([term]));
}

#[test]
fn an_old_api_server_gets_the_label_in_one_place() {
    let keys = json!(["app", "pod-template-hash"]);
    let term = |keys: &Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [selecting(keys, &json!([]))]});
    let template = json!({
        "metadata": {"labels": {"app": "web", "pod-template-hash": "5d9c"}},
        "spec": {
            "topologySpreadConstraints": [selecting(&keys, &json!([])), selecting(&json!(["app"]), &json!([]))],
            "affinity": {"podAntiAffinity": term(&keys)},
        },
    });
    let text = template.to_string();
    let spec = |form| pod(&text, &new(), form).expect("a pod")["spec"].take();
    let (merged, replaced) = (spec(SpreadForm::Merged), spec(SpreadForm::Replaced));
    let spread = "/topologySpreadConstraints/0";
    let [keys_of_both, selectors] = ["matchLabelKeys", "labelSelector"]
        .map(|field| [&merged, &replaced].map(|spec: &Value| spec.pointer(&format!("{spread}/{field}")).cloned()));
    assert_eq!(keys_of_both, [Some(keys.clone()), Some(json!(["app"]))]);
    assert_eq!(selectors[0], selectors[1]);
    assert_eq!(merged["topologySpreadConstraints"][1], replaced["topologySpreadConstraints"][1]);
    assert_eq!(merged["affinity"], replaced["affinity"]);
    assert!(has_spread_key(&text, "pod-template-hash") && !has_spread_key(&text, "other"));
    let without = json!({"spec": {"affinity": {"podAntiAffinity": term(&keys)}}}).to_string();
    assert!(!has_spread_key(&without, "pod-template-hash") && !has_spread_key("[]", "app"));
}
