//! The variables of the OpenTelemetry specification that say where spans are sent, and what is wrong with them.
//!
//! As the specification says, an empty variable is an unset one, and a number or name that cannot be used is reported
//! as a warning and has its default. An endpoint, protocol, header or file that cannot be used is an error: nobody
//! would receive the spans.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;

use ganglion_core::trace::{SPAN_TEXT, TraceId};
use ganglion_core::words::cut;

/// Timeout of a request, unless a variable sets it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum timeout of a request.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of headers, and of attributes of the resource.
const MOST_PAIRS: usize = 32;

/// Path of spans below `OTEL_EXPORTER_OTLP_ENDPOINT`.
const PATH: &str = "v1/traces";

/// Error: a variable cannot be used. The value is not shown, since it may contain a password.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("environment variable {variable}: {problem}")]
pub struct OtlpProblem {
    pub variable: &'static str,
    pub problem: String,
}

/// Which traces are sent. The choice depends on the trace id alone, so that all processes make the same one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceSampler {
    All,
    None,
    /// This share of all traces, from 0 to 1.
    Share(f64),
}

/// Number of values of the 63 bits by which a share of all traces is selected.
const SAMPLED_BITS: f64 = (1_u64 << 63) as f64;

impl TraceSampler {
    /// Whether the spans of this trace are sent. A share selects as the SDKs of OpenTelemetry do.
    pub fn is_sampled(self, trace: TraceId) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Share(share) => ((trace.low_bits() >> 1) as f64) < share * SAMPLED_BITS,
        }
    }
}

/// Where and how spans are sent.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    pub url: Url,
    /// Headers of each request, as a rule with credentials.
    pub headers: HeaderMap,
    pub timeout: Duration,
    /// File with the authorities of the endpoint's certificate, in PEM. None: the public authorities.
    pub certificate: Option<(&'static str, String)>,
    /// Attributes of the resource.
    pub resource: Vec<(String, String)>,
    pub sampler: TraceSampler,
    /// Variables that are ignored, for the log.
    pub warnings: Vec<OtlpProblem>,
}

impl OtlpSettings {
    /// Reads the variables; None if no endpoint is set, or if traces are disabled. `variable` returns the value of a
    /// variable.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, OtlpProblem> {
        let mut variables = Variables { variable, warnings: Vec::new() };
        let Some(url) = variables.url()? else { return Ok(None) };
        if variables.is_disabled() {
            return Ok(None);
        }
        variables.check_protocol()?;
        let headers = variables.headers()?;
        let (timeout, certificate) = (variables.timeout(), variables.certificate());
        let (resource, sampler) = (variables.resource(), variables.sampler());
        let warnings = variables.warnings;
        Ok(Some(Self { url, headers, timeout, certificate, resource, sampler, warnings }))
    }
}

