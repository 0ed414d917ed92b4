//! Other owners of the target: other loops, the autoscalers of Kubernetes, KEDA and the VPA with their real CRDs, and
//! any client that writes the same field.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::testbed::loops::{
    SCALES, account, condition, loop_story, make, on, push, ready, replicas, travelled, until, with_loops,
};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories};

use crate::loop_rungs::{PATCHES, allow_patches, allow_patches_of};

/// Maximum time until a newly installed kind is detected, plus a margin.
const NOTICED: Duration = Duration::from_secs(25);

fn up() -> Value {
    on("Low", json!([{"scale": {"by": 1, "max": 100}}]))
}

async fn scene(testbed: &Testbed, ladder: Value) -> Result<()> {
    Workload::deployment("web", 1).requests(json!({"memory": "256Mi"})).make(testbed).await?;
    account(testbed, &[SCALES, &[("", "pods", "list"), ("", "pods/resize", "patch")]].concat()).await?;
    make(testbed, "web", on("Low", ladder)).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

/// Waits until the loop yields and names the other owner.
async fn stands_back(testbed: &Testbed, reason: &str, words: &str) -> Result<()> {
    let message = ready(testbed, "web", "False", reason).await?;
    ensure!(message.contains(words), "{words:?} is not in {message:?}");
    let status = testbed.api::<ClosedLoop>().get("web").await?.status.unwrap_or_default();
    let conflict = condition(&status.conditions, "Conflict").context("no condition Conflict")?;
    ensure!((conflict.status.as_str(), conflict.message.as_str()) == ("True", message.as_str()), "{conflict:?}");
    let before = testbed.api::<Deployment>().get("web").await?.metadata.generation;
    let time = push(testbed, "web", json!({"cpu": "2"})).await?;
    let held = until::<Decision, _>(testbed, "web", "the loop to hold back", |one| {
        let status = one.status?;
        (status.tag?.time.0 >= time).then_some(status.message?)
    })
    .await?;
    ensure!(held.starts_with("Hold cpu: ") && held.contains(words), "{held}");
    ensure!(testbed.api::<Deployment>().get("web").await?.metadata.generation == before, "it acted");
    Ok(())
}

/// Waits until the loop acts again by itself.
async fn acts(testbed: &Testbed) -> Result<()> {
    until::<ClosedLoop, _>(testbed, "web", "the conflict to be over", |one| {
        condition(&one.status?.conditions, "Conflict").is_none().then_some(())
    })
    .await?;
    // The loop may now serve the sample that was held back. A sample that arrives meanwhile waits for that effect.
    for _ in 0..20 {
        let time = push(testbed, "web", json!({"cpu": "3"})).await?;
        let (_, said, done) = travelled(testbed, "web", time).await?;
        if said == "React to cpu" {
            ensure!(done.is_some(), "{said}, and nothing was done");
            return Ok(());
        }
        ensure!(said.contains("is being carried out") || said.contains("took effect"), "{said}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("the loop does not act")
}

/// T35: two loops on one target.
#[test]
fn a_loop_that_came_later_acts_when_the_first_is_gone() {
    loop_story("conflict-loop", async |testbed| {
        scene(testbed, json!([{"scale": {"by": 1, "max": 100}}])).await?;
        make(testbed, "young", up()).await?;
        let message = ready(testbed, "young", "False", "LoopConflict").await?;
        ensure!(message.contains("ClosedLoop web acts on replicas of the same target"), "{message}");
        testbed.api::<ClosedLoop>().delete("web", &DeleteParams::default()).await?;
        ready(testbed, "young", "True", "Running").await?;
        let time = push(testbed, "young", json!({"cpu": "2"})).await?;
        ensure!(
            travelled(testbed, "young", time).await?.2.is_some() && replicas(testbed, "web").await?.1 == 2,
            "no act"
        );
        Ok(())
    });
}

/// T35: a loop and an autoscaler on one target.
#[test]
fn a_horizontal_autoscaler_that_comes_later_is_noticed() {
    loop_story("conflict-hpa", async |testbed| {
        scene(testbed, json!([{"scale": {"by": 1, "max": 100}}])).await?;
        let hpa = json!({"metadata": {"name": "hpa"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 9,
        }});
        testbed.create::<HorizontalPodAutoscaler>(hpa).await?;
        stands_back(testbed, "AutoscalerConflict", "HorizontalPodAutoscaler hpa acts on replicas of the same target")
            .await?;
        let elsewhere = json!({"spec": {"scaleTargetRef": {"name": "other"}}});
        let api = testbed.api::<HorizontalPodAutoscaler>();
        api.patch("hpa", &PatchParams::default(), &Patch::Merge(elsewhere)).await?;
        acts(testbed).await
    });
}

fn scaled_object() -> Value {
    json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "autoscaler"},
        "spec": {"scaleTargetRef": {"name": "web"}, "triggers": [{"type": "cpu", "metadata": {"value": "50"}}]}})
}

