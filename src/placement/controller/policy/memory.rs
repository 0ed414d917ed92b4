//! Saves the learned values of a policy in a ConfigMap in the operator's namespace, and reports whether that succeeds.
//! The policy owns the ConfigMap. Every replica reads it at start; only the leader writes it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{ObjectMeta, PostParams};
use tracing::warn;

use super::PlacementPolicyController;
use ganglion_api::marks;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::{PlacementPolicy, PlacementPolicyStatus};
use ganglion_core::conditions::{Stamp, condition};
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_outbound::client::objects::api_words;
use ganglion_placement_plan::memory::{MEMORY_KEY, MemoryError, SavedMemory, map_name};
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{EventText, reference};

/// Condition type for saved learned values.
pub(super) const MEMORY_SAVED: &str = "MemorySaved";

/// Minimum time between two writes.
const SAVE_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// Content of the ConfigMap after the last read or write.
pub(super) struct Save {
    memory: SavedMemory,
    kept: Kept,
    /// Time of the write; None if this process has not written the ConfigMap.
    written: Option<Timestamp>,
}

/// Result of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// No values were learned, and no ConfigMap exists.
    Nothing,
    /// The ConfigMap already contains the learned values.
    Same,
    Written,
}

/// The parts of a status that report saved learned values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MemoryReport {
    pub condition: Option<Condition>,
    /// Namespace and name of the ConfigMap, if it exists.
    pub map: Option<String>,
}

impl MemoryReport {
    /// Report after a save. The old report stays if the agents have not started to learn, and after a transient error.
    pub(super) fn of(
        saved: &Result<Option<Kept>, Error>,
        map: &Key,
        old: &PlacementPolicyStatus,
        stamp: Stamp,
    ) -> Self {
        let condition = |status, reason: PolicyReason, words: &str| {
            Some(condition(&old.conditions, MEMORY_SAVED, status, reason.as_str(), words, stamp))
        };
        let problem = match saved {
            Ok(Some(Kept::Nothing)) => return Self::default(),
            Ok(Some(Kept::Same | Kept::Written)) => {
                let words = format!("learned values are saved in ConfigMap {map}");
                return Self { condition: condition("True", PolicyReason::Saved, &words), map: Some(map.to_string()) };
            }
            Ok(None) => None,
            Err(error) => problem(error, map),
        };
        match problem {
            Some((reason, words)) => Self { condition: condition("False", reason, &words), map: None },
            None => Self {
                condition: old.conditions.iter().find(|one| one.type_ == MEMORY_SAVED).cloned(),
                map: old.memory.clone(),
            },
        }
    }
}

/// Reason and message of a failed save, with advice; None for a transient error.
fn problem(error: &Error, map: &Key) -> Option<(PolicyReason, String)> {
    let (reason, advice) = match error {
        Error::NotLeader
        | Error::Conflict(_)
        | Error::AlreadyExists(_)
        | Error::Doubtful(_)
        | Error::Throttled(_)
        | Error::Timeout(_) => return None,
        Error::Forbidden(_) => {
            let advice =
                "grant the operator get, create and update of ConfigMaps there, as the Role ganglion-lease does";
            (PolicyReason::Forbidden, advice)
        }
        Error::Denied(_) => (PolicyReason::NotSaved, "see the admission policies and quotas of that namespace"),
        Error::NotFound(_) | Error::Unavailable(_) | Error::Malformed(_) | Error::Broken => {
            (PolicyReason::NotSaved, "see the operator's log")
        }
    };
    let words = format!(
        "learned values are lost when the operator restarts: ConfigMap {map} cannot be read or written: {}; {advice}",
        api_words(error)
    );
    Some((reason, words))
}

impl PlacementPolicyController {
    /// Namespace and name of the policy's ConfigMap.
    pub(super) fn map_key(&self, object: &PlacementPolicy) -> Key {
        Key::new(self.namespace.clone(), map_name(&object.id().uid))
    }

    /// Saves the learned values if they changed. None if the agents have not started to learn.
    pub(super) async fn save(
        &self,
        key: &Key,
        object: &PlacementPolicy,
        policy: &CompiledPolicy,
        now: Timestamp,
    ) -> Result<Option<Kept>, Error> {
        let Some(memory) = self.placement.memory(policy, &object.id().uid, now) else { return Ok(None) };
        let map = self.map_key(object);
        let is_due = |save: &Save| {
            !save.memory.is_like(&memory) && save.written.is_none_or(|at| now.duration_since(at) >= SAVE_PAUSE)
        };
        let known = self.memory.saves().get(key).filter(|save| !is_due(save)).map(|save| save.kept);
        if known.is_some() {
            return Ok(known);
        }
        let kept = self.write(&map, object, &memory, now).await?;
        let written = (kept == Kept::Written).then_some(now);
        self.memory.saves().insert(key.clone(), Save { memory, kept, written });
        Ok(Some(kept))
    }

