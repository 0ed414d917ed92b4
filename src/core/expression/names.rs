//! Names that an expression on a node may use, and their values.
//!
//! Owns the vocabulary and the reading of a [`NodeView`]. Must not depend on operators or syntax.

use super::kind::Kind;
use super::metric::{MetricField, MetricView};
use cel::common::types::{CelBool, CelDouble, CelInt, CelString};
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use ganglion_api::node_config::status::NodeValue;
use k8s_openapi::api::core::v1::Taint;
use std::collections::BTreeMap;
use strsim::levenshtein;

/// Label that `node.zone` reads.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Functions with their usage.
pub(super) const FUNCTIONS: [(&str, &str); 6] = [
    ("int", "int(value), of a number or a string"),
    ("double", "double(value), of a number or a string"),
    ("has", "has(node.labels.key)"),
    ("startsWith", "node.name.startsWith(\"text\")"),
    ("endsWith", "node.name.endsWith(\"text\")"),
    ("contains", "node.name.contains(\"text\")"),
];

/// Values of a node that an expression may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeView<'a> {
    /// `node.name`.
    pub name: &'a str,
    /// `node.labels["key"]`, and `node.zone`, which is the label [`ZONE_LABEL`].
    pub labels: &'a BTreeMap<String, String>,
    /// `node.taints["key"]`.
    pub taints: &'a [Taint],
    /// `node.ready`.
    pub ready: bool,
    /// `node.schedulable`: not cordoned.
    pub schedulable: bool,
    /// `node.pods`, `node.arriving` and `node.podCapacity`.
    pub pods: PodsView,
    /// `node.cpu`, in millicores.
    pub cpu: ResourceView,
    /// `node.memory`, in bytes.
    pub memory: ResourceView,
    pub measured: MeasuredView,
}

/// Measured values of a node; each may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredView {
    /// `node.cpu.utilization` and `node.memory.utilization`, from 0 to 1.
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
    /// `node.power`, in watts.
    pub power: Option<f64>,
    /// `node.inletTemperature`, in degrees Celsius.
    pub inlet_temperature: Option<f64>,
    /// `node.differentialPressure`, in pascals.
    pub differential_pressure: Option<f64>,
}

/// Pods of a node and its capacity for pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodsView {
    /// Pods on the node, and replicas that actions are moving to it.
    pub count: i64,
    /// Replicas that actions are moving to the node; included in `count`.
    pub arriving: i64,
    /// Maximum number of pods.
    pub capacity: i64,
}

/// A resource of a node: millicores of CPU, bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceView {
    /// Allocatable amount.
    pub allocatable: i64,
    /// Sum of the requests of the node's pods.
    pub requested: i64,
}

impl ResourceView {
    /// Requested over allocatable; 1.0 if nothing is allocatable, so that such a node looks full.
    pub fn requested_share(&self) -> f64 {
        if self.allocatable <= 0 {
            return 1.0;
        }
        self.requested as f64 / self.allocatable as f64
    }
}

/// A name that has a value for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Ready,
    Schedulable,
    Pods,
    Arriving,
    PodCapacity,
    CpuAllocatable,
    CpuRequested,
    CpuRequestedShare,
    MemoryAllocatable,
    MemoryRequested,
    MemoryRequestedShare,
    Measured(Measure),
}

/// A name that has a value only for some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    CpuUtilization,
    MemoryUtilization,
    Power,
    InletTemperature,
    DifferentialPressure,
}

/// A map of node values, whose keys a node may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeMap {
    Labels,
    Taints,
}

/// A value that an expression reads from its node or metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    Field(Field),
    /// Value of a label or taint.
    Entry(NodeMap, String),
    /// Whether the node has the label or taint.
    HasEntry(NodeMap, String),
    /// Whether the measured value of the node is available.
    HasValue(Measure),
    /// Value of a metric.
    Metric(MetricField),
}

/// Subject of an expression: nodes or metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vocabulary {
    Node,
    Metric,
}

/// Node or metric that an expression is evaluated for.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Node(&'a NodeView<'a>),
    Metric(&'a MetricView<'a>),
}

