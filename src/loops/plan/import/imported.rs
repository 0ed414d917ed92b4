//! An autoscaler that a loop replaces: how it is switched off and on, and the records of that.

use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use ganglion_api::marks;

/// Kind of an autoscaler that a loop replaces.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportedKind {
    HorizontalPodAutoscaler,
    ScaledObject,
}

impl ImportedKind {
    /// Name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Self::ScaledObject => "ScaledObject",
        }
    }

    /// Argument of `ganglion import`.
    pub fn argument(self) -> &'static str {
        match self {
            Self::HorizontalPodAutoscaler => "hpa",
            Self::ScaledObject => "scaledobject",
        }
    }
}

/// Content of the annotation [`marks::IMPORTED_FROM`] on the loop.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ImportRecord {
    pub kind: ImportedKind,
    pub name: String,
    pub uid: String,
    /// The part of the autoscaler that a handover changes, in its form before that; null if it was not set.
    pub original: Value,
}

/// Content of the annotation [`marks::IMPORTED_BY`] on the autoscaler.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ImportClaim {
    /// Name of the loop.
    #[serde(rename = "loop")]
    pub by: String,
    /// As in [`ImportRecord`]; here, too, so that it outlives the loop.
    pub original: Value,
}

/// Error: a handover cannot take its next step.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct HandoverRefusal(pub String);

/// An autoscaler, as the API server sent it.
#[derive(Clone, Copy, Debug)]
pub struct ImportedScaler<'a> {
    pub kind: ImportedKind,
    pub object: &'a DynamicObject,
}

impl ImportedScaler<'_> {
    /// Kind and name.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind.as_str(), self.object.name_any())
    }

    /// The loop that has switched it off. The error says that the annotation cannot be parsed.
    pub fn claim(&self) -> Result<Option<ImportClaim>, HandoverRefusal> {
        let Some(text) = self.object.annotations().get(marks::IMPORTED_BY) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| {
            let (named, mark) = (self.title(), marks::IMPORTED_BY);
            HandoverRefusal(format!(
                "annotation {mark} of {named} cannot be read ({error}): restore it, or remove it and check by hand what \
                 the autoscaler does"
            ))
        })
    }

    /// The part that a handover changes: `spec.behavior`, or the value of the annotation that pauses.
    fn switch(&self) -> Value {
        match self.kind {
            ImportedKind::HorizontalPodAutoscaler => self.object.data["spec"]["behavior"].clone(),
            ImportedKind::ScaledObject => json!(self.object.annotations().get(marks::KEDA_PAUSED)),
        }
    }

    /// Whether it sets no number, except to return to its bounds.
    pub fn is_off(&self) -> bool {
        match self.kind {
            ImportedKind::HorizontalPodAutoscaler => {
                let behavior = self.switch();
                ["scaleUp", "scaleDown"].iter().all(|direction| behavior[*direction]["selectPolicy"] == "Disabled")
            }
            ImportedKind::ScaledObject => self.switch() == "true",
        }
    }

    /// Bounds to which it returns the number even if it is off.
    pub fn bounds(&self) -> Option<(i32, i32)> {
        let number = |field: &str| self.object.data["spec"][field].as_i64().and_then(|number| number.try_into().ok());
        match self.kind {
            ImportedKind::HorizontalPodAutoscaler => {
                Some((number("minReplicas").unwrap_or(1), number("maxReplicas").unwrap_or(0)))
            }
            ImportedKind::ScaledObject => None,
        }
    }

    /// The autoscaler, switched off by this loop.
    pub fn switched_off(&self, by: &str, original: &Value) -> DynamicObject {
        let mut object = self.object.clone();
        let claim = json!(ImportClaim { by: by.to_owned(), original: original.clone() });
        object.annotations_mut().insert(marks::IMPORTED_BY.to_owned(), claim.to_string());
        match self.kind {
            ImportedKind::HorizontalPodAutoscaler => {
                for direction in ["scaleUp", "scaleDown"] {
                    object.data["spec"]["behavior"][direction]["selectPolicy"] = json!("Disabled");
                }
            }
            ImportedKind::ScaledObject => {
                object.annotations_mut().insert(marks::KEDA_PAUSED.to_owned(), "true".to_owned());
            }
        }
        object
    }

    /// The autoscaler as it was before the handover. If somebody else has switched it on meanwhile, that stays.
    pub fn restored(&self) -> Result<DynamicObject, HandoverRefusal> {
        let mut object = self.object.clone();
        let Some(claim) = self.claim()? else { return Ok(object) };
        object.annotations_mut().remove(marks::IMPORTED_BY);
        if !self.is_off() {
            return Ok(object);
        }
        match self.kind {
            ImportedKind::HorizontalPodAutoscaler => match (object.data["spec"].as_object_mut(), claim.original) {
                (Some(spec), Value::Null) => drop(spec.remove("behavior")),
                (Some(spec), original) => drop(spec.insert("behavior".to_owned(), original)),
                (None, _) => {}
            },
            ImportedKind::ScaledObject => match claim.original.as_str() {
                Some(value) => drop(object.annotations_mut().insert(marks::KEDA_PAUSED.to_owned(), value.to_owned())),
                None => drop(object.annotations_mut().remove(marks::KEDA_PAUSED)),
            },
        }
        Ok(object)
    }

    /// Record for a loop that replaces it.
    pub fn record(&self) -> Result<ImportRecord, HandoverRefusal> {
        let original = self.claim()?.map_or_else(|| self.switch(), |claim| claim.original);
        let (name, uid) = (self.object.name_any(), self.object.uid().unwrap_or_default());
        Ok(ImportRecord { kind: self.kind, name, uid, original })
    }
}
