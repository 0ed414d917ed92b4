//! Preflight: checks in advance whether a loop could act: its target, and the permissions of its account.
//!
//! Owns the list of permissions that a rung needs, and the text of the verdict. Must not know how the target is read.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::common::HEARTBEAT;
use crate::rung;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{ClosedLoopSpec, TargetRef};
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::facts::Uid;

/// Type of the condition.
const CONDITION: &str = "Preflight";

/// Delay after the first failed check. It doubles with each further failure, up to the heartbeat. Objects that are
/// applied together exist within seconds.
pub const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// Maximum delay while there is no verdict.
const PAUSE_WITHOUT_VERDICT: SignedDuration = SignedDuration::from_secs(10);

/// Verdict on a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preflight {
    /// No verdict yet. The text is the reason if a check was tried.
    Pending(Option<String>),
    /// Every rung could be carried out.
    Passed,
    /// A rung could not be carried out.
    Failed(LoopReason, String),
}

impl Preflight {
    /// Returns the verdict in the loop's status, if it was made for this generation of the spec.
    pub fn stored(conditions: &[Condition], generation: i64) -> Self {
        let stored = conditions.iter().find(|one| one.type_ == CONDITION);
        match stored.filter(|one| one.observed_generation == Some(generation)) {
            None => Self::Pending(None),
            Some(stored) if stored.status == "True" => Self::Passed,
            Some(stored) => Self::Failed(LoopReason::of(&stored.reason), stored.message.clone()),
        }
    }

    /// Returns the condition of the loop; None before the first verdict.
    pub fn condition(&self, old: &[Condition], stamp: Stamp) -> Option<Condition> {
        let (status, reason, message) = match self {
            Self::Pending(_) => return None,
            Self::Passed => ("True", LoopReason::Passed, "the target and the rights of the account allow every action"),
            Self::Failed(reason, message) => ("False", *reason, message.as_str()),
        };
        Some(conditions::condition(old, CONDITION, status, reason.as_str(), message, stamp))
    }

    /// Returns the delay until the next check, after this many consecutive checks that did not pass.
    pub fn pause(&self, failures: u32) -> SignedDuration {
        let most = match self {
            Self::Pending(_) => PAUSE_WITHOUT_VERDICT,
            Self::Passed | Self::Failed(..) => HEARTBEAT,
        };
        let Some(doublings) = failures.checked_sub(1) else { return most };
        FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(most)
    }
}

/// Parts of a loop that the verdict depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct PreflightQuestion {
    pub uid: Uid,
    pub target: TargetRef,
    pub account: Option<String>,
    pub rungs: Vec<PlacedRung>,
}

/// Rung of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedRung {
    pub rung: Rung,
    /// Position in the spec, such as `rung 1 on Low cpu (scale by 1, at most 9)`.
    pub place: String,
}

impl PreflightQuestion {
    pub fn new(uid: Uid, spec: &ClosedLoopSpec) -> Self {
        let placed = spec.actions.iter().flatten().flat_map(|action| {
            action.ladder.iter().enumerate().map(|(index, rung)| PlacedRung {
                rung: rung.clone(),
                place: rung::place(rung, index, action.when.side, &action.when.metric),
            })
        });
        let (target, account) = (spec.target.clone(), spec.service_account_name.clone());
        Self { uid, target, account, rungs: placed.collect() }
    }
}

impl PlacedRung {
    /// Returns the verdict that this rung could not be carried out.
    pub fn fails(&self, reason: LoopReason, problem: &str) -> Preflight {
        Preflight::Failed(reason, format!("{}: {problem}", self.place))
    }
}

/// Permission in the loop's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRight {
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    pub subresource: Option<&'static str>,
    /// Name of one object; None for all objects.
    pub name: Option<String>,
}

impl AccessRight {
    /// Returns the message of the API server for a missing permission.
    pub fn refusal(&self, namespace: &str, account: &str) -> String {
        let Self { verb, group, resource, subresource, .. } = self;
        let part = subresource.map(|part| format!("/{part}")).unwrap_or_default();
        format!(
            "User \"system:serviceaccount:{namespace}:{account}\" cannot {verb} resource \"{resource}{part}\" in API group \
             \"{group}\" in the namespace \"{namespace}\""
        )
    }
}

/// API resource of a target's kind.
#[derive(Clone, Copy, Debug)]
pub struct TargetResource<'a> {
    /// Plural name.
    pub plural: &'a str,
    /// Whether reading the replicas needs the scale subresource.
    pub reads_scale: bool,
}

/// Whether the account needs permissions for the rung. Tuning and events are requests of the operator itself.
pub fn needs_rights(rung: &Rung) -> bool {
    rung.tune.is_none() && rung.webhook.is_none()
}

/// Returns the permissions that the account needs for the rung.
pub fn rights(rung: &Rung, target: &TargetRef, kind: TargetResource) -> Vec<AccessRight> {
    let group = target.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let right = |verb, group: &str, resource: &str, subresource, name: Option<&str>| AccessRight {
        verb,
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource,
        name: name.map(str::to_owned),
    };
    let of_target = |verb, subresource| right(verb, group, kind.plural, subresource, Some(&target.name));
    match rung {
        Rung { scale: Some(_), .. } => {
            let reads = kind.reads_scale.then(|| of_target("get", Some("scale")));
            [of_target("get", None), of_target("patch", Some("scale"))].into_iter().chain(reads).collect()
        }
        Rung { resize: Some(resize), .. } => {
            let pods = [right("list", "", "pods", None, None), right("patch", "", "pods", Some("resize"), None)];
            let template = (resize.template == Some(true)).then(|| of_target("patch", None));
            let usage = rung::lowers_memory_limits(rung).then(|| right("list", "metrics.k8s.io", "pods", None, None));
            [of_target("get", None)].into_iter().chain(pods).chain(template).chain(usage).collect()
        }
        Rung { patch: Some(_), .. } => vec![of_target("get", None), of_target("patch", None)],
        Rung { workload_action: Some(template), .. } => {
            let own = right("create", "ganglion.dev", "workloadactions", None, None);
            // The admission policy requires them of the author of an action.
            let evicts = right("create", "", "pods", Some("eviction"), None);
            let scales = template.move_.is_none().then(|| of_target("patch", Some("scale")));
            [own, evicts].into_iter().chain(scales).collect()
        }
        _ => Vec::new(),
    }
}
