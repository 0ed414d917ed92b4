//! Reasons of NodeConfigs and their templates: one closed set of words for conditions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a NodeConfig or NodeConfigTemplate, or of one value. The documentation of each word is
    /// user documentation.
    NodeReason:

    // A NodeConfig.
    /// The sources are polled. The condition DataAvailable says whether values arrive.
    Polling,
    /// Every value that the spec requests is known and fresh.
    Sampled,
    /// The spec requests no value.
    NothingToMeasure,
    /// The first values have been requested and have not arrived yet.
    Waiting,
    /// `spec.suspend` is true.
    Suspended,
    /// A field has a value that cannot be parsed; the message names the field.
    InvalidObject,
    /// Admission policies of the operator are missing or edited, so the operator does not act; the message says which,
    /// and what to do.
    AdmissionPolicyMissing,
    /// The CRD of this kind is older than the operator, so the operator does not act; the message says what to do.
    DefinitionOutdated,
    /// A field of the spec is invalid; the message names the field and the valid values.
    SpecInvalid,
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// The cluster has no node of this name.
    NodeNotFound,
    /// An older NodeConfig describes the same node; the message names it.
    NodeConflict,

    // Reasons why there is no fresh value.
    /// The server does not answer, or answers that it is temporarily unavailable.
    Unreachable,
    /// The server rejects the credentials. The operator retries when the Secret changes, and otherwise after some
    /// minutes with increasing delay, because many BMCs lock accounts.
    LoginRefused,
    /// The server's certificate is not from a trusted authority, or is for another name; the message says which field
    /// to set.
    CertificateRefused,
    /// A Secret or ConfigMap that the spec names does not exist or cannot be read; the message says what to do.
    SecretUnavailable,
    /// The operator's settings or its built-in rules forbid requests to the address.
    AddressRefused,
    /// The machine has no sensor for the value, or no sensor of the name in the spec.
    SensorNotFound,
    /// Several sensors of the machine may be the right one; the message names them: set `sensor`.
    SensorAmbiguous,
    /// Several exporters answer for the node, or several outputs of the model may be the power; the message names the
    /// field that selects one: `matchers` or `output`.
    Ambiguous,
    /// The sensor has no reading at the moment, or reports a fault.
    NoReading,
    /// The answer does not have the expected form, or a value is out of range.
    AnswerInvalid,
    /// A value that the prediction requires is unknown.
    InputMissing,
    /// The API metrics.k8s.io is not available: install metrics-server, or set another type for `usage`.
    NoMetricsServer,
    /// No new value has arrived for three intervals.
    Stale,
    /// Predicted power is farther from the measured one than a straight line over the CPU usage. Placement policies use
    /// the line until the prediction is better again.
    WorseThanLine,

    // A NodeConfigTemplate.
    /// Every node that the selector matches has its NodeConfig, and all of these are Ready. The condition DataAvailable
    /// says whether they have their values.
    Applied,
    /// NodeConfigs are being created, changed or deleted.
    Applying,
    /// The selector matches no node.
    NoNodes,
    /// An expression in the template cannot be rendered, or the result is not a valid value; the message shows which
    /// one and why.
    TemplateInvalid,
    /// The template cannot be rendered for some nodes; the other nodes have their NodeConfigs. The message names one
    /// node and the reason.
    NodesLeftOut,
    /// An object with the name of a NodeConfig of this template exists, but the template does not own it.
    NotOwned,
    /// Some of the NodeConfigs are not Ready; the message names one and the reason.
    NodeConfigsNotReady,
    /// Some NodeConfigs have unknown or stale values; the message names one and the reason.
    SomeUnknown,
}
