//! The kustomize manifests with common adaptations: another namespace, another image, permissions in a single
//! namespace, and the roles for users.

use anyhow::{Context, Result, ensure};
use ganglion_api::execution::ExecutionState;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::operator::Operator;
use testkit::plane::install::{LOOPS, token_of};
use testkit::plane::kubeconfig;
use testkit::root;
use testkit::testbed::loops::{SCALES, account, demo, ended, loop_story, make, push, travelled};
use testkit::testbed::nodes::Size;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, story};

use super::node_configs::{ready, template};

/// Renders an overlay of kustomize/base.
async fn render(testbed: &Testbed, overlay: &str) -> Result<Vec<DynamicObject>> {
    let home = TempDir::new()?;
    let up: String = home.path().components().skip(1).map(|_| "../").collect();
    let kustomize = format!("{up}{}", root().join("kustomize").strip_prefix("/")?.display());
    std::fs::write(home.path().join("kustomization.yaml"), overlay.replace("KUSTOMIZE", &kustomize))?;
    let rendered = testbed.kubectl(&["kustomize", &home.path().display().to_string()], None).await?;
    Ok(serde_saphyr::from_multiple(&rendered)?)
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

#[test]
fn with_rights_in_one_namespace_only_the_operator_works_there() {
    loop_story("installs-single", async |testbed| {
        // A user who may create pods in the operator's namespace can run them as its account, so it has one of its own.
        let home_ns = format!("{}-operator", testbed.ns);
        let cluster = &testbed.plane.cluster;
        cluster.kubectl(&["create", "namespace", &home_ns], None).await?;
        let variable = format!("env: [{{name: GANGLION_WATCH_NAMESPACE, value: {}}}]", testbed.ns);
        let patch = format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: ganglion}}, \
             spec: {{template: {{spec: {{containers: [{{name: ganglion, {variable}}}]}}}}}}}}"
        );
        let overlay = format!(
            "namespace: {home_ns}\nresources: [KUSTOMIZE/base]\ncomponents: [KUSTOMIZE/components/single-namespace]\n\
             patches: [{{patch: '{patch}'}}]\n"
        );
        let subject = json!([{"op": "replace", "path": "/subjects/0/namespace", "value": home_ns}]);
        let tenant = format!(
            "namespace: {}\nresources: [KUSTOMIZE/tenant]\n\
             patches: [{{target: {{kind: RoleBinding}}, patch: '{subject}'}}]\n",
            testbed.ns
        );
        let mut objects = render(testbed, &overlay).await?;
        let tenants = render(testbed, &tenant).await?;
        ensure!(
            tenants.iter().all(|object| object.metadata.namespace.as_deref() == Some(&testbed.ns)),
            "rights outside the namespace of the tenant: {tenants:?}"
        );
        let here = |object: &&DynamicObject| kind(object) == "RoleBinding";
        let own: Vec<_> = objects.iter().filter(here).filter_map(|object| object.metadata.name.clone()).collect();
        ensure!(own == ["ganglion-lease"], "rights in the operator's own namespace: {own:?}");
        objects.extend(tenants);
        let whole = objects.iter().filter(|object| kind(object) == "ClusterRoleBinding");
        let whole: Vec<_> = whole.filter_map(|object| object.metadata.name.clone()).collect();
        ensure!(whole == ["ganglion-nodes"], "{whole:?}");
        let deployment = objects.iter().find(|object| kind(object) == "Deployment").context("no Deployment")?;
        let watched = json!({"name": "GANGLION_WATCH_NAMESPACE", "value": testbed.ns});
        ensure!(deployment.data.to_string().contains(&watched.to_string()), "{:?}", deployment.data);

        // The testbed's own operator has other permissions, so it is stopped.
        testbed.operator.lock().await.kill();
        testbed.kubectl(&["delete", "rolebinding", LOOPS, "ganglion-lease"], None).await?;
        testbed.kubectl(&["delete", "role", "ganglion-lease"], None).await?;
        let rights = ["ServiceAccount", "Role", "RoleBinding", "ClusterRoleBinding"];
        let rights = objects.iter().filter(|object| {
            rights.contains(&kind(object)) || object.metadata.name.as_deref() == Some("ganglion-nodes")
        });
        for object in rights {
            cluster.kubectl(&["apply", "--server-side", "-f", "-"], Some(&serde_json::to_string(object)?)).await?;
        }
        let token = token_of(&testbed.client, &home_ns, "ganglion").await?;
        let kubeconfig = kubeconfig::direct(&testbed.plane.cluster.config, &token);
        let home = TempDir::new()?;
        let scope = ["--lease-namespace", home_ns.as_str(), "--watch-namespace", testbed.ns.as_str()];
        let mut operator = Operator::prepare(home.path(), &kubeconfig, &scope)?;
        operator.start()?;
        operator.ready().await?;

        account(testbed, SCALES).await?;
        Workload::deployment("web", 2).make(testbed).await?;
        make(testbed, "web", demo()).await?;
        let time = push(testbed, "web", json!({"cpu": "1", "memory": "60"})).await?;
        let (.., execution) = travelled(testbed, "web", time).await?;
        ensure!(execution.is_some_and(|execution| ended(&execution).0 == Some(ExecutionState::Done)));
        let to = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        testbed.act("more", json!({"create": {"workload": workload, "to": to}})).await?;
        testbed.ends("more", ("True", "Succeeded")).await?;
        measures(testbed).await?;
        cluster.kubectl(&["delete", "namespace", &home_ns, "--wait=false"], None).await?;
        // Checks for leftovers while it runs.
        testkit::testbed::rest::rest_clean(testbed).await
    });
}