fn vertical(mode: &str) -> Value {
    json!({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "autoscaler"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": mode}}})
}

#[test]
fn autoscalers_that_are_installed_later_are_noticed() {
    let scale = json!([{"scale": {"by": 1, "max": 100}}]);
    let resize = json!([{"resize": {"container": "main", "resource": "memory", "factor": "1.25", "max": "1Gi"}}]);
    let cases = [
        ("keda", (scale, scaled_object(), "ScaledObject autoscaler acts on replicas of the same target")),
        (
            "vpa",
            (resize, vertical("Recreate"), "VerticalPodAutoscaler autoscaler acts on main/memory of the same target"),
        ),
    ];
    let cases = cases.map(|(name, case)| (format!("conflict-{name}"), case));
    stories(cases.into(), async |testbed, (ladder, autoscaler, words)| {
        let reported = async {
            scene(testbed, ladder.clone()).await?;
            // The real CRDs of KEDA and of the VPA.
            testbed.plane.cluster.install_crds("autoscalers").await?;
            testbed.kubectl(&["apply", "-f", "-"], Some(&autoscaler.to_string())).await?;
            tokio::time::timeout(NOTICED, stands_back(testbed, "AutoscalerConflict", words)).await??;
            let kind = autoscaler["kind"].as_str().unwrap_or_default();
            testbed.kubectl(&["delete", kind, "autoscaler"], None).await?;
            acts(testbed).await?;
            // A VPA that only recommends does not conflict.
            if kind == "VerticalPodAutoscaler" {
                testbed.kubectl(&["apply", "-f", "-"], Some(&vertical("Off").to_string())).await?;
                acts(testbed).await?;
            }
            let log = testbed.operator.lock().await.log_tail(1000);
            ensure!(!log.contains(" WARN ") && !log.contains(" ERROR "), "noise in the log:\n{log}");
            Ok(())
        };
        match reported.await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

#[test]
fn replicas_that_git_owns_are_left_alone_and_their_owner_is_named() {
    loop_story("conflict-git", async |testbed| {
        scene(testbed, json!([{"scale": {"by": 1, "max": 100}}])).await?;
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 1}});
        let params = PatchParams::apply("flux").force();
        testbed.api::<Deployment>().patch("web", &params, &Patch::Apply(body)).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = ready(testbed, "web", "False", "ReplicasOwnedElsewhere").await?;
        ensure!(message.contains("spec.replicas of Deployment web belongs to flux"), "{message}");
        ensure!(replicas(testbed, "web").await?.1 == 1, "it was scaled");
        Ok(())
    });
}

/// A loop that changes the replicas by a patch, beside an autoscaler and beside Flux.
#[test]
fn a_patch_of_replicas_yields_as_a_scale_does() {
    loop_story("conflict-patch", async |testbed| {
        allow_patches(testbed).await?;
        Workload::deployment("web", 1).make(testbed).await?;
        account(testbed, PATCHES).await?;
        let patch = json!({"patch": {"path": "spec.replicas", "by": "1", "min": "1", "max": "100"}});
        make(testbed, "web", on("Low", json!([patch]))).await?;
        ready(testbed, "web", "True", "Running").await?;
        let hpa = json!({"metadata": {"name": "hpa"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 9,
        }});
        testbed.create::<HorizontalPodAutoscaler>(hpa).await?;
        stands_back(testbed, "AutoscalerConflict", "HorizontalPodAutoscaler hpa acts on replicas of the same target")
            .await?;
        testbed.api::<HorizontalPodAutoscaler>().delete("hpa", &DeleteParams::default()).await?;
        acts(testbed).await?;

        let before = replicas(testbed, "web").await?.1;
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": before}});
        let params = PatchParams::apply("kustomize-controller").force();
        testbed.api::<Deployment>().patch("web", &params, &Patch::Apply(body)).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = ready(testbed, "web", "False", "ReplicasOwnedElsewhere").await?;
        ensure!(message.contains("spec.replicas of Deployment web belongs to kustomize-controller"), "{message}");
        ensure!(replicas(testbed, "web").await?.1 == before, "it was scaled");
        Ok(())
    });
}

/// Name of the definition of a kind whose number of replicas is `spec.size`.
const CACHES: &str = "caches.shop.example";

/// Permissions of loops that scale or patch objects of that kind.
const CHANGES_CACHES: &[(&str, &str, &str)] = &[
    ("shop.example", "caches", "get"),
    ("shop.example", "caches", "patch"),
    ("shop.example", "caches/scale", "get"),
    ("shop.example", "caches/scale", "patch"),
];

/// Installs the kind, and creates an object that sets no size, and the account of its loops.
async fn with_cache(testbed: &Testbed) -> Result<()> {
    let size = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CACHES},
        "spec": {
            "group": "shop.example", "scope": "Namespaced",
            "names": {"kind": "Cache", "plural": "caches", "singular": "cache"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": size, "status": size}}},
                "subresources": {"status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
            }],
        },
    });
    testbed.kubectl(&["apply", "--server-side", "-f", "-"], Some(&definition.to_string())).await?;
    testbed.plane.cluster.established(CACHES).await?;
    allow_patches_of(testbed, "{group: shop.example, kind: Cache}").await?;
    let cache = json!({"apiVersion": "shop.example/v1", "kind": "Cache", "metadata": {"name": "web"}, "spec": {}});
    testbed.kubectl(&["create", "-f", "-"], Some(&cache.to_string())).await?;
    account(testbed, CHANGES_CACHES).await
}

