//! A situation in which both are compared: rules, and what each step finds.

use jiff::SignedDuration;

/// Rules of a situation.
#[derive(Clone, Debug)]
pub struct CaseRules {
    pub min: i32,
    pub max: i32,
    /// None: no `behavior`.
    pub behavior: Option<CaseBehavior>,
    pub metrics: Vec<CaseMetric>,
    /// Whether the target was scaled to 0 by the autoscaler before the first step.
    pub own_zero: bool,
}

#[derive(Clone, Debug, Default)]
pub struct CaseBehavior {
    pub up: Option<CaseDirection>,
    pub down: Option<CaseDirection>,
}

/// Rules of a direction; None: the default.
#[derive(Clone, Debug, Default)]
pub struct CaseDirection {
    pub window: Option<i64>,
    pub policies: Option<Vec<CasePolicy>>,
    pub select: Option<&'static str>,
    /// A quantity.
    pub tolerance: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub struct CasePolicy {
    pub is_percent: bool,
    pub value: u32,
    pub period: i64,
}

#[derive(Clone, Debug)]
pub struct CaseMetric {
    pub name: String,
    pub kind: CaseKind,
    /// Percent for a utilization, otherwise billionths.
    pub target: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseKind {
    CpuUtilization,
    ContainerUtilization,
    CpuAverage,
    MemoryUtilization,
    PodsAverage,
    ObjectValue,
    ObjectAverage,
    ExternalValue,
    ExternalAverage,
}

impl CaseKind {
    pub fn is_of_pods(self) -> bool {
        use CaseKind as K;
        matches!(
            self,
            K::CpuUtilization | K::ContainerUtilization | K::CpuAverage | K::MemoryUtilization | K::PodsAverage
        )
    }

    /// Whether the pods matter, if only their number.
    pub fn needs_pods(self) -> bool {
        self.is_of_pods() || matches!(self, Self::ObjectValue | Self::ExternalValue)
    }

    pub fn is_utilization(self) -> bool {
        matches!(self, Self::CpuUtilization | Self::ContainerUtilization | Self::MemoryUtilization)
    }

    pub fn is_cpu(self) -> bool {
        matches!(self, Self::CpuUtilization | Self::ContainerUtilization | Self::CpuAverage)
    }

    /// Whether samples come from metrics.k8s.io.
    pub fn is_usage(self) -> bool {
        self.is_cpu() || self == Self::MemoryUtilization
    }
}

/// Input of a step. Times are milliseconds since 1970.
#[derive(Clone, Debug)]
pub struct CaseStep {
    pub time: i64,
    pub replicas: i32,
    pub status_replicas: i32,
    pub pods: Vec<CasePod>,
    /// Whether metrics.k8s.io does not answer.
    pub usage_fails: bool,
    /// Total of each metric that has one, in billionths; None if its API does not answer. For samples of pods: whether
    /// it answers.
    pub totals: Vec<Option<i64>>,
}

#[derive(Clone, Debug)]
pub struct CasePod {
    pub name: String,
    pub phase: &'static str,
    pub is_deleting: bool,
    /// Not owned by the target.
    pub is_foreign: bool,
    pub started: i64,
    /// Status of the condition Ready, and its last transition.
    pub ready: Option<(&'static str, i64)>,
    /// Containers app and proxy.
    pub containers: [CaseContainer; 2],
    /// Samples for metrics.k8s.io and for the custom API; None: missing.
    pub sampled: Option<i64>,
    /// Values of custom metrics, by the position of the metric, in billionths.
    pub values: Vec<Option<i64>>,
}

/// Usage and requests of a container, in billionths.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaseContainer {
    pub cpu: i64,
    pub memory: i64,
    pub cpu_request: Option<i64>,
    pub memory_request: i64,
    /// Allocated while a resize is pending.
    pub cpu_allocated: Option<i64>,
}

/// Window of samples.
pub const SAMPLE_WINDOW: SignedDuration = SignedDuration::from_secs(15);

pub const NANOS: i64 = 1_000_000_000;
