//! The load of a round: samples that are sent to loops of one namespace, and what came of them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use ganglion_api::monitoring::Monitoring;
use kube::{Api, Client};
use serde_json::json;
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;

use super::cost::{Meter, Used};
use super::scene::{self, Pushed};
use super::timeline::{Mark, Timeline};
use crate::frame::{median, millis, number, quantile};

/// How long the watches' first lists may take, and what making the loops left to do.
const SETTLING: Duration = Duration::from_secs(2);

/// What each sender of many keeps to.
const EVERY: Duration = Duration::from_secs(1);

/// How long the last samples are waited for, and how often is looked.
const LATE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(100);

/// Which samples are sent. All of them are alarmed.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// So many to one loop, each when the one before is decided about.
    BackToBack(usize),
    /// One a second to each of so many loops, spread evenly over the second.
    EachSecond { loops: usize, lasting: Duration },
}

/// What came of the load.
pub struct Round {
    pub sent: usize,
    /// From just before a sample's patch until a watch showed it in Decision's status, in milliseconds: of those recorded.
    times: Vec<f64>,
    /// The senders' own patches, in milliseconds.
    patches: Vec<f64>,
    pub used: Used,
}

impl Round {
    pub fn recorded(&self) -> usize {
        self.times.len()
    }

    pub fn lost(&self) -> f64 {
        number(self.sent - self.recorded())
    }

    /// Time to Decision's status: the one below which this share lies.
    pub fn time(&self, share: f64) -> f64 {
        quantile(&self.times, share)
    }

    /// The senders' own patch, median.
    pub fn patch(&self) -> f64 {
        median(&self.patches)
    }

    /// Processor time of the API server for a recorded sample, in milliseconds.
    pub fn server(&self, idle: f64) -> f64 {
        self.used.server_millis(idle, self.recorded())
    }

    /// Processor time of the operator for a recorded sample, in milliseconds.
    pub fn operator(&self) -> f64 {
        self.used.operator_millis(self.recorded())
    }
}

impl Load {
    /// Sends it to the loops of this namespace, and watches what becomes of it. Also what the API server used at rest
    /// before, in cores.
    pub async fn run(self, cluster: &Cluster, operator: &Operator, namespace: &str) -> Result<(Round, f64)> {
        let timeline = Timeline::decisions(&cluster.client, namespace);
        tokio::time::sleep(SETTLING).await;
        let idle = super::cost::idle(cluster, operator).await?;
        let meter = Meter::start(cluster, operator)?;
        let pushed = match self {
            Self::BackToBack(samples) => back_to_back(&cluster.client, &timeline, namespace, samples).await?,
            Self::EachSecond { loops, lasting } => each_second(&cluster.client, namespace, loops, lasting).await?,
        };
        let times = times(&timeline, &pushed).await;
        let used = meter.read()?;
        ensure!(!times.is_empty(), "no sample of {} was recorded in {namespace}", pushed.len());
        let patches = pushed.iter().map(|one| millis(one.answered - one.began)).collect();
        Ok((Round { sent: pushed.len(), times, patches, used }, idle))
    }
}

/// When each was decided about, once all were or the last are late.
async fn times(timeline: &Timeline, pushed: &[Pushed]) -> Vec<f64> {
    let ended = Instant::now();
    loop {
        let seen = |one: &Pushed| Some(millis(timeline.at(&Mark::Decided(one.name.clone(), one.time))? - one.began));
        let times: Vec<f64> = pushed.iter().filter_map(seen).collect();
        if times.len() == pushed.len() || ended.elapsed() > LATE {
            return times;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

async fn back_to_back(client: &Client, timeline: &Timeline, namespace: &str, samples: usize) -> Result<Vec<Pushed>> {
    let monitorings: Api<Monitoring> = Api::namespaced(client.clone(), namespace);
    let mut all = Vec::new();
    for _ in 0..samples {
        let pushed = push(&monitorings, &scene::name(0)).await?;
        timeline.until(&Mark::Decided(pushed.name.clone(), pushed.time)).await?;
        all.push(pushed);
    }
    Ok(all)
}

async fn each_second(client: &Client, namespace: &str, loops: usize, lasting: Duration) -> Result<Vec<Pushed>> {
    let monitorings: Api<Monitoring> = Api::namespaced(client.clone(), namespace);
    let began = Instant::now();
    let senders = (0..loops).map(|index| {
        let (monitorings, name) = (monitorings.clone(), scene::name(index));
        let first = began + EVERY.mul_f64(number(index) / number(loops));
        async move {
            let mut ticks = tokio::time::interval_at(first.into(), EVERY);
            let mut all = Vec::new();
            while ticks.tick().await < (began + lasting).into() {
                all.push(push(&monitorings, &name).await?);
            }
            anyhow::Ok(all)
        }
    });
    Ok(try_join_all(senders).await?.into_iter().flatten().collect())
}

async fn push(monitorings: &Api<Monitoring>, name: &str) -> Result<Pushed> {
    scene::push(monitorings, name, &json!({"cpu": "2", "memory": "40"})).await
}
