//! Admission policies for the objects of the operator: nobody may use them to do what they could not do otherwise
//! (kustomize/base/admission.yaml).

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::execution::ExecutionState;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::plane::install::{ACCOUNT, LOOPS, NAMESPACE};
use testkit::testbed::loops::{SCALES, account, demo, ended, loop_story, make, push, put, ready, travelled};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story, story_on};
use testkit::{TIMEOUT, block_on};

/// API group, resource, verb, and resource name (empty for all).
pub type Right = (&'static str, &'static str, &'static str, &'static str);

/// All permissions for the operator's kinds.
pub const KINDS: Right = ("ganglion.dev", "*", "*", "");
const PODS: Right = ("", "pods", "create", "");
pub const EVICT: Right = ("", "pods/eviction", "create", "");

/// Grants a user these permissions in the namespace.
pub async fn user(testbed: &Testbed, name: &str, rights: &[Right]) -> Result<()> {
    let rule = |(group, resource, verb, only): &Right| {
        let names: Vec<&str> = Some(*only).filter(|name| !name.is_empty()).into_iter().collect();
        json!({"apiGroups": [group], "resources": [resource], "verbs": [verb], "resourceNames": names})
    };
    let rules: Vec<Value> = rights.iter().map(rule).collect();
    testbed.create::<Role>(json!({"metadata": {"name": name}, "rules": rules})).await?;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    testbed.create::<RoleBinding>(binding).await.map(drop)
}

