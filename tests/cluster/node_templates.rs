//! Templates of NodeConfigs: nodes that are added, deleted and changed; templates that are changed, deleted or wrong;
//! objects of others.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::marks;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate, NodeConfigTemplateStatus};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::NODE_OWNER;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::loops::{condition, until};
use testkit::testbed::{Testbed, stories, story};

/// Longer than all consequences of a change take.
const MOMENT: Duration = Duration::from_secs(2);

/// A node of this testbed without a kubelet.
async fn node(testbed: &Testbed, name: &str, addresses: &[&str]) -> Result<()> {
    let value = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {NODE_OWNER: testbed.ns, "kubernetes.io/hostname": name}},
        "spec": {"unschedulable": true},
    });
    let api = Api::<Node>::all(testbed.client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(value)?).await?;
    move_to(testbed, name, addresses).await
}

/// Sets the internal addresses of a node.
pub(super) async fn move_to(testbed: &Testbed, name: &str, addresses: &[&str]) -> Result<()> {
    let addresses: Vec<Value> =
        addresses.iter().map(|address| json!({"type": "InternalIP", "address": address})).collect();
    patch_status(testbed, name, json!({"addresses": addresses})).await
}

async fn patch_status(testbed: &Testbed, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    Api::<Node>::all(testbed.client.clone()).patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn label(testbed: &Testbed, name: &str, value: Option<&str>) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {NODE_OWNER: value}}}));
    Api::<Node>::all(testbed.client.clone()).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn remove(testbed: &Testbed, name: &str) -> Result<()> {
    Api::<Node>::all(testbed.client.clone()).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Name of the testbed's node with this number; no part of it may be only a number.
fn named(testbed: &Testbed, number: usize) -> String {
    format!("{}-n{number}", testbed.ns)
}

async fn nodes(testbed: &Testbed, count: usize) -> Result<()> {
    for number in 0..count {
        node(testbed, &named(testbed, number), &[&format!("10.0.0.{number}")]).await?;
    }
    Ok(())
}

const ENDPOINT: &str = "https://10.0.1.{{ ipv4.octet4 + 100 }}";

/// A suspended template: the machines that it names must not be polled.
fn spec(testbed: &Testbed, endpoint: &str) -> Value {
    json!({"nodeSelector": {"matchLabels": {NODE_OWNER: testbed.ns}}, "template": asleep(endpoint)})
}

fn asleep(endpoint: &str) -> Value {
    json!({"suspend": true, "metricsCollector": {"inletTemp": {"type": "Redfish", "endpoint": endpoint}}})
}

async fn make(testbed: &Testbed, name: &str, spec: Value) -> Result<()> {
    let manifest = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "metadata": {"name": name}, "spec": spec,
    });
    testbed.create::<NodeConfigTemplate>(manifest).await.map(drop)
}