    /// Writes the ConfigMap unless it already contains the same values.
    async fn write(
        &self,
        key: &Key,
        object: &PlacementPolicy,
        memory: &SavedMemory,
        now: Timestamp,
    ) -> Result<Kept, Error> {
        let writer = &self.ctx.writer;
        let found = writer.get::<ConfigMap>(key).await?;
        match found.as_ref().map(|map| SavedMemory::read(map, now)) {
            None if memory.is_empty() => return Ok(Kept::Nothing),
            Some(Ok(saved)) if saved.is_like(memory) => return Ok(Kept::Same),
            Some(Err(error)) => self.tell_lost(object, key, &error),
            None | Some(Ok(_)) => {}
        }
        let text = memory.text().map_err(|error| Error::Malformed(error.to_string()))?;
        let (label, value) = marks::MEMORY;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                labels: Some([(label.to_owned(), value.to_owned())].into()),
                owner_references: object.owner_ref(&()).map(|owner| vec![owner]),
                // Precondition: a late request of a process that has ended fails with a conflict.
                resource_version: found.as_ref().and_then(|map| map.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            data: Some([(MEMORY_KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        let api = writer.api::<ConfigMap>(&key.namespace);
        let params = PostParams { field_manager: Some(marks::MEMORY_MANAGER.to_owned()), ..PostParams::default() };
        let sent = async {
            match found {
                None => writer.call(api.create(&params, &map)).await,
                Some(_) => writer.call(api.replace(&key.name, &params, &map)).await,
            }
        };
        writer.counted("SaveMemory", sent).await.map(|_| Kept::Written)
    }

    fn tell_lost(&self, object: &PlacementPolicy, map: &Key, error: &MemoryError) {
        let note = format!(
            "values learned before the operator started are lost: ConfigMap {map}: {error}; the agents continue with \
             the values learned since then"
        );
        warn!(policy = object.id().key.name, %map, %error, "learned values are lost");
        let reason = PolicyReason::MemoryLost.as_str().to_owned();
        let event = EventText { warning: true, reason, note, about: None };
        self.ctx.events.publish(reference::<PlacementPolicy>(&object.id()), event);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const STAMP: Stamp = Stamp { generation: 2, now: Timestamp::UNIX_EPOCH };

    fn report(saved: &Result<Option<Kept>, Error>, old: &MemoryReport) -> MemoryReport {
        let old = PlacementPolicyStatus {
            conditions: old.condition.iter().cloned().collect(),
            memory: old.map.clone(),
            ..PlacementPolicyStatus::default()
        };
        MemoryReport::of(saved, &Key::new("ganglion", "placement-memory-1"), &old, STAMP)
    }

    fn saved() -> MemoryReport {
        report(&Ok(Some(Kept::Written)), &MemoryReport::default())
    }

    #[test]
    fn a_memory_is_named_once_it_is_saved() {
        let nothing = MemoryReport::default();
        assert_eq!(report(&Ok(Some(Kept::Nothing)), &nothing), nothing);
        assert_eq!(report(&Ok(None), &nothing), nothing);
        let found = report(&Ok(Some(Kept::Same)), &nothing);
        assert_eq!(found, saved());
        assert_eq!(found.map.as_deref(), Some("ganglion/placement-memory-1"));
        let condition = found.condition.expect("a condition");
        assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("MemorySaved", "True"));
        assert_eq!(condition.reason, "Saved");
    }

    #[rstest]
    #[case(Error::Forbidden("no".into()), "Forbidden", "get, create and update of ConfigMaps")]
    #[case(Error::Denied("no".into()), "NotSaved", "admission policies and quotas")]
    #[case(Error::NotFound("no".into()), "NotSaved", "see the operator's log")]
    fn a_refusal_is_told_with_what_to_do(#[case] error: Error, #[case] reason: &str, #[case] advice: &str) {
        let MemoryReport { condition, map } = report(&Err(error), &saved());
        let condition = condition.expect("a condition");
        assert_eq!((condition.status.as_str(), condition.reason.as_str(), map), ("False", reason, None));
        assert!(condition.message.contains("ganglion/placement-memory-1"), "{}", condition.message);
        assert!(condition.message.contains(advice), "{}", condition.message);
    }

    #[rstest]
    #[case(Err(Error::Conflict("newer".into())))]
    #[case(Err(Error::NotLeader))]
    #[case(Ok(None))]
    fn what_passes_changes_nothing(#[case] end: Result<Option<Kept>, Error>) {
        assert_eq!(report(&end, &saved()), saved());
        assert_eq!(report(&end, &MemoryReport::default()), MemoryReport::default());
    }
}
