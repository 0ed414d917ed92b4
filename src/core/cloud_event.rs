//! The envelope of an event that is sent to a server: CloudEvents 1.0, structured JSON.

use serde_json::{Value, json};

/// The media type of one event as JSON.
pub const MEDIA_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// An event about one of our objects. An attribute without a value is omitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvent {
    /// Identical for each attempt to send the event.
    pub id: String,
    /// Plural name of the kind, and namespace and name of the object.
    pub source: EventSource,
    /// Type, such as `dev.ganglion.workloadaction.succeeded`.
    pub event_type: String,
    /// Target of the object, such as `Deployment/web`.
    pub subject: Option<String>,
    /// RFC 3339.
    pub time: Option<Value>,
    pub data: Value,
}

/// Object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSource {
    pub plural: &'static str,
    pub namespace: String,
    pub name: String,
}

impl CloudEvent {
    /// The event as JSON.
    pub fn to_json(&self) -> Value {
        let EventSource { plural, namespace, name } = &self.source;
        let mut event = json!({
            "specversion": "1.0",
            "id": self.id,
            "source": format!("/apis/ganglion.dev/v1alpha1/namespaces/{namespace}/{plural}/{name}"),
            "type": self.event_type,
            "datacontenttype": "application/json",
            "data": self.data,
        });
        if let Some(subject) = &self.subject {
            event["subject"] = json!(subject);
        }
        if let Some(time) = &self.time {
            event["time"] = time.clone();
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_without_a_value_are_omitted() {
        let source = EventSource { plural: "closedloops", namespace: "shop".into(), name: "web".into() };
        let mut event = CloudEvent {
            id: "1".into(),
            source,
            event_type: "dev.ganglion.closedloop.decision".into(),
            subject: None,
            time: None,
            data: json!({"seq": 1}),
        };
        let mut expected = json!({
            "specversion": "1.0", "id": "1", "type": "dev.ganglion.closedloop.decision",
            "source": "/apis/ganglion.dev/v1alpha1/namespaces/shop/closedloops/web",
            "datacontenttype": "application/json", "data": {"seq": 1},
        });
        assert_eq!(event.to_json(), expected);
        event.subject = Some("Deployment/web".into());
        expected["subject"] = json!("Deployment/web");
        assert_eq!(event.to_json(), expected);
    }
}
