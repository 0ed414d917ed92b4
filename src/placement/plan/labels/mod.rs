//! Delivery by labels: each policy with delivery `Labels` has one label on each node, which schedulers read through
//! node affinity. A label is the same for all pods, so the agents answer for a typical one.
//!
//! | file | content |
//! |---|---|
//! | `level` | the number in a label, from scores |
//! | `typical` | the pod for which the agents answer |
//! | `labeling` | the labels of all nodes for one policy |
//! | `plan` | the nodes to write now |
//! | `contest` | labels that others change again and again |
//! | `application` | whether the API server adds terms that read the labels to new pods |
//! | `history` | the last values of a label, in an annotation of the node |
//! | `terms` | terms of node affinity that read labels |
//! | `explain` | the labels by which a pod was placed, and those of now |
//! | `report` | the state of the labels, for the status of the policy |

pub mod application;
pub mod contest;
pub mod explain;
pub mod history;
pub mod labeling;
pub mod level;
pub mod plan;
pub mod report;
pub mod terms;
pub mod typical;

use std::fmt;

use ganglion_api::marks::LABEL_DOMAIN;
use ganglion_core::digest::digest;

/// Maximum length of the value of a label, and of the part of its key after the domain.
pub const MAX_NAME: usize = 63;

/// Length of the digest at the end of a shortened name.
const DIGEST: usize = 16;

/// Value of the label of a rejected node, with `rejections: Required`.
const REJECTED: &str = "rejected";

/// Highest level: that of the best node.
pub const TOP: u8 = 15;

/// Key of the label of a policy. A name that is too long for a label is shortened to its maximum length, and ends with
/// a digest. So does a name of this length: otherwise, it could be the shortened name of another policy.
pub fn key(policy: &str) -> String {
    if policy.len() < MAX_NAME {
        return format!("{LABEL_DOMAIN}{policy}");
    }
    let kept: String = policy.chars().take(MAX_NAME - DIGEST - 1).collect();
    format!("{LABEL_DOMAIN}{kept}-{}", digest(&[policy], DIGEST))
}

/// Value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelValue {
    /// From 0 to [`TOP`].
    Level(u8),
    /// No pod may be scheduled to the node.
    Rejected,
}

impl LabelValue {
    /// Parses a label; None if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        if text == REJECTED {
            return Some(Self::Rejected);
        }
        // Other spellings of a number, such as 07, are not among the values that node affinity lists.
        let level = text.parse().ok().filter(|level| *level <= TOP)?;
        (Self::Level(level).to_string() == text).then_some(Self::Level(level))
    }
}

impl fmt::Display for LabelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => level.fmt(f),
            Self::Rejected => REJECTED.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for value in (0..=TOP).map(LabelValue::Level).chain([LabelValue::Rejected]) {
            assert_eq!(LabelValue::parse(&value.to_string()), Some(value));
        }
        for text in ["", "16", "07", "+7", "-1", " 7", "7.0", "Rejected", "x"] {
            assert_eq!(LabelValue::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn no_policy_has_the_key_of_one_with_a_long_name() {
        let long = format!("{}.east", "batch-jobs.".repeat(8));
        let shortened = key(&long).replace(LABEL_DOMAIN, "");
        assert_ne!(key(&shortened), key(&long));
        assert_ne!(key(&long), key(&long.replace("east", "west")));
    }

    proptest! {
        /// Policies have different keys, and each key is valid.
        #[test]
        fn keys_are_valid_and_differ(names in prop::collection::hash_set("[a-z0-9]([-a-z0-9.]{0,80}[a-z0-9])?", 2..40)) {
            let mut keys = std::collections::HashSet::new();
            for name in &names {
                let key = key(name);
                let short = key.strip_prefix(LABEL_DOMAIN).expect("the domain");
                prop_assert!(!short.is_empty() && short.len() <= 63, "{}", key);
                let ends = [short.chars().next(), short.chars().last()];
                prop_assert!(ends.iter().flatten().all(char::is_ascii_alphanumeric), "{}", key);
                prop_assert!(keys.insert(key));
            }
        }
    }
}
