//! Cache of the parsed conditions of unfinished actions.
//!
//! An expression that is not cached is parsed with the same result.

use std::collections::HashMap;

use ganglion_api::workload_action::{WorkloadAction, WorkloadActionSpec};
use ganglion_core::expression::{Expression, ExpressionError};

/// Parsed expressions by text, with the number of conditions that use them.
#[derive(Debug, Default)]
pub struct Expressions(HashMap<String, (usize, Expression)>);

impl Expressions {
    /// Returns the parsed expression of `text`. Fails like [`Expression::parse`].
    pub fn get(&self, text: &str) -> Result<Expression, ExpressionError> {
        self.0.get(text).map_or_else(|| Expression::parse(text), |(_, expression)| Ok(expression.clone()))
    }

    /// Whether any cached expression satisfies `has`.
    pub fn any(&self, has: impl Fn(&Expression) -> bool) -> bool {
        self.0.values().any(|(_, expression)| has(expression))
    }

    /// Updates the cache for an action that changed from `old` to `new`.
    pub fn update(&mut self, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) {
        for text in new.iter().flat_map(|action| conditions(&action.spec)) {
            match self.0.get_mut(text) {
                Some((users, _)) => *users += 1,
                // An expression that does not parse ends its action at once, so it is not cached.
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

/// All conditions (`where`) of a spec.
pub fn conditions(spec: &WorkloadActionSpec) -> impl Iterator<Item = &str> {
    let sides = spec.swap.iter().flat_map(|swap| swap.with.iter().chain([&swap.replica])).map(|side| &side.from);
    let sources = spec.delete.iter().map(|delete| &delete.from).chain(spec.move_.iter().map(|change| &change.from));
    let application = spec.move_application.iter();
    let sources =
        sources.chain(sides).flatten().chain(application.clone().map(|all| &all.from)).map(|from| &from.condition);
    let targets =
        spec.create.iter().map(|create| &create.to).chain(spec.move_.iter().filter_map(|change| change.to.as_ref()));
    let targets = targets.chain(application.filter_map(|all| all.to.as_ref()));
    let targets = targets.flat_map(|to| {
        let preferences = to.preferences.iter().flatten().map(|preference| &preference.condition);
        preferences.chain([&to.condition])
    });
    sources.chain(targets).filter_map(|condition| condition.as_deref())
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
        all.update(None, Some(&one));
        all.update(None, Some(&one));
        all.update(None, Some(&bad));
        assert_eq!(all.0.keys().collect::<Vec<_>>(), ["node.ready"]);
        all.update(Some(&one), Some(&one));
        all.update(Some(&one), None);
        assert_eq!(all.get("node.ready").unwrap().as_str(), "node.ready");
        assert!(all.get("node.ready &&").is_err());
        all.update(Some(&one), None);
        all.update(Some(&bad), None);
        assert!(all.0.is_empty());
    }
}
