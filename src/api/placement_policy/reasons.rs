//! Reasons of PlacementPolicies: one closed set of words for conditions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a PlacementPolicy. The documentation of each word is user documentation.
    PolicyReason:

    /// kube-scheduler and WorkloadActions use the policy's filters and scores.
    Serving,
    /// `mode: Shadow`; the policy does not affect kube-scheduler.
    Shadowing,
    /// The ConfigMap with the learned values cannot be read; the agents start without them. An event, not a condition.
    MemoryLost,
    /// A field has a value that cannot be parsed; the message names the field.
    InvalidObject,
    /// Admission policies of the operator are missing or edited, so the operator does not act; the message says which,
    /// and what to do.
    AdmissionPolicyMissing,
    /// The CRD of this kind is older than the operator, so the operator does not act; the message says what to do.
    DefinitionOutdated,
    /// An option of an agent is invalid; the message names the option and the valid values.
    SpecInvalid,
    /// An expression cannot be parsed, or uses an unknown name; the message shows the position.
    ExpressionInvalid,

    // Reasons of the condition DataAvailable.
    /// Each agent has data about at least one node; `status.agents` shows about how many.
    AgentsHaveData,
    /// Some agents have no data about any node and do not affect the result; the message says what data is missing.
    AgentsWithoutData,
    /// No node accepts pods, so it cannot be told whether the agents have data.
    NoNodes,

    // Reasons of the condition UsagePublished.
    /// The usage of nodes is published as annotations; the message says if the usage of some nodes is unknown.
    Published,
    /// Prometheus has not been queried yet.
    NotAsked,
    /// An older policy publishes the usage of nodes; the message names it.
    PublishedByAnother,
    /// The operator's settings exclude the namespace of the Secrets.
    NamespaceRefused,
    /// A Secret or ConfigMap cannot be read; the message names it.
    SecretUnavailable,
    /// Prometheus rejects the credentials; the operator retries after some time.
    LoginRefused,
    /// The certificate of Prometheus is not trusted.
    CertificateRefused,
    /// The address of Prometheus is not allowed.
    AddressRefused,
    /// Prometheus does not answer.
    Unreachable,
    /// The answer of Prometheus cannot be used.
    AnswerInvalid,
    /// Prometheus has no usage of any node; the message says what is missing.
    UsageUnknown,
    /// Several exporters answer for each node, such as those of other clusters or jobs; the message names the field
    /// that selects one: `matchers`.
    Ambiguous,
    /// A node could not be annotated; the message says why.
    NodeNotWritten,

    // Reasons of the condition LabelsCurrent.
    /// Each node has the label of the policy, with the current score.
    Labeled,
    /// The labels have not been compared yet.
    NotCompared,
    /// Labels of some nodes are missing or are not current; the message says why.
    LabelsNotWritten,
    /// Another program changes labels again and again, so they are restored less often; the message names a node.
    LabelsContested,

    // Reasons of the condition LabelsApplied.
    /// The API server adds terms that read the label to new pods of the policy.
    AppliedByAdmission,
    /// The component placement-labels is not installed, so only schedulers that are configured for it read the label.
    NotInstalled,
    /// The API server does not serve MutatingAdmissionPolicies, so only schedulers that are configured for it read the
    /// label.
    NotServed,
    /// The MutatingAdmissionPolicy of the component placement-labels was edited.
    Edited,
    /// The name of the policy is longer than the value of a label may be, so no pod can name the policy.
    NameTooLong,

    // Reasons of the condition MemorySaved.
    /// The learned values are saved in the ConfigMap that `status.memory` names.
    Saved,
    /// The learned values cannot be saved because the operator lacks a permission; the message names it.
    Forbidden,
    /// The learned values cannot be saved; the message says why.
    NotSaved,
}
