//! An API server for loops, as far as their controller needs it: objects as JSON, one resource version, conflicts,
//! applied statuses. It is independent of the controllers; every write is appended to a log for the invariants.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_api::marks;
use serde_json::{Value, json};

/// Namespace of all objects.
pub const NAMESPACE: &str = "n";

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    Loop,
    Monitoring,
    Decision,
    Execution,
    Deployment,
}

impl Sort {
    pub const WATCHED: [Self; 4] = [Self::Loop, Self::Monitoring, Self::Decision, Self::Execution];
    pub const CHILDREN: [Self; 3] = [Self::Monitoring, Self::Decision, Self::Execution];

    fn of(plural: &str) -> Option<Self> {
        Some(match plural {
            "closedloops" => Self::Loop,
            "monitorings" => Self::Monitoring,
            "decisions" => Self::Decision,
            "executions" => Self::Execution,
            "deployments" => Self::Deployment,
            _ => return None,
        })
    }
}

/// Author of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Operator,
    /// A request of a process that has ended since.
    Ghost,
    Others,
}

/// A request of the operator.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub sort: Sort,
    pub name: String,
    pub sub: String,
    pub manager: String,
    pub merge: bool,
    pub body: Value,
    /// `test` operations of a JSON patch: paths and values.
    pub tests: Vec<(String, Value)>,
    /// Other operations of a JSON patch that does not replace a status.
    pub steps: Vec<Value>,
}

impl Asked {
    pub fn read(method: &str, path: &str, query: &str, kind: &str, body: &[u8]) -> Option<Self> {
        let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(2);
        let sort = Sort::of(parts.next()?)?;
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        let (mut tests, mut steps) = (Vec::new(), Vec::new());
        if kind.contains("json-patch") {
            (tests, steps, body) = operations(&body);
        }
        let mut managers = query.split('&').filter_map(|pair| pair.strip_prefix("fieldManager="));
        let name = parts.next().or(body["metadata"]["name"].as_str()).unwrap_or_default().to_owned();
        Some(Self {
            method: method.to_owned(),
            sort,
            name,
            sub: parts.next().unwrap_or_default().to_owned(),
            manager: managers.next().unwrap_or_default().replace("%2F", "/"),
            merge: kind.contains("merge-patch"),
            body,
            tests,
            steps,
        })
    }

    /// Whether it changes something when it is carried out.
    pub fn writes(&self) -> bool {
        self.method != "GET"
    }

    /// Whether it sets the target's replicas.
    pub fn scales(&self) -> bool {
        self.writes() && self.sort == Sort::Deployment
    }
}

/// Splits a JSON patch into its `test` operations, its other operations, and the body of one that replaces a status.
fn operations(patch: &Value) -> (Vec<(String, Value)>, Vec<Value>, Value) {
    let (mut tests, mut steps, mut body) = (Vec::new(), Vec::new(), json!({}));
    for operation in patch.as_array().into_iter().flatten() {
        let path = operation["path"].as_str().unwrap_or_default().to_owned();
        match (operation["op"].as_str(), path.as_str()) {
            (Some("test"), _) => tests.push((path, operation["value"].clone())),
            (Some("add"), "/status") => body["status"] = operation["value"].clone(),
            (Some("add" | "remove"), path) if path.starts_with("/spec/") || path.starts_with("/metadata/labels") => {
                steps.push(operation.clone());
            }
            (Some("add"), "/metadata/ownerReferences" | "/metadata/finalizers") => steps.push(operation.clone()),
            other => panic!("not an operation that the operator sends: {other:?}"),
        }
    }
    (tests, steps, body)
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}/{} {}", self.method, self.sort, self.name, self.sub)?;
        if self.scales() {
            write!(f, " to {}", self.body["spec"]["replicas"])?;
        }
        let status = &self.body["status"];
        for field in ["seq", "state", "message", "tuning"] {
            if !status[field].is_null() {
                write!(f, " {field}={}", status[field])?;
            }
        }
        match status["tag"]["sequence"].as_i64() {
            Some(sequence) => write!(f, " #{sequence}"),
            None => Ok(()),
        }
    }
}

/// One change, for the invariants and the watches.
#[derive(Clone, Debug)]
pub struct Write {
    pub by: By,
    pub sort: Sort,
    pub name: String,
    pub old: Option<Arc<Value>>,
    /// None if it was deleted.
    pub new: Option<Arc<Value>>,
    pub version: u64,
}

#[derive(Debug, Default)]
pub struct Api {
    pub objects: BTreeMap<(Sort, String), Arc<Value>>,
    /// All writes so far.
    pub log: Vec<Write>,
    pub version: u64,
    uids: u64,
    /// A flaw: preconditions are ignored.
    careless: bool,
}

impl Api {
    pub fn new(careless: bool) -> Self {
        Self { careless, ..Self::default() }
    }

