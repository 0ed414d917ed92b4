//! The conditions of actions that have not ended, each parsed once.
//!
//! Owns the memory only: an expression that is not here is parsed as well, and means the same.

use std::collections::HashMap;

use crate::api::workload_action::{WorkloadAction, WorkloadActionSpec};
use crate::logic::expression::{Expression, ExpressionError};

/// Expressions by text, with how many actions have them.
#[derive(Debug, Default)]
pub struct Expressions(HashMap<String, (usize, Expression)>);

impl Expressions {
    /// # Errors
    ///
    /// As [`Expression::parse`].
    pub fn get(&self, text: &str) -> Result<Expression, ExpressionError> {
        self.0.get(text).map_or_else(|| Expression::parse(text), |(_, expression)| Ok(expression.clone()))
    }

    /// The action was, and is, one that has not ended.
    pub fn action(&mut self, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) {
        for text in new.iter().flat_map(|action| conditions(&action.spec)) {
            match self.0.get_mut(text) {
                Some((users, _)) => *users += 1,
                // What does not parse ends its action at once: not worth remembering.
                None => self.0.extend(Expression::parse(text).ok().map(|parsed| (text.to_owned(), (1, parsed)))),
            }
        }
        for text in old.iter().flat_map(|action| conditions(&action.spec)) {
            if let Some((users, _)) = self.0.get_mut(text) {
                *users -= 1;
                if *users == 0 {
                    self.0.remove(text);
                }
            }
        }
    }
}

/// Every `where` of a spec.
fn conditions(spec: &WorkloadActionSpec) -> impl Iterator<Item = &str> {
    let create = spec.create.iter().map(|create| create.to.condition.as_deref());
    let delete = spec.delete.iter().map(|delete| delete.from.as_ref().and_then(|from| from.condition.as_deref()));
    let change = spec.move_.iter().flat_map(|change| {
        let from = change.from.as_ref().and_then(|from| from.condition.as_deref());
        [from, change.to.condition.as_deref()]
    });
    create.chain(delete).chain(change).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn action(condition: &str) -> WorkloadAction {
        let spec = json!({"delete": {
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "from": {"where": condition},
        }});
        WorkloadAction::new("a", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_condition_is_kept_as_long_as_an_action_has_it() {
        let mut all = Expressions::default();
        let (one, bad) = (action("node.ready"), action("node.ready &&"));
        all.action(None, Some(&one));
        all.action(None, Some(&one));
        all.action(None, Some(&bad));
        assert_eq!(all.0.keys().collect::<Vec<_>>(), ["node.ready"]);
        all.action(Some(&one), Some(&one));
        all.action(Some(&one), None);
        assert_eq!(all.get("node.ready").unwrap().as_str(), "node.ready");
        assert!(all.get("node.ready &&").is_err());
        all.action(Some(&one), None);
        all.action(Some(&bad), None);
        assert!(all.0.is_empty());
    }
}
