//! Recorded workloads: pods with their requests, arrivals, lifetimes and CPU usage over time.
//!
//! A trace is a directory with two or three files, described in `hack/bench.d/WORTH.md`. Owns the format and its
//! checks; knows no cluster.

mod read;
mod write;

use std::collections::BTreeMap;

pub use read::{TraceError, open};

/// A recorded workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkTrace {
    /// In the order of their arrival.
    pub pods: Vec<WorkPod>,
    /// CPU that pools of services wanted before the trace, by pool: what a forecast learns from. Times are below 0.
    pub history: BTreeMap<String, Vec<HistoryPoint>>,
}

/// CPU that a pool wanted at some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryPoint {
    /// Seconds from the begin of the trace, below 0.
    pub time: f64,
    pub cores: f64,
}

/// Behavior of a pod if it gets less CPU than it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Serves requests until its lifetime is over. CPU that is missing is lost. Pods of a pool are replicas of each
    /// other, so an autoscaler may change their number.
    Service,
    /// Ends once it has done its work. CPU that is missing delays its end.
    Job,
}

/// A pod of a trace. Times are in seconds from the begin of the trace.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkPod {
    pub name: String,
    pub pool: String,
    pub kind: WorkKind,
    pub arrival: f64,
    /// Running time in seconds if the pod gets all the CPU that it wants.
    pub lifetime: f64,
    /// Requested CPU in cores.
    pub cpu: f64,
    /// Requested memory in GiB.
    pub memory: f64,
    pub usage: UsageSeries,
}

/// Value of CPU usage from some time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsagePoint {
    /// Seconds since the start of the pod.
    pub offset: f64,
    pub cores: f64,
}

/// CPU that a pod wants over its lifetime: each point counts until the next one. The first has offset 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageSeries(Vec<UsagePoint>);

impl UsageSeries {
    /// Series of these points; their offsets must rise from 0.
    pub fn new(points: Vec<UsagePoint>) -> Self {
        Self(points)
    }

    /// Series with one value.
    pub fn constant(cores: f64) -> Self {
        Self(vec![UsagePoint { offset: 0.0, cores }])
    }

    pub fn points(&self) -> &[UsagePoint] {
        &self.0
    }

    /// Wanted cores at this time since the start.
    pub fn at(&self, offset: f64) -> f64 {
        let after = self.0.partition_point(|point| point.offset <= offset);
        self.0.get(after.saturating_sub(1)).map_or(0.0, |point| point.cores)
    }

    /// CPU in core seconds of a pod with this lifetime.
    pub fn work(&self, lifetime: f64) -> f64 {
        let ends = self.0.iter().skip(1).map(|point| point.offset).chain([lifetime]);
        self.0.iter().zip(ends).map(|(point, end)| point.cores * (end.min(lifetime) - point.offset).max(0.0)).sum()
    }
}

impl WorkPod {
    /// Time at which the pod ends if it starts on arrival and is never throttled.
    pub fn ends(&self) -> f64 {
        self.arrival + self.lifetime
    }
}

impl WorkTrace {
    /// Trace of these pods, in the order of their arrival.
    pub fn new(mut pods: Vec<WorkPod>) -> Self {
        pods.sort_by(|one, other| one.arrival.total_cmp(&other.arrival));
        Self { pods, history: BTreeMap::new() }
    }

    /// End of the last pod, in seconds.
    pub fn duration(&self) -> f64 {
        self.pods.iter().map(WorkPod::ends).fold(0.0, f64::max)
    }

    /// CPU in core seconds that all pods want.
    pub fn work(&self) -> f64 {
        self.pods.iter().map(|pod| pod.usage.work(pod.lifetime)).sum()
    }

    /// Pools by name, each with the indexes of its pods.
    pub fn pools(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut pools = BTreeMap::<&str, Vec<usize>>::new();
        for (index, pod) in self.pods.iter().enumerate() {
            pools.entry(&pod.pool).or_default().push(index);
        }
        pools
    }
}

#[cfg(test)]
mod tests;
