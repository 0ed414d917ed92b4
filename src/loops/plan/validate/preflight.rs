//! Whether a loop could act, found out before it has to: its target, and the rights of its account.
//!
//! Owns which rights a rung needs, and the words of the verdict. Must not know how the target is read.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::common::HEARTBEAT;
use crate::rung;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{ClosedLoopSpec, TargetRef};
use ganglion_core::conditions::{self, Stamp};

/// The type of the condition.
const CONDITION: &str = "Preflight";

/// Pause after the first check that failed; it doubles with each further one, up to the heartbeat. Objects that are applied
/// together exist within seconds.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// Longest pause while there is no verdict.
const PAUSE_WITHOUT_VERDICT: SignedDuration = SignedDuration::from_secs(10);

/// What the check of a loop has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preflight {
    /// No verdict yet; why the check did not succeed, if it was tried.
    Pending(Option<String>),
    /// Every rung could be carried out.
    Passed,
    /// A rung could not be carried out.
    Failed(LoopReason, String),
}

impl Preflight {
    /// The verdict that the loop's status has for this generation of its spec.
    #[must_use]
    pub fn stored(conditions: &[Condition], generation: i64) -> Self {
        let stored = conditions.iter().find(|one| one.type_ == CONDITION);
        match stored.filter(|one| one.observed_generation == Some(generation)) {
            None => Self::Pending(None),
            Some(stored) if stored.status == "True" => Self::Passed,
            Some(stored) => Self::Failed(LoopReason::of(&stored.reason), stored.message.clone()),
        }
    }

    /// The condition of the loop; none before the first verdict.
    #[must_use]
    pub fn condition(&self, old: &[Condition], stamp: Stamp) -> Option<Condition> {
        let (status, reason, message) = match self {
            Self::Pending(_) => return None,
            Self::Passed => ("True", LoopReason::Passed, "the target and the rights of the account allow every action"),
            Self::Failed(reason, message) => ("False", *reason, message.as_str()),
        };
        Some(conditions::condition(old, CONDITION, status, reason.as_str(), message, stamp))
    }

    /// The pause until the next check, after this many checks in a row that did not pass.
    #[must_use]
    pub fn pause(&self, failures: u32) -> SignedDuration {
        let most = match self {
            Self::Pending(_) => PAUSE_WITHOUT_VERDICT,
            Self::Passed | Self::Failed(..) => HEARTBEAT,
        };
        let Some(doublings) = failures.checked_sub(1) else { return most };
        FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(most)
    }
}

/// The parts of a loop that the verdict depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct PreflightQuestion {
    pub uid: String,
    pub target: TargetRef,
    pub account: Option<String>,
    pub rungs: Vec<PlacedRung>,
}

/// A rung of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedRung {
    pub rung: Rung,
    /// Where it stands: `rung 1 on Low cpu (scale by 1, at most 9)`.
    pub place: String,
}

impl PreflightQuestion {
    #[must_use]
    pub fn of(uid: &str, spec: &ClosedLoopSpec) -> Self {
        let placed = spec.actions.iter().flatten().flat_map(|action| {
            action.ladder.iter().enumerate().map(|(index, rung)| PlacedRung {
                rung: rung.clone(),
                place: rung::place(rung, index, action.when.side, &action.when.metric),
            })
        });
        let (target, account) = (spec.target.clone(), spec.service_account_name.clone());
        Self { uid: uid.to_owned(), target, account, rungs: placed.collect() }
    }
}

impl PlacedRung {
    /// The verdict that this rung could not be carried out.
    #[must_use]
    pub fn fails(&self, reason: LoopReason, problem: &str) -> Preflight {
        Preflight::Failed(reason, format!("{}: {problem}", self.place))
    }
}

/// A right in the loop's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRight {
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    pub subresource: Option<&'static str>,
    /// One object; none for all.
    pub name: Option<String>,
}

impl AccessRight {
    /// The API server's words where the right is missing.
    #[must_use]
    pub fn refusal(&self, namespace: &str, account: &str) -> String {
        let Self { verb, group, resource, subresource, .. } = self;
        let part = subresource.map(|part| format!("/{part}")).unwrap_or_default();
        format!(
            "User \"system:serviceaccount:{namespace}:{account}\" cannot {verb} resource \"{resource}{part}\" in API group \
             \"{group}\" in the namespace \"{namespace}\""
        )
    }
}

/// How the API server serves the kind of a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetResource<'a> {
    /// The plural.
    pub plural: &'a str,
    /// Reading the replicas takes its scale subresource.
    pub reads_scale: bool,
}

/// Whether the account needs rights for the rung: tuning and events are the operator's own requests.
#[must_use]
pub fn needs_rights(rung: &Rung) -> bool {
    rung.tune.is_none() && rung.webhook.is_none()
}

/// The rights that the account needs for the rung.
#[must_use]
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
            [of_target("get", None)].into_iter().chain(pods).chain(template).collect()
        }
        Rung { patch: Some(_), .. } => vec![of_target("get", None), of_target("patch", None)],
        Rung { workload_action: Some(template), .. } => {
            let own = right("create", "ganglion.dev", "workloadactions", None, None);
            // The admission policy asks them of the author of an action.
            let evicts = right("create", "", "pods", Some("eviction"), None);
            let scales = template.move_.is_none().then(|| of_target("patch", Some("scale")));
            [own, evicts].into_iter().chain(scales).collect()
        }
        _ => Vec::new(),
    }
}
