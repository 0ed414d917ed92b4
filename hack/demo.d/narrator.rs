//! Turns what a watch reports into sentences, and the current objects into a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use testkit::eye::{Happening, Seen};
use testkit::verdict::{node_of, pods_of, serves};

use super::scene::APP;
use super::screen::{Field, Screen, Tone};

pub struct Line {
    pub subject: String,
    pub text: String,
    pub tone: Tone,
}

/// Last observed state of a pod.
#[derive(Clone, Default, PartialEq)]
struct Known {
    node: String,
    ready: bool,
    role: Option<String>,
    of_set: bool,
    ending: bool,
}

impl From<&Pod> for Known {
    fn from(pod: &Pod) -> Self {
        let ending = pod.metadata.deletion_timestamp.is_some();
        Self {
            node: node_of(pod),
            ready: serves(pod),
            role: pod.annotations().get(marks::ROLE).cloned(),
            of_set: pod.owner_references().iter().any(|owner| owner.controller == Some(true)),
            ending,
        }
    }
}

pub struct Narrator {
    read: usize,
    pods: BTreeMap<String, Known>,
    /// Pod names in the order in which they were first seen, so that no table row changes its position.
    order: Vec<String>,
    replicas: Option<i32>,
    /// Reason and message of each action.
    actions: BTreeMap<String, (String, String)>,
}

impl Narrator {
    /// Starts from the current objects; describes changes from then on.
    pub fn new(seen: &Seen) -> Self {
        let mut pods: Vec<&Arc<Pod>> = pods_of(seen, APP).collect();
        pods.sort_by_key(|pod| node_of(pod));
        Self {
            read: seen.history.len(),
            order: pods.iter().map(|pod| pod.name_any()).collect(),
            pods: pods.into_iter().map(|pod| (pod.name_any(), Known::from(pod.as_ref()))).collect(),
            replicas: seen.deployments.get(APP).and_then(|object| object.spec.as_ref()?.replicas),
            actions: seen.actions.values().map(|action| (action.name_any(), words_of(action))).collect(),
        }
    }

    /// Sentences about everything that happened since the last call.
    pub fn read_history(&mut self, seen: &Seen) -> Vec<Line> {
        let news = seen.history.get(self.read..).unwrap_or_default();
        self.read = seen.history.len();
        let mut lines = Vec::new();
        for happening in news {
            match happening {
                Happening::Pod(pod) => self.pod(pod, &mut lines),
                Happening::PodGone(pod) => {
                    if let Some(known) = self.pods.remove(&pod.name_any()) {
                        lines.push(line(&pod.name_any(), "gone", tone_of(known.role.as_deref())));
                    }
                }
                Happening::Deployment(object) => {
                    let now = object.spec.as_ref().and_then(|spec| spec.replicas);
                    if let (Some(was), Some(now)) = (self.replicas, now)
                        && was != now
                    {
                        let subject = format!("Deployment {APP}");
                        lines.push(line(&subject, &format!("spec.replicas {was} → {now}"), Tone::Plain));
                    }
                    self.replicas = now;
                }
                Happening::Action(action) => self.action(action, &mut lines),
                Happening::Set(_) => {}
            }
        }
        lines
    }

    fn pod(&mut self, pod: &Pod, lines: &mut Vec<Line>) {
        let name = pod.name_any();
        let now = Known::from(pod);
        let was = self.pods.get(&name).cloned();
        if was.is_none() {
            self.order.push(name.clone());
        }
        let tone = tone_of(now.role.as_deref().or(was.as_ref().and_then(|was| was.role.as_deref())));
        for text in changes(was.as_ref(), &now) {
            lines.push(line(&name, &text, tone));
        }
        self.pods.insert(name, now);
    }

    fn action(&mut self, action: &WorkloadAction, lines: &mut Vec<Line>) {
        let name = action.name_any();
        let now = words_of(action);
        if self.actions.get(&name) != Some(&now) && !now.0.is_empty() {
            let done = now.0 == "Succeeded";
            let tone = if done { Tone::Good } else { Tone::Plain };
            let subject = format!("action {name}");
            lines.push(line(&subject, &format!("{}: {}", now.0, now.1), tone));
        }
        self.actions.insert(name, now);
    }
}

