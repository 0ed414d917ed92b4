//! Conflicts on a target: the later of two loops does not act, and no loop acts on the target of an autoscaler.
//!
//! An autoscaler does not read our conditions. Even if it was created later, it would act, and both would change the
//! same number. So the loop stops, regardless of which was first.

use jiff::Timestamp;

use crate::rung;
use ganglion_api::closed_loop::{ClosedLoopSpec, LoopMode, TargetRef};
use ganglion_core::facts::{AutoscalerFact, AutoscalerKind, Controls, Uid};

/// Something that acts on a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    pub kind: ClaimantKind,
    pub name: String,
    pub uid: Uid,
    pub created: Timestamp,
    /// The target.
    pub target: TargetRef,
    /// Dimensions that it changes, such as `replicas` or `app/memory`; see [`rung::dimension`].
    pub dimensions: Vec<String>,
    /// Bounds to which it returns the number of replicas, if that is all that it does.
    pub keeps: Option<(i32, i32)>,
}

/// Kind of a claimant.
// Conflicts are reported in this order: a ScaledObject before the HorizontalPodAutoscaler that it creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClaimantKind {
    ScaledObject,
    HorizontalPodAutoscaler,
    VerticalPodAutoscaler,
    ClosedLoop,
}

impl ClaimantKind {
    /// Name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Self::ScaledObject => "ScaledObject",
            Self::VerticalPodAutoscaler => "VerticalPodAutoscaler",
            Self::ClosedLoop => "ClosedLoop",
        }
    }

    /// Whether it acts without reading our conditions.
    pub fn is_autoscaler(self) -> bool {
        match self {
            Self::HorizontalPodAutoscaler | Self::ScaledObject | Self::VerticalPodAutoscaler => true,
            Self::ClosedLoop => false,
        }
    }
}

impl From<AutoscalerKind> for ClaimantKind {
    fn from(kind: AutoscalerKind) -> Self {
        match kind {
            AutoscalerKind::ScaledObject => Self::ScaledObject,
            AutoscalerKind::HorizontalPodAutoscaler => Self::HorizontalPodAutoscaler,
            AutoscalerKind::VerticalPodAutoscaler => Self::VerticalPodAutoscaler,
        }
    }
}

impl Claimant {
    /// Returns an autoscaler as a claimant of those of the dimensions of a loop that it controls. If it only keeps the
    /// number of replicas within bounds, and the loop stays within them (`range`), it controls no replicas.
    pub fn autoscaler(fact: &AutoscalerFact, dimensions: &[String], range: Option<ReplicaRange>) -> Self {
        let keeps = match fact.controls {
            Controls::ReplicasOutside { min, max } => Some((min, max)),
            Controls::Nothing | Controls::Replicas | Controls::Resources(_) => None,
        };
        let is_harmless = keeps.zip(range).is_some_and(|(bounds, range)| range.is_within(bounds));
        let holds = |one: &&String| holds(&fact.controls, one) && !(is_harmless && *one == "replicas");
        Self {
            kind: fact.kind.into(),
            name: fact.id.key.name.clone(),
            uid: fact.id.uid.clone(),
            // The age of an autoscaler does not matter.
            created: Timestamp::UNIX_EPOCH,
            target: fact.target.clone(),
            dimensions: dimensions.iter().filter(holds).cloned().collect(),
            keeps,
        }
    }
}

/// Whether an autoscaler writes this dimension, or a part of it.
fn holds(controls: &Controls, dimension: &str) -> bool {
    let has_resource =
        |resource: &&str| rung::contains_resource(dimension, "*", resource) && controls.holds_any(resource);
    controls.holds(dimension) || ["cpu", "memory"].iter().any(has_resource)
}

/// Reason why a loop may not act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub with: ClaimantKind,
    pub name: String,
    pub dimension: String,
    /// Bounds to which the other one returns the number of replicas, if that is all that it does.
    pub keeps: Option<(i32, i32)>,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { with, name, dimension, keeps } = self;
        if let Some((min, max)) = keeps {
            return write!(
                f,
                "{} {name} is switched off, but returns the number of replicas to {min} to {max}: set min and max of this \
                 loop within these bounds, or remove it",
                with.as_str()
            );
        }
        write!(f, "{} {name} acts on {dimension} of the same target: remove it, or this loop's rung", with.as_str())
    }
}

