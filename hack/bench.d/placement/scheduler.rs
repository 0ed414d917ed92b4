//! The stock kube-scheduler places pods on a thousand nodes: alone, by a policy as its extender and as labels, and with
//! the bare handler as its extender.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::plane::scheduler::plain_extender;
use testkit::process::free_port;

use super::objects::POLICY;
use super::requests;
use super::scene::{PLACE, Scene, WRITERS};
use crate::TIMEOUT;
use crate::frame::{Bench, Bound, Progress, number};

pub const PART: &str = "scheduler";

const NODES: usize = 1000;
const PODS: usize = 10_000;

/// Minimum rates of pods, relative to the bare handler and to the scheduler alone.
const OF_NULL: f64 = 0.9;
const BY_ADMISSION: f64 = 0.9;
const BY_PROFILE: f64 = 0.95;
const CREATED: f64 = 0.8;

/// Maximum time until all nodes have labels, in seconds: 5,000 nodes within a minute.
const LABELED: f64 = 12.0;

/// Maximum additional processor time of the API server for a pod that gets terms, in milliseconds.
const CREATION_MILLIS: f64 = 2.0;

/// Components of the plane whose processor time is shown.
const COMPONENTS: [&str; 3] = ["scheduler", "apiserver", "etcd"];

/// Beginning of the metric that counts label writes.
const LABEL_WRITES: &str = "ganglion_effects_total{effect=\"LabelNode\",outcome=\"ok\"}";

/// The first and the last pods are not timed: the scheduler is starting, or too few pods are left.
const TIMED: std::ops::Range<usize> = PODS / 10..PODS * 9 / 10;

/// How the scheduler learns what the policy prefers.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Alone,
    NullExtender,
    Extender,
    /// Labels, read by terms that the API server adds to new pods.
    Admission,
    /// Labels, read by terms in the configuration of the scheduler.
    Profile,
}

impl Way {
    const fn words(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::NullExtender => "with the bare handler as extender",
            Self::Extender => "with a policy as extender",
            Self::Admission => "with labels by admission",
            Self::Profile => "with labels by addedAffinity",
        }
    }

    const fn has_labels(self) -> bool {
        matches!(self, Self::Admission | Self::Profile)
    }
}

/// The rounds in their order, each on a control plane of its own: one that has seen 40,000 pods is slower. The
/// scheduler alone is measured first and last, to show what differs by chance; the mean counts.
const ROUNDS: [Way; 6] = [Way::Alone, Way::Admission, Way::Profile, Way::Extender, Way::NullExtender, Way::Alone];

/// Figures of one way.
struct Round {
    /// Time until all nodes had labels, in seconds, and processor time of the API server per node, in milliseconds.
    labeled: f64,
    labeling: f64,
    /// Pods per second.
    created: f64,
    placed: f64,
    /// Processor time of the API server while pods are created, in milliseconds per pod.
    creation: f64,
    /// Number of nodes with new pods, and of pods on the fullest one.
    nodes: usize,
    most: usize,
    /// While pods are placed, per pod: processor time of each of the [`COMPONENTS`] and of the operator in
    /// milliseconds, and number of written nodes.
    spent: [f64; 4],
    writes: f64,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let bare_address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let bare = requests::started(bare_address, 0).await?;
    let mut rounds = Vec::new();
    for (at, way) in ROUNDS.into_iter().enumerate() {
        let scene = Scene::start(bench, &format!("{PART}-{at}"), NODES).await?;
        let ground = Ground { scene: &scene, bare: bare_address };
        rounds.push((way, ground.round(way).await?));
        scene.down().await?;
    }
    report(bench, &rounds);
    drop(bare);
    Ok(())
}