/// Checks that a template has its NodeConfigs, with values.
async fn measures(testbed: &Testbed) -> Result<()> {
    let nodes = testbed.nodes(1, Size::default()).await?;
    template(testbed, &nodes.names[0]).await?;
    let name = format!("all-{}", nodes.names[0]);
    ready(testbed, &name, "True", "Sampled").await?;
    testbed.kubectl(&["delete", "ncft", "all"], None).await?;
    testbed.kubectl(&["wait", "--for=delete", &format!("nodeconfig/{name}"), "--timeout=60s"], None).await.map(drop)
}

#[test]
fn an_overlay_names_namespace_and_image_and_a_change_of_settings_rolls_the_pods() {
    story("installs-overlay", async |testbed| {
        let overlay = |settings: &str| {
            format!(
                "namespace: ops\nresources: [KUSTOMIZE/base]\n\
                 components: [KUSTOMIZE/components/all-namespaces, KUSTOMIZE/components/publish-usage, KUSTOMIZE/components/rollouts]\n\
                 images: [{{name: ganglion, newName: example.com/g, newTag: '2'}}]\n\
                 configMapGenerator: [{{name: ganglion-settings, behavior: replace, literals: ['settings.yaml={settings}']}}]\n"
            )
        };
        let objects = render(testbed, &overlay("{}")).await?;
        let text = serde_json::to_string(&objects)?;
        ensure!(!text.contains("\"ganglion-system\"") && text.contains("\"example.com/g:2\""), "{text}");
        let name = |objects: &[DynamicObject]| {
            let map = objects.iter().find(|object| kind(object) == "ConfigMap");
            map.and_then(|map| map.metadata.name.clone()).context("no ConfigMap")
        };
        let changed = render(testbed, &overlay("namespaces: {allowKube: true}")).await?;
        let (before, after) = (name(&objects)?, name(&changed)?);
        let uses = |objects: &[DynamicObject], name: &str| {
            let deployment = objects.iter().find(|object| kind(object) == "Deployment");
            deployment.is_some_and(|deployment| deployment.data.to_string().contains(name))
        };
        ensure!(before != after && uses(&objects, &before) && uses(&changed, &after), "{before} {after}");
        Ok(())
    });
}

