//! CRDs that are older than this program: the API server drops the fields that they do not have, from what the operator
//! writes and from what it reads.
//!
//! An intent that was not recorded could be carried out twice, and a status that is never as desired would be written
//! over and over. So the operator reads objects of such a kind, and does not act on them.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result as FmtResult};
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};

use crate::policies::{POLICY_MISSING, PolicyProblem};
use crate::world::{State, World};

/// Reason of the conditions of an object whose CRD is older than the operator.
pub const DEFINITION_OUTDATED: &str = "DefinitionOutdated";

/// Time after which the operator tries again whether the API server still drops a field.
pub const RECHECK: SignedDuration = SignedDuration::from_mins(1);

/// A field that the API server dropped from a write, or because of which it refused the write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedField {
    /// For example `status.slots[0].attempt`, or `spec.paused of Monitoring` for a child.
    pub path: String,
    pub at: Timestamp,
}

impl Display for DroppedField {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        write!(
            f,
            "the operator reads but does not act, because the CRD is older than the operator: it does not have {}; \
             apply kustomize/base of the operator's version, or only its CRDs: kubectl apply --server-side -k crds; \
             the operator tries again each minute",
            self.path
        )
    }
}

/// Why objects of a kind must not be acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardProblem {
    Policies(PolicyProblem),
    Definition(DroppedField),
}

impl GuardProblem {
    /// Reason of the conditions of the objects.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Policies(_) => POLICY_MISSING,
            Self::Definition(_) => DEFINITION_OUTDATED,
        }
    }

    /// Time at which the operator tries again, if no change of the cluster tells when the problem is over.
    pub fn recheck(&self) -> Option<Timestamp> {
        match self {
            Self::Policies(_) => None,
            Self::Definition(dropped) => Some(dropped.recheck()),
        }
    }
}

impl Display for GuardProblem {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        match self {
            Self::Policies(problem) => problem.fmt(f),
            Self::Definition(dropped) => dropped.fmt(f),
        }
    }
}

impl DroppedField {
    fn recheck(&self) -> Timestamp {
        self.at.checked_add(RECHECK).unwrap_or(Timestamp::MAX)
    }
}

/// The last dropped field of each kind.
#[derive(Debug, Default)]
struct Definitions(BTreeMap<&'static str, DroppedField>);

impl State for Definitions {
    fn empty() -> &'static Self {
        static EMPTY: LazyLock<Definitions> = LazyLock::new(Definitions::default);
        &EMPTY
    }
}

impl World {
    /// Records that the API server dropped a field from a write to an object of this kind.
    pub fn field_dropped(&mut self, kind: &'static str, dropped: DroppedField) {
        if let Some(Definitions(kinds)) = self.ensure_state() {
            kinds.insert(kind, dropped);
        }
    }

    /// Why objects of this kind must not be acted on now.
    pub fn guard_problem(&self, kind: &str, now: Timestamp) -> Option<GuardProblem> {
        if let Some(problem) = self.policy_problem(kind) {
            return Some(GuardProblem::Policies(problem));
        }
        let Definitions(kinds) = self.state();
        let dropped = kinds.get(kind).filter(|dropped| now < dropped.recheck())?;
        Some(GuardProblem::Definition(dropped.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_not_acted_on_until_the_next_check() {
        let mut world = World::default();
        let at = Timestamp::UNIX_EPOCH;
        assert_eq!(world.guard_problem("SwarmPool", at), None);
        let dropped = DroppedField { path: "status.moved".to_owned(), at };
        world.field_dropped("SwarmPool", dropped.clone());
        let problem = world.guard_problem("SwarmPool", at).unwrap();
        assert_eq!(problem, GuardProblem::Definition(dropped.clone()));
        assert_eq!((problem.reason(), problem.recheck()), (DEFINITION_OUTDATED, Some(at + RECHECK)));
        let words = problem.to_string();
        assert!(words.contains("status.moved") && words.contains("kubectl apply"), "{words}");
        assert_eq!(world.guard_problem("NodeConfig", at), None, "other kinds are not concerned");
        assert_eq!(world.guard_problem("SwarmPool", at + RECHECK), None);
        world.field_dropped("SwarmPool", DroppedField { at: at + RECHECK, ..dropped });
        assert!(world.guard_problem("SwarmPool", at + RECHECK).is_some());
    }
}
