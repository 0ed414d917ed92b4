//! Writes the learned values of a policy into its ConfigMap, and reports whether that succeeded.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{ObjectMeta, PostParams};

use ganglion_api::marks;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::{PlacementPolicy, PlacementPolicyStatus};
use ganglion_core::conditions::{Stamp, condition};
use ganglion_core::facts::Key;
use ganglion_outbound::client::objects::api_words;
use ganglion_placement_plan::learned::{LearnedValues, SAVED_KEY, SaveResult, SavedTextError};
use ganglion_runtime::error::Error;
use ganglion_runtime::events::EventText;
use ganglion_runtime::writer::Writer;

/// Condition type for saved learned values.
pub const MEMORY_SAVED: &str = "MemorySaved";

/// The parts of a status that report saved learned values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SaveReport {
    pub condition: Option<Condition>,
    /// Namespace and name of the ConfigMap, if it exists.
    pub map: Option<String>,
}

impl SaveReport {
    /// Report after a save. The old report stays if the agents have not started to learn, and after a transient error.
    pub fn new(saved: Result<SaveResult, &Error>, map: &Key, old: &PlacementPolicyStatus, stamp: Stamp) -> Self {
        let condition = |status, reason: PolicyReason, words: &str| {
            Some(condition(&old.conditions, MEMORY_SAVED, status, reason.as_str(), words, stamp))
        };
        let problem = match saved {
            Ok(SaveResult::NothingLearned) => return Self::default(),
            Ok(SaveResult::UpToDate | SaveResult::Written) => {
                let words = format!("learned values are saved in ConfigMap {map}");
                return Self { condition: condition("True", PolicyReason::Saved, &words), map: Some(map.to_string()) };
            }
            Ok(SaveResult::NotStarted) => None,
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
        | Error::Timeout(_)
        | Error::Full => return None,
        Error::Forbidden(_) => {
            let advice =
                "grant the operator get, create and update of ConfigMaps there, as the Role ganglion-lease does";
            (PolicyReason::Forbidden, advice)
        }
        Error::Denied(_) => (PolicyReason::NotSaved, "see the admission policies and quotas of that namespace"),
        Error::NotFound(_) | Error::Unavailable(_) | Error::Malformed(_) | Error::Dropped(_) | Error::Broken => {
            (PolicyReason::NotSaved, "see the operator's log")
        }
    };
    let words = format!(
        "learned values are lost when the operator restarts: ConfigMap {map} cannot be read or written: {}; {advice}",
        api_words(error)
    );
    Some((reason, words))
}

/// Result of a save.
#[derive(Debug)]
pub struct Saved {
    pub result: SaveResult,
    /// Set if the write replaced values that cannot be read.
    pub lost: Option<SavedTextError>,
}

/// Writes the values into this ConfigMap, unless it already contains the same values.
pub async fn save(
    writer: &Writer,
    map: &Key,
    object: &PlacementPolicy,
    learned: &LearnedValues,
    now: Timestamp,
) -> Result<Saved, Error> {
    let stored = writer.get::<ConfigMap>(map).await?;
    let lost = match stored.as_ref().map(|stored| LearnedValues::read(stored, now)) {
        None if learned.is_empty() => return Ok(Saved { result: SaveResult::NothingLearned, lost: None }),
        Some(Ok(saved)) if saved.is_like(learned) => {
            return Ok(Saved { result: SaveResult::UpToDate, lost: None });
        }
        Some(Err(error)) => Some(error),
        None | Some(Ok(_)) => None,
    };
    let version = stored.and_then(|stored| stored.metadata.resource_version);
    write(writer, map, object, learned, version).await?;
    Ok(Saved { result: SaveResult::Written, lost })
}

/// Creates the ConfigMap, or replaces the one with this resourceVersion.
async fn write(
    writer: &Writer,
    key: &Key,
    object: &PlacementPolicy,
    learned: &LearnedValues,
    replaced: Option<String>,
) -> Result<(), Error> {
    let text = learned.text().map_err(|error| Error::Malformed(error.to_string()))?;
    let (label, value) = marks::MEMORY;
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            labels: Some([(label.to_owned(), value.to_owned())].into()),
            owner_references: object.owner_ref(&()).map(|owner| vec![owner]),
            // Precondition: a late request of a process that has ended fails with a conflict.
            resource_version: replaced.clone(),
            ..ObjectMeta::default()
        },
        data: Some([(SAVED_KEY.to_owned(), text)].into()),
        ..ConfigMap::default()
    };
    let api = writer.api::<ConfigMap>(&key.namespace);
    let params = PostParams { field_manager: Some(marks::MEMORY_MANAGER.to_owned()), ..PostParams::default() };
    let sent = async {
        match replaced {
            None => writer.call(api.create(&params, &map)).await,
            Some(_) => writer.call(api.replace(&key.name, &params, &map)).await,
        }
    };
    writer.counted("SaveMemory", sent).await.map(|_| ())
}

/// Event about values that were saved but cannot be read.
pub fn lost_event(map: &Key, error: &SavedTextError) -> EventText {
    let note = format!(
        "values learned before the operator started are lost: ConfigMap {map}: {error}; the agents continue with the \
         values learned since then"
    );
    EventText::warning(PolicyReason::MemoryLost.as_str(), note)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const STAMP: Stamp = Stamp { generation: 2, now: Timestamp::UNIX_EPOCH };

    fn report(saved: Result<SaveResult, &Error>, old: &SaveReport) -> SaveReport {
        let old = PlacementPolicyStatus {
            conditions: old.condition.iter().cloned().collect(),
            memory: old.map.clone(),
            ..PlacementPolicyStatus::default()
        };
        SaveReport::new(saved, &Key::new("ganglion", "placement-memory-1"), &old, STAMP)
    }

    fn saved() -> SaveReport {
        report(Ok(SaveResult::Written), &SaveReport::default())
    }

    #[test]
    fn a_memory_is_named_once_it_is_saved() {
        let nothing = SaveReport::default();
        assert_eq!(report(Ok(SaveResult::NothingLearned), &nothing), nothing);
        assert_eq!(report(Ok(SaveResult::NotStarted), &nothing), nothing);
        let found = report(Ok(SaveResult::UpToDate), &nothing);
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
        let SaveReport { condition, map } = report(Err(&error), &saved());
        let condition = condition.expect("a condition");
        assert_eq!((condition.status.as_str(), condition.reason.as_str(), map), ("False", reason, None));
        assert!(condition.message.contains("ganglion/placement-memory-1"), "{}", condition.message);
        assert!(condition.message.contains(advice), "{}", condition.message);
    }

    #[rstest]
    #[case(Err(Error::Conflict("newer".into())))]
    #[case(Err(Error::NotLeader))]
    #[case(Ok(SaveResult::NotStarted))]
    fn what_passes_changes_nothing(#[case] end: Result<SaveResult, Error>) {
        assert_eq!(report(end.as_ref().copied(), &saved()), saved());
        assert_eq!(report(end.as_ref().copied(), &SaveReport::default()), SaveReport::default());
    }
}