async fn change(testbed: &Testbed, name: &str, endpoint: &str) -> Result<()> {
    let patch = json!({"spec": {"template": {"metricsCollector": {"inletTemp": {"endpoint": endpoint}}}}});
    testbed.api::<NodeConfigTemplate>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Endpoint of each NodeConfig, by name.
async fn endpoints(testbed: &Testbed) -> Result<BTreeMap<String, String>> {
    let all = testbed.api::<NodeConfig>().list(&ListParams::default()).await?;
    let endpoint = |config: &NodeConfig| config.spec.metrics_collector.clone()?.inlet_temp?.endpoint;
    Ok(all.iter().map(|config| (config.name_any(), endpoint(config).unwrap_or_default())).collect())
}

/// Waits until exactly these NodeConfigs exist.
async fn has(testbed: &Testbed, expected: &[(String, &str)]) -> Result<()> {
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(name, endpoint)| (name.clone(), (*endpoint).to_owned())).collect();
    let wait = async {
        while endpoints(testbed).await.ok().as_ref() != Some(&expected) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if tokio::time::timeout(testkit::TIMEOUT, wait).await.is_err() {
        anyhow::bail!("timed out waiting for {expected:?}, there are {:?}", endpoints(testbed).await?);
    }
    Ok(())
}

/// Waits until the template's Ready has this status and reason, for its newest generation.
async fn ready(testbed: &Testbed, name: &str, status: &str, reason: &str) -> Result<NodeConfigTemplateStatus> {
    until::<NodeConfigTemplate, _>(testbed, name, &format!("template {name} to be {status} {reason}"), |one| {
        let found = one.status.filter(|status| status.observed_generation == one.metadata.generation)?;
        let says =
            |kind| condition(&found.conditions, kind).is_some_and(|one| one.status == status && one.reason == reason);
        (says("Ready") || says("DataAvailable")).then_some(found)
    })
    .await
}

fn message(status: &NodeConfigTemplateStatus) -> String {
    condition(&status.conditions, "Ready").map(|ready| ready.message).unwrap_or_default()
}

/// Lets the NodeConfigs of a template poll this source.
async fn measure(testbed: &Testbed, name: &str, source: Value) -> Result<()> {
    let patch = json!({"spec": {"template": {"suspend": false, "metricsCollector": {"inletTemp": source}}}});
    testbed.api::<NodeConfigTemplate>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Number of the operator's writes to NodeConfigs, and to statuses of templates.
fn writes(testbed: &Testbed) -> (usize, usize) {
    let all = testbed.proxy.writes();
    let count = |resource: &str| all.iter().filter(|write| write.is_on(resource)).count();
    (count("nodeconfigs"), count("nodeconfigtemplates/status"))
}

#[test]
fn nodes_that_come_go_and_change_are_followed() {
    story("template-nodes", async |testbed| {
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        let status = ready(testbed, "all", "True", "NoNodes").await?;
        ensure!((status.nodes, status.current) == (Some(0), Some(0)), "{status:?}");
        nodes(testbed, 2).await?;
        let name = |number: usize| format!("all-{}", named(testbed, number));
        has(testbed, &[(name(0), "https://10.0.1.100"), (name(1), "https://10.0.1.101")]).await?;
        let status = ready(testbed, "all", "Unknown", "Suspended").await?;
        ensure!((status.nodes, status.current, status.fresh) == (Some(2), Some(2), Some(0)), "{status:?}");
        let preview = status.preview.context("no preview")?;
        ensure!(preview.node_name == named(testbed, 0), "{preview:?}");
        let config = testbed.api::<NodeConfig>().get(&name(0)).await?;
        let owner = config.owner_references().first().context("no owner")?.clone();
        ensure!((owner.kind.as_str(), owner.controller) == ("NodeConfigTemplate", Some(true)), "{owner:?}");
        ensure!(owner.block_owner_deletion == Some(true), "{owner:?}");
        ensure!(config.labels().get(marks::TEMPLATE).is_some_and(|label| label == "all"), "{:?}", config.metadata);

        move_to(testbed, &named(testbed, 1), &["fd00::1", "10.0.0.9"]).await?;
        has(testbed, &[(name(0), "https://10.0.1.100"), (name(1), "https://10.0.1.109")]).await?;
        label(testbed, &named(testbed, 0), None).await?;
        has(testbed, &[(name(1), "https://10.0.1.109")]).await?;
        label(testbed, &named(testbed, 0), Some(&testbed.ns)).await?;
        remove(testbed, &named(testbed, 1)).await?;
        has(testbed, &[(name(0), "https://10.0.1.100")]).await?;
        measure(testbed, "all", json!({"type": "Fake"})).await?;
        let status = ready(testbed, "all", "True", "Applied").await?;
        ensure!(status.fresh == Some(1), "{status:?}");
        measure(testbed, "all", json!({"type": "Redfish", "endpoint": "https://127.0.0.1:1"})).await?;
        let status = ready(testbed, "all", "False", "SomeUnknown").await?;
        let data = condition(&status.conditions, "DataAvailable").context("no DataAvailable")?;
        ensure!(data.message.contains("Unreachable"), "{status:?}");
        // Helm, Flux and `kubectl wait` do not wait for the machine.
        ready(testbed, "all", "True", "Applied").await?;
        remove(testbed, &named(testbed, 0)).await
    });
}

#[test]
fn a_changed_template_updates_all_and_a_deleted_one_takes_them_along() {
    story("template-changes", async |testbed| {
        nodes(testbed, 3).await?;
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        ready(testbed, "all", "Unknown", "Suspended").await?;
        change(testbed, "all", "https://{{.Hostname}}.bmc").await?;
        let name = |number: usize| format!("all-{}", named(testbed, number));
        let hosts: Vec<String> = (0..3).map(|number| format!("https://{}.bmc", named(testbed, number))).collect();
        let expected: Vec<(String, &str)> = (0..3).map(|number| (name(number), hosts[number].as_str())).collect();
        has(testbed, &expected).await?;
        // Edited by hand.
        let edit = Patch::Merge(json!({
            "metadata": {"labels": {(marks::TEMPLATE): null}},
            "spec": {"suspend": null, "metricsCollector": {"inletTemp": {"endpoint": "https://127.0.0.1:1"}}},
        }));
        testbed.api::<NodeConfig>().patch(&name(1), &PatchParams::default(), &edit).await?;
        has(testbed, &expected).await?;
        until::<NodeConfig, _>(testbed, &name(1), "its label", |config| {
            (config.spec.suspend == Some(true) && config.labels().contains_key(marks::TEMPLATE)).then_some(())
        })
        .await?;
        // Deleted by hand.
        testbed.api::<NodeConfig>().delete(&name(2), &DeleteParams::default()).await?;
        has(testbed, &expected).await?;
        ready(testbed, "all", "Unknown", "Suspended").await?;
        testbed.api::<NodeConfigTemplate>().delete("all", &DeleteParams::default()).await?;
        has(testbed, &[]).await?;
        // Recreated at once, while the garbage collector may still process the old ones.
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        ready(testbed, "all", "Unknown", "Suspended").await?;
        testbed.api::<NodeConfigTemplate>().delete("all", &DeleteParams::default()).await?;
        make(testbed, "all", spec(testbed, "https://{{.Hostname}}.bmc")).await?;
        has(testbed, &expected).await
    });
}

#[test]
fn objects_of_others_are_left_alone_and_names_that_are_free_again_are_taken() {
    story("template-not-owned", async |testbed| {
        nodes(testbed, 2).await?;
        let taken = format!("all-{}", named(testbed, 0));
        let own = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": taken},
            "spec": {"nodeName": "mine"},
        });
        testbed.create::<NodeConfig>(own).await?;
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        let status = ready(testbed, "all", "False", "NotOwned").await?;
        ensure!(condition(&status.conditions, "Stalled").is_some(), "{status:?}");
        ensure!(status.left_out.len() == 1 && status.left_out[0].node == named(testbed, 0), "{status:?}");
        ensure!(message(&status).contains(&taken), "{status:?}");
        let other = format!("all-{}", named(testbed, 1));
        has(testbed, &[(taken.clone(), ""), (other.clone(), "https://10.0.1.101")]).await?;
        testbed.api::<NodeConfig>().delete(&taken, &DeleteParams::default()).await?;
        has(testbed, &[(taken, "https://10.0.1.100"), (other, "https://10.0.1.101")]).await?;
        ready(testbed, "all", "Unknown", "Suspended").await.map(drop)
    });
}

