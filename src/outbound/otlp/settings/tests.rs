//! Variables that are set, empty, wrong, or in conflict.

use jiff::Timestamp;
use rstest::rstest;

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpSettings>, OtlpProblem> {
    OtlpSettings::read(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn with(more: &[(&str, &str)]) -> OtlpSettings {
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
    read(&[&endpoint, more].concat()).unwrap().expect("settings")
}

#[test]
fn nothing_is_sent_without_an_endpoint() {
    for off in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
        &[("OTEL_SERVICE_NAME", "ganglion"), ("OTEL_TRACES_SAMPLER", "always_on")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_SDK_DISABLED", "TRUE")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_TRACES_EXPORTER", "none")],
    ] {
        assert!(read(off).unwrap().is_none(), "{off:?}");
    }
}

#[rstest]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "http://c:4318/v1/traces")]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/", "https://c/otlp/v1/traces")]
#[case("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/own", "http://c:4318/own")]
#[case("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318", "http://c:4318/")]
fn the_endpoint_of_all_signals_gets_the_path_of_spans(#[case] variable: &str, #[case] value: &str, #[case] url: &str) {
    let found = read(&[(variable, value), ("OTEL_EXPORTER_OTLP_ENDPOINT", value)]).unwrap().unwrap();
    assert_eq!(found.url.as_str(), url);
}

#[rstest]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4318", "only http and https")]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "collector", "use a URL such as")]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hush@c", "use OTEL_EXPORTER_OTLP_HEADERS")]
#[case("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "use http/json")]
#[case("OTEL_EXPORTER_OTLP_HEADERS", "hush", "use the form")]
#[case("OTEL_EXPORTER_OTLP_HEADERS", "a b=hush", "a name is not")]
#[case("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=x%0Ahush", "a value cannot")]
fn a_variable_without_which_nobody_receives_spans_is_an_error(
    #[case] variable: &str,
    #[case] value: &str,
    #[case] words: &str,
) {
    let Err(error) = read(&[(variable, value), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")]) else {
        panic!("no error")
    };
    let text = error.to_string();
    assert!(text.starts_with(&format!("environment variable {variable}: ")) && text.contains(words), "{text}");
    assert!(!text.contains("hush"), "it may be a password: {text}");
}

#[rstest]
#[case("OTEL_SDK_DISABLED", "1")]
#[case("OTEL_TRACES_EXPORTER", "jaeger")]
#[case("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]
#[case("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")]
#[case("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")]
#[case("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]
#[case("OTEL_EXPORTER_OTLP_TIMEOUT", "99999999")]
#[case("OTEL_RESOURCE_ATTRIBUTES", "prod")]
#[case("OTEL_TRACES_SAMPLER", "jaeger_remote")]
fn other_variables_that_cannot_be_used_are_warnings(#[case] variable: &'static str, #[case] value: &str) {
    let found = with(&[(variable, value)]);
    assert_eq!(found.warnings.iter().map(|warning| warning.variable).collect::<Vec<_>>(), [variable]);
    assert_eq!((found.sampler, found.timeout >= TIMEOUT), (TraceSampler::All, true));
}

#[test]
fn the_resource_has_a_name_and_the_stated_attributes() {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(with(&[]).resource, [pair("service.name", "ganglion")]);
    let stated = [("OTEL_RESOURCE_ATTRIBUTES", "zone=a%2Cb, service.name=old")];
    assert_eq!(with(&stated).resource, [pair("zone", "a,b"), pair("service.name", "old")]);
    let named = [stated[0], ("OTEL_SERVICE_NAME", "new")];
    assert_eq!(with(&named).resource, [pair("zone", "a,b"), pair("service.name", "new")]);
    let headers = with(&[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x,b=1%")]).headers;
    assert_eq!(headers["authorization"], "Bearer x");
    assert_eq!(headers["b"], "1%");
    assert!(headers["authorization"].is_sensitive());
}

#[test]
fn a_share_of_traces_is_the_same_in_every_process() {
    let share = |text| with(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", text)]);
    assert_eq!(share("2").warnings.len(), 1);
    let sampler = share("0.25").sampler;
    let traces = (0..4_000).map(|sequence| TraceId::new("u", Timestamp::UNIX_EPOCH, sequence));
    let sampled = traces.filter(|trace| sampler.is_sampled(*trace)).count();
    assert!((900..1_100).contains(&sampled), "{sampled} of 4000");
    let trace = TraceId::new("u", Timestamp::UNIX_EPOCH, 1);
    assert!(share("1").sampler.is_sampled(trace) && !share("0").sampler.is_sampled(trace));
    assert!(!with(&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")]).sampler.is_sampled(trace));
}
