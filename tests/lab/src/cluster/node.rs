//! A node of the simulated cluster.

use std::collections::VecDeque;

use crate::fleet::{FleetServer, GIB_PER_THREAD};

/// Usage from which on a node counts as overloaded, relative to its threads.
pub const OVERLOAD: f64 = 0.9;

/// Steps over which usage is averaged: a quarter of an hour.
const WINDOW: usize = 60;

/// Steps of a minute.
const MINUTE: usize = 4;

/// Time in seconds for which the pods that were bound are remembered.
const REMEMBERED: i64 = 600;

/// Mean and standard deviation of the cores in use.
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
    /// Cores that its pods wanted and got in the last step.
    pub wanted: f64,
    pub used: f64,
    /// Last published statistics, and the time in seconds at which they were measured; None before the first.
    pub sampled: Option<(i64, UsageStatistics)>,
    /// Pods that were bound lately: time in seconds, and requested cores.
    pub bound: VecDeque<(i64, f64)>,
    /// Cores that were wanted and used in the last steps.
    history: VecDeque<(f64, f64)>,
}

impl LabNode {
    pub fn new(server: FleetServer) -> Self {
        let (bound, history) = Default::default();
        let (requested_cpu, requested_memory, wanted, used) = Default::default();
        let (pods, sampled) = Default::default();
        Self { server, requested_cpu, requested_memory, pods, wanted, used, sampled, bound, history }
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
        let minute: Vec<f64> = self.history.iter().rev().take(MINUTE).map(|(wanted, _)| *wanted).collect();
        minute.iter().sum::<f64>() / (minute.len().max(1) as f64 * self.threads())
    }

    /// Records a step.
    pub(crate) fn record(&mut self, wanted: f64, used: f64) {
        (self.wanted, self.used) = (wanted, used);
        self.history.push_back((wanted, used));
        if self.history.len() > WINDOW {
            self.history.pop_front();
        }
    }

    /// Publishes the statistics of the last steps.
    pub(super) fn sample(&mut self, now: i64) {
        while self.bound.front().is_some_and(|(at, _)| now - at > REMEMBERED) {
            self.bound.pop_front();
        }
        let number = self.history.len() as f64;
        if number > 0.0 {
            let mean = self.history.iter().map(|(_, used)| used).sum::<f64>() / number;
            let variance = self.history.iter().map(|(_, used)| (used - mean).powi(2)).sum::<f64>() / number;
            self.sampled = Some((now, UsageStatistics { mean, deviation: variance.sqrt() }));
        }
    }
}
