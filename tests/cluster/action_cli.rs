//! `ganglion plan` and `ganglion explain wa`: their statements about an action match what the operator does, and they
//! change nothing.

use anyhow::{Context, Result, ensure};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::NODE_OWNER;
use testkit::action::{action, delete_pod, deployment, move_pod, with};
use testkit::eye::Seen;
use testkit::kstatus::ready;
use testkit::plane::kubeconfig;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, story};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Plans an action with this spec. Returns whether it would start, and the output.
async fn plan(testbed: &Testbed, name: &str, spec: &Value, args: &[&str]) -> Result<(bool, String)> {
    plan_as(testbed, &testbed.administrator().await?, &action(name, spec.clone()).to_string(), args).await
}

async fn plan_as(testbed: &Testbed, kubeconfig: &str, manifest: &str, args: &[&str]) -> Result<(bool, String)> {
    testbed.ganglion_as(kubeconfig, &[&["plan", "-f", "-"], args].concat(), manifest).await
}

/// Planned replicas of an action, as pod, node and new node.
async fn replicas(testbed: &Testbed, name: &str, spec: &Value) -> Result<Vec<Value>> {
    let (good, said) = plan(testbed, name, spec, &["-o", "json"]).await?;
    ensure!(good, "{said}");
    let found: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    ensure!(found[0]["outcome"] == "Starts" && found[0]["name"] == name && found[0]["notes"].is_null(), "{said}");
    Ok(found[0]["plan"]["replicas"].as_array().context("no replicas")?.clone())
}

/// Completed replicas of an action, in the same form.
fn done(action: &WorkloadAction) -> Vec<Value> {
    let slots = action.status.iter().flat_map(|status| &status.slots);
    let side = |value: &mut Value, key: &str, found: Option<&str>| {
        if let Some(found) = found {
            value[key] = json!(found);
        }
    };
    let replica = |slot: &ganglion_api::workload_action::status::Slot| {
        let mut replica = json!({});
        side(&mut replica, "pod", slot.victim.as_ref().map(|pod| pod.name.as_str()));
        side(&mut replica, "from", slot.victim.as_ref().map(|pod| pod.node.as_str()));
        side(&mut replica, "to", slot.replacement.as_ref().map(|pod| pod.node.as_str()));
        replica
    };
    slots.map(replica).collect()
}

/// Versions of all objects that an action could change.
fn versions(seen: &Seen) -> Vec<(String, Option<String>)> {
    let pods = seen.pods.values().map(|one| (one.name_any(), one.resource_version()));
    let deployments = seen.deployments.values().map(|one| (one.name_any(), one.resource_version()));
    let sets = seen.sets.values().map(|one| (one.name_any(), one.resource_version()));
    pods.chain(deployments).chain(sets).collect()
}

fn all_of(said: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(said.contains(word), "{word:?} is not in\n{said}");
    }
    Ok(())
}

/// Two replicas on the first of three nodes of this testbed.
async fn on_the_first(testbed: &Testbed) -> Result<(TestNodes, Scene)> {
    let nodes = testbed.nodes(3, Size { cpu: "4", ..Size::default() }).await?;
    nodes.open_only(&[&nodes.names[0]]).await?;
    let workload = Workload::deployment("web", 2).spec(nodes.terms()).requests(json!({"cpu": "1"}));
    let scene = Scene::set(testbed, "web", 2, workload).await?;
    nodes.open_all().await?;
    Ok((nodes, scene))
}