fn line(subject: &str, text: &str, tone: Tone) -> Line {
    Line { subject: subject.to_owned(), text: text.to_owned(), tone }
}

/// Reason and message of an action.
fn words_of(action: &WorkloadAction) -> (String, String) {
    let status = action.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Ready"));
    ready.map(|ready| (ready.reason.clone(), ready.message.clone())).unwrap_or_default()
}

fn tone_of(role: Option<&str>) -> Tone {
    match role {
        Some(marks::ROLE_REPLACEMENT) => Tone::Replacement,
        Some(marks::ROLE_VICTIM) => Tone::Victim,
        Some(marks::ROLE_SURPLUS) => Tone::Surplus,
        _ => Tone::Plain,
    }
}

/// Describes what changed on a pod.
fn changes(was: Option<&Known>, now: &Known) -> Vec<String> {
    let mut texts = Vec::new();
    let fresh = Known::default();
    let before = was.unwrap_or(&fresh);
    let role = |known: &Known| known.role.clone().unwrap_or_default();
    if was.is_none() {
        texts.push(match role(now).as_str() {
            marks::ROLE_REPLACEMENT => "replacement: created by the operator from the ReplicaSet's template".to_owned(),
            _ => "created by the ReplicaSet".to_owned(),
        });
    }
    if before.node != now.node {
        texts.push(format!("scheduled to {}", now.node));
    }
    if was.is_some() && role(before) != role(now) {
        texts.extend(match role(now).as_str() {
            marks::ROLE_VICTIM => Some("victim: released from its ReplicaSet, still serving".to_owned()),
            marks::ROLE_SURPLUS => Some("surplus: marked as the pod that the ReplicaSet deletes".to_owned()),
            _ if before.role.as_deref() == Some(marks::ROLE_REPLACEMENT) && now.of_set => {
                Some("adopted by the ReplicaSet".to_owned())
            }
            _ => Some("mark removed".to_owned()),
        });
    }
    if !before.ending && now.ending {
        texts.push(match role(now).as_str() {
            marks::ROLE_VICTIM => "evicted".to_owned(),
            _ if now.of_set => "deleted by the ReplicaSet".to_owned(),
            _ => "deleted".to_owned(),
        });
    } else if before.ready != now.ready {
        texts.push(if now.ready { "Ready" } else { "no longer Ready" }.to_owned());
    }
    texts
}

/// Tables of the current pods and actions.
pub fn picture(screen: &Screen, seen: &Seen, narrator: &Narrator, least: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for name in &narrator.order {
        let Some(known) = narrator.pods.get(name) else { continue };
        let tone = tone_of(known.role.as_deref());
        let (state, shade) = match (known.ending, known.ready) {
            (true, _) => ("◌ terminating", Tone::Quiet),
            (false, true) => ("● Ready", Tone::Good),
            (false, false) => ("○ starting", Tone::Surplus),
        };
        let role = known.role.clone().unwrap_or_default();
        rows.push(vec![
            Field(name.clone(), tone),
            Field(known.node.clone(), Tone::Plain),
            Field(state.to_owned(), shade),
            Field(role, tone),
        ]);
    }
    let ready = pods_of(seen, APP).filter(|pod| serves(pod)).count();
    let tone = if ready < least { Tone::Bad } else { Tone::Quiet };
    let count = screen.paint(tone, &format!("   {ready} Ready, at least {least} expected"));
    vec![screen.table(&["POD", "NODE", "READY", "ROLE"], rows), count, String::new(), action_table(screen, seen)]
}

fn action_table(screen: &Screen, seen: &Seen) -> String {
    let mut actions: Vec<&Arc<WorkloadAction>> = seen.actions.values().collect();
    actions.sort_by_key(|action| action.creation_timestamp());
    let rows = actions.into_iter().map(|action| {
        let slots = action.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default();
        let steps: Vec<String> = slots.iter().map(|slot| format!("{:?}", slot.step)).collect();
        let (reason, _) = words_of(action);
        let tone = if reason == "Succeeded" { Tone::Good } else { Tone::Plain };
        vec![Field(action.name_any(), Tone::Plain), Field(steps.join(", "), Tone::Plain), Field(reason, tone)]
    });
    screen.table(&["ACTION", "STEP", "REASON"], rows.collect())
}