/// Returns the dimensions that a loop changes; none if it does not act. `replicas_path`: path of the number of replicas
/// in its target, if it is known.
pub fn dimensions(spec: &ClosedLoopSpec, replicas_path: Option<&str>) -> Vec<String> {
    match spec.mode {
        LoopMode::DryRun | LoopMode::Paused => return Vec::new(),
        LoopMode::Auto | LoopMode::Approve => {}
    }
    let rungs = spec.actions.iter().flatten().flat_map(|action| &action.ladder);
    // Events conflict with nothing.
    let rungs = rungs.filter(|rung| rung.webhook.is_none());
    let changed = |rung| {
        let dimension = rung::dimension_on(rung, replicas_path);
        let with_replicas = contains(&dimension, replicas_path.unwrap_or(rung::REPLICAS_PATH));
        [dimension].into_iter().chain(with_replicas.then(|| "replicas".to_owned()))
    };
    let mut all: Vec<String> = rungs.flat_map(changed).collect();
    all.sort();
    all.dedup();
    all
}

/// Numbers of replicas that a loop sets. None: not bounded, or not changed in this direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaRange {
    pub min: Option<i32>,
    pub max: Option<i32>,
}

impl ReplicaRange {
    /// Returns the range of all rungs together. None: a rung changes the replicas in another way than by scale.
    pub fn of(spec: &ClosedLoopSpec, replicas_path: Option<&str>) -> Option<Self> {
        let mut range = Self::default();
        for rung in spec.actions.iter().flatten().flat_map(|action| &action.ladder) {
            let Some(scale) = &rung.scale else {
                let dimension = rung::dimension_on(rung, replicas_path);
                let path = replicas_path.unwrap_or(rung::REPLICAS_PATH);
                if rung.webhook.is_none() && (overlap(&dimension, "replicas") || overlap(&dimension, path)) {
                    return None;
                }
                continue;
            };
            let min = scale.min.or(scale.is_tracking().then_some(1));
            let entries = || scale.schedule.iter().flatten().flat_map(|entry| [entry.min, entry.max, entry.to]);
            let numbers = [min, scale.max, scale.to].into_iter().chain(entries()).flatten();
            for number in numbers {
                let is_lowest = scale.by.is_none_or(|by| by < 0) && range.min.is_none_or(|min| number < min);
                let is_highest = scale.by.is_none_or(|by| by > 0) && range.max.is_none_or(|max| number > max);
                range.min = if is_lowest { Some(number) } else { range.min };
                range.max = if is_highest { Some(number) } else { range.max };
            }
        }
        Some(range)
    }

    /// Whether a number of this range is within these bounds.
    pub fn is_within(self, (min, max): (i32, i32)) -> bool {
        self.min.is_none_or(|number| number >= min) && self.max.is_none_or(|number| number <= max)
    }
}

/// Returns the first claimant with precedence over this loop on the same dimension of the same target.
pub fn find(me: &Claimant, others: &[Claimant]) -> Option<Conflict> {
    let mut before: Vec<&Claimant> = others
        .iter()
        .filter(|other| other.uid != me.uid && same_target(&me.target, &other.target) && precedes(other, me))
        .collect();
    before.sort_by_key(|other| order(other));
    before.into_iter().find_map(|other| {
        let overlaps = |mine: &&String| other.dimensions.iter().any(|theirs| overlap(mine, theirs));
        let dimension = me.dimensions.iter().find(overlaps)?;
        let (name, dimension) = (other.name.clone(), dimension.clone());
        Some(Conflict { with: other.kind, name, dimension, keeps: other.keeps })
    })
}

/// Whether both are the same dimension, or one is a part of the other.
fn overlap(one: &str, other: &str) -> bool {
    one == other || contains(one, other) || contains(other, one)
}

/// Whether the outer one is a path, and the inner one a path within it, or a resource of a container within it.
fn contains(outer: &str, inner: &str) -> bool {
    let is_path = inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
    let resource = inner.split_once('/').filter(|(container, _)| !container.contains('.'));
    is_path || resource.is_some_and(|(part, resource)| rung::contains_resource(outer, part, resource))
}

fn order(claimant: &Claimant) -> (ClaimantKind, Timestamp, &str, &Uid) {
    (claimant.kind, claimant.created, &claimant.name, &claimant.uid)
}

fn precedes(other: &Claimant, me: &Claimant) -> bool {
    other.kind.is_autoscaler() || (other.created, &other.name, &other.uid) < (me.created, &me.name, &me.uid)
}

/// Whether both are the same object, in any version of its API group.
fn same_target(a: &TargetRef, b: &TargetRef) -> bool {
    let group =
        |target: &TargetRef| target.api_version.rsplit_once('/').map_or(String::new(), |(group, _)| group.into());
    group(a) == group(b) && a.kind == b.kind && a.name == b.name
}