#[test]
fn the_plan_is_what_the_action_then_does() {
    story("plan-agrees", async |testbed| {
        let (nodes, scene) = on_the_first(testbed).await?;
        let to = json!({"nodeSelector": {NODE_OWNER: testbed.ns}, "where": "node.pods < 2"});
        let moves = json!({"move": {"workload": deployment("web"), "to": to, "count": 2}});
        let before = versions(&testbed.eye.now());
        let planned = replicas(testbed, "go", &moves).await?;
        ensure!(planned.len() == 2 && planned[0]["to"] != planned[1]["to"], "{planned:?}");
        let (good, said) = plan(testbed, "go", &moves, &[]).await?;
        let (pod, home) = scene.pod(0);
        ensure!(good, "{said}");
        let head = format!("WorkloadAction {}/go (Move) would start now.\nPOD", testbed.ns);
        let refused = format!("  {home}: NodeExcluded: `node.pods < 2` does not hold");
        all_of(&said, &[&head, &pod, &nodes.names[1], "% free with one more replica", &refused])?;
        ensure!(versions(&testbed.eye.now()) == before, "a plan changed something");
        let seen = testbed.eye.now();
        ensure!(seen.actions.is_empty() && seen.receipts.is_empty(), "a plan left something");

        testbed.act("go", moves.clone()).await?;
        let ended = testbed.ends("go", DONE).await?;
        ensure!(done(&ended) == planned, "{:?} was done, {planned:?} was planned", done(&ended));
        // Planning the same action as a file gives the same result.
        let again =
            with(moves, json!({"mode": "Plan", "move": {"workload": deployment("web"), "to": {"nodeName": home}}}));
        let planned = replicas(testbed, "back", &again).await?;
        testbed.act("back", again).await?;
        let shown = testbed.ends("back", ("True", "Planned")).await?;
        let plan = shown.status.as_ref().and_then(|status| status.plan.as_ref()).context("no plan")?;
        ensure!(serde_json::to_value(&plan.replicas)? == json!(planned), "{plan:?} is not {planned:?}");

        let less = json!({"delete": {"workload": deployment("web"), "from": {"nodeName": nodes.names[1]}}});
        let planned = replicas(testbed, "less", &less).await?;
        testbed.act("less", less).await?;
        let ended = testbed.ends("less", DONE).await?;
        ensure!(done(&ended) == planned, "{:?} was done, {planned:?} was planned", done(&ended));
        Ok(())
    });
}

#[test]
fn what_would_not_start_says_why_and_what_helps() {
    story("plan-stops", async |testbed| {
        let (nodes, scene) = on_the_first(testbed).await?;
        let [home, full, cordoned] = [0, 1, 2].map(|at| nodes.names[at].as_str());
        let filler = with(nodes.terms(), json!({"nodeName": full}));
        Workload::deployment("filler", 1).spec(filler).requests(json!({"cpu": "3500m"})).make(testbed).await?;
        nodes.cordon(cordoned).await?;
        let to = json!({"nodeSelector": {NODE_OWNER: testbed.ns}});
        let moves = json!({"move": {"workload": deployment("web"), "to": to, "from": {"nodeName": home}}});
        let (good, said) = plan(testbed, "go", &moves, &[]).await?;
        let words = [
            "would not start.\nNoCandidateNode: none of ",
            "-> See status.plan.nodes for each node",
            &format!("  {full}: NodeFull: cpu: 1 requested, 500m left"),
            &format!("  {cordoned}: NodeCordoned: node {cordoned} is cordoned"),
            &format!("  {home}: AlreadyOnTarget: "),
            "Error: 1 of 1 actions would not start now",
        ];
        ensure!(!good, "{said}");
        all_of(&said, &words)?;

        let both = with(moves.clone(), delete_pod(&scene.pod(0).0));
        let (good, said) = plan(testbed, "go", &both, &[]).await?;
        ensure!(!good, "{said}");
        all_of(
            &said,
            &["would not start: the API server does not accept it", "set exactly one of create, delete, move"],
        )?;
        let (good, said) = plan(testbed, "go", &with(moves.clone(), json!({"abrot": true})), &[]).await?;
        ensure!(!good && said.contains("\"spec.abrot\""), "{said}");
        let (good, said) = plan(testbed, "go", &move_pod("nobody", home), &[]).await?;
        ensure!(!good && said.contains("PodNotFound: no pod nobody in namespace"), "{said}");

        // Several documents; only one action would start.
        let documents = [action("go", moves), action("less", delete_pod(&scene.pod(1).0))];
        let text = documents.map(|one| one.to_string()).join("\n---\n");
        let (good, said) = plan_as(testbed, &testbed.administrator().await?, &text, &[]).await?;
        ensure!(!good && said.contains("1 of 2 actions would not start now"), "{said}");
        ensure!(said.contains("less (Delete) would start now.") && said.contains("named by the action"), "{said}");

        // The action already exists.
        testbed.act("go", with(delete_pod(&scene.pod(1).0), json!({"suspend": true}))).await?;
        let (good, said) = plan(testbed, "go", &delete_pod(&scene.pod(1).0), &[]).await?;
        ensure!(!good, "{said}");
        all_of(&said, &["\"go\" already exists", "-> It was made before: ganglion explain wa go"])?;
        testbed.patch_action("go", json!({"spec": {"abort": true}})).await?;
        testbed.ends("go", ("False", "Aborted")).await?;
        scene.untouched(testbed).await.map(drop)
    });
}

