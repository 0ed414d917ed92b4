//! Load of a round: samples sent to the loops of one namespace, and the results.

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

/// Time for the watches' first lists, and for work that is left from the creation of the loops.
const SETTLING: Duration = Duration::from_secs(2);

/// Interval between two samples of one sender, if there are many senders.
const EVERY: Duration = Duration::from_secs(1);

/// Maximum time to wait for the last samples, and the polling interval.
const LATE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(100);

/// Samples to send. Each of them crosses a threshold.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// This number of samples to one loop, each sent when the previous one is decided.
    BackToBack(usize),
    /// One sample per second to each of this number of loops, spread evenly over the second.
    EachSecond { loops: usize, lasting: Duration },
}

/// Result of the load.
pub struct Round {
    pub sent: usize,
    /// Milliseconds from just before a sample's patch until a watch shows it in Decision's status, for each recorded
    /// sample.
    times: Vec<f64>,
    /// Duration of the senders' own patches, in milliseconds.
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

    /// Quantile of the time to Decision's status.
    pub fn time(&self, share: f64) -> f64 {
        quantile(&self.times, share)
    }

    /// Median duration of the senders' own patches.
    pub fn patch(&self) -> f64 {
        median(&self.patches)
    }

    /// Processor time of the API server per recorded sample, in milliseconds.
    pub fn server(&self, idle: f64) -> f64 {
        self.used.server_millis(idle, self.recorded())
    }

    /// Processor time of the operator per recorded sample, in milliseconds.
    pub fn operator(&self) -> f64 {
        self.used.operator_millis(self.recorded())
    }
}

impl Load {
    /// Sends the load to the loops of this namespace, and watches the results. Also returns the cores that the API
    /// server used at rest beforehand.
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

/// Times to the decisions, once all samples are decided or the last ones are overdue.
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