#[test]
fn two_templates_whose_names_collide_do_not_fight() {
    story("template-collide", async |testbed| {
        // Template `x-NS` with node `n0`, and template `x` with node `NS-n0`, need the same name.
        let (short, long) = (format!("n0.{}", testbed.ns), format!("{0}-n0.{0}", testbed.ns));
        node(testbed, &short, &["10.0.0.1"]).await?;
        node(testbed, &long, &["10.0.0.2"]).await?;
        let only = |name: &str| json!({"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": name}}, "template": asleep(ENDPOINT)});
        let first = format!("x-{}", testbed.ns);
        make(testbed, &first, only(&short)).await?;
        let name = format!("{first}-{short}");
        has(testbed, &[(name.clone(), "https://10.0.1.101")]).await?;
        ready(testbed, &first, "Unknown", "Suspended").await?;
        make(testbed, "x", only(&long)).await?;
        ready(testbed, "x", "False", "NotOwned").await?;
        let before = writes(testbed);
        tokio::time::sleep(MOMENT).await;
        ensure!(writes(testbed) == before, "{:?}", testbed.proxy.writes());
        testbed.api::<NodeConfigTemplate>().delete(&first, &DeleteParams::default()).await?;
        has(testbed, &[(name, "https://10.0.1.102")]).await
    });
}

