//! The autoscalers of one process' namespaces. Only watches tell of them, each in order, so that the last word counts.

use std::collections::HashMap;

use crate::logic::closed_loop::validate::conflict::ClaimantKind;
use crate::logic::facts::{Identity, Key, RivalFact};

/// Every autoscaler that is known, by kind and name.
#[derive(Debug, Default)]
pub struct Rivals(HashMap<(ClaimantKind, Key), RivalFact>);

/// The targets (namespace and name) on which something changed.
pub type Touched = Vec<Key>;

impl Rivals {
    /// Takes in an autoscaler that was made or changed.
    pub fn apply(&mut self, fact: RivalFact) -> Touched {
        let new = target(&fact);
        let id = (fact.kind, fact.id.key.clone());
        let same = |old: &RivalFact| (&old.target, &old.grip) == (&fact.target, &fact.grip);
        if self.0.get(&id).is_some_and(same) {
            return Touched::new();
        }
        let old = self.0.insert(id, fact);
        old.iter().map(target).chain([new]).collect()
    }

    /// Takes out an autoscaler that is reported deleted.
    pub fn remove(&mut self, kind: ClaimantKind, id: &Identity) -> Touched {
        self.0.remove(&(kind, id.key.clone())).iter().map(target).collect()
    }

    /// Takes in a whole list of one kind, of one namespace or of all: what is not in it is gone.
    pub fn replace(&mut self, kind: ClaimantKind, namespace: Option<&str>, facts: Vec<RivalFact>) -> Touched {
        let listed = |(of, key): &(ClaimantKind, Key)| {
            *of == kind && namespace.is_none_or(|namespace| key.namespace == namespace)
        };
        let mut touched = Touched::new();
        self.0.retain(|id, fact| {
            let stays = !listed(id) || facts.iter().any(|new| new.id.key == id.1);
            if !stays {
                touched.push(target(fact));
            }
            stays
        });
        touched.extend(facts.into_iter().flat_map(|fact| self.apply(fact)).collect::<Touched>());
        touched
    }

    /// Those on a target of this name, whatever its kind.
    pub fn on<'a>(&'a self, namespace: &'a str, target: &'a str) -> impl Iterator<Item = &'a RivalFact> {
        self.0.values().filter(move |fact| fact.id.key.namespace == namespace && fact.target.name == target)
    }
}

fn target(fact: &RivalFact) -> Key {
    Key::new(fact.id.key.namespace.clone(), fact.target.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::closed_loop::TargetRef;
    use crate::logic::facts::Grip;

    fn scaler(name: &str, target: &str) -> RivalFact {
        RivalFact {
            id: Identity { key: Key::new("n", name), uid: name.into(), version: "1".into() },
            kind: ClaimantKind::HorizontalPodAutoscaler,
            target: TargetRef { name: target.into(), ..TargetRef::default() },
            grip: Grip::Replicas,
        }
    }

    fn touches(touched: &Touched) -> Vec<&str> {
        touched.iter().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn what_changes_is_told_of_and_nothing_else() {
        let mut rivals = Rivals::default();
        assert_eq!(touches(&rivals.apply(scaler("a", "web"))), ["web"]);
        assert!(rivals.apply(scaler("a", "web")).is_empty(), "only its status changed");
        assert_eq!(touches(&rivals.apply(scaler("a", "db"))), ["web", "db"]);
        assert_eq!(rivals.on("n", "db").count(), 1);
        let kind = ClaimantKind::HorizontalPodAutoscaler;
        assert_eq!(touches(&rivals.replace(kind, Some("other"), vec![])), Vec::<&str>::new());
        assert_eq!(touches(&rivals.replace(kind, None, vec![scaler("b", "web")])), ["db", "web"]);
        assert_eq!(touches(&rivals.remove(kind, &scaler("b", "web").id)), ["web"]);
        assert_eq!(rivals.on("n", "web").count(), 0);
    }
}