/// Without a namespace, a generated ConfigMap has another name than the one that the pods mount.
#[test]
fn what_pods_mount_is_there() {
    story("installs-mounts", async |testbed| {
        for namespace in ["", "namespace: ops\n"] {
            let components =
                ["placement-labels", "publish-usage", "without-tenants", "scheduler", "scheduler-extender"];
            for count in [0, components.len() - 1, components.len()] {
                let list: Vec<String> =
                    components[..count].iter().map(|name| format!("KUSTOMIZE/components/{name}")).collect();
                let overlay = format!("{namespace}resources: [KUSTOMIZE/base]\ncomponents: [{}]\n", list.join(", "));
                let objects = render(testbed, &overlay).await?;
                let has = |wanted: &str, name: &Value, namespace: &Option<String>| {
                    objects.iter().any(|object| {
                        kind(object) == wanted
                            && object.metadata.name.as_deref() == name.as_str()
                            && object.metadata.namespace == *namespace
                    })
                };
                let leases: Vec<_> = objects
                    .iter()
                    .filter(|object| {
                        kind(object) == "Role" && object.metadata.name.as_deref() == Some("ganglion-scheduler")
                    })
                    .map(|role| role.data["rules"][1]["resourceNames"].clone())
                    .collect();
                ensure!(leases.iter().all(|names| *names == json!(["ganglion-scheduler"])), "{leases:?}");
                let deployments: Vec<_> = objects.iter().filter(|object| kind(object) == "Deployment").collect();
                ensure!(deployments.len() == if count > 3 { 2 } else { 1 }, "{} Deployments", deployments.len());
                for deployment in deployments {
                    let (spec, home) = (&deployment.data["spec"]["template"]["spec"], &deployment.metadata.namespace);
                    ensure!(has("ServiceAccount", &spec["serviceAccountName"], home), "no account: {spec}");
                    let volumes = spec["volumes"].as_array().context("no volumes")?;
                    let maps: Vec<_> = volumes.iter().filter_map(|volume| volume.get("configMap")).collect();
                    ensure!(!maps.is_empty(), "no ConfigMap: {spec}");
                    for map in maps {
                        ensure!(has("ConfigMap", &map["name"], home), "no ConfigMap {map} in {home:?}");
                    }
                    // The operator writes this one.
                    let secrets = volumes.iter().filter_map(|volume| volume.get("secret"));
                    let names: Vec<_> = secrets.map(|secret| &secret["secretName"]).collect();
                    ensure!(names.iter().all(|name| *name == "ganglion-extender-tls"), "{names:?}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn who_may_view_or_edit_a_namespace_may_view_or_edit_its_loops_and_actions() {
    story("installs-roles", async |testbed| {
        for (role, verb, resource, expected) in [
            ("view", "list", "executions", true),
            ("view", "create", "closedloops", false),
            ("edit", "create", "closedloops", true),
            ("edit", "delete", "workloadactionreceipts", true),
            ("edit", "patch", "monitorings", false),
            ("edit", "create", "executions", false),
            ("admin", "delete", "decisions", true),
            ("admin", "update", "decisions", false),
            ("view", "list", "nodeconfigs", true),
            ("edit", "create", "nodeconfigtemplates", true),
            ("ganglion-sender", "patch", "monitorings", true),
            ("ganglion-sender", "get", "monitorings", false),
        ] {
            let binding = ["create", "rolebinding", role, &format!("--clusterrole={role}"), &format!("--user={role}")];
            // One binding per user, whoever created it first.
            let _ = testbed.kubectl(&binding, None).await;
            let asked = ["--as", role, "auth", "can-i", verb, &format!("{resource}.ganglion.dev")];
            // Aggregated roles and new bindings take effect a moment later.
            let answer = async {
                while testbed.kubectl(&asked, None).await.is_ok() != expected {
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
            };
            let answer = tokio::time::timeout(testkit::TIMEOUT, answer).await;
            answer.with_context(|| format!("{role} {verb} {resource}: not {expected}"))?;
        }
        Ok(())
    });
}

#[test]
fn the_operators_pods_satisfy_the_restricted_standard() {
    story("installs-restricted", async |testbed| {
        let objects = render(testbed, "resources: [KUSTOMIZE/base]\n").await?;
        let find =
            |name: &str| objects.iter().find(|object| kind(object) == name).with_context(|| format!("no {name}"));
        let standard = find("Namespace")?.metadata.labels.clone().unwrap_or_default();
        ensure!(standard.get("pod-security.kubernetes.io/enforce").is_some_and(|level| level == "restricted"));
        let label = "pod-security.kubernetes.io/enforce=restricted";
        testbed.kubectl(&["label", "namespace", &testbed.ns, label], None).await?;
        testbed.kubectl(&["create", "serviceaccount", "ganglion"], None).await?;
        let template = &find("Deployment")?.data["spec"]["template"];
        let mut pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator"}, "spec": template["spec"]});
        let create = async |pod: &Value| {
            testbed.kubectl(&["create", "--dry-run=server", "-o=json", "-f", "-"], Some(&pod.to_string())).await
        };
        let created: Value = serde_json::from_str(&create(&pod).await?)?;
        ensure!(created["spec"]["priority"] == 1_000_000, "priority: {}", created["spec"]["priority"]);
        pod["spec"]["securityContext"]["seccompProfile"] = Value::Null;
        let refused = create(&pod).await.err().context("the standard is not enforced")?.to_string();
        ensure!(refused.contains("violates PodSecurity"), "{refused}");
        Ok(())
    });
}
