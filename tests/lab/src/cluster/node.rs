//! A node of the simulated cluster.

use std::collections::{BTreeMap, VecDeque};

use super::request::PodRequest;
use crate::fleet::{FleetServer, GIB_PER_THREAD};

/// Length of a step in seconds: the interval of a HorizontalPodAutoscaler.
pub const STEP: i64 = 15;

/// Usage from which on a node counts as overloaded, relative to its threads.
pub const OVERLOAD: f64 = 0.9;

/// Steps over which usage is averaged: a quarter of an hour.
const WINDOW: usize = 60;

/// Steps of a minute.
const MINUTE: usize = 4;

/// Time in seconds for which the pods that were bound are remembered.
const REMEMBERED: i64 = 600;

/// Mean and standard deviation of the cores, or of the GiB, in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageStatistics {
    pub mean: f64,
    pub deviation: f64,
}

/// A node.
#[derive(Clone, Debug)]
pub struct LabNode {
    pub server: FleetServer,
    /// Sums of the requests of its pods: cores, and GiB.
    pub requested_cpu: f64,
    pub requested_memory: f64,
    /// Indexes of its pods.
    pub pods: Vec<usize>,
    /// Number of its pods by service.
    replicas: BTreeMap<usize, usize>,
    /// Cores that its pods wanted and got in the last step.
    pub wanted: f64,
    pub used: f64,
    /// Last published statistics, and the time in seconds at which they were measured; None before the first.
    pub sampled: Option<(i64, UsageStatistics)>,
    /// Memory in use, published at the same time: all that is requested.
    pub memory_usage: UsageStatistics,
    /// Pods that were bound lately: time in seconds, and requested cores.
    pub bound: VecDeque<(i64, f64)>,
    /// The last steps.
    history: VecDeque<NodeStep>,
}

/// A step of a node.
#[derive(Clone, Copy, Debug)]
struct NodeStep {
    /// Cores that were wanted and used.
    wanted: f64,
    used: f64,
    /// Memory in use in GiB.
    memory: f64,
}

impl LabNode {
    pub fn new(server: FleetServer) -> Self {
        let (bound, history) = Default::default();
        let (requested_cpu, requested_memory, wanted, used) = Default::default();
        let (pods, replicas, sampled, memory_usage) = Default::default();
        Self {
            server,
            requested_cpu,
            requested_memory,
            pods,
            replicas,
            wanted,
            used,
            sampled,
            memory_usage,
            bound,
            history,
        }
    }

    /// Adds a pod that is bound at this time in seconds.
    pub fn bind(&mut self, pod: &PodRequest, now: i64) {
        self.pods.push(pod.pod);
        self.requested_cpu += pod.cpu;
        self.requested_memory += pod.memory;
        self.bound.push_back((now, pod.cpu));
        if let Some(service) = pod.service {
            *self.replicas.entry(service).or_default() += 1;
        }
    }

    /// Removes one of its pods.
    pub fn release(&mut self, pod: &PodRequest) {
        self.pods.retain(|bound| *bound != pod.pod);
        // Sums of fractions are not exact: an empty node requests nothing.
        self.requested_cpu = if self.pods.is_empty() { 0.0 } else { self.requested_cpu - pod.cpu };
        self.requested_memory = if self.pods.is_empty() { 0.0 } else { self.requested_memory - pod.memory };
        if let Some(replicas) = pod.service.and_then(|service| self.replicas.get_mut(&service)) {
            *replicas -= 1;
        }
    }

    /// Number of its pods that belong to this service.
    pub fn replicas_of(&self, service: usize) -> usize {
        self.replicas.get(&service).copied().unwrap_or(0)
    }

    pub fn threads(&self) -> f64 {
        self.server.model.threads
    }

    /// Size of the memory in GiB.
    pub fn memory(&self) -> f64 {
        self.threads() * GIB_PER_THREAD
    }

    /// Whether requests of this size fit beside the pods of the node. Cores and GiB.
    pub fn fits(&self, cpu: f64, memory: f64) -> bool {
        // Sums of fractions are not exact.
        const TOLERANCE: f64 = 1e-6;
        self.requested_cpu + cpu <= self.threads() + TOLERANCE
            && self.requested_memory + memory <= self.memory() + TOLERANCE
    }

    /// Part of the threads in use.
    pub fn usage(&self) -> f64 {
        self.used / self.threads()
    }

    /// Power in watts at the usage of the last step.
    pub fn watts(&self) -> f64 {
        self.server.model.watts(self.usage())
    }

    /// Cores that were wanted in the last minute, relative to the threads: what a load average shows.
    pub fn load(&self) -> f64 {
        let minute: Vec<f64> = self.history.iter().rev().take(MINUTE).map(|step| step.wanted).collect();
        minute.iter().sum::<f64>() / (minute.len().max(1) as f64 * self.threads())
    }

    /// Records a step.
    pub(crate) fn record(&mut self, wanted: f64, used: f64) {
        (self.wanted, self.used) = (wanted, used);
        self.history.push_back(NodeStep { wanted, used, memory: self.requested_memory });
        if self.history.len() > WINDOW {
            self.history.pop_front();
        }
    }

    /// Publishes the statistics of the last steps.
    pub(super) fn sample(&mut self, now: i64) {
        while self.bound.front().is_some_and(|(at, _)| now - at > REMEMBERED) {
            self.bound.pop_front();
        }
        if !self.history.is_empty() {
            self.sampled = Some((now, self.statistics(|step| step.used)));
            self.memory_usage = self.statistics(|step| step.memory);
        }
    }

    fn statistics(&self, value: fn(&NodeStep) -> f64) -> UsageStatistics {
        let number = self.history.len() as f64;
        let mean = self.history.iter().map(value).sum::<f64>() / number;
        let variance = self.history.iter().map(|step| (value(step) - mean).powi(2)).sum::<f64>() / number;
        UsageStatistics { mean, deviation: variance.sqrt() }
    }
}
