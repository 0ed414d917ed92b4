//! Why there is no value, from the errors of the clients: the reason and words that a status shows.

use reqwest::StatusCode;

use crate::api::node_config::reasons::NodeReason;
use crate::clients::Error;
use crate::logic::node_config::readings::Problem;

/// The problem of a request to this host.
#[must_use]
pub fn of_client(host: &str, error: &Error) -> Problem {
    let words = match error {
        // It names the host itself.
        Error::NoAnswer(_) | Error::Refused(_) => error.to_string(),
        Error::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            format!("{host} refuses the request: {error}")
        }
        _ => format!("{host}: {error}"),
    };
    Problem::new(reason(error), words)
}

fn reason(error: &Error) -> NodeReason {
    match error {
        Error::Refused(_) => NodeReason::AddressRefused,
        Error::Unfit(_) => NodeReason::SecretUnavailable,
        Error::Unresolved(_)
        | Error::Unreachable(_)
        | Error::Timeout(_)
        | Error::Broken(_)
        | Error::NoAnswer(_)
        | Error::Full => NodeReason::Unreachable,
        Error::TooLong(_) | Error::Redirect(_) | Error::Query(..) | Error::Answer(_) => NodeReason::AnswerInvalid,
        Error::Status(_) if error.is_refusal() => NodeReason::LoginRefused,
        Error::Status(_) if error.is_passing() => NodeReason::Unreachable,
        Error::Status(_) => NodeReason::AnswerInvalid,
    }
}