const FIELDS: [(&str, Field); 17] = [
    ("node.name", Field::Name),
    ("node.ready", Field::Ready),
    ("node.schedulable", Field::Schedulable),
    ("node.pods", Field::Pods),
    ("node.arriving", Field::Arriving),
    ("node.podCapacity", Field::PodCapacity),
    ("node.cpu.allocatable", Field::CpuAllocatable),
    ("node.cpu.requested", Field::CpuRequested),
    ("node.cpu.requestedShare", Field::CpuRequestedShare),
    ("node.memory.allocatable", Field::MemoryAllocatable),
    ("node.memory.requested", Field::MemoryRequested),
    ("node.memory.requestedShare", Field::MemoryRequestedShare),
    ("node.cpu.utilization", Field::Measured(Measure::CpuUtilization)),
    ("node.memory.utilization", Field::Measured(Measure::MemoryUtilization)),
    ("node.power", Field::Measured(Measure::Power)),
    ("node.inletTemperature", Field::Measured(Measure::InletTemperature)),
    ("node.differentialPressure", Field::Measured(Measure::DifferentialPressure)),
];

/// Name that reads the zone label.
const ZONE: &str = "node.zone";
const LABEL_EXAMPLES: [&str; 2] = ["node.labels[\"key\"]", "node.taints[\"key\"]"];

impl NodeMap {
    /// The map with this path (`node.labels` or `node.taints`).
    pub(super) fn named(path: &str) -> Option<Self> {
        [Self::Labels, Self::Taints].into_iter().find(|map| map.path() == path)
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Labels => "node.labels",
            Self::Taints => "node.taints",
        }
    }

    fn get<'b>(self, node: &NodeView<'b>, key: &str) -> Option<&'b str> {
        match self {
            Self::Labels => node.labels.get(key).map(String::as_str),
            Self::Taints => {
                let taint = node.taints.iter().find(|taint| taint.key == key)?;
                Some(taint.value.as_deref().unwrap_or_default())
            }
        }
    }
}

impl Leaf {
    /// The leaf with this path, such as `node.pods`, `node.zone`, `node.labels.disk` or `metric.value`.
    pub(super) fn named(vocabulary: Vocabulary, path: &str) -> Option<Self> {
        match vocabulary {
            Vocabulary::Metric => return MetricField::named(path).map(Self::Metric),
            Vocabulary::Node => {}
        }
        if let Some((map, key)) = entry_of(path) {
            return Some(Self::Entry(map, key.to_owned()));
        }
        FIELDS.iter().find(|(name, _)| *name == path).map(|(_, field)| Self::Field(*field))
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Entry(..) => Kind::Text,
            Self::HasEntry(..) | Self::HasValue(_) => Kind::Bool,
            Self::Field(field) => field.kind(),
            Self::Metric(field) => field.kind(),
        }
    }

    /// Whether the value changes when pods are added to the node or removed.
    pub(super) fn is_of_pods(&self) -> bool {
        match self {
            Self::Field(field) => match field {
                Field::Pods
                | Field::Arriving
                | Field::CpuRequested
                | Field::CpuRequestedShare
                | Field::MemoryRequested
                | Field::MemoryRequestedShare => true,
                Field::Name
                | Field::Ready
                | Field::Schedulable
                | Field::PodCapacity
                | Field::CpuAllocatable
                | Field::MemoryAllocatable
                | Field::Measured(_) => false,
            },
            Self::Entry(..) | Self::HasEntry(..) | Self::HasValue(_) | Self::Metric(_) => false,
        }
    }

    /// The value that the leaf reads or tests for, if it follows the pods of the node within seconds. Temperature and
    /// pressure take minutes.
    pub(super) fn load_value(&self) -> Option<NodeValue> {
        let (Self::Field(Field::Measured(measure)) | Self::HasValue(measure)) = self else { return None };
        match measure {
            Measure::CpuUtilization => Some(NodeValue::Cpu),
            Measure::MemoryUtilization => Some(NodeValue::Memory),
            Measure::Power => Some(NodeValue::Power),
            Measure::InletTemperature | Measure::DifferentialPressure => None,
        }
    }

    /// The usage that the leaf reads or tests for.
    pub(super) fn usage(&self) -> Option<Measure> {
        let (Self::Field(Field::Measured(measure)) | Self::HasValue(measure)) = self else { return None };
        match measure {
            Measure::CpuUtilization | Measure::MemoryUtilization => Some(*measure),
            Measure::Power | Measure::InletTemperature | Measure::DifferentialPressure => None,
        }
    }

    /// The value for the subject; None if the node does not have it.
    fn read<'b>(&self, subject: Subject<'b>) -> Option<CowVal<'b, 'b>> {
        match (self, subject) {
            (Self::Metric(field), Subject::Metric(metric)) => Some(field.read(metric)),
            (Self::Field(field), Subject::Node(node)) => field.read(node),
            (Self::HasValue(measure), Subject::Node(node)) => {
                Some(CowVal::owned(CelBool::from(measure.of(node).is_some())))
            }
            (Self::Entry(map, key), Subject::Node(node)) => Some(CowVal::owned(CelString::from(map.get(node, key)?))),
            (Self::HasEntry(map, key), Subject::Node(node)) => {
                Some(CowVal::owned(CelBool::from(map.get(node, key).is_some())))
            }
            (Self::Metric(_), Subject::Node(_))
            | (Self::Field(_) | Self::Entry(..) | Self::HasEntry(..) | Self::HasValue(_), Subject::Metric(_)) => None,
        }
    }
}