/// VariableNames of a variable: for spans, and for all signals.
type VariableNames = [&'static str; 2];

const ENDPOINT: VariableNames = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOL: VariableNames = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const HEADERS: VariableNames = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const TIMEOUTS: VariableNames = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const CERTIFICATE: VariableNames = ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"];
const COMPRESSION: VariableNames = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

struct Variables<F> {
    variable: F,
    warnings: Vec<OtlpProblem>,
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn one(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The variable for spans, or else the one for all signals, with its name.
    fn first(&self, names: VariableNames) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, self.one(name)?)))
    }

    fn warn(&mut self, variable: &'static str, problem: impl Into<String>) {
        self.warnings.push(OtlpProblem { variable, problem: problem.into() });
    }

    fn url(&self) -> Result<Option<Url>, OtlpProblem> {
        let Some((variable, text)) = self.first(ENDPOINT) else { return Ok(None) };
        let wrong = |problem: String| OtlpProblem { variable, problem };
        let example = "use a URL such as http://collector.observability.svc:4318";
        let mut url = Url::parse(&text).map_err(|error| wrong(format!("{error}: {example}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong(format!("only http and https are supported: {example}")));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it contains a user or password: use OTEL_EXPORTER_OTLP_HEADERS instead".to_owned()));
        }
        if variable == ENDPOINT[1] {
            let path = format!("{}/{PATH}", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        Ok(Some(url))
    }

    /// Whether a variable switches traces off.
    fn is_disabled(&mut self) -> bool {
        let flag = self.one(DISABLED);
        if let Some(flag) = flag.as_ref().filter(|flag| !flag.eq_ignore_ascii_case("false")) {
            if flag.eq_ignore_ascii_case("true") {
                return true;
            }
            self.warn(DISABLED, "it is neither true nor false, and counts as false");
        }
        match self.one(EXPORTER).as_deref() {
            None | Some("otlp") => false,
            Some("none") => true,
            Some(_) => {
                self.warn(EXPORTER, "only otlp and none are supported; spans are sent by otlp");
                false
            }
        }
    }

    fn check_protocol(&mut self) -> Result<(), OtlpProblem> {
        match self.first(PROTOCOL) {
            Some((variable, protocol)) if protocol == "grpc" => {
                let problem = "grpc is not supported: use http/json, and the port for HTTP, as a rule 4318".to_owned();
                return Err(OtlpProblem { variable, problem });
            }
            // Receivers of http/protobuf accept JSON at the same path.
            Some((variable, protocol)) if protocol != "http/json" => {
                self.warn(variable, "only http/json is supported; spans are sent as JSON");
            }
            Some(_) | None => {}
        }
        match self.first(COMPRESSION) {
            Some((variable, compression)) if compression != "none" => {
                self.warn(variable, "compression is not supported; spans are sent as they are");
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn headers(&self) -> Result<HeaderMap, OtlpProblem> {
        let mut headers = HeaderMap::new();
        let Some((variable, text)) = self.first(HEADERS) else { return Ok(headers) };
        let wrong = |problem: &str| OtlpProblem { variable, problem: problem.to_owned() };
        let pairs = pairs(&text)
            .ok_or_else(|| wrong("use the form name=value,name=value, at most 32, with other characters as %2C"))?;
        for (name, value) in pairs {
            let name = HeaderName::try_from(name).map_err(|_| wrong("a name is not the name of a header"))?;
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong("a value cannot be in a header"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    fn timeout(&mut self) -> Duration {
        let Some((variable, text)) = self.first(TIMEOUTS) else { return TIMEOUT };
        match text.parse::<u64>().ok().filter(|millis| *millis > 0).map(Duration::from_millis) {
            Some(timeout) if timeout <= LONGEST_TIMEOUT => timeout,
            Some(_) => {
                self.warn(variable, "it is longer than a minute, and counts as one minute");
                LONGEST_TIMEOUT
            }
            None => {
                self.warn(variable, "it is not a number of milliseconds; the timeout is 10 seconds");
                TIMEOUT
            }
        }
    }

    fn certificate(&self) -> Option<(&'static str, String)> {
        self.first(CERTIFICATE)
    }

    /// Attributes of the resource. They have no identity of the process: a span that two processes report must be
    /// equal, so that a store of traces recognizes it.
    fn resource(&mut self) -> Vec<(String, String)> {
        let stated = self.one(RESOURCE).map(|text| pairs(&text));
        if stated.as_ref().is_some_and(Option::is_none) {
            self.warn(RESOURCE, "it does not have the form key=value,key=value, with at most 32 keys, and is ignored");
        }
        let mut all = stated.flatten().unwrap_or_default();
        let named = self.one(SERVICE_NAME);
        if named.is_some() || all.iter().all(|(key, _)| key != "service.name") {
            all.retain(|(key, _)| key != "service.name");
            all.push(("service.name".to_owned(), named.unwrap_or_else(|| "ganglion".to_owned())));
        }
        let bounded =
            |(key, value): (String, String)| (cut(&key, SPAN_TEXT).to_owned(), cut(&value, SPAN_TEXT).to_owned());
        all.into_iter().map(bounded).collect()
    }

    /// No span has a parent of another program, so the samplers of parents are those of roots.
    fn sampler(&mut self) -> TraceSampler {
        let name = self.one(SAMPLER).unwrap_or_default();
        match name.as_str() {
            "" | "always_on" | "parentbased_always_on" => TraceSampler::All,
            "always_off" | "parentbased_always_off" => TraceSampler::None,
            "traceidratio" | "parentbased_traceidratio" => {
                let Some(text) = self.one(SAMPLER_ARG) else { return TraceSampler::All };
                match text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share)) {
                    Some(share) => TraceSampler::Share(share),
                    None => {
                        self.warn(SAMPLER_ARG, "it is not a number from 0 to 1; all traces are sent");
                        TraceSampler::All
                    }
                }
            }
            _ => {
                self.warn(SAMPLER, "there is no such sampler; all traces are sent");
                TraceSampler::All
            }
        }
    }
}

/// Parses `key=value,key=value`; None if a part is neither that nor empty, or if there are too many.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pairs: Option<Vec<(String, String)>> = parts.map(pair).collect();
    pairs.filter(|pairs| pairs.len() <= MOST_PAIRS)
}

fn pair(part: &str) -> Option<(String, String)> {
    let (key, value) = part.split_once('=')?;
    let (key, value) = (decoded(key.trim())?, decoded(value.trim())?);
    (!key.is_empty()).then_some((key, value))
}

/// Replaces `%2C` and the like by the characters that they stand for; None if the text then is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let byte = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = byte.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
