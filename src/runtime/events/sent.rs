//! The Event object that is sent: its name, its references, and the limits of the events API for its texts.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use super::EventText;
use super::limits::EventAdmission;
use ganglion_core::digest::digest;
use ganglion_core::words::{counted, cut};

/// Maximum length of the note of an Event, in bytes.
const NOTE: usize = 1024;
/// Maximum length of action, reason and reportingInstance, in bytes.
pub const WORD: usize = 128;
/// Maximum length of the name of an object, and of the hash at the end of that of an Event.
const NAME: usize = 253;
const HASH: usize = 16;

/// Namespace of the events of cluster-scoped objects.
pub const CLUSTER_SCOPED: &str = "default";

/// Hash of all that a reader of the event sees, except for its time.
pub fn text_digest(controller: &str, text: &EventText) -> String {
    let related = text.related.as_ref();
    let name = |field: fn(&ObjectReference) -> Option<&String>| related.and_then(field).map_or("", String::as_str);
    let type_ = type_of(text);
    digest(
        &[
            controller,
            type_,
            &text.reason,
            &text.note,
            name(|other| other.kind.as_ref()),
            name(|other| other.namespace.as_ref()),
            name(|other| other.name.as_ref()),
        ],
        HASH,
    )
}

fn type_of(text: &EventText) -> &'static str {
    if text.warning { "Warning" } else { "Normal" }
}

/// Name of an event. Another process that publishes the same occurrence uses the same name, which the API server then
/// refuses.
fn event_name(object: &ObjectReference, digest_of_text: &str, occurrence: &str) -> String {
    let uid = object.uid.as_deref().unwrap_or_default();
    let name = object.name.as_deref().unwrap_or_default();
    let start = cut(name, NAME - HASH - 1).trim_end_matches(['.', '-']);
    format!("{start}.{}", digest(&[uid, name, digest_of_text, occurrence], HASH))
}

/// The Event for an admitted event, without its reportingInstance; None if it is not sent. An event that happened
/// again has a series.
pub fn event(
    object: &ObjectReference,
    text: &EventText,
    digest_of_text: &str,
    admission: &EventAdmission,
    controller: &str,
) -> Option<Event> {
    let (at, occurrence, left_out, count) = match admission {
        EventAdmission::New { at, occurrence, left_out } => (*at, occurrence, *left_out, 1),
        EventAdmission::Repeated { at, first, count } => (*at, first, 0, *count),
        EventAdmission::Known | EventAdmission::LeftOut => return None,
    };
    Some(Event {
        metadata: ObjectMeta {
            name: Some(event_name(object, digest_of_text, occurrence)),
            namespace: Some(object.namespace.clone().unwrap_or_else(|| CLUSTER_SCOPED.to_owned())),
            ..ObjectMeta::default()
        },
        type_: Some(type_of(text).to_owned()),
        reason: Some(cut(&text.reason, WORD).to_owned()),
        action: Some(cut(&text.reason, WORD).to_owned()),
        note: Some(note(&text.note, left_out)),
        event_time: Some(MicroTime(at)),
        regarding: Some(object.clone()),
        related: text.related.clone(),
        reporting_controller: Some(controller.to_owned()),
        series: (count > 1).then(|| series(count, at)),
        ..Event::default()
    })
}

fn series(count: i32, at: Timestamp) -> EventSeries {
    EventSeries { count, last_observed_time: MicroTime(at) }
}

/// The note, and how many events were left out before it.
fn note(text: &str, left_out: u32) -> String {
    if left_out == 0 {
        return cut(text, NOTE).to_owned();
    }
    let were = if left_out == 1 { "was" } else { "were" };
    let gap = format!(" ({} {were} left out)", counted(left_out, "more event"));
    format!("{}{gap}", cut(text, NOTE - gap.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::UNIX_EPOCH;

    fn object(name: &str) -> ObjectReference {
        ObjectReference { name: Some(name.to_owned()), uid: Some("u".into()), ..ObjectReference::default() }
    }

    fn first(occurrence: &str, left_out: u32) -> EventAdmission {
        EventAdmission::New { at: AT, occurrence: occurrence.to_owned(), left_out }
    }

    fn made(object: &ObjectReference, text: &EventText, admission: &EventAdmission) -> Event {
        event(object, text, &text_digest("ganglion/pool", text), admission, "ganglion/pool").unwrap()
    }

    #[test]
    fn notes_are_cut_between_characters_and_keep_the_gap() {
        assert_eq!(note(&"ä".repeat(600), 0).len(), 1024);
        assert_eq!(note(&format!("x{}", "ä".repeat(600)), 0).len(), 1023);
        assert_eq!(note("scaled", 0), "scaled");
        assert_eq!(note("scaled", 1), "scaled (1 more event was left out)");
        let long = note(&"ä".repeat(600), 12);
        assert!(long.ends_with("ä (12 more events were left out)") && long.len() <= NOTE, "{}", long.len());
    }

    #[test]
    fn what_happened_determines_the_name() {
        let scaled = EventText::normal("Scaled", "from 1 to 2");
        let name = |object: &ObjectReference, text: &EventText, admission: &EventAdmission| {
            made(object, text, admission).metadata.name.unwrap()
        };
        let once = name(&object("web"), &scaled, &first("7", 0));
        assert_eq!(once, name(&object("web"), &scaled, &first("7", 3)), "another process has another memory");
        assert_ne!(once, name(&object("web"), &scaled, &first("8", 0)));
        assert_ne!(once, name(&object("web"), &EventText::normal("Scaled", "from 2 to 3"), &first("7", 0)));
        let again = ObjectReference { uid: Some("other".into()), ..object("web") };
        assert_ne!(once, name(&again, &scaled, &first("7", 0)));
        let repeated = EventAdmission::Repeated { at: AT, first: "7".into(), count: 3 };
        assert_eq!(once, name(&object("web"), &scaled, &repeated));
    }

    #[test]
    fn long_names_have_room_for_the_hash() {
        let dots = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        for long in ["a".repeat(253), dots] {
            let name = made(&object(&long), &EventText::normal("Scaled", ""), &first("7", 0)).metadata.name.unwrap();
            let (start, hash) = name.rsplit_once('.').unwrap();
            assert!(name.len() <= 253 && hash.len() == HASH, "{name}");
            assert!(long.starts_with(start) && start.ends_with('a'), "{name}");
        }
    }

    #[test]
    fn the_event_has_all_that_the_events_api_requires() {
        let text = EventText::warning("Stalled", "m").with_related(object("other"));
        let event = made(&object("node"), &text, &first("7", 0));
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"), "as the events of cluster-scoped objects");
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("Stalled")));
        assert_eq!(event.related, Some(object("other")));
        assert_eq!(event.reporting_controller.as_deref(), Some("ganglion/pool"));
        assert_eq!((event.event_time, event.series), (Some(MicroTime(AT)), None));
    }
}