fn manifest(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

/// Response of the API server to this user.
pub async fn says(testbed: &Testbed, user: &str, args: &[&str], input: Option<&str>) -> Result<String, String> {
    let all = [&["--as", user], args].concat();
    testbed.kubectl(&all, input).await.map_err(|error| format!("{error:#}"))
}

/// Whether the user may create the object. Admission policies apply in a dry run, too.
pub async fn creates(testbed: &Testbed, user: &str, kind: &str, spec: &Value) -> Result<String, String> {
    says(testbed, user, &["create", "--dry-run=server", "-f", "-"], Some(&manifest(kind, "try", spec))).await
}

#[track_caller]
pub fn refused(answer: &Result<String, String>, right: &str, namespace: &str) -> Result<()> {
    let Err(words) = answer else { bail!("allowed without {right}: {answer:?}") };
    let (at, because) = (format!("in the namespace \"{namespace}\""), "this right is needed because");
    for part in ["(Forbidden)", right, at.as_str(), because] {
        ensure!(words.contains(part), "{part} is not in {words}");
    }
    Ok(())
}

#[track_caller]
pub fn allowed(answer: &Result<String, String>) -> Result<()> {
    ensure!(answer.is_ok(), "{answer:?}");
    Ok(())
}

/// Creates the users of a story. The policies of a new plane take effect after a second or two.
pub async fn users(testbed: &Testbed, all: &[(&str, &[Right])]) -> Result<()> {
    for (name, rights) in all {
        user(testbed, name, rights).await?;
    }
    user(testbed, "nobody", &[KINDS]).await?;
    let wait = async {
        loop {
            if creates(testbed, "nobody", "ClosedLoop", &demo())
                .await
                .is_err_and(|words| words.contains("is needed because"))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    Ok(tokio::time::timeout(TIMEOUT, wait).await?)
}

/// A loop with one metric per Secret, and with a webhook.
fn sends(secrets: &[&str], hook: &str) -> Value {
    let mut spec = demo();
    let metrics = secrets.iter().enumerate().map(|(index, secret)| {
        let (auth, ca) = match index % 3 {
            0 => (json!({"bearer": {"name": secret, "key": "token"}}), json!(null)),
            1 => (json!({"basic": {"name": secret}}), json!(null)),
            _ => (json!(null), json!({"secret": {"name": secret, "key": "ca.crt"}})),
        };
        let (url, kind) = ("http://127.0.0.1:1", if index % 2 == 0 { "http" } else { "prometheus" });
        let mut source = json!({"url": url, "auth": auth, "ca": ca});
        source[if kind == "http" { "path" } else { "query" }] = json!("a");
        source.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        json!({"name": format!("m{index}"), "source": {kind: source}, "low": {"raise": "5"}})
    });
    spec["metrics"] = metrics.chain([demo()["metrics"][0].clone(), demo()["metrics"][1].clone()]).collect();
    if !hook.is_empty() {
        let webhook = json!({"url": "http://127.0.0.1:1", "auth": {"bearer": {"name": hook, "key": "token"}}});
        spec["actions"][1]["ladder"] = json!([{"scale": {"by": 1, "max": 3}}, {"webhook": webhook}]);
    }
    spec
}

#[test]
fn the_author_of_a_loop_may_create_pods_and_get_its_secrets() {
    loop_story("admission-loops", async |testbed| {
        let get = |name: &'static str| ("", "secrets", "get", name);
        let named = [KINDS, PODS, get("a"), get("b"), get("c"), get("d")];
        let all: &[(&str, &[Right])] =
            &[("maker", &[KINDS, PODS]), ("named", &named), ("reader", &[KINDS, PODS, get("")])];
        users(testbed, all).await?;
        let ns = testbed.ns.as_str();
        let loops = async |user: &str, spec: &Value| creates(testbed, user, "ClosedLoop", spec).await;

        let pods = "\"nobody\" cannot create resource \"pods\"";
        let answer = loops("nobody", &demo()).await;
        refused(&answer, pods, ns)?;
        ensure!(answer.is_err_and(|words| words.contains("here web-loop")));
        let mut without = demo();
        without.as_object_mut().expect("an object").remove("serviceAccountName");
        let answer = loops("nobody", &without).await;
        refused(&answer, pods, ns)?;
        ensure!(answer.is_err_and(|words| words.contains("here default")));
        allowed(&loops("maker", &demo()).await)?;

        let secret = |name: &str| format!("it is missing for Secret {name}");
        let answer = loops("maker", &sends(&[], "a")).await;
        refused(&answer, "\"maker\" cannot get resource \"secrets\"", ns)?;
        refused(&answer, &secret("a"), ns)?;
        allowed(&loops("named", &sends(&["a", "b", "a", "c"], "d")).await)?;
        for (position, secrets) in ["eacc", "aebb", "aabe", "abce"].iter().enumerate() {
            let names: Vec<&str> = secrets.split("").filter(|name| !name.is_empty()).collect();
            let answer = loops("named", &sends(&names, "")).await;
            refused(&answer, &secret("e"), ns).map_err(|error| error.context(position))?;
        }
        refused(&loops("named", &sends(&["a", "b", "c", "d"], "e")).await, "more than four", ns)?;
        let asks = |name: &str| {
            let key = json!({"name": name, "key": "a"});
            [
                json!({"auth": {"bearer": key}}),
                json!({"tls": {"ca": {"secret": key}}}),
                json!({"tls": {"certificate": {"name": name}}}),
            ]
        };
        for (named_by_loop, of_others) in asks("a").into_iter().zip(asks("e")) {
            let with = |mut scaler: Value| {
                scaler["address"] = json!("127.0.0.1:1");
                let mut spec = demo();
                spec["metrics"][0]["source"] = json!({"scaler": scaler});
                spec
            };
            allowed(&loops("named", &with(named_by_loop)).await)?;
            refused(&loops("named", &with(of_others)).await, &secret("e"), ns)?;
        }
        let many: Vec<String> = (0..14).map(|number| format!("secret-{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        allowed(&loops("reader", &sends(&many, "hook")).await)
    });
}

#[test]
fn only_what_is_written_of_a_loop_needs_rights() {
    loop_story("admission-updates", async |testbed| {
        users(testbed, &[("maker", &[KINDS, PODS])]).await?;
        put(testbed, "web", demo()).await?;
        let patch = async |user: &str, patch: &str| {
            says(testbed, user, &["patch", "closedloop", "web", "--type=merge", "-p", patch], None).await
        };
        let paused = "{\"spec\":{\"mode\":\"Paused\"}}";
        refused(&patch("nobody", paused).await, "cannot create resource \"pods\"", &testbed.ns)?;
        for meta in ["\"labels\":{\"a\":\"b\"}", "\"finalizers\":[\"a.b/c\"]", "\"finalizers\":null"] {
            allowed(&patch("nobody", &format!("{{\"metadata\":{{{meta}}}}}")).await)?;
        }
        let approval = "{\"metadata\":{\"annotations\":{\"ganglion.dev/approve\":\"0123456789\"}}}";
        refused(&patch("nobody", approval).await, "cannot create resource \"pods\"", &testbed.ns)?;
        allowed(&patch("maker", approval).await)?;
        allowed(&patch("nobody", "{\"metadata\":{\"annotations\":{\"a\":\"b\"}}}").await)?;
        allowed(&patch("maker", paused).await)?;
        allowed(&says(testbed, "nobody", &["delete", "closedloop", "web"], None).await)
    });
}

#[test]
fn the_author_of_an_action_may_evict_and_scale() {
    story("admission-actions", async |testbed| {
        let scale = |resource: &'static str, name: &'static str| ("apps", resource, "patch", name);
        let all: &[(&str, &[Right])] = &[
            ("evicts", &[KINDS, EVICT]),
            ("scales-web", &[KINDS, EVICT, scale("deployments/scale", "web")]),
            ("scales-set", &[KINDS, EVICT, scale("replicasets/scale", "")]),
            ("scales-two", &[KINDS, EVICT, scale("deployments/scale", ""), scale("replicasets/scale", "")]),
            (
                "scales",
                &[
                    KINDS,
                    EVICT,
                    scale("deployments/scale", ""),
                    scale("replicasets/scale", ""),
                    scale("statefulsets/scale", ""),
                ],
            ),
        ];
        users(testbed, all).await?;
        let ns = testbed.ns.as_str();
        let acts = async |user: &str, spec: &Value| creates(testbed, user, "WorkloadAction", spec).await;
        let workload = |kind: &str, name: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": name});
        let (web, db) = (workload("Deployment", "web"), workload("Deployment", "db"));
        let to = json!({"nodeName": "node-1"});
        let moves = json!({"move": {"workload": web, "to": to}});
        let plan = json!({"mode": "Plan", "move": {"workload": web, "to": {"where": "node.pods < 3"}}});
        for spec in [&moves, &plan, &json!({"move": {"pod": {"name": "web-a"}, "to": to}})] {
            refused(&acts("nobody", spec).await, "\"nobody\" cannot create resource \"pods/eviction\"", ns)?;
            allowed(&acts("evicts", spec).await)?;
        }
        let create = |workload: &Value| json!({"create": {"workload": workload, "to": to}});
        let delete = |workload: &Value| json!({"delete": {"workload": workload}});
        let right = "cannot patch resource \"deployments/scale\" in API group \"apps\"";
        for spec in [create(&web), delete(&web)] {
            refused(&acts("evicts", &spec).await, right, ns)?;
            allowed(&acts("scales-web", &spec).await)?;
        }
        refused(&acts("scales-web", &create(&db)).await, right, ns)?;
        for set in [create(&workload("ReplicaSet", "web")), delete(&workload("ReplicaSet", "web"))] {
            refused(&acts("scales-web", &set).await, "\"replicasets/scale\"", ns)?;
            // The ReplicaSet may belong to a Deployment, which would be scaled.
            refused(&acts("scales-set", &set).await, right, ns)?;
            allowed(&acts("scales-two", &set).await)?;
        }
        // The policy checks the right for the kind in its own group: a Rollout is not a Deployment.
        let rollout = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"});
        refused(&acts("scales", &delete(&rollout)).await, "\"rollouts/scale\" in API group \"argoproj.io\"", ns)?;
        for spec in [create(&workload("StatefulSet", "db")), delete(&workload("StatefulSet", "db"))] {
            refused(&acts("scales-two", &spec).await, "cannot patch resource \"statefulsets/scale\"", ns)?;
            allowed(&acts("scales", &spec).await)?;
        }
        // The API server does not know the pod's workload.
        let pod = json!({"delete": {"pod": {"name": "web-a"}}});
        refused(&acts("scales-web", &pod).await, "\"deployments/scale\" and \"replicasets/scale\"", ns)?;
        refused(&acts("scales-two", &pod).await, "cannot patch resource \"statefulsets/scale\"", ns)?;
        allowed(&acts("scales", &pod).await)?;

        // The object remains in the API server, because the operator keeps its finalizer.
        testbed.act("gone", json!({"move": {"workload": web, "to": to}, "suspend": true})).await?;
        let patch = async |user: &str, what: &str| {
            says(testbed, user, &["patch", "workloadaction", "gone", "--type=merge", "-p", what], None).await
        };
        refused(&patch("nobody", "{\"spec\":{\"suspend\":false}}").await, "pods/eviction", ns)?;
        allowed(&patch("nobody", "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}").await)?;
        // The operator acts on what an action's status says, so users must not write it.
        let status = "{\"status\":{\"slots\":[]}}";
        let forge = ["patch", "workloadaction", "gone", "--subresource=status", "--type=merge", "-p", status];
        refused(&says(testbed, "evicts", &forge, None).await, "cannot create and delete resource \"pods\"", ns)?;
        allowed(&says(testbed, "nobody", &["delete", "workloadaction", "gone"], None).await)
    });
}

#[test]
fn the_children_of_a_loop_are_written_by_who_could_write_the_loop() {
    loop_story("admission-children", async |testbed| {
        let patches = ("ganglion.dev", "monitorings", "patch", "web");
        users(
            testbed,
            &[("maker", &[KINDS, PODS]), ("sender", &[patches, ("ganglion.dev", "monitorings", "get", "web")])],
        )
        .await?;
        make(testbed, "web", demo()).await?;
        let ns = testbed.ns.as_str();
        let patch = async |user: &str, kind: &str, more: &[&str], what: Value| {
            let what = what.to_string();
            let args = [&["patch", kind, "web", "--type=merge", "-p", what.as_str()], more].concat();
            says(testbed, user, &args, None).await
        };
        let time = |second: u32| json!({"spec": {"sample": {"time": format!("2026-01-01T00:00:{second:02}Z"), "values": {"cpu": "6"}}}});
        allowed(&patch("sender", "monitoring", &[], time(1)).await)?;
        for metadata in [
            json!({"annotations": {"a": "b"}}),
            json!({"labels": {"a": "b"}}),
            json!({"finalizers": ["a.b/c"]}),
            json!({"ownerReferences": null}),
        ] {
            let answer = patch("sender", "monitoring", &[], json!({"metadata": metadata})).await;
            refused(&answer, "spec.sample may be written without it", ns)?;
        }
        let more = json!({"spec": {"sample": time(2)["spec"]["sample"], "paused": true}});
        refused(&patch("sender", "monitoring", &[], more).await, "spec.sample may be written without it", ns)?;
        for (kind, spec) in [
            ("monitoring", json!({"serviceAccountName": "admin"})),
            ("monitoring", json!({"interval": null})),
            ("decision", json!({"mode": "Auto", "trace": "EverySample"})),
            ("execution", json!({"serviceAccountName": "admin"})),
        ] {
            refused(&patch("nobody", kind, &[], json!({"spec": spec})).await, "cannot create resource \"pods\"", ns)?;
        }
        for kind in ["monitoring", "decision", "execution", "closedloop"] {
            let status = json!({"status": {"observedGeneration": 7}});
            let answer = patch("nobody", kind, &["--subresource=status"], status).await;
            refused(&answer, "cannot create resource \"pods\"", ns).map_err(|error| error.context(kind))?;
            if kind != "closedloop" {
                // The operator finds a child by its labels and owners.
                let answer = patch("nobody", kind, &[], json!({"metadata": {"labels": {"a": "b"}}})).await;
                refused(&answer, "cannot create resource \"pods\"", ns)?;
            }
        }
        secrets_of_children(testbed).await?;
        let execution = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
        refused(&creates(testbed, "nobody", "Execution", &execution).await, "cannot create resource \"pods\"", ns)?;
        allowed(&creates(testbed, "maker", "Execution", &execution).await)?;
        // The garbage collector deletes them together with their loop.
        let finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        testbed.api::<ClosedLoop>().patch("web", &PatchParams::default(), &finalizers).await?;
        allowed(&says(testbed, "nobody", &["delete", "closedloop", "web", "--cascade=foreground"], None).await)
    });
}

/// The operator sends the Secrets of a child like those of its loop. The user may create pods, but get no Secrets.
async fn secrets_of_children(testbed: &Testbed) -> Result<()> {
    let auth = json!({"bearer": {"name": "login", "key": "token"}});
    let http = json!({"url": "http://127.0.0.1:1", "path": "a", "auth": auth});
    let prometheus = json!({"url": "http://127.0.0.1:1", "query": "a", "auth": {"basic": {"name": "login"}}});
    let trusts = json!({"url": "https://127.0.0.1:1", "path": "a", "ca": {"secret": {"name": "login", "key": "ca"}}});
    let metrics = |source: Value| json!({"metrics": [{"name": "cpu", "source": source, "low": {"raise": "5"}}]});
    let webhook = json!({"webhook": {"url": "http://127.0.0.1:1", "auth": auth}});
    let actions = json!({"actions": [{"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"scale": {"by": 1, "max": 3}}, webhook]}]});
    let (at, uid) = ("2026-01-01T00:00:00.000000Z", "u");
    let chosen = json!({"seq": 1, "metric": "cpu", "side": "Low", "rung": 0, "do": webhook, "at": at, "executor": uid, "mode": "Auto"});
    let claim = json!({"seq": 1, "at": at, "deadline": at, "do": webhook, "goal": {"event": "e"}});
    for (kind, field, value) in [
        ("monitoring", "spec", metrics(json!({"http": http}))),
        ("monitoring", "spec", metrics(json!({"prometheus": prometheus}))),
        ("monitoring", "spec", metrics(json!({"http": trusts}))),
        ("decision", "spec", actions),
        ("decision", "status", json!({"chosen": chosen})),
        ("execution", "status", json!({"claim": claim})),
    ] {
        let patch = json!({field: value}).to_string();
        let subresource: &[&str] = if field == "status" { &["--subresource=status"] } else { &[] };
        let args = [&["patch", kind, "web", "--type=merge", "-p", patch.as_str()], subresource].concat();
        let answer = says(testbed, "maker", &args, None).await;
        refused(&answer, "cannot get resource \"secrets\"", &testbed.ns)
            .map_err(|error| error.context(patch.clone()))?;
        ensure!(answer.is_err_and(|words| words.contains("missing for Secret login")));
    }
    Ok(())
}

#[test]
fn a_loop_in_a_namespace_without_a_binding_says_which_one_to_make() {
    loop_story("admission-binding", async |testbed| {
        account(testbed, SCALES).await?;
        Workload::deployment("web", 2).make(testbed).await?;
        testbed.api::<RoleBinding>().delete(LOOPS, &DeleteParams::default()).await?;
        // The API server's authorizer observes the change a moment later; the operator relies on a granted permission
        // for minutes.
        let operator = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let may = ["auth", "can-i", "impersonate", "serviceaccounts"];
        while says(testbed, &operator, &may, None).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        put(testbed, "web", demo()).await?;
        let message = ready(testbed, "web", "False", "NamespaceNotBound").await?;
        let (_, command) = message.split_once("kubectl ").with_context(|| format!("no command in {message}"))?;
        testbed.kubectl(&command.split(' ').collect::<Vec<_>>(), None).await?;
        ready(testbed, "web", "True", "Running").await?;
        let time = push(testbed, "web", json!({"cpu": "1", "memory": "60"})).await?;
        let (.., execution) = travelled(testbed, "web", time).await?;
        ensure!(execution.is_some_and(|execution| ended(&execution).0 == Some(ExecutionState::Done)));
        Ok(())
    });
}

#[test]
fn objects_in_namespaces_of_kubernetes_are_refused_unless_the_settings_allow_them() {
    loop_story("kube-refused", async |testbed| {
        account(testbed, SCALES).await?;
        Workload::deployment("web", 2).make(testbed).await?;
        put(testbed, "web", demo()).await?;
        let delete = json!({"delete": {"workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
        testbed.act("less", delete).await?;
        testbed.ends("less", ("False", "NamespaceRefused")).await?;
        let message = ready(testbed, "web", "False", "NamespaceRefused").await?;
        ensure!(message.contains("namespaces.allowKube"), "{message}");
        let children = testbed.kubectl(&["get", "mon,dec,exe", "-o", "name"], None).await?;
        ensure!(children.trim().is_empty(), "{children}");
        testbed.settings("namespaces: {allowKube: true}")?;
        testbed.kill_and_restart().await?;
        ready(testbed, "web", "True", "Running").await.map(drop)
    });
}

/// A NodeConfig or a template that names these Secrets.
fn asks(template: bool, secrets: &[&str]) -> Value {
    let source = |kind: &str, index: usize| {
        let mut source = json!({"type": kind, "endpoint": "https://127.0.0.1:1"});
        match (secrets.get(index), index % 2) {
            (None, _) => {}
            (Some(name), 0) => source["basicAuthSecret"] = json!({"name": name}),
            (Some(name), _) => source["ca"] = json!({"secret": {"name": name, "key": "ca.crt"}}),
        }
        source
    };
    let spec = json!({
        "metricsCollector": {"inletTemp": source("Redfish", 0), "deltaP": source("DifferentialPressureAPI", 1)},
        "predictor": {"powerConsumptionEndpointProvider": source("Redfish", 2)},
    });
    if template {
        return json!({"nodeSelector": {}, "template": spec});
    }
    let mut spec = spec;
    spec["nodeName"] = json!("node-1");
    spec
}

#[test]
fn the_author_of_a_node_config_may_patch_nodes_and_get_its_secrets() {
    story("admission-nodes", async |testbed| {
        let get = |name: &'static str| ("", "secrets", "get", name);
        let all: &[(&str, &[Right])] =
            &[("named", &[KINDS, get("a"), get("b")]), ("reader", &[KINDS, get("")]), ("blind", &[KINDS])];
        users(testbed, all).await?;
        for user in ["named", "reader", "blind"] {
            patches_nodes(testbed, user).await?;
        }
        let ns = testbed.ns.as_str();
        for (kind, template) in [("NodeConfig", false), ("NodeConfigTemplate", true)] {
            let makes =
                async |user: &str, secrets: &[&str]| creates(testbed, user, kind, &asks(template, secrets)).await;
            let Err(words) = makes("nobody", &[]).await else { bail!("{kind} is allowed without patch on nodes") };
            for part in ["(Forbidden)", "\"nobody\" cannot patch resource \"nodes\"", "at the cluster scope"] {
                ensure!(words.contains(part), "{part} is not in {words}");
            }
            allowed(&makes("blind", &[]).await)?;
            refused(&makes("blind", &["a"]).await, "\"blind\" cannot get resource \"secrets\"", ns)?;
            allowed(&makes("named", &["a", "b", "a"]).await)?;
            refused(&makes("named", &["e", "a"]).await, "missing for Secret e", ns)?;
            refused(&makes("named", &["a", "e"]).await, "missing for Secret e", ns)?;
            refused(&makes("named", &["a", "b", "c"]).await, "more than two", ns)?;
            allowed(&makes("reader", &["a", "b", "c"]).await)?;
        }
        let by_expression = asks(true, &["{{ hostname }}-bmc"]);
        refused(&creates(testbed, "named", "NodeConfigTemplate", &by_expression).await, "by expressions", ns)?;
        allowed(&creates(testbed, "reader", "NodeConfigTemplate", &by_expression).await)?;

        // A forged owner or status does not bypass the policy.
        let mut forged: Value = serde_json::from_str(&manifest("NodeConfig", "forged", &asks(false, &[])))?;
        forged["metadata"]["ownerReferences"] = json!([{"apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "name": "t", "uid": "u", "controller": true}]);
        let answer = says(testbed, "nobody", &["create", "-f", "-"], Some(&forged.to_string())).await;
        ensure!(answer.is_err_and(|words| words.contains("cannot patch resource")), "a forged owner is accepted");
        testbed.kubectl(&["create", "-f", "-"], Some(&manifest("NodeConfig", "real", &asks(false, &[])))).await?;
        let status = "{\"status\":{\"power\":{\"value\":\"1\"}}}";
        let args = ["patch", "nodeconfig", "real", "--subresource=status", "--type=merge", "-p", status];
        let answer = says(testbed, "nobody", &args, None).await;
        ensure!(answer.is_err_and(|words| words.contains("cannot patch resource")), "a forged status is accepted");
        allowed(&says(testbed, "nobody", &["label", "nodeconfig", "real", "a=b"], None).await)?;
        allowed(&says(testbed, "nobody", &["delete", "nodeconfig", "real"], None).await)
    });
}

/// A policy that publishes usage, with these Secrets.
fn publishes(secrets: &[&str], namespace: &str, basic: bool) -> Value {
    let mut server = json!({"url": "https://127.0.0.1:1"});
    if let Some(login) = secrets.first() {
        let auth =
            if basic { json!({"basic": {"name": login}}) } else { json!({"bearer": {"name": login, "key": "token"}}) };
        server["namespace"] = json!(namespace);
        server["auth"] = auth;
    }
    if let Some(ca) = secrets.get(1) {
        server["ca"] = json!({"secret": {"name": ca, "key": "ca.crt"}});
    }
    let header = |(at, name): (usize, &&str)| json!({"name": format!("X-{at}"), "secret": {"name": name, "key": "v"}});
    server["headers"] = secrets.iter().skip(2).enumerate().map(header).collect();
    json!({"agents": [{"name": "safe", "safe": {}}], "publishUsage": {"prometheus": server}})
}

#[test]
fn the_author_of_a_policy_may_patch_nodes_and_get_its_secrets() {
    // A separate plane, because operators of other stories would also report on these policies.
    let plane = block_on(Plane::own("policies", 1)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "admission-policies", async |testbed| {
        let get = |name: &'static str| ("", "secrets", "get", name);
        let all: &[(&str, &[Right])] = &[
            ("pl-named", &[get("a"), get("b"), get("c")]),
            ("pl-reader", &[get("")]),
            ("pl-blind", &[]),
            ("pl-other", &[]),
        ];
        users(testbed, all).await?;
        for user in ["pl-named", "pl-reader", "pl-blind"] {
            patches_nodes(testbed, user).await?;
        }
        let kinds = json!([{"apiGroups": ["ganglion.dev"], "resources": ["*"], "verbs": ["*"]}]);
        for user in ["pl-named", "pl-reader", "pl-blind", "pl-other"] {
            everywhere(testbed, user, &format!("{}-{user}-kinds", testbed.ns), &kinds).await?;
        }
        let ns = testbed.ns.as_str();
        let makes = async |user: &str, secrets: &[&str], basic: bool| {
            creates(testbed, user, "PlacementPolicy", &publishes(secrets, ns, basic)).await
        };
        let plain = json!({"agents": [{"name": "safe", "safe": {}}]});
        for answer in
            [creates(testbed, "pl-other", "PlacementPolicy", &plain).await, makes("pl-other", &[], true).await]
        {
            let Err(words) = answer else { bail!("a policy is allowed without permission to patch nodes") };
            for part in ["(Forbidden)", "\"pl-other\" cannot patch resource \"nodes\"", "at the cluster scope"] {
                ensure!(words.contains(part), "{part} is not in {words}");
            }
        }
        allowed(&creates(testbed, "pl-blind", "PlacementPolicy", &plain).await)?;
        allowed(&makes("pl-blind", &[], true).await)?;
        for basic in [true, false] {
            refused(&makes("pl-blind", &["a"], basic).await, "\"pl-blind\" cannot get resource \"secrets\"", ns)?;
            allowed(&makes("pl-named", &["a", "b"], basic).await)?;
            refused(&makes("pl-named", &["e", "b"], basic).await, "missing for Secret e", ns)?;
            refused(&makes("pl-named", &["a", "e"], basic).await, "missing for Secret e", ns)?;
            refused(&makes("pl-named", &["a", "b", "e"], basic).await, "missing for Secret e", ns)?;
            allowed(&makes("pl-named", &["a", "b", "b", "a"], basic).await)?;
            refused(&makes("pl-named", &["a", "b", "c", "d"], basic).await, "more than three", ns)?;
            allowed(&makes("pl-reader", &["e", "f", "g", "h", "i"], basic).await)?;
        }
        // Permission in one namespace does not apply to another.
        let elsewhere = publishes(&["a"], "default", true);
        let answer = creates(testbed, "pl-reader", "PlacementPolicy", &elsewhere).await;
        refused(&answer, "\"pl-reader\" cannot get resource \"secrets\"", "default")?;

        // Only writes of the spec require permissions.
        let policy = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": ns}, "spec": plain});
        testbed.kubectl(&["create", "-f", "-"], Some(&policy.to_string())).await?;
        allowed(&says(testbed, "pl-other", &["label", "placementpolicy", ns, "a=b"], None).await)?;
        let patch = ["patch", "placementpolicy", ns, "--type=merge", "-p", "{\"spec\":{\"mode\":\"Shadow\"}}"];
        ensure!(
            says(testbed, "pl-other", &patch, None).await.is_err_and(|words| words.contains("cannot patch resource"))
        );
        allowed(&says(testbed, "pl-blind", &patch, None).await)?;
        allowed(&says(testbed, "pl-other", &["delete", "placementpolicy", ns], None).await)
    });
}

/// Lets a user of the story patch nodes.
async fn patches_nodes(testbed: &Testbed, user: &str) -> Result<()> {
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]);
    everywhere(testbed, user, &format!("{}-{user}", testbed.ns), &rules).await
}

/// Grants a user these permissions in the whole cluster, by a role of this name.
async fn everywhere(testbed: &Testbed, user: &str, name: &str, rules: &Value) -> Result<()> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]});
    testbed.kubectl(&["apply", "-f", "-"], Some(&both.to_string())).await.map(drop)
}