    pub fn get(&self, sort: Sort, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&(sort, name.to_owned()))
    }

    /// Creates an object; does nothing if one of that name exists.
    pub fn create(
        &mut self,
        by: By,
        sort: Sort,
        name: &str,
        mut object: Value,
    ) -> Result<Arc<Value>, (u16, &'static str)> {
        if self.get(sort, name).is_some() {
            return Err((409, "AlreadyExists"));
        }
        self.uids += 1;
        let meta = &mut object["metadata"];
        meta["uid"] = json!(format!("uid-{}", self.uids));
        meta["generation"] = json!(1);
        (meta["name"], meta["namespace"]) = (json!(name), json!(NAMESPACE));
        meta["creationTimestamp"] = json!(format!("2026-11-20T00:{:02}:{:02}Z", self.uids / 60 % 60, self.uids % 60));
        if sort != Sort::Deployment {
            object["status"] = json!({"observedGeneration": -1});
        }
        Ok(self.put(by, sort, name, object))
    }

    /// Changes an object. An update without a change is not a write.
    pub fn change(&mut self, by: By, sort: Sort, name: &str, change: impl FnOnce(&mut Value)) -> Option<Arc<Value>> {
        let old = Arc::clone(self.get(sort, name)?);
        let mut new = Value::clone(&old);
        change(&mut new);
        if new == *old {
            return Some(old);
        }
        if new["spec"] != old["spec"] {
            new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        Some(self.put(by, sort, name, new))
    }

    pub fn delete(&mut self, by: By, sort: Sort, name: &str) {
        let Some(old) = self.objects.remove(&(sort, name.to_owned())) else { return };
        self.version += 1;
        self.log.push(Write { by, sort, name: name.to_owned(), old: Some(old), new: None, version: self.version });
    }

    fn put(&mut self, by: By, sort: Sort, name: &str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let new = Arc::new(object);
        let old = self.objects.insert((sort, name.to_owned()), Arc::clone(&new));
        let (name, version) = (name.to_owned(), self.version);
        self.log.push(Write { by, sort, name, old, new: Some(Arc::clone(&new)), version });
        new
    }

    /// Garbage collection: deletes children whose loop is gone. False if there are none.
    pub fn collect(&mut self) -> bool {
        let is_there = |uid: &Value| self.objects.values().any(|object| object["metadata"]["uid"] == *uid);
        let orphan = |object: &Value| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|all| !all.iter().any(|one| is_there(&one["uid"])))
        };
        let gone = self.objects.iter().find(|(_, object)| orphan(object)).map(|(key, _)| key.clone());
        gone.map(|(sort, name)| self.delete(By::Others, sort, &name)).is_some()
    }

    /// Carries out a request. Returns status code and body of the answer.
    pub fn serve(&mut self, by: By, asked: &Asked) -> (u16, Value) {
        let Asked { sort, name, body, .. } = asked;
        if asked.method == "POST" {
            return match self.create(by, *sort, name, body.clone()) {
                Ok(object) => (201, Value::clone(&object)),
                Err((code, reason)) => failure(code, reason),
            };
        }
        let Some(there) = self.get(*sort, name).cloned() else { return failure(404, "NotFound") };
        if !asked.writes() {
            return (200, Value::clone(&there));
        }
        for field in ["uid", "resourceVersion"] {
            let wanted = &body["metadata"][field];
            if !wanted.is_null() && *wanted != there["metadata"][field] && !self.careless {
                return failure(409, "Conflict");
            }
        }
        let holds = |(path, value): &(String, Value)| there.pointer(path) == Some(value);
        if !asked.tests.iter().all(holds) && !self.careless {
            return failed_test();
        }
        let mut fits = true;
        let changed = self.change(by, *sort, name, |object| fits = apply(object, asked));
        if !fits {
            return failed_test();
        }
        changed.map_or_else(|| failure(404, "NotFound"), |object| (200, Value::clone(&object)))
    }
}

/// False if the object lacks a field that a JSON patch removes.
fn apply(object: &mut Value, asked: &Asked) -> bool {
    let body = &asked.body;
    if !asked.steps.is_empty() {
        let steps: json_patch::Patch = serde_json::from_value(json!(asked.steps)).expect("a JSON patch");
        return json_patch::patch(object, &steps).is_ok();
    }
    match (asked.sub.as_str(), asked.merge) {
        ("scale", _) => object["spec"]["replicas"] = body["spec"]["replicas"].clone(),
        ("status", _) if asked.manager.starts_with(marks::EXECUTION_MANAGER) && asked.sort == Sort::Loop => {
            let mut all = object["status"]["tuning"].as_array().cloned().unwrap_or_default();
            for entry in body["status"]["tuning"].as_array().into_iter().flatten() {
                all.retain(|old| old["by"] != entry["by"]);
                all.push(entry.clone());
            }
            object["status"]["tuning"] = json!(all);
        }
        ("status", _) => {
            let tuning = object["status"]["tuning"].take();
            object["status"] = body["status"].clone();
            if !tuning.is_null() {
                object["status"]["tuning"] = tuning;
            }
        }
        (_, true) => json_patch::merge(object, body),
        (_, false) => {
            let sample = object["spec"]["sample"].take();
            object["spec"] = body["spec"].clone();
            if !sample.is_null() {
                object["spec"]["sample"] = sample;
            }
            for field in ["labels", "ownerReferences"] {
                object["metadata"][field] = body["metadata"][field].clone();
            }
        }
    }
    true
}

/// Answer of the API server if a `test` of a JSON patch fails.
fn failed_test() -> (u16, Value) {
    let (code, mut body) = failure(422, "Invalid");
    body["message"] = json!("the server rejected our request due to an error in our request");
    (code, body)
}

/// Answer with an error.
pub fn failure(code: u16, reason: &str) -> (u16, Value) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code});
    (code, body)
}
