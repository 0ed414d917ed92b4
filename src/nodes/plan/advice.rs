//! Advice for users, by reason.

use super::asked::Question;
use ganglion_api::node_config::reasons::NodeReason;

/// Advice that completes a problem text. None if nothing is wrong or the problem text already says what to do. `field`
/// is the spec field of the source.
pub fn advice(reason: NodeReason, field: &str) -> Option<String> {
    use NodeReason as R;
    let words = match reason {
        R::Sampled | R::NothingToMeasure | R::Waiting | R::Applied | R::Applying | R::Stale => return None,
        // The problem text names what to change.
        R::InvalidObject | R::SpecInvalid | R::NamespaceRefused | R::SecretUnavailable | R::TemplateInvalid => {
            return None;
        }
        R::InputMissing | R::NoReading | R::NodesLeftOut | R::NodeConfigsNotReady => return None,
        R::Suspended => "set spec.suspend to false to resume".to_owned(),
        R::NodeNotFound => "measurement starts when the node exists; otherwise delete this NodeConfig".to_owned(),
        R::NodeConflict => "delete one of the two".to_owned(),
        R::Unreachable => format!("check the machine or server, its network, and {field}.endpoint"),
        R::LoginRefused => "correct the user and password in the Secret, or the rights of that user".to_owned(),
        R::CertificateRefused => {
            format!("set {field}.ca to its certificate or to its authority, or {field}.insecureSkipVerify: true")
        }
        R::AddressRefused => {
            format!("change {field}.endpoint, or allow the address in the operator's settings (outbound)")
        }
        // The problem text names the label of the series.
        R::SensorNotFound | R::SensorAmbiguous if field == Question::Usage.field() => return None,
        R::SensorNotFound | R::SensorAmbiguous => format!("set {field}.sensor"),
        R::AnswerInvalid => format!("check that {field}.endpoint is a server of the type in {field}.type"),
        R::NoMetricsServer => format!("install metrics-server, or set another type in {field}"),
        R::NoNodes => "change the selector, or label nodes".to_owned(),
        R::NotOwned => "delete the named object, or rename the template".to_owned(),
        R::Unknown => "use the ganglion program of the operator's version".to_owned(),
    };
    Some(words)
}

/// Appends the advice for this source, if any, to a problem text.
pub fn with_advice(question: Question, reason: NodeReason, words: &str) -> String {
    match advice(reason, question.field()) {
        Some(advice) => format!("{words}; {advice}"),
        None => words.to_owned(),
    }
}
