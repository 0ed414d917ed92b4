//! Compares the promise of an act with what the independent watch saw.

use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use kube::ResourceExt;
use testkit::eye::Seen;
use testkit::verdict::Verdict;

use super::scene::REPLICAS;
use super::screen::Screen;

/// Expected result of an act.
pub struct Promise {
    pub died: Died,
    pub came: Came,
    /// `spec.replicas` before the act and, if the act changes it, after.
    pub replicas: Vec<usize>,
}

/// Pods that the act should terminate.
pub enum Died {
    Nobody,
    /// One pod on this node.
    On(String),
    /// All pods on any of these nodes.
    OnAny(Vec<String>),
    Named(Vec<String>),
}

/// Nodes on which new replicas should start.
pub enum Came {
    /// One replica per listed node; a node listed twice gets two.
    On(Vec<String>),
    /// This number of replicas, on any node except this one.
    Off(String, usize),
}

impl Came {
    fn count(&self) -> usize {
        match self {
            Self::On(nodes) => nodes.len(),
            Self::Off(_, count) => *count,
        }
    }

    fn is(&self, came: &[(String, String)]) -> bool {
        match self {
            Self::On(nodes) => sorted(came.iter().map(|(_, node)| node)) == sorted(nodes),
            Self::Off(node, count) => came.len() == *count && came.iter().all(|(_, on)| on != node),
        }
    }
}

impl Promise {
    /// Minimum number of Ready replicas during the act.
    pub fn least(&self) -> usize {
        self.replicas.iter().copied().min().unwrap_or(REPLICAS)
    }
}

/// Prints each check in green or red. Returns the number of failed checks.
pub fn judge(
    promise: &Promise,
    verdict: &Verdict,
    seen: &Seen,
    action: Option<&WorkloadAction>,
    screen: &Screen,
) -> usize {
    let mut wrong = 0;
    let mut say = |what: &str, seen: String, good: bool| {
        wrong += usize::from(!good);
        screen.verdict(what, &seen, good);
    };
    screen.say("\n  What an independent watch saw:\n");
    let (ready, message) = outcome(action);
    say(
        "result of the action",
        if message.is_empty() { ready.clone() } else { format!("{ready}: {message}") },
        ready == "Succeeded",
    );
    let least = promise.least();
    say(
        "lowest number of Ready replicas",
        format!("{} (at least {least} expected)", verdict.lowest_ready),
        verdict.lowest_ready >= least,
    );
    say("terminated pods", names(&verdict.died), died_as_promised(promise, verdict, seen));
    let came: Vec<String> = verdict.came.iter().map(|(pod, node)| format!("{pod} on {node}")).collect();
    say("new replicas", names(&came), promise.came.is(&verdict.came));
    let replicas: Vec<usize> = verdict.replicas.iter().filter_map(|number| usize::try_from(*number).ok()).collect();
    let moves = promise.replicas.len() > 1;
    let as_meant = if moves { "as requested" } else { "unchanged" };
    let path: Vec<String> = replicas.iter().map(ToString::to_string).collect();
    let good = replicas == promise.replicas;
    say(
        "spec.replicas",
        format!("{}{}", path.join(" → "), if good { format!(", {as_meant}") } else { String::new() }),
        good,
    );
    let changes = verdict.generations.saturating_sub(1);
    // Changes of annotations also increase a Deployment's generation.
    let words = match changes {
        0 => "unchanged".to_owned(),
        2 if moves => "changed twice: by spec.replicas, and by the removal of the ledger annotation".to_owned(),
        some => format!("changed {some} times"),
    };
    say("generation", words, changes == if moves { 2 } else { 0 });
    let marked: Vec<String> = seen.pods.values().filter(|pod| is_marked(pod)).map(|pod| pod.name_any()).collect();
    say("pods that still carry a mark", names(&marked), marked.is_empty());
    wrong
}

fn outcome(action: Option<&WorkloadAction>) -> (String, String) {
    let status = action.and_then(|action| action.status.as_ref());
    let ready = status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Ready"));
    match ready {
        Some(ready) if ready.status == "True" => (ready.reason.clone(), String::new()),
        Some(ready) => (ready.reason.clone(), ready.message.clone()),
        None => ("no result".to_owned(), "the operator has not reconciled the action".to_owned()),
    }
}

fn died_as_promised(promise: &Promise, verdict: &Verdict, seen: &Seen) -> bool {
    match (&promise.died, verdict.died.as_slice()) {
        (Died::Nobody, []) => true,
        (Died::Named(pods), died) => sorted(pods) == sorted(died),
        (Died::OnAny(nodes), died) => {
            let left = |pod: &String| node_at_death(seen, pod).is_some_and(|node| nodes.contains(&node));
            died.len() == promise.came.count() && died.iter().all(left)
        }
        (Died::On(node), [died]) => node_at_death(seen, died).as_deref() == Some(node.as_str()),
        _ => false,
    }
}

fn sorted<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<&'a String> {
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort();
    names
}

/// Node on which a terminated pod ran.
fn node_at_death(seen: &Seen, name: &str) -> Option<String> {
    use testkit::eye::Happening;
    seen.history.iter().rev().find_map(|happening| match happening {
        Happening::Pod(pod) | Happening::PodGone(pod) if pod.name_any() == name => Some(testkit::verdict::node_of(pod)),
        _ => None,
    })
}

fn is_marked(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let annotations = pod.annotations();
    annotations.contains_key(marks::SLOT)
        || annotations.get(marks::DELETION_COST).is_some_and(|cost| cost == marks::LOWEST_COST)
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
