//! The act of an import: a loop takes over from a live HorizontalPodAutoscaler, and hands back.

use std::time::Duration;

use anyhow::{Context, Result};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::marks;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Api;
use serde_json::{Value, json};
use testkit::servers::aggregation::{Aggregated, AggregationHost};
use testkit::servers::load::SharedLoad;
use testkit::servers::usage;

use super::act::{Checks, Place, arrows};
use super::eye::Seen;
use super::scene;

/// Created as it is.
const SAMPLE: &str = "samples/closedloop/import/hpa.yaml";

/// Its Deployment, its autoscaler, and the loop that takes over.
const SHOP: &str = "shop";

/// Field manager of the autoscaler's controller.
const CONTROLLER: &str = "kube-controller-manager";

/// Time between two measurements, the shortest that metrics-server has.
const RESOLUTION: Duration = Duration::from_secs(10);

/// The API of metrics-server.
const API: &str = "v1beta1.metrics.k8s.io";

/// Server of the measurements, and the load that it measures.
pub struct Live {
    server: Aggregated,
    load: SharedLoad,
}

/// Starts metrics-server, so that it has measurements when the act begins.
pub async fn prepare(place: &Place<'_>) -> Result<Live> {
    place.screen.doing("starting metrics-server, and an application with an autoscaler");
    let host = AggregationHost { cluster: place.stage.cluster()?, namespace: &place.namespace };
    let server = usage::start(host, RESOLUTION).await?;
    // Created and not applied: who applies a manifest would switch the autoscaler on again with the next apply.
    scene::kubectl(place, "create", SAMPLE).await?;
    // Two replicas at the target: 500m of the requested core each.
    let load = SharedLoad::start(&place.client, &place.namespace, SHOP, 1_000);
    place.screen.done("metrics-server", "measures every 10 s; Deployment shop has a HorizontalPodAutoscaler");
    Ok(Live { server, load })
}

/// Runs the act. Returns the number of failed checks.
pub async fn play(place: &Place<'_>, live: &Live) -> Result<usize> {
    let act = Act { place, live };
    let mut checks = Checks::new(place.screen);
    act.begins().await?;
    act.scales(&mut checks, "The load doubles.", 2_000, 4, CONTROLLER).await?;
    let before = act.behavior().await?;
    act.takes_over(&mut checks).await?;
    act.scales(&mut checks, "The load falls.", 1_000, 2, marks::EXECUTION_MANAGER).await?;
    act.hands_back(&mut checks, &before).await?;
    act.scales(&mut checks, "The load trebles.", 3_000, 6, CONTROLLER).await?;
    Ok(checks.failed)
}

/// Deletes the API, whose server ends with the demo: without a server, it would block the deletion of namespaces.
pub async fn end(place: &Place<'_>, live: Live) -> Result<()> {
    drop(live);
    place.stage.kubectl(&["delete", "apiservice", API]).await.map(drop)
}

struct Act<'a> {
    place: &'a Place<'a>,
    live: &'a Live,
}

