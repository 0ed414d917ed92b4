//! Selectors for the series of node-exporter in Prometheus, and the query that finds the nodes for which several
//! exporters answer.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::names::is_label_name;

/// Series of node-exporter that may belong to the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExporterSeries {
    /// Label with the name or address of the node.
    label: String,
    /// Matchers for further labels, in the form of the query language.
    matchers: String,
}

/// A name that Prometheus does not accept for a label. It would change the query around it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SeriesError {
    #[error("the node label is not the name of a label of Prometheus: use letters, digits and _, with no digit first")]
    NodeLabel,
    #[error(
        "matchers contains a name that is not one of a label of Prometheus: use letters, digits and _, with no digit \
         first"
    )]
    Matchers,
}

impl ExporterSeries {
    /// Series with `label` whose other labels have these values. Fails if one of them is not a valid label name.
    pub fn new(label: &str, matchers: &BTreeMap<String, String>) -> Result<Self, SeriesError> {
        if !is_label_name(label) {
            return Err(SeriesError::NodeLabel);
        }
        if !matchers.keys().all(|name| is_label_name(name)) {
            return Err(SeriesError::Matchers);
        }
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let matchers: Vec<String> =
            matchers.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
        Ok(Self { label: label.to_owned(), matchers: matchers.join(",") })
    }

    /// Label with the name or address of the node.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// CPU time, of the series that also match `further`.
    pub fn cpu(&self, further: &str) -> String {
        self.selector("node_cpu_seconds_total", further)
    }

    /// An amount of memory, such as `MemTotal`.
    pub fn memory(&self, which: &str) -> String {
        self.selector(&format!("node_memory_{which}_bytes"), "")
    }

    /// Series of this metric, of those that also match `further`.
    pub fn selector(&self, metric: &str, further: &str) -> String {
        let all: Vec<&str> = [further, &self.matchers].into_iter().filter(|one| !one.is_empty()).collect();
        if all.is_empty() { metric.to_owned() } else { format!("{metric}{{{}}}", all.join(",")) }
    }

    /// Query for the values of the label for which several exporters answer now, such as those of two clusters whose
    /// nodes have the same addresses. An exporter has one series of each of these.
    pub fn ambiguous(&self) -> String {
        let label = &self.label;
        let several = |one: &str| format!("count by ({label}) ({one}) > 1");
        let (cpu, memory) = (self.cpu("cpu=\"0\",mode=\"idle\""), self.memory("MemTotal"));
        format!("{} or {}", several(&memory), several(&cpu))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(matchers: &[(&str, &str)]) -> Result<ExporterSeries, SeriesError> {
        let matchers = matchers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ExporterSeries::new("instance", &matchers)
    }

    #[test]
    fn without_matchers_a_selector_has_no_braces() {
        let all = series(&[]).unwrap();
        assert_eq!(all.memory("MemTotal"), "node_memory_MemTotal_bytes");
        assert_eq!(all.cpu("mode=\"idle\""), "node_cpu_seconds_total{mode=\"idle\"}");
    }

    #[test]
    fn matchers_follow_the_labels_of_the_metric() {
        let some = series(&[("cluster", "a\"b\\c\nd"), ("job", "node")]).unwrap();
        assert_eq!(some.cpu("mode=\"idle\""), r#"node_cpu_seconds_total{mode="idle",cluster="a\"b\\c\nd",job="node"}"#);
    }

    #[test]
    fn what_is_no_label_is_refused() {
        for name in ["", "a-b", "1a", "a) or vector(1", "é", "a\n", "\"a\""] {
            assert_eq!(series(&[(name, "x")]), Err(SeriesError::Matchers), "{name}");
            assert_eq!(ExporterSeries::new(name, &BTreeMap::new()), Err(SeriesError::NodeLabel), "{name}");
        }
    }

    proptest! {
        /// No value ends its string, so that none adds anything to the query.
        #[test]
        fn a_value_stays_within_its_quotes(value in "\\PC*|[\"\\\\\n a]*") {
            let selector = series(&[("cluster", &value)]).unwrap().memory("MemTotal");
            let inner = selector
                .strip_prefix("node_memory_MemTotal_bytes{cluster=\"")
                .and_then(|rest| rest.strip_suffix("\"}"))
                .unwrap();
            let mut read = String::new();
            let mut letters = inner.chars();
            while let Some(letter) = letters.next() {
                prop_assert!(letter != '"' && letter != '\n', "{selector}");
                read.extend(match letter {
                    '\\' => letters.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped }),
                    plain => Some(plain),
                });
            }
            prop_assert_eq!(read, value);
        }
    }
}
