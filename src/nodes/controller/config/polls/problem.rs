//! Converts errors of the clients into the reason and text of a status.

use reqwest::StatusCode;

use ganglion_api::node_config::reasons::NodeReason;
use ganglion_nodes_plan::readings::Problem;
use ganglion_outbound::value::ValueError;
use ganglion_outbound::{Error, redfish};

/// Problem of a request to this host.
pub fn of_client(host: &str, error: &Error) -> Problem {
    let words = match error {
        // The error text contains the host.
        Error::NoAnswer(_) | Error::Refused(_) => error.to_string(),
        Error::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            format!("{host} refuses the request: {error}")
        }
        _ => format!("{host}: {error}"),
    };
    Problem::new(reason(error), words)
}

/// Problem of a value from this host.
pub fn of_value(host: &str, error: &ValueError) -> Problem {
    let reason = match error {
        ValueError::Client(error) => return of_client(host, error),
        ValueError::Unfit(_) => NodeReason::SpecInvalid,
        ValueError::NotFound(_) => NodeReason::SensorNotFound,
        ValueError::AmbiguousSensor(_) => NodeReason::SensorAmbiguous,
        ValueError::Ambiguous(_) => NodeReason::Ambiguous,
        ValueError::NoReading(_) => NodeReason::NoReading,
        ValueError::Rejected(_) | ValueError::Invalid(_) => NodeReason::AnswerInvalid,
    };
    Problem::new(reason, format!("{host}: {error}"))
}

/// Problem of a BMC.
pub fn of_redfish(host: &str, error: &redfish::Error) -> Problem {
    use redfish::Error as R;
    let reason = match error {
        R::Request(error) => return of_client(host, error),
        R::SensorNotFound | R::NoIntake(_) | R::NoTemperature(_) | R::NoPower(_) | R::NoPowerReading(_) => {
            NodeReason::SensorNotFound
        }
        R::TooManyRequests(_) | R::Ambiguous(_) => NodeReason::SensorAmbiguous,
        R::NoReading(_) => NodeReason::NoReading,
        R::NoService | R::Unit(_) | R::OutOfRange(_) | R::OutsideRange(_) | R::Watts(_) | R::NoModel | R::Model(_) => {
            NodeReason::AnswerInvalid
        }
    };
    Problem::new(reason, format!("{host}: {error}"))
}

/// Error of the HTTP request, if that is the cause.
pub fn client(error: &ValueError) -> Option<&Error> {
    match error {
        ValueError::Client(error) => Some(error),
        ValueError::Unfit(_)
        | ValueError::NotFound(_)
        | ValueError::AmbiguousSensor(_)
        | ValueError::Ambiguous(_)
        | ValueError::NoReading(_)
        | ValueError::Rejected(_)
        | ValueError::Invalid(_) => None,
    }
}

fn reason(error: &Error) -> NodeReason {
    match error {
        Error::Refused(_) => NodeReason::AddressRefused,
        Error::Unfit(_) => NodeReason::SecretUnavailable,
        Error::Certificate(_) => NodeReason::CertificateRefused,
        Error::Unresolved(_)
        | Error::Unreachable(_)
        | Error::Incompatible
        | Error::Timeout(_)
        | Error::Broken(_)
        | Error::NoAnswer(_)
        | Error::Full => NodeReason::Unreachable,
        Error::TooLong(_) | Error::Redirect(_) | Error::Query(..) | Error::Partial(_) | Error::Answer(_) => {
            NodeReason::AnswerInvalid
        }
        Error::Status(_) | Error::Grpc(_) if error.is_refusal() => NodeReason::LoginRefused,
        Error::Status(_) | Error::Grpc(_) if error.is_passing() => NodeReason::Unreachable,
        Error::Status(_) | Error::Grpc(_) => NodeReason::AnswerInvalid,
    }
}
