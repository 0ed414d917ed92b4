//! The state of usage publishing, as a condition in the status of a policy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::plan::UsageCoverage;
use super::publication::PublishProblem;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::conditions::{Stamp, condition};

/// Condition type for usage publishing.
pub const USAGE_PUBLISHED: &str = "UsagePublished";

/// State of usage publishing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageReport {
    /// Prometheus has not been queried yet.
    NotAsked,
    /// An older policy with this name publishes.
    Another(String),
    /// Prometheus responded; carries its host and port.
    Answered(String, UsageCoverage),
    Problem(PublishProblem),
}

impl UsageReport {
    /// Builds the condition. Its message contains nothing that changes with each response. Until the first response,
    /// the condition that an earlier process wrote for this generation stays.
    pub fn condition(&self, old: &[Condition], stamp: Stamp) -> Condition {
        let is_of_now =
            |old: &&Condition| old.type_ == USAGE_PUBLISHED && old.observed_generation == Some(stamp.generation);
        if let (Self::NotAsked, Some(known)) = (self, old.iter().find(is_of_now)) {
            return known.clone();
        }
        let (status, reason, message) = self.summary();
        condition(old, USAGE_PUBLISHED, status, reason.as_str(), &message, stamp)
    }

    fn summary(&self) -> (&'static str, PolicyReason, String) {
        match self {
            Self::NotAsked => ("Unknown", PolicyReason::NotAsked, "Prometheus has not been queried yet".to_owned()),
            Self::Another(policy) => {
                let message = format!(
                    "PlacementPolicy {policy} is older and publishes the usage of nodes: remove publishUsage from one of the two"
                );
                ("False", PolicyReason::PublishedByAnother, message)
            }
            Self::Answered(host, UsageCoverage { any: true, lacking: None }) => {
                ("True", PolicyReason::Published, format!("{host} has the usage of all nodes"))
            }
            Self::Answered(host, UsageCoverage { any: true, lacking: Some((_, words)) }) => {
                ("True", PolicyReason::Published, format!("{host} does not have the usage of all nodes: {words}"))
            }
            Self::Answered(host, UsageCoverage { any: false, lacking }) => {
                let (reason, words) = match lacking {
                    Some((reason, words)) => (*reason, words.as_str()),
                    None => (PolicyReason::UsageUnknown, "there is no node"),
                };
                ("False", reason, format!("{host} has the usage of no node: {words}"))
            }
            Self::Problem((reason, message)) => ("False", *reason, message.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn answered(any: bool, lacking: Option<&str>) -> UsageReport {
        answered_for(any, lacking.map(|words| (PolicyReason::UsageUnknown, words.to_owned())))
    }

    fn answered_for(any: bool, lacking: Option<PublishProblem>) -> UsageReport {
        UsageReport::Answered("p:9090".to_owned(), UsageCoverage { any, lacking })
    }

    #[rstest]
    #[case(UsageReport::NotAsked, "Unknown", "NotAsked", "not been queried")]
    #[case(UsageReport::Another("old".to_owned()), "False", "PublishedByAnother", "PlacementPolicy old is older")]
    #[case(answered(true, None), "True", "Published", "p:9090 has the usage of all nodes")]
    #[case(
        answered(true, Some("set nodeLabel")),
        "True",
        "Published",
        "not have the usage of all nodes: set nodeLabel"
    )]
    #[case(answered(false, Some("set nodeLabel")), "False", "UsageUnknown", "of no node: set nodeLabel")]
    #[case(answered(false, None), "False", "UsageUnknown", "there is no node")]
    #[case(
        answered_for(false, Some((PolicyReason::Ambiguous, "set matchers".to_owned()))),
        "False",
        "Ambiguous",
        "of no node: set matchers"
    )]
    #[case(UsageReport::Problem((PolicyReason::Unreachable, "no answer".to_owned())), "False", "Unreachable", "no answer")]
    fn the_condition_says_what_to_do(
        #[case] report: UsageReport,
        #[case] status: &str,
        #[case] reason: &str,
        #[case] words: &str,
    ) {
        let condition = report.condition(&[], Stamp { generation: 3, now: Timestamp::UNIX_EPOCH });
        assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("UsagePublished", status));
        assert_eq!((condition.reason.as_str(), condition.observed_generation), (reason, Some(3)));
        assert!(condition.message.contains(words), "{}", condition.message);
    }

    #[test]
    fn a_restart_does_not_change_the_condition_and_another_spec_does() {
        let at = |generation| Stamp { generation, now: Timestamp::UNIX_EPOCH };
        let before = [answered(true, None).condition(&[], at(1))];
        assert_eq!(UsageReport::NotAsked.condition(&before, at(1)), before[0]);
        assert_eq!(UsageReport::NotAsked.condition(&before, at(2)).reason, "NotAsked");
        assert_eq!(answered(false, None).condition(&before, at(1)).reason, "UsageUnknown");
    }
}