/// A loop on that object with this rung for low cpu.
fn on_cache(rung: Value) -> Value {
    let mut spec = on("Low", json!([rung]));
    spec["target"] = json!({"apiVersion": "shop.example/v1", "kind": "Cache", "name": "web"});
    spec
}

async fn size(testbed: &Testbed) -> Result<String> {
    testbed.kubectl(&["get", "cache", "web", "-o", "jsonpath={.spec.size}"], None).await
}

/// Sets the size as another client does.
async fn resize(testbed: &Testbed, manager: &str, size: i32) -> Result<()> {
    let patch = json!({"spec": {"size": size}}).to_string();
    let field_manager = format!("--field-manager={manager}");
    let command = ["patch", "cache.shop.example", "web", &field_manager, "--type=merge", "-p", &patch];
    testbed.kubectl(&command, None).await.map(drop)
}

#[test]
fn the_replicas_of_a_custom_resource_are_found_where_its_definition_says() {
    loop_story("conflict-custom", async |testbed| {
        with_cache(testbed).await?;
        make(testbed, "web", on_cache(json!({"scale": {"by": 1, "max": 100}}))).await?;
        let message = ready(testbed, "web", "False", "NotScalable").await?;
        ensure!(message.contains("Cache web sets no number of replicas: set spec.size, so that"), "{message}");
        let advice = r#"--type=merge -p '{"spec":{"size":1}}'`"#;
        ensure!(message.ends_with(advice), "{message}");
        resize(testbed, "kubectl", 1).await?;
        ready(testbed, "web", "True", "Running").await?;
        until::<ClosedLoop, _>(testbed, "web", "the path to be known", |found| {
            (found.status?.replicas_path.as_deref() == Some("spec.size")).then_some(())
        })
        .await?;
        acts(testbed).await?;
        ensure!(size(testbed).await? == "2", "{}", size(testbed).await?);

        let patch = json!({"patch": {"path": "spec.size", "by": "1", "min": "1", "max": "100"}});
        make(testbed, "young", on_cache(patch)).await?;
        let message = ready(testbed, "young", "False", "LoopConflict").await?;
        ensure!(message.contains("ClosedLoop web acts on replicas of the same target"), "{message}");

        let applied = json!({"apiVersion": "shop.example/v1", "kind": "Cache", "metadata": {"name": "web"},
            "spec": {"size": 2}});
        let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "-f", "-"];
        testbed.kubectl(&apply, Some(&applied.to_string())).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = ready(testbed, "web", "False", "ReplicasOwnedElsewhere").await?;
        ensure!(message.contains("spec.size of Cache web belongs to kustomize-controller"), "{message}");
        ensure!(size(testbed).await? == "2", "it was scaled");
        Ok(())
    });
}

