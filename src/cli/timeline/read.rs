//! Reads the object of a timeline, its children and its events from the API server. A kind that the user cannot read is
//! left out, and named.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, ListParams};
use kube::core::Status;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::Value;

use super::Error;
use super::build::{ObjectSelector, TimelineKind, TimelineObjects, WantedObjects};
use ganglion_runtime::error::failure;

/// Number of events in one answer, and maximum number of answers for one list.
const PAGE: u32 = 500;
const PAGES: usize = 4;

/// Lists of events that are requested at once.
const AT_ONCE: usize = 4;

/// The object to read.
#[derive(Clone)]
pub struct TimelineSubject {
    pub client: Client,
    pub kind: TimelineKind,
    pub namespace: String,
    pub name: String,
}

impl TimelineSubject {
    pub fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, resource)
    }

    pub fn events(&self) -> Api<Event> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reads the object, its children and their events.
    pub async fn read(&self) -> Result<TimelineObjects, Error> {
        let resource = self.kind.resource();
        let parent = match self.api(&resource).get(&self.name).await {
            Ok(found) => json(&found),
            Err(error) => return Err(self.explained(&resource, error)),
        };
        let mut objects = TimelineObjects { parent, ..TimelineObjects::default() };
        for wanted in self.kind.children(&objects.parent) {
            self.read_children(&mut objects, &wanted).await;
        }
        let selectors = self.kind.events(&objects.parent);
        let lists = futures::stream::iter(selectors).map(|selector| self.read_events(selector)).buffered(AT_ONCE);
        for (events, problem) in lists.collect::<Vec<_>>().await {
            objects.problems.extend(problem);
            for event in events {
                add_event(&mut objects, event);
            }
        }
        Ok(objects)
    }

    async fn read_children(&self, objects: &mut TimelineObjects, wanted: &WantedObjects) {
        let api = self.api(&wanted.resource);
        let found = match &wanted.selector {
            ObjectSelector::Name(name) => match api.get(name).await {
                Ok(found) => Ok(vec![found]),
                Err(kube::Error::Api(status)) if is_no_object(&status) => Ok(Vec::new()),
                Err(error) => Err(error),
            },
            ObjectSelector::Labels(labels) => {
                api.list(&ListParams::default().labels(labels).limit(PAGE)).await.map(|list| list.items)
            }
        };
        match found {
            Ok(found) => {
                for object in found {
                    add_child(objects, &wanted.resource.kind, &object);
                }
            }
            Err(error) => {
                objects.problems.insert(problem(&wanted.resource.kind, &error));
            }
        }
    }

    /// Events with this field selector, and what is missing.
    async fn read_events(&self, selector: String) -> (Vec<Event>, Option<String>) {
        let api = self.events();
        let mut params = ListParams::default().fields(&selector).limit(PAGE);
        let mut all = Vec::new();
        for _ in 0..PAGES {
            let list = match api.list(&params).await {
                Ok(list) => list,
                Err(error) => return (all, Some(problem("Event", &error))),
            };
            all.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return (all, None),
            }
        }
        let most = all.len();
        (all, Some(format!("Only the first {most} events were read.")))
    }

    /// Error for an object that was not read.
    fn explained(&self, resource: &ApiResource, error: kube::Error) -> Error {
        let (kind, name, namespace) = (resource.kind.clone(), self.name.clone(), self.namespace.clone());
        match error {
            kube::Error::Api(status) if is_no_object(&status) => {
                let command = format!("kubectl get {} -A", resource.plural);
                Error::NoObject { kind, name, namespace, command }
            }
            kube::Error::Api(status) if status.code == 404 => Error::NoKind { kind },
            error => Error::Object(error.into()),
        }
    }
}

/// Whether the object was not found, rather than its kind.
fn is_no_object(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Describes what could not be read, and what to do.
pub fn problem(kind: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => format!(
            "No {kind} is shown: access is denied. A role needs the verbs get, list and watch of the resource that the \
             API server names ({}).",
            status.message
        ),
        kube::Error::Api(status) if status.code == 404 => {
            format!("No {kind} is shown: its kind is not installed; apply the CRDs of the operator.")
        }
        error => format!("No {kind} is shown: the API server failed ({}); run the command again.", failure(error)),
    }
}

pub fn add_child(objects: &mut TimelineObjects, kind: &str, object: &DynamicObject) {
    let name = object.metadata.name.clone().unwrap_or_default();
    objects.children.insert((kind.to_owned(), name), json(object));
}

pub fn add_event(objects: &mut TimelineObjects, event: Event) {
    let id = event.metadata.uid.clone().or_else(|| event.metadata.name.clone()).unwrap_or_default();
    objects.events.insert(id, event);
}

pub fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
