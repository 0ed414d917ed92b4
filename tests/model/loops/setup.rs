//! Generates the situation of a run from its seed: the loops, the samples, and the pace of each part.

use serde_json::{Value, json};

use crate::random::Rng;

/// Possible next step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Push,
    Hear,
    Begin,
    Serve,
    Answer,
    /// A request fails without being carried out.
    Refuse,
    /// A request is carried out, but its answer is lost.
    LoseAnswer,
    Crash,
    /// A request of a process that has ended arrives.
    Haunt,
    Cut,
    Tick,
    Leap,
    StepClock,
    Garbage,
    /// Another client scales or touches the target.
    Scale,
    /// Another client deletes the target, a child or the loop; the user's objects are recreated.
    Delete,
    EditChild,
    Policy,
    /// The user approves the proposal that the Decision shows.
    Approve,
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub steps: usize,
    pub pace: Vec<(Choice, u32)>,
    pub slow: bool,
    /// The loop is in mode Approve at times.
    pub approves: bool,
    pub fast: Value,
}

impl Setup {
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rare = |rng: &mut Rng, weight: u32| if rng.chance(500) { 0 } else { weight };
        let mut pace = vec![
            (Choice::Push, 20),
            (Choice::Hear, 120),
            (Choice::Begin, 60),
            (Choice::Serve, 100),
            (Choice::Answer, 100),
            (Choice::Tick, 50),
            (Choice::Refuse, rare(&mut rng, 4)),
            (Choice::LoseAnswer, rare(&mut rng, 4)),
            (Choice::Crash, rare(&mut rng, 4)),
            (Choice::Haunt, rare(&mut rng, 20)),
            (Choice::Cut, rare(&mut rng, 3)),
            (Choice::Leap, rare(&mut rng, 6)),
            (Choice::StepClock, rare(&mut rng, 1)),
            (Choice::Garbage, 30),
            (Choice::Scale, rare(&mut rng, 4)),
            (Choice::Delete, rare(&mut rng, 2)),
            (Choice::EditChild, rare(&mut rng, 2)),
            (Choice::Policy, rare(&mut rng, 3)),
        ];
        // None of the seeds that revealed a fault: their runs stay the same.
        let approves = matches!(seed % 10, 1 | 2 | 5);
        if approves {
            pace.push((Choice::Approve, 3));
        }
        let slow = rng.chance(300);
        let fast = fast(&mut rng);
        Self { steps: 300 + rng.below(2000), pace, slow, approves, fast, seed: rng.next() }
    }
}

fn pick(rng: &mut Rng, all: &[&str]) -> String {
    (*rng.pick(all).unwrap_or(&"0s")).to_owned()
}

/// A random policy.
pub fn policy(rng: &mut Rng) -> Value {
    let mut policy = json!({"rank": ["a", "b"], "dwell": pick(rng, &["0s", "0s", "5s", "20s", "60s"])});
    if rng.chance(400) {
        policy["budget"] = json!({"max": rng.between(1, 4), "per": pick(rng, &["30s", "2m"])});
    }
    if rng.chance(200) {
        policy["oscillation"] = json!({"reversals": 2, "per": "1m", "then": pick(rng, &["Damp", "Freeze"])});
    }
    if rng.chance(300) {
        policy["rank"] = json!(["b", "a"]);
    }
    policy
}

fn fast(rng: &mut Rng) -> Value {
    let duration = pick(rng, &["0s", "0s", "3s"]);
    let metric = |name: &str| {
        json!({"name": name, "source": {"push": {}}, "low": {"raise": "10", "clear": "20"},
            "high": {"raise": "90", "clear": "80", "for": duration}, "missing": {"after": "45s"}})
    };
    let ladder =
        |by: i64| json!([{"scale": {"by": by, "min": 1, "max": 6}}, {"scale": {"by": by * 2, "min": 1, "max": 8}}]);
    let settle = pick(rng, &["0s", "0s", "3s", "30s"]);
    let action = |metric: &str, side: &str, by: i64| json!({"when": {"metric": metric, "side": side}, "settle": settle, "ladder": ladder(by)});
    json!({
        "interval": pick(rng, &["5s", "15s"]),
        "trace": pick(rng, &["OnChange", "EverySample"]),
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [metric("a"), metric("b")],
        "policy": policy(rng),
        "actions": [action("a", "Low", -1), action("a", "High", 1), action("b", "Low", -1), action("b", "High", 1)],
        "tunable": {"by": ["slow"], "rank": true},
    })
}

pub fn slow() -> Value {
    json!({
        "interval": "20s",
        "target": {"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": "web"},
        "metrics": [{"name": "imbalance", "source": {"loop": {"rule": "LastServed", "window": 2}}, "high": {"raise": "0"}}],
        "actions": [{"when": {"metric": "imbalance", "side": "High"}, "ladder": [{"tune": {"raiseRank": "LeastServed"}}]}],
    })
}

/// Values of a sample.
pub fn values(rng: &mut Rng) -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for metric in ["a", "b"] {
        let value = ["2", "5", "15", "50", "50", "85", "95", "99", "n/a", "", "NaN"];
        if !rng.chance(50) {
            all.push((metric, *rng.pick(&value).unwrap_or(&"50")));
        }
    }
    all
}
