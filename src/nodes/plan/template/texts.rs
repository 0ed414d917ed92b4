//! Texts of a template that are rendered.

use std::fmt;

use ganglion_api::node_config::source::EndpointTerm;
use ganglion_api::node_config::template::NodeTemplate;

/// Field of a template, such as `metricsCollector.inletTemp.endpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextField {
    /// Field of its source, such as `metricsCollector.inletTemp`.
    pub term: &'static str,
    /// Name within the source, such as `endpoint`.
    pub name: &'static str,
}

impl fmt::Display for TextField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.name)
    }
}

/// Sources of a template, with their spec fields.
pub fn terms(template: &mut NodeTemplate) -> impl Iterator<Item = (&'static str, &mut EndpointTerm)> {
    let collector = template.metrics_collector.iter_mut().flat_map(|collector| {
        [
            ("metricsCollector.inletTemp", &mut collector.inlet_temp),
            ("metricsCollector.deltaP", &mut collector.delta_p),
            ("metricsCollector.usage", &mut collector.usage),
        ]
    });
    let predictor = template.predictor.iter_mut().flat_map(|predictor| {
        [
            ("predictor.powerConsumption", &mut predictor.power_consumption),
            ("predictor.powerConsumptionEndpointProvider", &mut predictor.power_consumption_endpoint_provider),
        ]
    });
    collector.chain(predictor).filter_map(|(term, source)| Some((term, source.as_mut()?)))
}

/// Visits each text that may contain expressions. Stops at the first error.
pub fn visit<E>(
    template: &mut NodeTemplate,
    mut visit: impl FnMut(TextField, &mut String) -> Result<(), E>,
) -> Result<(), E> {
    for (term, source) in terms(template) {
        for (name, text) in texts(source) {
            visit(TextField { term, name }, text)?;
        }
    }
    Ok(())
}

fn texts(source: &mut EndpointTerm) -> impl Iterator<Item = (&'static str, &mut String)> {
    let EndpointTerm { type_, endpoint, basic_auth_secret, ca, sensor, .. } = source;
    let (secret, config_map) = ca.as_mut().map_or((None, None), |ca| (ca.secret.as_mut(), ca.config_map.as_mut()));
    let all = [
        ("type", Some(type_)),
        ("endpoint", endpoint.as_mut()),
        ("basicAuthSecret.name", basic_auth_secret.as_mut().map(|secret| &mut secret.name)),
        ("ca.secret.name", secret.map(|key| &mut key.name)),
        ("ca.configMap.name", config_map.map(|key| &mut key.name)),
        ("sensor", sensor.as_mut()),
    ];
    all.into_iter().filter_map(|(name, text)| Some((name, text?)))
}
