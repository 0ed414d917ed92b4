//! WorkloadActions and their receipts: what a change requeues, and the queries of planners.

use std::sync::Arc;

use super::{Fact, Indexed, Requeue, World};
use crate::api::execution::Execution;
use crate::api::marks;
use crate::api::workload_action::WorkloadAction;
use crate::logic::expression::{Expression, ExpressionError};
use crate::logic::facts::{Key, ReceiptFact};

impl Indexed for WorkloadAction {
    fn changed(world: &mut World, old: Option<&Self>, new: Option<&Self>) -> Requeue {
        let waiting = world.index.action(old, new);
        let this = new.or(old).map(|action| action.id().key);
        // The Execution that created the action waits for its end.
        let made = new.map_or_else(|| old.and_then(loop_of), loop_of_ended);
        Requeue::all::<Self>(waiting.into_iter().chain(this)).and(Requeue::all::<Execution>(made))
    }
}

impl Indexed for ReceiptFact {
    fn changed(_world: &mut World, _old: Option<&Self>, _new: Option<&Self>) -> Requeue {
        Requeue::none()
    }
}

/// The loop that created the action.
#[must_use]
pub fn loop_of(action: &WorkloadAction) -> Option<Key> {
    let name = action.metadata.labels.as_ref()?.get(marks::LOOP)?;
    Some(Key::new(action.metadata.namespace.clone().unwrap_or_default(), name.clone()))
}

/// The loop that created the action, if the action has ended.
#[must_use]
pub fn loop_of_ended(action: &WorkloadAction) -> Option<Key> {
    action.status.as_ref()?.finished_at.as_ref()?;
    loop_of(action)
}

impl World {
    #[must_use]
    pub fn action(&self, key: &Key) -> Option<&Arc<WorkloadAction>> {
        self.tables.actions.get(key)
    }

    #[must_use]
    pub fn receipt(&self, key: &Key) -> Option<&ReceiptFact> {
        self.tables.receipts.get(key).map(Arc::as_ref)
    }

    /// This condition as an expression.
    ///
    /// # Errors
    ///
    /// As [`Expression::parse`].
    pub fn expression(&self, text: &str) -> Result<Expression, ExpressionError> {
        self.index.expressions.get(text)
    }

    /// Every action, ended ones too, by key.
    pub fn actions(&self) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        self.tables.actions.values()
    }

    /// The actions that have not ended, by key.
    pub fn running(&self) -> impl Iterator<Item = &Arc<WorkloadAction>> {
        self.index.running().filter_map(|key| self.tables.actions.get(key))
    }
}
