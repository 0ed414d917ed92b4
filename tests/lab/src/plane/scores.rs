//! The scores of kube-scheduler for a pod, from its log.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Options of kube-scheduler that make it log all scores, and little more.
pub const OPTIONS: [&str; 1] = ["--vmodule=schedule_one=10"];

/// Message with the sum of a node's scores.
const TOTAL: &str = "\"Calculated node's final score for pod\"";

/// Scores of nodes for one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerScores {
    /// Sum of all scores by node.
    totals: BTreeMap<String, i64>,
    /// Scores of each plugin, times its weight, and of the extender, 0 to 10.
    parts: BTreeMap<String, BTreeMap<String, i64>>,
}

impl SchedulerScores {
    /// Scores for the pod (`namespace/name`). Empty if the scheduler did not need any: only one node was left.
    pub fn read(log: &str, pod: &str) -> Self {
        let mut scores = Self::default();
        for line in log.lines().filter(|line| field(line, "pod") == Some(pod)) {
            let Some((node, score)) = field(line, "node").zip(score(line)) else { continue };
            if line.contains(TOTAL) {
                scores.totals.insert(node.to_owned(), score);
            } else if let Some(part) = part(line) {
                scores.parts.entry(part.to_owned()).or_default().insert(node.to_owned(), score);
            }
        }
        scores
    }

    pub fn total(&self, node: &str) -> Option<i64> {
        self.totals.get(node).copied()
    }

    /// Describes the scores of those parts that do not rate all nodes alike.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (part, nodes) in &self.parts {
            let mut values = nodes.values();
            let first = values.next();
            if values.any(|value| Some(value) != first) {
                let nodes: Vec<String> = nodes.iter().map(|(node, score)| format!("{node} {score}")).collect();
                let _ = writeln!(text, "{part}: {}", nodes.join(", "));
            }
        }
        text
    }
}

/// Plugin whose score a line reports, or the extender.
fn part(line: &str) -> Option<&str> {
    field(line, "plugin").or_else(|| field(line, "extender").map(|_| "extender"))
}

/// Value of a field in quotes.
fn field<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!(" {key}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Value of the field `score`.
fn score(line: &str) -> Option<i64> {
    let (_, rest) = line.split_once(" score=")?;
    rest.split(' ').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of kube-scheduler 1.36.3, without time and process.
    const LOG: &str = r#"
schedule_one.go] "Plugin scored node for pod" pod="lab/pod-7" plugin="TaintToleration" node="lab-0" score=300
schedule_one.go] "Plugin scored node for pod" pod="lab/pod-7" plugin="NodeResourcesFit" node="lab-0" score=50
schedule_one.go] "Plugin scored node for pod" pod="lab/pod-7" plugin="TaintToleration" node="lab-1" score=300
schedule_one.go] "Plugin scored node for pod" pod="lab/pod-7" plugin="NodeResourcesFit" node="lab-1" score=40
schedule_one.go] "Extender scored node for pod" pod="lab/pod-7" extender="http://e" node="lab-1" score=9
schedule_one.go] "Calculated node's final score for pod" pod="lab/pod-7" node="lab-0" score=350
schedule_one.go] "Calculated node's final score for pod" pod="lab/pod-7" node="lab-1" score=790
schedule_one.go] "Calculated node's final score for pod" pod="lab/pod-70" node="lab-1" score=1
schedule_one.go] "Successfully bound pod to node" pod="lab/pod-7" node="lab-1" evaluatedNodes=2 feasibleNodes=2
"#;

    #[test]
    fn scores_are_those_of_the_pod() {
        let scores = SchedulerScores::read(LOG, "lab/pod-7");
        assert_eq!(["lab-0", "lab-1", "lab-2"].map(|node| scores.total(node)), [Some(350), Some(790), None]);
        assert_eq!(scores.describe(), "NodeResourcesFit: lab-0 50, lab-1 40\n");
        assert_eq!(SchedulerScores::read(LOG, "lab/pod-8"), SchedulerScores::default());
    }
}