#[test]
fn a_wrong_template_says_what_is_wrong_and_changes_nothing() {
    let cases = [
        ("unclosed", "https://{{ .Hostname ", "is not closed by"),
        ("unknown", "https://{{ ipv4.octet5 }}", "`ipv4.octet5` is unknown"),
        ("unknown-go", "https://{{ .IPv6.Address }}", "`.IPv6.Address` is unknown"),
        ("sprig", "https://{{ trimSuffix \"-a\" .Hostname }}", "nodeconfigtemplate/README.md#expressions"),
        ("endless", "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}{{ '' }}", "too long"),
        ("no-url", "{{ hostname }}", "must begin with http"),
    ];
    let cases = cases.map(|(name, endpoint, words)| (format!("template-{name}"), (endpoint, words)));
    stories(cases.into(), async |testbed, (endpoint, words)| {
        nodes(testbed, 2).await?;
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        ready(testbed, "all", "Unknown", "Suspended").await?;
        let before = (endpoints(testbed).await?, writes(testbed).0);
        change(testbed, "all", endpoint).await?;
        let status = ready(testbed, "all", "False", "TemplateInvalid").await?;
        ensure!(condition(&status.conditions, "Stalled").is_some(), "{status:?}");
        ensure!(condition(&status.conditions, "Reconciling").is_none(), "{status:?}");
        let message = message(&status);
        ensure!(message.contains(words) && message.contains("metricsCollector.inletTemp.endpoint"), "{message}");
        label(testbed, &named(testbed, 1), None).await?;
        tokio::time::sleep(MOMENT).await;
        ensure!((endpoints(testbed).await?, writes(testbed).0) == before, "{:?}", testbed.proxy.writes());
        change(testbed, "all", ENDPOINT).await?;
        has(testbed, &[(format!("all-{}", named(testbed, 0)), "https://10.0.1.100")]).await
    });
}

#[test]
fn what_is_too_long_or_no_selector_is_refused_or_said() {
    story("template-refused", async |testbed| {
        let long = spec(testbed, &format!("https://{}", "a".repeat(100_000)));
        let refused = make(testbed, "long", long).await.err().context("100 kB were accepted")?;
        ensure!(format!("{refused:#}").contains("endpoint"), "{refused:#}");
        let mut odd = spec(testbed, ENDPOINT);
        for (term, words) in [
            (json!({"key": "a", "operator": "Is"}), "operator"),
            (json!({"key": "a", "operator": "In"}), "require values"),
        ] {
            odd["nodeSelector"] = json!({"matchExpressions": [term]});
            let refused = make(testbed, "odd", odd.clone()).await.err().context("a wrong selector was accepted")?;
            ensure!(format!("{refused:#}").contains(words), "{refused:#}");
        }
        let wrong = spec(testbed, "ftp://a");
        let refused = make(testbed, "wrong", wrong).await.err().context("ftp was accepted")?;
        ensure!(format!("{refused:#}").contains("http or https"), "{refused:#}");
        Ok(())
    });
}

