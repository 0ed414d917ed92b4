//! The operator is gone for ten minutes: the stock scheduler goes on placing pods, and those that are created after the
//! `validUntil` of the policy, whose `maxAge` is the default of five minutes, get no terms.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::objects::POLICY;
use super::scene::{Scene, has_terms};
use crate::TIMEOUT;
use crate::frame::{Bench, Bound, Progress, number};

pub const PART: &str = "absence";

const NODES: usize = 100;

/// Time for which the operator is gone, and between two pods.
const GONE: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_secs(2);

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut scene = Scene::start(bench, PART, NODES).await?;
    let default_age = Patch::Merge(json!({"spec": {"maxAge": null}}));
    scene.policies().patch(POLICY, &PatchParams::default(), &default_age).await?;
    scene.deliver(true).await?;
    scene.opt_in().await?;
    let progress = Progress::spin("placing pods without the operator for ten minutes");
    scene.operator.kill();
    let begun = Instant::now();
    let ended = scene.policies().get(POLICY).await?.status.and_then(|status| status.valid_until);
    let ended = ended.context("the policy has no validUntil")?.0;
    let mut late = (0, 0);
    let mut early = (0, 0);
    let mut slowest = Duration::ZERO;
    for at in 0.. {
        if begun.elapsed() > GONE {
            break;
        }
        let next = Instant::now() + EVERY;
        let pod = placed(&scene, at, &mut slowest).await?;
        let created = pod.metadata.creation_timestamp.as_ref().context("a pod has a time of creation")?.0;
        // The time of a request is in whole seconds.
        let counts = if created > ended { &mut late } else { &mut early };
        counts.0 += 1;
        counts.1 += usize::from(has_terms(&pod));
        tokio::time::sleep_until(next.into()).await;
    }
    scene.operator.start()?;
    let again = scene.until_terms().await?;
    progress.end();
    ensure!(early.0 > 0 && late.0 > 0, "pods were created before and after validUntil");
    let title = "operator gone for ten minutes: pods until validUntil";
    bench.note(title, number(early.0), "pods");
    bench.claim("  with terms", number(early.1), "pods", Bound::AtLeast(number(early.0)));
    bench.note("  pods after validUntil", number(late.0), "pods");
    bench.claim("  with terms, after validUntil", number(late.1), "pods", Bound::AtMost(0.0));
    bench.note("  slowest placement of a pod", slowest.as_secs_f64(), "s");
    bench.note("  pods get terms again after the start", again, "s");
    scene.down().await
}

/// Creates a pod, and waits until the scheduler has placed it.
async fn placed(scene: &Scene, at: usize, slowest: &mut Duration) -> Result<Pod> {
    let pod = json!({
        "metadata": {"name": format!("pod-{at}")}, "spec": {"containers": [{"name": "c", "image": "none"}]},
    });
    let begun = Instant::now();
    let pod = scene.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let pending = ListParams::default().fields(&format!("spec.nodeName=,metadata.name={}", pod.name_any()));
    while !scene.pods().list_metadata(&pending).await?.items.is_empty() {
        ensure!(begun.elapsed() < TIMEOUT, "{} is not placed", pod.name_any());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    *slowest = begun.elapsed().max(*slowest);
    Ok(pod)
}
