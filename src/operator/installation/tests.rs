//! Each gap in an installation is found, and has advice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use proptest::prelude::*;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::facts::{
    ApiServiceFact, ComponentSpecs, ExtenderFacts, InstallationFacts, LeaseFact, NotRead, OperatorFacts,
    PrometheusFacts, ReadResult, RequiredRight, RightsFacts, ServedNames, SettingsFacts, SettingsProblem,
};
use super::kubernetes::{FEATURES, SUPPORTED};
use super::{metrics, reports, rights};
use crate::operator::admission;
use crate::operator::settings::Settings;
use ganglion_api::marks::{LABEL_POLICY, PIN_POLICY};
use ganglion_core::check::{CheckPoint, CheckState};
use ganglion_core::policies::PolicyState;
use ganglion_runtime::certificate::secret::{SecretPlan, WantedSecret, plan};

const NAMESPACE: &str = "ganglion-system";

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// The Deployment of the base, with this image.
fn deployment(image: &str) -> Deployment {
    let base = include_str!("../../../kustomize/base/deployment.yaml");
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(base).unwrap();
    let mut found = documents.swap_remove(0);
    found["metadata"]["namespace"] = json!(NAMESPACE);
    found["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    found["status"] = json!({"replicas": 2, "readyReplicas": 2});
    object(found)
}

fn operator() -> OperatorFacts {
    OperatorFacts {
        namespace: NAMESPACE.to_owned(),
        elsewhere: Vec::new(),
        home: Ok(Some(object(json!({"metadata": {
            "name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }})))),
        not_permitted: Ok(Vec::new()),
        deployment: Ok(Some(deployment(&format!("ganglion:{}", env!("CARGO_PKG_VERSION"))))),
        pods: Ok(Vec::new()),
        settings: SettingsFacts {
            settings: Settings::default(),
            source: Some("ConfigMap ganglion-settings".to_owned()),
            problem: None,
        },
        lease: Ok(Some(LeaseFact {
            name: "ganglion".to_owned(),
            holder: Some("ganglion-1_u".to_owned()),
            renewed: Some(now()),
            seconds: 15,
            namespaces: None,
            was_renewed: false,
        })),
        budgets: Ok(vec![object(json!({"metadata": {"name": "ganglion"}}))]),
    }
}

fn extender() -> ExtenderFacts {
    let server_names = ["ganglion-extender.ganglion-system.svc".to_owned()];
    let wanted = WantedSecret { namespace: NAMESPACE, name: "ganglion-extender-tls", server_names: &server_names };
    let Ok(SecretPlan::Create(write)) = plan(None, wanted, now()) else { panic!("no new certificate") };
    ExtenderFacts {
        services: Ok(vec![object(json!({"metadata": {"name": "ganglion-extender"}}))]),
        slices: Ok(vec![object(json!({
            "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "ganglion-extender"}},
            "addressType": "IPv4", "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            ],
        }))]),
        secret: Ok(Some(*write.secret)),
    }
}

fn resources(names: &[&str]) -> Option<BTreeSet<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Kinds whose definitions the gaps change. The others take time in a debug build.
const CHANGED: [&str; 3] = ["WorkloadActionReceipt", "NodeConfig", "Execution"];

/// A complete installation, with the definitions of a few kinds.
fn complete() -> InstallationFacts {
    static COMPLETE: LazyLock<InstallationFacts> = LazyLock::new(|| {
        let mut facts = with_all_definitions();
        facts.definitions.retain(|(own, _)| CHANGED.contains(&own.spec.names.kind.as_str()));
        facts
    });
    COMPLETE.clone()
}

/// The same with all definitions.
fn with_all_definitions() -> InstallationFacts {
    let established = json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]);
    let definitions = ganglion_api::all().into_iter().map(|own| {
        let mut stored = serde_json::to_value(&own).unwrap();
        stored["status"] = json!({"conditions": established});
        (own, Ok(Some(stored)))
    });
    let policies = admission::guards().names().map(|name| (name, PolicyState::Present)).collect();
    let api_service =
        |group: &str| ApiServiceFact { group: group.to_owned(), version: "v1beta1".to_owned(), problem: None };
    let required = rights::required(NAMESPACE, &[], "ganglion-extender-tls");
    InstallationFacts {
        now: now(),
        version: Ok("v1.36.3".to_owned()),
        served: BTreeMap::from([
            ("v1", Ok(resources(&["pods", "pods/resize"]))),
            (
                "admissionregistration.k8s.io/v1",
                Ok(resources(&["validatingadmissionpolicies", "mutatingadmissionpolicies"])),
            ),
        ]),
        definitions: definitions.collect(),
        policies: Ok(policies),
        components: BTreeMap::from([PIN_POLICY, LABEL_POLICY].map(|name| (name, [Ok(None), Ok(None)]))),
        operator: operator(),
        rights: RightsFacts {
            account: "ganglion".to_owned(),
            exists: Ok(true),
            watched: Vec::new(),
            answers: Ok(required.into_iter().map(|right| (right, true)).collect()),
            by_authorizer: true,
        },
        extender: extender(),
        api_services: Ok(metrics::APIS.iter().map(|checked| api_service(checked.api.group)).collect()),
        prometheus: PrometheusFacts { queried: None, named: Ok(BTreeMap::new()) },
    }
}

fn points(facts: &InstallationFacts) -> Vec<CheckPoint> {
    reports(facts).into_iter().flat_map(|report| report.points).collect()
}

fn refused<T>() -> Result<T, NotRead> {
    Err(NotRead::Forbidden("User \"u\" cannot list resource \"x\"".to_owned()))
}

// The changes below do nothing if an earlier one has taken away what they change.

fn lease(facts: &mut InstallationFacts, change: impl FnOnce(&mut LeaseFact)) {
    if let Ok(Some(lease)) = &mut facts.operator.lease {
        change(lease);
    }
}

fn secret(facts: &mut InstallationFacts, change: impl FnOnce(&mut Secret)) {
    if let Ok(Some(secret)) = &mut facts.extender.secret {
        change(secret);
    }
}

fn component(facts: &mut InstallationFacts) -> &mut ComponentSpecs {
    facts.components.get_mut(PIN_POLICY).expect("the component")
}

fn policy(facts: &mut InstallationFacts, name: &'static str, state: PolicyState) {
    if let Ok(states) = &mut facts.policies {
        states.insert(name, state);
    }
}

/// Changes the stored definition with this name.
fn stored(facts: &mut InstallationFacts, name: &str, change: impl FnOnce(&mut Value)) {
    let is_it = |own: &str| own.starts_with(name);
    let found = facts.definitions.iter_mut().find(|(own, _)| own.metadata.name.as_deref().is_some_and(is_it));
    if let Ok(Some(stored)) = &mut found.unwrap().1 {
        change(stored);
    }
}

/// Changes the fields of the spec in the stored definition of Executions.
fn fields(facts: &mut InstallationFacts, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    stored(facts, "executions.", |stored| {
        let schema = &mut stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        change(schema["properties"]["spec"]["properties"].as_object_mut().unwrap());
    });
}

/// Takes permissions away.
fn without(facts: &mut InstallationFacts, is_missing: impl Fn(&RequiredRight) -> bool) {
    for (right, holds) in facts.rights.answers.iter_mut().flatten() {
        *holds &= !is_missing(right);
    }
}

fn serve(facts: &mut InstallationFacts, version: &'static str, answer: ReadResult<ServedNames>) {
    facts.served.insert(version, answer);
}

fn scaled(facts: &mut InstallationFacts, replicas: i32, ready: i32) {
    for deployment in facts.operator.deployment.iter_mut().flatten() {
        deployment.spec.as_mut().unwrap().replicas = Some(replicas);
        deployment.status.as_mut().unwrap().ready_replicas = Some(ready);
    }
}

/// Lets the operator's pods have this status.
fn pods(facts: &mut InstallationFacts, status: Value) {
    let pod = json!({"metadata": {"name": "ganglion-1", "namespace": NAMESPACE}, "status": status});
    facts.operator.pods = Ok(vec![object(pod)]);
}

fn image(facts: &mut InstallationFacts, image: &str) {
    facts.operator.deployment = Ok(Some(deployment(image)));
}

/// Removes an API, or lets it be unavailable.
fn api_service(facts: &mut InstallationFacts, group: &str, problem: Option<&str>) {
    let Ok(services) = &mut facts.api_services else { return };
    match problem {
        None => services.retain(|one| one.group != group),
        Some(problem) => {
            for service in services.iter_mut().filter(|one| one.group == group) {
                service.problem = Some(problem.to_owned());
            }
        }
    }
}

const FAIL: CheckState = CheckState::Failed;
const UNSURE: CheckState = CheckState::Unsure;

/// A change of a complete installation, and the state and message of the point about it.
type Gap = (fn(&mut InstallationFacts), CheckState, &'static str);

const GAPS: &[Gap] = &[
    (|facts| facts.version = Ok("v1.29.9".into()), FAIL, "requires Kubernetes 1.30 or later"),
    (|facts| facts.version = Ok("v1.38.0-gke.1".into()), UNSURE, "is tested with Kubernetes 1.30 to 1.37"),
    (|facts| facts.version = Ok("v2.0.0".into()), UNSURE, "is tested with Kubernetes 1.30 to 1.37"),
    (|facts| facts.version = Ok("main".into()), UNSURE, "not one of Kubernetes"),
    (|facts| facts.version = refused(), UNSURE, "version of the server: not read"),
    (|facts| serve(facts, "v1", Ok(resources(&["pods"]))), UNSURE, "in-place resize of pods: missing"),
    (|facts| serve(facts, "admissionregistration.k8s.io/v1", Ok(None)), FAIL, "ValidatingAdmissionPolicy: missing"),
    (|facts| serve(facts, "admissionregistration.k8s.io/v1", refused()), UNSURE, "MutatingAdmissionPolicy: not read"),
    (
        |facts| {
            let older = resources(&["validatingadmissionpolicies"]);
            serve(facts, "admissionregistration.k8s.io/v1", Ok(older));
        },
        UNSURE,
        "pin-statefulsets and placement-labels cannot be installed",
    ),
    (|facts| facts.version = Ok("v1.30.14".into()), UNSURE, "in pod affinity: missing"),
    (
        |facts| stored(facts, "nodeconfigs.", |stored| stored["spec"]["versions"][0]["selectableFields"] = Value::Null),
        UNSURE,
        "field selectors of custom resources: missing",
    ),
    (|facts| facts.definitions[0].1 = Ok(None), FAIL, "is not installed"),
    (|facts| facts.definitions[0].1 = refused(), UNSURE, "workloadactionreceipts.ganglion.dev: not read"),
    (
        |facts| {
            let time = json!("2026-11-20T12:00:00Z");
            stored(facts, "executions.", |stored| stored["metadata"]["deletionTimestamp"] = time);
        },
        FAIL,
        "executions.ganglion.dev is not served: it is being deleted",
    ),
    (
        |facts| {
            let conflict = json!({"type": "NamesAccepted", "status": "False", "message": "already in use"});
            stored(facts, "executions.", |stored| stored["status"]["conditions"][0] = conflict);
        },
        FAIL,
        "executions.ganglion.dev is not served: already in use",
    ),
    (
        |facts| fields(facts, |fields| drop(fields.remove("target"))),
        FAIL,
        "executions.ganglion.dev is older than this program; it lacks spec.target",
    ),
    (
        |facts| fields(facts, |fields| drop(fields.insert("later".to_owned(), json!({})))),
        UNSURE,
        "executions.ganglion.dev is newer than this program, which does not have spec.later",
    ),
    (
        |facts| stored(facts, "executions.", |stored| stored["spec"]["versions"][0]["subresources"] = json!({})),
        UNSURE,
        "executions.ganglion.dev was edited",
    ),
    (
        |facts| policy(facts, "ganglion-children", PolicyState::Missing),
        FAIL,
        "ganglion-children is not installed: the operator does not act on ClosedLoop",
    ),
    (
        |facts| policy(facts, "ganglion-metadata", PolicyState::Modified),
        FAIL,
        "ganglion-metadata was edited: the operator does not act on any kind",
    ),
    (|facts| policy(facts, "ganglion-swarmpools", PolicyState::Unbound), FAIL, "has no binding that denies"),
    (|facts| policy(facts, "ganglion-swarmpools", PolicyState::Outdated), FAIL, "is of an older version"),
    (|facts| policy(facts, "ganglion-swarmpools", PolicyState::Unreadable), UNSURE, "ganglion-swarmpools: not read"),
    (|facts| facts.policies = refused(), UNSURE, "policies and their bindings: not read"),
    (|facts| component(facts)[0] = Ok(Some(json!({}))), FAIL, "ganglion-pin-statefulsets has no binding"),
    (|facts| component(facts)[1] = refused(), UNSURE, "ganglion-pin-statefulsets: not read"),
    (|facts| facts.rights.exists = Ok(false), FAIL, "there is no ServiceAccount ganglion-system/ganglion"),
    (|facts| facts.rights.exists = refused(), UNSURE, "ServiceAccount ganglion-system/ganglion: not read"),
    (|facts| facts.rights.answers = refused(), UNSURE, "permissions of the account: not read"),
    (
        |facts| facts.rights.watched = (0..9).map(|number| number.to_string()).collect(),
        UNSURE,
        "permissions in 5 of 9 namespaces",
    ),
    (
        |facts| without(facts, |right| right.verb == "patch" && right.namespace.is_none()),
        FAIL,
        "the account may not patch pods",
    ),
    (|facts| without(facts, |_| true), FAIL, " more"),
    (|facts| facts.operator.elsewhere = vec!["other".into()], UNSURE, "a Deployment of the operator is also in other"),
    (|facts| facts.operator.home = Ok(None), FAIL, "there is no namespace ganglion-system"),
    (
        |facts| {
            facts.operator.home = Ok(None);
            facts.operator.not_permitted = Ok(vec!["create namespaces".to_owned()]);
        },
        UNSURE,
        "you may not create namespaces",
    ),
    (|facts| facts.operator.home = refused(), UNSURE, "Namespace ganglion-system: not read"),
    (
        |facts| facts.operator.home = Ok(Some(object(json!({"metadata": {"name": NAMESPACE}})))),
        UNSURE,
        "enforces the Pod Security Standard none, not restricted",
    ),
    (
        |facts| {
            let going = json!({"metadata": {"name": NAMESPACE, "deletionTimestamp": "2026-11-20T12:00:00Z"}});
            facts.operator.home = Ok(Some(object(going)));
        },
        FAIL,
        "namespace ganglion-system is being deleted",
    ),
    (
        |facts| (facts.operator.deployment, facts.operator.lease) = (Ok(None), Ok(None)),
        FAIL,
        "there is no Deployment of the operator",
    ),
    (|facts| facts.operator.deployment = Ok(None), UNSURE, "no Deployment in this namespace runs it"),
    (|facts| facts.operator.deployment = refused(), UNSURE, "Deployment of the operator: not read"),
    (|facts| scaled(facts, 0, 0), FAIL, "scaled to 0"),
    (|facts| scaled(facts, 2, 0), FAIL, "none of 2 replicas is ready"),
    (
        |facts| {
            scaled(facts, 2, 0);
            let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
            pods(
                facts,
                json!({"containerStatuses": [{
                    "name": "ganglion", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": waiting,
                }]}),
            );
        },
        FAIL,
        "none of 2 replicas is ready: pod ganglion-1: ImagePullBackOff: not found",
    ),
    (|facts| scaled(facts, 2, 1), UNSURE, "1 of 2 replicas are ready"),
    (|facts| scaled(facts, 1, 1), UNSURE, "has one replica"),
    (|facts| image(facts, "ganglion:0.0.9"), UNSURE, "image ganglion:0.0.9 is older than this program"),
    (|facts| image(facts, "ganglion:99.0.0"), UNSURE, "is newer than this program"),
    (|facts| image(facts, "ganglion:edge"), UNSURE, "is no version"),
    (
        |facts| facts.operator.settings.problem = Some(SettingsProblem::Missing),
        FAIL,
        "ConfigMap ganglion-settings does not exist",
    ),
    (
        |facts| facts.operator.settings.problem = Some(SettingsProblem::Invalid("unknown key".into())),
        FAIL,
        "are not valid for version",
    ),
    (
        |facts| facts.operator.settings.problem = Some(SettingsProblem::NotRead(NotRead::Failed("x".into()))),
        UNSURE,
        "settings in ConfigMap ganglion-settings",
    ),
    (|facts| facts.operator.lease = Ok(None), FAIL, "there is no Lease ganglion"),
    (|facts| facts.operator.lease = refused(), UNSURE, "lease: not read"),
    (|facts| lease(facts, |lease| lease.holder = None), FAIL, "nobody holds Lease ganglion"),
    (
        |facts| lease(facts, |lease| lease.renewed = Some("2026-11-20T11:00:00Z".parse().unwrap())),
        FAIL,
        "holds Lease ganglion, and renewed it 60m ago: no operator acts",
    ),
    (|facts| facts.operator.budgets = Ok(Vec::new()), UNSURE, "no PodDisruptionBudget"),
    (|facts| facts.operator.budgets = refused(), UNSURE, "PodDisruptionBudgets: not read"),
    (|facts| facts.extender.services = Ok(Vec::new()), FAIL, "there is no Service ganglion-extender"),
    (|facts| facts.extender.services = refused(), UNSURE, "Services: not read"),
    (|facts| facts.extender.slices = Ok(Vec::new()), FAIL, "has no endpoint that is ready"),
    (|facts| facts.extender.slices = refused(), UNSURE, "endpoints of Service ganglion-extender: not read"),
    (|facts| facts.extender.secret = Ok(None), FAIL, "there is no Secret ganglion-extender-tls"),
    (|facts| facts.extender.secret = refused(), UNSURE, "Secret ganglion-extender-tls"),
    (|facts| facts.now = "2027-01-25T12:00:00Z".parse().unwrap(), UNSURE, "two thirds of the validity have passed"),
    (|facts| facts.now = "2028-01-25T12:00:00Z".parse().unwrap(), FAIL, "is not usable: the certificate has expired"),
    (
        |facts| secret(facts, |secret| (secret.metadata.labels, secret.data) = (None, None)),
        FAIL,
        "is not usable: there is no PEM certificate",
    ),
    (|facts| api_service(facts, "metrics.k8s.io", None), UNSURE, "metrics.k8s.io is not served"),
    (
        |facts| api_service(facts, "external.metrics.k8s.io", Some("no endpoints")),
        FAIL,
        "external.metrics.k8s.io is registered, and not available: no endpoints",
    ),
    (|facts| facts.api_services = refused(), UNSURE, "metrics.k8s.io: not read"),
    (
        |facts| {
            facts.api_services = refused();
            let versions = metrics::APIS.iter().flat_map(|checked| checked.api.versions);
            facts.served.extend(versions.map(|version| (*version, Ok(None))));
        },
        UNSURE,
        "custom.metrics.k8s.io is not served",
    ),
    (
        |facts| {
            facts.api_services = refused();
            let failed = Err(NotRead::Failed("service unavailable".into()));
            serve(facts, "metrics.k8s.io/v1beta1", failed);
        },
        UNSURE,
        "metrics.k8s.io: not read: service unavailable",
    ),
    (
        |facts| facts.prometheus.queried = Some(("http://p".into(), Err("cannot connect".into()))),
        FAIL,
        "http://p does not answer a query from here: cannot connect",
    ),
    (
        |facts| facts.prometheus.named = Ok(BTreeMap::from([("http://p".into(), 2)])),
        UNSURE,
        "http://p, which 2 metrics of loops use: not checked",
    ),
    (
        |facts| facts.prometheus.named = Ok((0..9).map(|number| (format!("http://p{number}"), 1)).collect()),
        UNSURE,
        "4 more servers: not checked",
    ),
    (|facts| facts.prometheus.named = refused(), UNSURE, "URLs that loops name: not read"),
];

#[test]
fn a_complete_installation_passes() {
    let mut facts = with_all_definitions();
    let gaps: Vec<CheckPoint> = points(&facts).into_iter().filter(|point| point.state != CheckState::Passed).collect();
    let messages: Vec<&str> = gaps.iter().map(|point| point.message.as_str()).collect();
    let expected = [
        "whether kube-scheduler uses the extender: its configuration is a file that no API shows",
        "not checked: no loop names a server",
    ];
    assert_eq!(messages, expected);
    facts.prometheus.queried = Some(("http://p/".into(), Ok(())));
    facts.prometheus.named = Ok(BTreeMap::from([("http://p".into(), 2)]));
    // The certificate of somebody else is as good.
    secret(&mut facts, |secret| secret.metadata.labels = None);
    lease(&mut facts, |lease| {
        lease.renewed = Some("2026-11-20T11:00:00Z".parse().unwrap());
        (lease.was_renewed, lease.namespaces) = (true, Some("a,b".into()));
    });
    let found = points(&facts);
    for words in ["http://p/ answers", "its clock differs", "the operator works in a, b", "is valid until 2027-02-18"] {
        let is_it = |point: &&CheckPoint| point.message.contains(words);
        assert_eq!(found.iter().find(is_it).map(|point| point.state), Some(CheckState::Passed), "{words}");
    }
}

#[test]
fn each_gap_is_found() {
    for (index, (change, state, words)) in GAPS.iter().enumerate() {
        let mut facts = complete();
        change(&mut facts);
        let found = points(&facts);
        let is_it = |point: &&CheckPoint| point.message.contains(words) && point.state == *state;
        assert!(found.iter().any(|point| is_it(&point)), "gap {index}, {words}: {found:#?}");
    }
}

#[rstest]
#[case("v1.30.14", false)]
#[case("v1.31.0", true)]
#[case("v1.37.2", true)]
fn a_feature_by_version_is_there_from_that_version_on(#[case] version: &str, #[case] expected: bool) {
    let mut facts = complete();
    facts.version = Ok(version.to_owned());
    let found = points(&facts);
    assert!(found[0].state == CheckState::Passed, "{version}: {:?}", found[0]);
    let point = found.iter().find(|point| point.message.contains("in pod affinity")).unwrap();
    assert_eq!(point.state == CheckState::Passed, expected, "{point:?}");
}

#[test]
fn at_most_twenty_missing_permissions_are_listed() {
    let mut facts = complete();
    without(&mut facts, |_| true);
    let report = rights::report(&facts);
    assert_eq!(report.count(CheckState::Failed), 21, "{report:?}");
    assert!(report.text().matches("→").count() == 1, "{}", report.text());
}

#[test]
fn the_page_on_the_installation_has_the_same_features() {
    let page = include_str!("../../../kustomize/README.md");
    for feature in &FEATURES {
        let row = format!("| {} | 1.{} | {} |", feature.name, feature.since, feature.without);
        assert!(page.contains(&row), "kustomize/README.md does not have this row: {row}");
    }
    let rows = page.lines().filter(|line| line.contains(" | 1.3")).count();
    assert_eq!(rows, FEATURES.len());
}

#[test]
fn the_supported_versions_are_those_of_the_tests() {
    let script = include_str!("../../../hack/test");
    let (oldest, newest) = SUPPORTED;
    assert!(script.contains(&format!("\nOLDEST=1.{oldest}.")) && script.contains(&format!(" NEWEST=1.{newest}.")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_point_that_did_not_pass_has_advice(chosen in proptest::collection::vec(0..GAPS.len(), 0..6)) {
        let mut facts = complete();
        for index in chosen {
            GAPS[index].0(&mut facts);
        }
        for point in points(&facts) {
            let advice = point.advice.as_deref().unwrap_or_default();
            prop_assert_eq!(advice.is_empty(), point.state == CheckState::Passed, "{:?}", point);
            prop_assert!(!point.message.contains('\n') && point.message.len() < 2000, "{:?}", point);
        }
    }
}