#[test]
fn nodes_with_odd_names_and_addresses() {
    story("template-odd-nodes", async |testbed| {
        let dotted = format!("a.b-c.{}", testbed.ns);
        node(testbed, &dotted, &["10.0.0.5"]).await?;
        let (bare, sixth) = (named(testbed, 0), named(testbed, 1));
        node(testbed, &bare, &[]).await?;
        node(testbed, &sixth, &["fd00::6"]).await?;
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        make(testbed, "six", spec(testbed, "https://[{{ ipv6.address }}]")).await?;
        let (dotted, sixth) = (format!("all-{dotted}"), format!("six-{sixth}"));
        has(testbed, &[(dotted.clone(), "https://10.0.1.105"), (sixth.clone(), "https://[fd00::6]")]).await?;
        let status = ready(testbed, "all", "False", "NodesLeftOut").await?;
        ensure!((status.nodes, status.current, status.left_out.len()) == (Some(3), Some(1), 2), "{status:?}");
        let words = &status.left_out[0].message;
        ensure!(words.contains("no internal IPv4 address"), "{words}");
        // A node that has lost its address keeps its NodeConfig.
        move_to(testbed, &format!("a.b-c.{}", testbed.ns), &["fd00::5"]).await?;
        until::<NodeConfigTemplate, _>(testbed, "all", "all nodes to be left out", |one| {
            (one.status?.left_out.len() == 3).then_some(())
        })
        .await?;
        move_to(testbed, &bare, &["10.0.0.7"]).await?;
        let six = format!("six-a.b-c.{}", testbed.ns);
        has(
            testbed,
            &[
                (dotted, "https://10.0.1.105"),
                (format!("all-{bare}"), "https://10.0.1.107"),
                (sixth, "https://[fd00::6]"),
                (six, "https://[fd00::5]"),
            ],
        )
        .await
    });
}

/// Number of passes and requests of the controller.
async fn passes(testbed: &Testbed) -> Result<Vec<String>> {
    let text = testbed.operator.lock().await.get("/metrics").await?;
    let of_templates =
        |line: &&str| line.contains("controller=\"node-config-template\"") && line.contains("reconciles_total");
    Ok(text.lines().filter(of_templates).map(str::to_owned).collect())
}

/// Waits until there was no pass for a moment. Returns the numbers.
async fn settled(testbed: &Testbed) -> Result<Vec<String>> {
    let mut before = passes(testbed).await?;
    ensure!(!before.is_empty(), "no passes are counted");
    for _ in 0..10 {
        tokio::time::sleep(MOMENT).await;
        let after = passes(testbed).await?;
        if after == before {
            return Ok(after);
        }
        before = after;
    }
    anyhow::bail!("passes continue with nothing to do: {before:?}")
}

#[test]
fn a_hundred_nodes_take_a_hundred_writes_and_their_heartbeats_none() {
    story("template-hundred", async |testbed| {
        nodes(testbed, 100).await?;
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        let status = ready(testbed, "all", "Unknown", "Suspended").await?;
        ensure!((status.nodes, status.current) == (Some(100), Some(100)), "{status:?}");
        let (created, statuses) = writes(testbed);
        ensure!(created == 100 && statuses <= 10, "{created} writes of NodeConfigs, {statuses} of the status");
        let before = settled(testbed).await?;
        for beat in 0..5 {
            for number in 0..100 {
                let heartbeat = json!({"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Test",
                    "message": "", "lastHeartbeatTime": format!("2026-11-23T00:00:0{beat}Z")}]});
                patch_status(testbed, &named(testbed, number), heartbeat).await?;
            }
        }
        tokio::time::sleep(MOMENT).await;
        ensure!(writes(testbed) == (created, statuses), "heartbeats cost writes: {:?}", writes(testbed));
        let after = passes(testbed).await?;
        ensure!(after == before, "heartbeats cost passes: {before:?}, {after:?}");
        change(testbed, "all", "https://{{ hostname }}").await?;
        until::<NodeConfigTemplate, _>(testbed, "all", "all to be changed", |one| {
            let status = one.status.filter(|status| status.observed_generation == one.metadata.generation)?;
            (status.current == Some(100)).then_some(())
        })
        .await?;
        let changed = writes(testbed).0 - created;
        ensure!(changed == 100, "{changed} writes for 100 changes");
        node(testbed, &named(testbed, 100), &["10.0.0.100"]).await?;
        until::<NodeConfigTemplate, _>(testbed, "all", "one more", |one| {
            (one.status?.current == Some(101)).then_some(())
        })
        .await?;
        ensure!(writes(testbed).0 - created - changed == 1, "{:?}", writes(testbed));
        Ok(())
    });
}

