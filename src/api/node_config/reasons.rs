//! The reasons of NodeConfigs and their templates: one closed set of words for conditions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a NodeConfig or NodeConfigTemplate, or of one value. The docs of each word are for users.
    NodeReason:

    // A NodeConfig.
    /// Every value that the spec asks for is known and fresh.
    Sampled,
    /// The spec asks for no value.
    NothingToMeasure,
    /// The first values are on their way.
    Waiting,
    /// `spec.suspend` is true.
    Suspended,
    /// A field has a value that cannot be read; the message names the field.
    InvalidObject,
    /// A field of the spec is invalid; the message names the field and what is valid.
    SpecInvalid,
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// The cluster has no node of this name.
    NodeNotFound,
    /// An older NodeConfig describes the same node; the message names it.
    NodeConflict,

    // Why there is no fresh value.
    /// The server does not answer, or answers that it cannot at the moment.
    Unreachable,
    /// The server refuses the login. It is tried again when the Secret changes, and else after some minutes, longer each time,
    /// since many BMCs lock accounts.
    LoginRefused,
    /// The server's certificate is not from a trusted authority, or is for another name; the message says which field to set.
    CertificateRefused,
    /// A Secret or ConfigMap that the spec names is missing or may not be read; the message says what to do.
    SecretUnavailable,
    /// The address may not be asked, by the operator's settings or its own rules.
    AddressRefused,
    /// The machine has no sensor for the value, or none of the name that the spec has.
    SensorNotFound,
    /// The machine has several sensors that may be the one; the message names them: set `sensor`.
    SensorAmbiguous,
    /// The sensor has no reading at the moment, or says that it is faulty.
    NoReading,
    /// The answer is not what such a server answers, or a value is out of range.
    AnswerInvalid,
    /// A value that the prediction needs is not known.
    InputMissing,
    /// The API metrics.k8s.io is not there: install metrics-server, or set another type for `usage`.
    NoMetricsServer,
    /// No newer value came for three intervals.
    Stale,

    // A NodeConfigTemplate.
    /// Every node that the selector matches has its NodeConfig, and these are Ready.
    Applied,
    /// NodeConfigs are being created, changed or deleted.
    Applying,
    /// The selector matches no node.
    NoNodes,
    /// A text of the template cannot be rendered, or not to a valid value; the message shows which and why.
    TemplateInvalid,
    /// The template cannot be rendered for some nodes; the others have their NodeConfigs. The message names one and why.
    NodesLeftOut,
    /// An object with the name of a NodeConfig of this template exists, and the template does not own it.
    NotOwned,
    /// Some of the NodeConfigs are not Ready; the message names one and why.
    NodeConfigsNotReady,
}