fn report(bench: &mut Bench, rounds: &[(Way, Round)]) {
    let of = |way: Way| rounds.iter().find(|(one, _)| *one == way).map(|(_, round)| round);
    let (Some(null), Some(ours), Some(admission), Some(profile)) =
        (of(Way::NullExtender), of(Way::Extender), of(Way::Admission), of(Way::Profile))
    else {
        return;
    };
    let alone = |figure: fn(&Round) -> f64| {
        let figures = rounds.iter().filter(|(way, _)| *way == Way::Alone).map(|(_, round)| figure(round));
        figures.clone().sum::<f64>() / number(figures.count())
    };
    let placed = alone(|round| round.placed);
    let title = "stock scheduler, 1,000 nodes, 10,000 pods: pods/s";
    for (words, value, bound) in [
        ("with a policy as extender, relative to the bare handler", ours.placed / null.placed, OF_NULL),
        ("with labels by admission, relative to the scheduler alone", admission.placed / placed, BY_ADMISSION),
        ("with labels by addedAffinity, relative to the scheduler alone", profile.placed / placed, BY_PROFILE),
    ] {
        bench.claim(&format!("{title} {words}"), value, "times", Bound::AtLeast(bound));
    }
    let title = "creation of pods that get terms, relative to others";
    bench.claim(title, admission.created / alone(|round| round.created), "times", Bound::AtLeast(CREATED));
    let more = admission.creation - alone(|round| round.creation);
    bench.claim("  more processor time of the API server per pod", more, "ms", Bound::AtMost(CREATION_MILLIS));
    bench.claim("labels on 1,000 nodes", admission.labeled, "s", Bound::AtMost(LABELED));
    bench.note("  processor time of the API server", admission.labeling, "ms per node");
    for (way, round) in rounds {
        bench.note(&format!("  {}: placed", way.words()), round.placed, "pods/s");
        bench.note("    created", round.created, "pods/s");
        bench.note("    nodes with new pods", number(round.nodes), "nodes");
        bench.note("    on the fullest one", number(round.most), "pods");
        bench.note("    label writes", round.writes, "per pod");
        for (component, spent) in COMPONENTS.into_iter().chain(["operator"]).zip(round.spent) {
            bench.note(&format!("    processor time of {component}"), spent, "ms per pod");
        }
    }
}

struct Ground<'a> {
    scene: &'a Scene,
    /// Address of the bare handler.
    bare: SocketAddr,
}

impl Ground<'_> {
    async fn round(&self, way: Way) -> Result<Round> {
        let progress = Progress::spin(&format!("placing {PODS} pods: {}", way.words()));
        let Scene { cluster, .. } = self.scene;
        let client = &cluster.client;
        let used = cluster.processor_seconds("apiserver")?;
        let labeled = self.scene.deliver(way.has_labels()).await?;
        let labeling = (cluster.processor_seconds("apiserver")? - used) * 1000.0 / number(NODES);
        if way == Way::Admission {
            self.scene.opt_in().await?;
        }
        cluster.fault(&["stop", "scheduler"]).await?;
        let (begun, used) = (Instant::now(), cluster.processor_seconds("apiserver")?);
        make(client).await?;
        let created = number(PODS) / begun.elapsed().as_secs_f64();
        let creation = (cluster.processor_seconds("apiserver")? - used) * 1000.0 / number(PODS);
        let config = self.configuration(way)?;
        cluster.fault(&["start", "scheduler", "--scheduler-config", &config]).await?;
        let (before, labels) = (self.spent()?, self.label_writes(way).await?);
        let placed = watch(client).await?;
        let mut spent = self.spent()?;
        for (spent, before) in spent.iter_mut().zip(before) {
            *spent = (*spent - before) * 1000.0 / number(PODS);
        }
        let writes = (self.label_writes(way).await? - labels) / number(PODS);
        let (nodes, most) = distribution(client).await?;
        progress.end();
        Ok(Round { labeled, labeling, created, placed, creation, nodes, most, spent, writes })
    }

    /// Processor time so far, in seconds: see [`Round::spent`].
    fn spent(&self) -> Result<[f64; 4]> {
        let [scheduler, server, etcd] = COMPONENTS.map(|component| self.scene.cluster.processor_seconds(component));
        Ok([scheduler?, server?, etcd?, self.scene.operator.processor_seconds()?])
    }

    /// Number of times that a node was labeled so far; 0 if the operator has not labeled any in this way.
    async fn label_writes(&self, way: Way) -> Result<f64> {
        let metrics = self.scene.operator.get("/metrics").await?;
        let line = metrics.lines().find(|line| line.starts_with(LABEL_WRITES));
        let count = line.and_then(|line| line.rsplit_once(' ')).map(|(_, count)| count.parse());
        ensure!(count.is_some() || !way.has_labels(), "no metric {LABEL_WRITES}");
        Ok(count.unwrap_or(Ok(0.0))?)
    }

    /// The shipped configuration, with the address of the extender or with the terms.
    fn configuration(&self, way: Way) -> Result<String> {
        let shipped = |path: &str| -> Result<Value> {
            Ok(serde_saphyr::from_str(&std::fs::read_to_string(testkit::root().join(path))?)?)
        };
        let url = match way {
            Way::NullExtender => format!("http://{}/null", self.bare),
            Way::Extender => format!("http://{}/policies/{POLICY}", self.scene.extender),
            Way::Alone | Way::Admission | Way::Profile => String::new(),
        };
        let mut config = plain_extender(&url)?;
        if url.is_empty() {
            config.as_object_mut().context("a configuration")?.remove("extenders");
        } else {
            // As labels weigh by default.
            config["extenders"][0]["weight"] = json!(2);
        }
        if way == Way::Profile {
            // The terms of the component's scheduler, for the label of this policy.
            let text =
                shipped("kustomize/components/scheduler/scheduler.yaml")?["profiles"][0]["pluginConfig"].to_string();
            let plugins: Value =
                serde_json::from_str(&text.replace("kubernetes.io/default", &format!("kubernetes.io/{POLICY}")))?;
            config["profiles"] = json!([{"schedulerName": "default-scheduler", "pluginConfig": plugins}]);
        }
        let file = self.scene.home.join("scheduler.yaml");
        std::fs::write(&file, serde_saphyr::to_string(&config)?)?;
        Ok(file.display().to_string())
    }
}