#[test]
fn an_operator_that_is_killed_in_the_middle_goes_on() {
    let cases =
        [HoldPoint::Before, HoldPoint::After].map(|when| (format!("template-kill-{when:?}").to_lowercase(), when));
    stories(cases.into(), async |testbed, when| {
        nodes(testbed, 40).await?;
        let mut held = testbed.proxy.hold(20, *when, |write| write.is_on("nodeconfigs"));
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        held.reached().await.context("the proxy went away")?;
        testbed.operator.lock().await.kill();
        held.lose();
        testbed.operator.lock().await.start()?;
        let status = ready(testbed, "all", "Unknown", "Suspended").await?;
        ensure!((status.nodes, status.current) == (Some(40), Some(40)), "{status:?}");
        let all = endpoints(testbed).await?;
        ensure!(all.len() == 40, "{all:?}");
        // Writes that were in flight at the kill were repeated or found.
        ensure!(writes(testbed).0 <= 40 + 33, "{:?}", writes(testbed));
        Ok(())
    });
}

/// config/samples of waok8s/wao-core at v1.30, with another apiVersion and without its namespace.
const WAO: [&str; 2] = [
    r#"
apiVersion: ganglion.dev/v1alpha1
kind: NodeConfig
metadata:
  name: nodeconfig-sample
spec:
  nodeName: worker-0
  metricsCollector:
    inletTemp:
      type: Redfish
      endpoint: "https://10.0.0.1"
      basicAuthSecret:
        name: "worker-0-redfish-basicauth"
      fetchInterval: 10s
    deltaP:
      type: DifferentialPressureAPI
      endpoint: "http://10.0.0.1:5000"
      fetchInterval: 10s
  predictor:
    powerConsumption:
      type: V2InferenceProtocol
      endpoint: "http://10.0.0.1:8080/v2/models/myModel/versions/v0.1.0/infer"
    # powerConsumptionEndpointProvider:
    #   type: Redfish
    #   endpoint: "https://10.0.0.1"
    #   basicAuthSecret:
    #     name: "worker-0-redfish-basicauth"
"#,
    r#"
apiVersion: ganglion.dev/v1alpha1
kind: NodeConfigTemplate
metadata:
  name: nodeconfigtemplate-sample
spec:
  nodeSelector:
    matchLabels:
      node.kubernetes.io/instance-type: "hoge"
  template:
    metricsCollector:
      inletTemp:
        type: Redfish
        endpoint: "https://10.0.0.1"
        basicAuthSecret:
          name: "worker-0-redfish-basicauth"
        fetchInterval: 10s
      deltaP:
        type: DifferentialPressureAPI
        endpoint: "http://10.0.0.1:5000"
        fetchInterval: 10s
    predictor:
      powerConsumption:
        type: V2InferenceProtocol
        endpoint: "http://10.0.0.1:8080/v2/models/myModel/versions/v0.1.0/infer"
      # powerConsumptionEndpointProvider:
      #   type: Redfish
      #   endpoint: "https://10.0.0.1"
      #   basicAuthSecret:
      #     name: "worker-0-redfish-basicauth"
"#,
];

#[test]
fn the_manifests_of_wao_are_accepted() {
    story("template-wao", async |testbed| {
        for manifest in WAO {
            let args = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
            testbed.kubectl(&args, Some(manifest)).await?;
        }
        Ok(())
    });
}

#[test]
fn a_namespace_of_kubernetes_is_refused() {
    // Named like the reserved namespaces of Kubernetes; the testbed's operator watches only this namespace.
    story("kube-templates", async |testbed| {
        make(testbed, "all", spec(testbed, ENDPOINT)).await?;
        let status = ready(testbed, "all", "False", "NamespaceRefused").await?;
        ensure!(message(&status).contains("allowKube"), "{status:?}");
        nodes(testbed, 1).await?;
        tokio::time::sleep(MOMENT).await;
        ensure!(endpoints(testbed).await?.is_empty() && writes(testbed).0 == 0, "{:?}", testbed.proxy.writes());
        Ok(())
    });
}