#[test]
fn what_is_undone_three_times_is_not_done_again_to_a_custom_resource() {
    loop_story("conflict-custom-undone", async |testbed| {
        with_cache(testbed).await?;
        resize(testbed, "kubectl", 1).await?;
        make(testbed, "web", on_cache(json!({"scale": {"by": 1, "max": 100}}))).await?;
        ready(testbed, "web", "True", "Running").await?;
        for round in 0..3 {
            let time = push(testbed, "web", json!({"cpu": "2"})).await?;
            ensure!(travelled(testbed, "web", time).await?.2.is_some(), "round {round}: no act");
            resize(testbed, "somebody", 1).await?;
        }
        push(testbed, "web", json!({"cpu": "3"})).await?;
        let message = ready(testbed, "web", "False", "FieldConflict").await?;
        ensure!(message.starts_with("somebody undid what this loop did to Cache/web 3 times"), "{message}");
        ensure!(size(testbed).await? == "1", "it was scaled again");
        Ok(())
    });
}

#[test]
fn what_is_undone_three_times_is_not_done_again_and_one_event_says_by_whom() {
    loop_story("conflict-undone", async |testbed| {
        scene(testbed, json!([{"scale": {"by": 1, "max": 100}}])).await?;
        for round in 0..3 {
            let time = push(testbed, "web", json!({"cpu": "2"})).await?;
            ensure!(travelled(testbed, "web", time).await?.2.is_some(), "round {round}: no act");
            if round > 0 {
                let expected = format!("somebody undid {round} of 3 changes of replicas in a row");
                until::<ClosedLoop, _>(testbed, "web", "the undone change to be reported", |found| {
                    let undone = condition(&found.status?.conditions, "ChangeUndone")?;
                    undone.message.starts_with(&expected).then_some(())
                })
                .await?;
            }
            let back = json!({"spec": {"replicas": 1}});
            let params = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
            testbed.api::<Deployment>().patch_scale("web", &params, &Patch::Merge(back)).await?;
        }
        push(testbed, "web", json!({"cpu": "3"})).await?;
        let message = ready(testbed, "web", "False", "FieldConflict").await?;
        ensure!(message.starts_with("somebody undid what this loop did to Deployment/web 3 times"), "{message}");
        ensure!(replicas(testbed, "web").await?.1 == 1, "it was scaled again");

        let events = async |reason: &str| {
            let all = testbed.api::<Event>().list(&ListParams::default()).await?.items;
            let is_of = |event: &Event| {
                let kind = event.regarding.as_ref().and_then(|object| object.kind.as_deref());
                kind == Some("ClosedLoop") && event.reason.as_deref() == Some(reason)
            };
            anyhow::Ok(all.into_iter().filter(is_of).collect::<Vec<_>>())
        };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        while events("FieldConflict").await?.is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (warned, scaled) = (events("FieldConflict").await?, events("Scaled").await?);
        ensure!(warned.len() == 1 && warned[0].type_.as_deref() == Some("Warning"), "{warned:?}");
        // Three equal events, one after the other, are one Event with a count.
        ensure!(scaled.len() == 1 && scaled[0].series.as_ref().is_some_and(|series| series.count == 3), "{scaled:?}");
        let note = scaled[0].note.clone().unwrap_or_default();
        ensure!(note.starts_with("Deployment/web: replicas 1 → 2"), "{note}");
        Ok(())
    });
}