async fn make(client: &Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), PLACE);
    stream::iter(0..PODS)
        .map(|at| {
            let requests = json!({"cpu": format!("{}m", 100 + at % 7 * 100), "memory": "128Mi"});
            let pod = json!({
                "metadata": {"name": format!("pod-{at:04}"), "labels": {"app": "bench"}},
                "spec": {"containers": [{"name": "c", "image": "none", "resources": {"requests": requests}}]},
            });
            let pods = pods.clone();
            async move {
                let pod: Pod = serde_json::from_value(pod)?;
                pods.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}

/// Waits until all pods are bound. Returns their number per second, by the times in their conditions: the scheduler
/// places many pods before it is seen to be ready.
async fn watch(client: &Client) -> Result<f64> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), PLACE);
    let pending = ListParams::default().fields("spec.nodeName=");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let left = pods.list_metadata(&pending).await?.items.len();
        if left == 0 {
            break;
        }
        ensure!(Instant::now() < deadline, "{left} of {PODS} pods are not placed");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let scheduled = |pod: Pod| {
        let conditions = pod.status?.conditions?;
        let found = conditions.into_iter().find(|one| one.type_ == "PodScheduled")?;
        Some(found.last_transition_time?.0)
    };
    let mut times: Vec<_> = pods.list(&ListParams::default()).await?.items.into_iter().filter_map(scheduled).collect();
    times.sort_unstable();
    let (first, last) = times.get(TIMED.start).zip(times.get(TIMED.end)).context("too few pods have a time")?;
    let seconds = last.duration_since(*first).as_secs_f64();
    Ok(number(TIMED.len()) / seconds)
}

/// Number of nodes with pods of the bench, and of pods on the fullest one.
async fn distribution(client: &Client) -> Result<(usize, usize)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), PLACE);
    let mut counts = std::collections::HashMap::<String, usize>::new();
    for node in pods.list(&ListParams::default()).await?.items.into_iter().filter_map(|pod| pod.spec?.node_name) {
        *counts.entry(node).or_default() += 1;
    }
    Ok((counts.len(), counts.into_values().max().unwrap_or_default()))
}