impl Act<'_> {
    /// Waits until the autoscaler sees two replicas at their target.
    async fn begins(&self) -> Result<()> {
        let place = self.place;
        place.screen.doing("waiting for the autoscaler to see the usage");
        let is_at_target = |seen: &Seen| {
            let percent = seen.autoscalers.get(SHOP).and_then(|measured| measured.percent);
            seen.replicas(SHOP) == Some(2) && percent.is_some_and(|percent| (45..=55).contains(&percent))
        };
        let is_ready = place.watch(&[], &place.start(), is_at_target).await;
        let log = || format!("the autoscaler sees no usage; metrics-server:\n{}", self.live.server.log());
        is_ready.then_some(()).with_context(log)?;
        place.screen.say(
            "  A real HorizontalPodAutoscaler scales the Deployment shop, by usage that metrics-server measures:\n",
        );
        place.show_kubectl(&format!("get hpa {SHOP}")).await
    }

    /// Sets the load, and checks who scales the Deployment to this number.
    async fn scales(&self, checks: &mut Checks<'_>, what: &str, load: u32, to: i32, by: &str) -> Result<()> {
        let place = self.place;
        place.screen.gap();
        place.screen.say(&format!("  {what} All replicas together use {load}m of cpu now.\n"));
        let start = place.start();
        self.live.load.set(load);
        place.watch(&[SHOP], &start, |seen| seen.replicas(SHOP) == Some(to)).await;
        let path = place.eye.now().path(SHOP, &start.seen);
        checks.head();
        let (first, last) = (path.first().copied().unwrap_or(to), path.last().copied());
        // One measurement may contain only a part of the new load.
        let is_straight = path.is_sorted() || path.is_sorted_by(|one, next| one >= next);
        checks.say(&format!("replicas of {SHOP}"), &arrows(&path), first != to && last == Some(to) && is_straight);
        let writer = self.writer().await?;
        checks.say("field manager that set them", &writer, writer == by);
        Ok(())
    }

    /// Prints the loop and its differences, and lets it take over.
    async fn takes_over(&self, checks: &mut Checks<'_>) -> Result<()> {
        let (place, before) = (self.place, self.place.eye.now());
        let command = format!("import hpa {SHOP} --service-account web-loop");
        place.screen.gap();
        let printed = place.show_ganglion(&command).await?;
        place.screen.gap();
        checks.say("printed", "a ClosedLoop, and what differs", is_printed(&printed));
        let (behavior, loops) = (self.behavior().await?, self.loops().get_opt(SHOP).await?);
        checks.say("changed so far", "nothing", behavior["scaleUp"]["selectPolicy"] == "Max" && loops.is_none());
        place.screen.gap();
        place.show_ganglion(&format!("{command} --apply")).await?;
        let path = place.eye.now().path(SHOP, &before);
        checks.head();
        checks.say("replicas during the handover", &arrows(&path), path == [4]);
        let behavior = self.behavior().await?;
        let policies = ["scaleUp", "scaleDown"].map(|direction| behavior[direction]["selectPolicy"].clone());
        let shown = policies.each_ref().map(|policy| policy.as_str().unwrap_or("none")).join(", ");
        checks.say("selectPolicy, up and down", &shown, policies == ["Disabled", "Disabled"]);
        Ok(())
    }

    /// Hands back to the autoscaler, which must be as `before`.
    async fn hands_back(&self, checks: &mut Checks<'_>, original: &Value) -> Result<()> {
        let (place, before) = (self.place, self.place.eye.now());
        place.screen.gap();
        place.show_ganglion(&format!("import hpa {SHOP} --undo")).await?;
        let path = place.eye.now().path(SHOP, &before);
        checks.head();
        checks.say("replicas during the handover", &arrows(&path), path == [2]);
        let restored = self.behavior().await? == *original;
        checks.say("behavior of the autoscaler", if restored { "as before" } else { "another one" }, restored);
        let gone = self.loops().get_opt(SHOP).await?.is_none();
        checks.say(&format!("ClosedLoop {SHOP}"), if gone { "deleted" } else { "still there" }, gone);
        Ok(())
    }

    /// `spec.behavior` of the autoscaler.
    async fn behavior(&self) -> Result<Value> {
        let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(self.place.client.clone(), &self.place.namespace);
        Ok(json!(hpas.get(SHOP).await?.spec.context("an autoscaler without a spec")?.behavior))
    }

    fn loops(&self) -> Api<ClosedLoop> {
        Api::namespaced(self.place.client.clone(), &self.place.namespace)
    }

    /// Field managers of the Deployment's `spec.replicas`.
    async fn writer(&self) -> Result<String> {
        let deployments: Api<Deployment> = Api::namespaced(self.place.client.clone(), &self.place.namespace);
        let entries = deployments.get(SHOP).await?.metadata.managed_fields.unwrap_or_default();
        let writers = entries
            .into_iter()
            .filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| !fields.0["f:spec"]["f:replicas"].is_null()));
        Ok(writers.filter_map(|entry| entry.manager).collect::<Vec<_>>().join(", "))
    }
}

fn is_printed(text: &str) -> bool {
    text.contains("kind: ClosedLoop") && text.contains("# Differs from the autoscaler:")
}
