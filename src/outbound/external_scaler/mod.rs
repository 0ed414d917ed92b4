//! Client of external scalers of KEDA: a number, a target or the activity, from a gRPC server that a user names.
//!
//! Owns the protocol and the meaning of its answers. The connections, and what limits them, are those of [`Web`].
//!
//! | file | content |
//! |---|---|
//! | `external_scaler.proto`, `wire` | the messages |
//! | `answer` | which number of an answer counts |
//! | `pauses` | pauses between two attempts to open a stream |

mod answer;
mod pauses;
pub mod wire;

use tokio::time::Instant;

use crate::Error;
use crate::web::grpc::{GrpcAnswers, GrpcCall};
use crate::web::{Call, Web};
pub use pauses::ReconnectPauses;
use wire::{GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, ScaledObjectRef};

/// Maximum size of a message about the activity, in bytes: it has two.
const MAX_ACTIVITY: usize = 1024;

/// Number to request of a scaler. A metric without a name is the only one that the scaler offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalerQuestion<'a> {
    /// The value of a metric.
    Metric(Option<&'a str>),
    /// The target that the scaler has for a metric.
    Target(Option<&'a str>),
    /// 1 if the scaler is active, otherwise 0.
    Active,
}

/// A scaler, asked for one object.
pub struct ExternalScaler<'a> {
    pub web: &'a Web,
    pub call: &'a GrpcCall,
    pub object: &'a ScaledObjectRef,
}

impl ExternalScaler<'_> {
    /// Asks for a number. Nothing is remembered: a new target counts at the next question.
    pub async fn ask(&self, question: ScalerQuestion<'_>) -> Result<String, Error> {
        let end = Instant::now() + self.call.call.within;
        match question {
            ScalerQuestion::Active => {
                let answer: IsActiveResponse =
                    self.web.unary(self.call, wire::IS_ACTIVE, self.object.clone(), end).await?;
                Ok(u8::from(answer.result).to_string())
            }
            ScalerQuestion::Target(name) => {
                let metrics = self.metrics(end).await?;
                answer::metric(&metrics, name).and_then(answer::target).map_err(Error::Answer)
            }
            ScalerQuestion::Metric(Some(name)) => self.value(name, end).await,
            ScalerQuestion::Metric(None) => {
                let metrics = self.metrics(end).await?;
                let metric = answer::metric(&metrics, None).map_err(Error::Answer)?;
                self.value(&metric.metric_name, end).await
            }
        }
    }

    /// Opens the stream of the activity. It stays open until the scaler ends it, or the connection breaks.
    pub async fn open_activity(&self) -> Result<GrpcAnswers<IsActiveResponse>, Error> {
        let GrpcCall { call, identity } = self.call;
        let call = GrpcCall { call: Call { limit: MAX_ACTIVITY, ..call.clone() }, identity: identity.clone() };
        self.web.open(&call, wire::STREAM_IS_ACTIVE, self.object.clone()).await
    }

    async fn metrics(&self, end: Instant) -> Result<GetMetricSpecResponse, Error> {
        self.web.unary(self.call, wire::GET_METRIC_SPEC, self.object.clone(), end).await
    }

    async fn value(&self, name: &str, end: Instant) -> Result<String, Error> {
        let request = GetMetricsRequest { scaled_object_ref: Some(self.object.clone()), metric_name: name.to_owned() };
        let values: GetMetricsResponse = self.web.unary(self.call, wire::GET_METRICS, request, end).await?;
        answer::value(&values, name).map_err(Error::Answer)
    }
}

/// URL of the server at this address, which is a host and a port.
pub fn server_url(address: &str, has_tls: bool) -> Result<String, Error> {
    let wrong = || Error::Refused("it is not a host and a port, such as scaler.shop.svc:9090".to_owned());
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(is_host) || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    let scheme = if has_tls { "https" } else { "http" };
    let url = crate::web::parse(&format!("{scheme}://{address}/"))?;
    Ok(url.into())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("scaler.shop.svc:9090", false, "http://scaler.shop.svc:9090/")]
    #[case("scaler:443", true, "https://scaler/")]
    #[case("127.0.0.1:80", false, "http://127.0.0.1/")]
    #[case("[fd00::1]:9090", true, "https://[fd00::1]:9090/")]
    fn an_address_is_a_host_and_a_port(#[case] address: &str, #[case] has_tls: bool, #[case] expected: &str) {
        assert_eq!(server_url(address, has_tls).as_deref(), Ok(expected));
    }

    #[rstest]
    fn anything_else_is_refused(
        #[values(
            "",
            "scaler",
            ":9090",
            "scaler:",
            "scaler:x",
            "scaler:70000",
            "a/b:1",
            "user@scaler:1",
            "a?b:1",
            "a b:1",
            "dns:///scaler:9090",
            "[fd00::1:9090"
        )]
        address: &str,
    ) {
        assert!(matches!(server_url(address, false), Err(Error::Refused(_))), "{address}");
    }
}