impl Field {
    fn kind(self) -> Kind {
        match self {
            Self::Name => Kind::Text,
            Self::Ready | Self::Schedulable => Kind::Bool,
            Self::Pods
            | Self::Arriving
            | Self::PodCapacity
            | Self::CpuAllocatable
            | Self::CpuRequested
            | Self::MemoryAllocatable
            | Self::MemoryRequested => Kind::Int,
            Self::CpuRequestedShare | Self::MemoryRequestedShare | Self::Measured(_) => Kind::Double,
        }
    }

    fn read<'b>(self, node: &NodeView<'b>) -> Option<CowVal<'b, 'b>> {
        // Always int, never uint: `node.pods + 1` has no overload for the mixture.
        let int = |value: i64| CowVal::owned(CelInt::from(value));
        Some(match self {
            Self::Name => CowVal::owned(CelString::from(node.name)),
            Self::Ready => CowVal::owned(CelBool::from(node.ready)),
            Self::Schedulable => CowVal::owned(CelBool::from(node.schedulable)),
            Self::Pods => int(node.pods.count),
            Self::Arriving => int(node.pods.arriving),
            Self::PodCapacity => int(node.pods.capacity),
            Self::CpuAllocatable => int(node.cpu.allocatable),
            Self::CpuRequested => int(node.cpu.requested),
            Self::CpuRequestedShare => CowVal::owned(CelDouble::from(node.cpu.requested_share())),
            Self::MemoryAllocatable => int(node.memory.allocatable),
            Self::MemoryRequested => int(node.memory.requested),
            Self::MemoryRequestedShare => CowVal::owned(CelDouble::from(node.memory.requested_share())),
            Self::Measured(measure) => CowVal::owned(CelDouble::from(measure.of(node)?)),
        })
    }
}

impl Measure {
    fn of(self, node: &NodeView<'_>) -> Option<f64> {
        let measured = node.measured;
        match self {
            Self::CpuUtilization => measured.cpu,
            Self::MemoryUtilization => measured.memory,
            Self::Power => measured.power,
            Self::InletTemperature => measured.inlet_temperature,
            Self::DifferentialPressure => measured.differential_pressure,
        }
    }

    /// Name for messages.
    pub(super) fn name(self) -> &'static str {
        let mut named = FIELDS.iter().filter(|(_, field)| *field == Field::Measured(self));
        named.next().map_or("", |(name, _)| name)
    }
}

/// The label or taint that `path` reads, if it reads one.
pub(super) fn entry_of(path: &str) -> Option<(NodeMap, &str)> {
    if path == ZONE {
        return Some((NodeMap::Labels, ZONE_LABEL));
    }
    let (map, key) = path.rsplit_once('.')?;
    Some((NodeMap::named(map)?, key))
}

/// Values of an expression's leaves for one subject. The tree refers to leaves by number.
pub(super) struct Bound<'a> {
    pub(super) leaves: &'a [Leaf],
    pub(super) subject: Subject<'a>,
    /// Whether [`Leaf::load_value`]s count as unknown, and whether they are available, too.
    pub(super) without_load: bool,
}

impl VariableResolver for Bound<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let leaf = leaf(self.leaves, variable)?;
        if self.without_load && leaf.load_value().is_some() { None } else { leaf.read(self.subject) }
    }
}

/// The leaf that the tree calls `variable`.
pub(super) fn leaf<'a>(leaves: &'a [Leaf], variable: &str) -> Option<&'a Leaf> {
    leaves.get(variable.parse::<usize>().ok()?)
}

/// All names, for messages.
pub(super) fn known_names() -> String {
    let mut names: Vec<&str> = all_names().collect();
    names.extend(LABEL_EXAMPLES);
    names.join(", ")
}

/// All functions, for messages.
pub(super) fn known_functions() -> String {
    FUNCTIONS.map(|(name, _)| name).join(", ")
}

/// The known name that is most similar to `name`, if it is close enough.
pub(super) fn suggestion(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let full = format!("node.{name}");
    let distance = |known: &str| levenshtein(known, &name).min(levenshtein(known, &full));
    all_names()
        .map(|known| (distance(&known.to_lowercase()), known))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, known)| *distance * 4 <= known.len())
        .map(|(_, known)| known)
}

fn all_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name).chain([ZONE])
}