/// Grants an account these permissions in the namespace: group, resources, verbs.
async fn grant(testbed: &Testbed, name: &str, rules: &[(&str, &[&str], &[&str])]) -> Result<()> {
    let rule = |(group, resources, verbs): &(&str, &[&str], &[&str])| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    testbed.create::<Role>(json!({"metadata": {"name": name}, "rules": rules})).await?;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "planner"}],
    });
    testbed.create::<RoleBinding>(binding).await.map(drop)
}

#[test]
fn what_the_user_may_not_read_is_said() {
    story("plan-rights", async |testbed| {
        let (nodes, scene) = on_the_first(testbed).await?;
        testbed.create::<ServiceAccount>(json!({"metadata": {"name": "planner"}})).await?;
        let kubeconfig = kubeconfig::direct(&testbed.plane.cluster.config, &testbed.token("planner").await?);
        let manifest = action("go", move_pod(&scene.pod(0).0, &nodes.names[1])).to_string();
        let (good, said) = plan_as(testbed, &kubeconfig, &manifest, &[]).await?;
        ensure!(!good, "{said}");
        all_of(
            &said,
            &["Error: the plan depends on what you may not read", "apply the action with mode: Plan instead"],
        )?;

        let (list, workloads): (&[&str], &[&str]) = (&["list"], &["deployments", "replicasets"]);
        grant(testbed, "reads", &[("", &["pods"], list), ("apps", workloads, list)]).await?;
        let (good, said) = plan_as(testbed, &kubeconfig, &manifest, &[]).await?;
        ensure!(!good && said.contains("cannot list resource \"nodes\""), "{said}");

        let (role, user) = (format!("{}-nodes", testbed.ns), format!("{}:planner", testbed.ns));
        testbed.kubectl(&["create", "clusterrole", &role, "--verb=list", "--resource=nodes"], None).await?;
        let binding = ["create", "clusterrolebinding", &role, "--clusterrole", &role, "--serviceaccount", &user];
        testbed.kubectl(&binding, None).await?;
        let partly = plan_as(testbed, &kubeconfig, &manifest, &[]).await;
        testbed.kubectl(&["delete", "clusterrole,clusterrolebinding", &role], None).await?;
        let (good, said) = partly?;
        ensure!(good, "{said}");
        let words = [
            "would start now.",
            "Note: The API server was not asked whether it accepts the action: workloadactions.ganglion.dev is forbidden",
            "Note: PodDisruptionBudgets are not counted: ",
            "Note: Pods of other namespaces are not counted, so nodes may have less room: ",
            "Note: Actions at work are not counted: ",
        ];
        all_of(&said, &words)?;

        // An account that may create actions, but not evict pods.
        grant(testbed, "makes", &[("ganglion.dev", &["*"], &["*"])]).await?;
        let (good, said) = plan_as(testbed, &kubeconfig, &manifest, &[]).await?;
        ensure!(!good, "{said}");
        all_of(&said, &["the API server does not accept it", "pods/eviction"])?;
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn the_story_of_an_action_is_told() {
    story("wa-explained", async |testbed| {
        // Waits for a rollout that never ends.
        let scene = Scene::set(testbed, "web", 2, Workload::deployment("web", 2)).await?;
        let stuck =
            json!({"spec": {"template": {"metadata": {"annotations": {"kwok.ganglion.dev/behavior": "never-ready"}}}}});
        testbed.kubectl(&["patch", "deployment", "web", "-p", &stuck.to_string()], None).await?;
        let waiting =
            |seen: &Seen| seen.actions.get("go").and_then(|one| (ready(one)? == ("Unknown", "Queued")).then_some(()));
        let target = json!({"move": {"workload": deployment("web"), "to": {"nodeName": scene.free(0)}}});
        testbed.act("go", target).await?;
        testbed.eye.until("the action to wait", waiting).await?;
        let (good, said) = testbed.ganglion(&["explain", "wa", "go"]).await?;
        ensure!(good, "{said}");
        let words = [
            format!(
                "WorkloadAction {}/go: Move of Deployment/web to {}, 0/1 done.\nWHEN (UTC)",
                testbed.ns,
                scene.free(0)
            ),
            "made\n".to_owned(),
            "began to wait for its admission\n".to_owned(),
            "Now: it waits (Queued, RolloutInProgress), since 20".to_owned(),
            "-> Wait until the rollout has ended: kubectl rollout status.\n".to_owned(),
        ];
        all_of(&said, &words.each_ref().map(String::as_str))?;

        testbed.kubectl(&["rollout", "undo", "deployment", "web"], None).await?;
        let ended = testbed.ends("go", DONE).await?;
        let slot = ended.status.as_ref().and_then(|status| status.slots.first()).context("no slot")?.clone();
        let (victim, newcomer) = (slot.victim.context("no victim")?, slot.replacement.context("no replacement")?);
        let (good, said) = testbed.ganglion(&["explain", "action", "go"]).await?;
        ensure!(good, "{said}");
        let words = [
            "1/1 done.\n".to_owned(),
            format!(
                "1 replica: done\n  {} from {} to {}, as {}, since 20",
                victim.name, victim.node, newcomer.node, newcomer.name
            ),
            "  admitted, ".to_owned(),
            "  ended: Succeeded, ".to_owned(),
            " proves that it ran, from 20".to_owned(),
            "Now: it is done (Succeeded)".to_owned(),
            "-> Nothing to do.\n".to_owned(),
        ];
        all_of(&said, &words.each_ref().map(String::as_str))?;
        let (good, said) = testbed.ganglion(&["explain", "wa", "go", "-o", "json"]).await?;
        let told: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        ensure!(good && told["replicas"][0]["step"] == "Succeeded" && told["state"]["reason"] == "Succeeded", "{said}");
        let (good, said) = testbed.ganglion(&["explain", "wa", "go", "-o", "yaml"]).await?;
        ensure!(good && said.contains("step: Succeeded"), "{said}");

        let scene = Scene::set(testbed, "bad", 2, Workload::deployment("bad", 2).replacements("image-missing")).await?;
        let short = json!({"timeouts": {"readySeconds": 3}});
        testbed.act("bad", with(move_pod(&scene.pod(0).0, &scene.free(0)), short)).await?;
        testbed.ends("bad", ("False", "ImagePullFailed")).await?;
        let (good, said) = testbed.ganglion(&["explain", "wa", "bad"]).await?;
        ensure!(good, "{said}");
        let words = [
            "1 replica: undone (ImagePullFailed): ",
            "  ended: ImagePullFailed, ",
            "Now: it ended without success (ImagePullFailed)",
            "-> Repair the image or its pull secret, then apply a new action.\n",
        ];
        all_of(&said, &words)?;
        let (good, said) = testbed.ganglion(&["explain", "wa", "nobody"]).await?;
        ensure!(!good && said.contains("there is no WorkloadAction nobody in namespace"), "{said}");
        Ok(())
    });
}
