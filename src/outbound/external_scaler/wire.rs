//! Messages and methods of the protocol, as in `external_scaler.proto`.

use std::collections::BTreeMap;

/// Paths of the methods.
pub const IS_ACTIVE: &str = "/externalscaler.ExternalScaler/IsActive";
pub const STREAM_IS_ACTIVE: &str = "/externalscaler.ExternalScaler/StreamIsActive";
pub const GET_METRIC_SPEC: &str = "/externalscaler.ExternalScaler/GetMetricSpec";
pub const GET_METRICS: &str = "/externalscaler.ExternalScaler/GetMetrics";

/// Object that the request is about.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScaledObjectRef {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub scaler_metadata: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct IsActiveResponse {
    #[prost(bool, tag = "1")]
    pub result: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetMetricSpecResponse {
    #[prost(message, repeated, tag = "1")]
    pub metric_specs: Vec<MetricSpec>,
}

/// A metric that the scaler offers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricSpec {
    #[prost(string, tag = "1")]
    pub metric_name: String,
    #[prost(int64, tag = "2")]
    pub target_size: i64,
    #[prost(double, tag = "3")]
    pub target_size_float: f64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetMetricsRequest {
    #[prost(message, optional, tag = "1")]
    pub scaled_object_ref: Option<ScaledObjectRef>,
    #[prost(string, tag = "2")]
    pub metric_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetMetricsResponse {
    #[prost(message, repeated, tag = "1")]
    pub metric_values: Vec<MetricValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricValue {
    #[prost(string, tag = "1")]
    pub metric_name: String,
    #[prost(int64, tag = "2")]
    pub metric_value: i64,
    #[prost(double, tag = "3")]
    pub metric_value_float: f64,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;

    use super::*;

    /// Type on the wire: the low three bits of a field's key.
    fn wire_type(kind: &str) -> u8 {
        match kind {
            "bool" | "int64" => 0,
            "double" => 1,
            _ => 2,
        }
    }

    /// Each field of the proto file, with the first byte of its encoding: `Message.field` and key.
    fn of_the_file() -> BTreeSet<(String, u8)> {
        let mut fields = BTreeSet::new();
        let mut message = "";
        for line in include_str!("external_scaler.proto").lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("message ") {
                message = name.trim_end_matches(" {");
            }
            let Some((left, number)) = line.strip_suffix(';').and_then(|line| line.split_once(" = ")) else { continue };
            let (Some((kind, name)), Ok(number)) = (left.rsplit_once(' '), number.parse::<u8>()) else { continue };
            fields.insert((format!("{message}.{name}"), number << 3 | wire_type(kind)));
        }
        fields
    }

    #[test]
    fn the_messages_are_those_of_the_proto_file() {
        let (name, map) = ("a".to_owned(), BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        let object = ScaledObjectRef { name: name.clone(), ..ScaledObjectRef::default() };
        let (spec, value) = (MetricSpec::default(), MetricValue::default());
        let encoded = [
            ("ScaledObjectRef.name", object.encode_to_vec()),
            ("ScaledObjectRef.namespace", {
                ScaledObjectRef { namespace: name.clone(), ..ScaledObjectRef::default() }.encode_to_vec()
            }),
            ("ScaledObjectRef.scalerMetadata", {
                ScaledObjectRef { scaler_metadata: map, ..ScaledObjectRef::default() }.encode_to_vec()
            }),
            ("IsActiveResponse.result", IsActiveResponse { result: true }.encode_to_vec()),
            ("GetMetricSpecResponse.metricSpecs", {
                GetMetricSpecResponse { metric_specs: vec![spec.clone()] }.encode_to_vec()
            }),
            ("MetricSpec.metricName", MetricSpec { metric_name: name.clone(), ..spec.clone() }.encode_to_vec()),
            ("MetricSpec.targetSize", MetricSpec { target_size: 1, ..spec.clone() }.encode_to_vec()),
            ("MetricSpec.targetSizeFloat", MetricSpec { target_size_float: 1.0, ..spec }.encode_to_vec()),
            ("GetMetricsRequest.scaledObjectRef", {
                GetMetricsRequest { scaled_object_ref: Some(object), metric_name: String::new() }.encode_to_vec()
            }),
            ("GetMetricsRequest.metricName", {
                GetMetricsRequest { scaled_object_ref: None, metric_name: name.clone() }.encode_to_vec()
            }),
            ("GetMetricsResponse.metricValues", {
                GetMetricsResponse { metric_values: vec![value.clone()] }.encode_to_vec()
            }),
            ("MetricValue.metricName", MetricValue { metric_name: name, ..value.clone() }.encode_to_vec()),
            ("MetricValue.metricValue", MetricValue { metric_value: 1, ..value.clone() }.encode_to_vec()),
            ("MetricValue.metricValueFloat", MetricValue { metric_value_float: 1.0, ..value }.encode_to_vec()),
        ];
        let encoded: BTreeSet<(String, u8)> =
            encoded.into_iter().map(|(field, bytes)| (field.to_owned(), bytes[0])).collect();
        assert_eq!(encoded, of_the_file());
    }

    #[test]
    fn the_methods_are_those_of_the_proto_file() {
        let methods = include_str!("external_scaler.proto").lines().filter_map(|line| {
            let (name, _) = line.trim().strip_prefix("rpc ")?.split_once('(')?;
            Some(format!("/externalscaler.ExternalScaler/{name}"))
        });
        let methods: Vec<String> = methods.collect();
        assert_eq!(methods, [IS_ACTIVE, STREAM_IS_ACTIVE, GET_METRIC_SPEC, GET_METRICS]);
    }
}
