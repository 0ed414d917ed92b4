//! Tests of sources that cannot be read: whatever the reason, jobs stay where they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use serde_json::json;

use crate::file::{JobList, ListedJob, Published};
use crate::room::JobRoom;
use crate::sources::{ObservedSources, ParsedSource, SourceMemory};
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::facts::{Identity, Key};

const ROOM: JobRoom = JobRoom { free: 1 << 20, per_namespace: 1 << 20 };

fn pool() -> SwarmPool {
    let spec = json!({
        "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w"},
        "jobs": {"configMaps": {"names": ["jobs"]}}, "output": {"configMap": "lists"},
    });
    let metadata = json!({"name": "p", "namespace": "n", "uid": "pool", "generation": 1});
    serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "metadata": metadata, "spec": spec,
    }))
    .unwrap()
}

/// A ConfigMap with these texts and these bytes, as `kubectl create configmap --from-file` divides them.
fn source(data: &[(&str, &str)], binary: &[(&str, &[u8])]) -> ConfigMap {
    let text = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    let bytes = |(key, bytes): &(&str, &[u8])| ((*key).to_owned(), ByteString(bytes.to_vec()));
    let mut map = ConfigMap {
        data: Some(data.iter().map(text).collect()).filter(|data: &BTreeMap<_, _>| !data.is_empty()),
        binary_data: Some(binary.iter().map(bytes).collect()).filter(|data: &BTreeMap<_, _>| !data.is_empty()),
        ..ConfigMap::default()
    };
    map.metadata.name = Some("jobs".to_owned());
    map.metadata.uid = Some("jobs".to_owned());
    map.metadata.resource_version = Some("3".to_owned());
    map
}

/// Published lists of two workers with the jobs `a` and `b`.
fn published() -> Published {
    let list = |job: &str| JobList {
        version: 1,
        jobs: vec![ListedJob { name: Arc::from(job), since: 1 }],
        ..JobList::default()
    };
    let lists = [("w-0".to_owned(), list("a")), ("w-1".to_owned(), list("b"))].into();
    Published { lists, version: 1, ..Published::default() }
}

/// The jobs of a pool with this source, and the first problem.
fn merged(map: &ConfigMap) -> (Vec<String>, Option<(PoolReason, String)>) {
    let mut memory = SourceMemory::default();
    memory.insert(ParsedSource::parse(map, ROOM));
    let id = Identity { key: Key::new("n", "jobs"), uid: "jobs".into(), version: "3".to_owned() };
    let observed: ObservedSources = [("jobs".to_owned(), Some(id))].into();
    let (table, problems) = memory.merge(&pool(), &observed, &published());
    let names = table.jobs.iter().map(|job| job.name.to_string()).collect();
    (names, problems.into_iter().next().map(|problem| (problem.reason, problem.message)))
}

/// The text in UTF-16, with a byte order mark.
fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(bytes).collect()
}

#[rstest]
#[case::latin_1(b"a\ncaf\xe9\n".to_vec(), "not UTF-8 at byte 5")]
#[case::cut_off(b"a\ncaf\xc3".to_vec(), "not UTF-8 at byte 5")]
#[case::utf_16_little(utf_16("a\nc\n", u16::to_le_bytes), "UTF-16")]
#[case::utf_16_big(utf_16("a\nc\n", u16::to_be_bytes), "UTF-16")]
#[case::utf_32(vec![0xff, 0xfe, 0, 0, b'a', 0, 0, 0], "UTF-32")]
#[case::gzip(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0], "gzip")]
#[case::zstd(vec![0x28, 0xb5, 0x2f, 0xfd, 0], "zstd")]
#[case::text(b"a\nc\n".to_vec(), "under data")]
#[case::empty(Vec::new(), "under data")]
fn jobs_that_are_not_text_leave_jobs_where_they_are(#[case] bytes: Vec<u8>, #[case] words: &str) {
    for data in [&[][..], &[("more", "c\nd\n")][..]] {
        let (jobs, problem) = merged(&source(data, &[("jobs.txt", &bytes)]));
        let (reason, message) = problem.expect("a problem");
        assert_eq!((jobs.as_slice(), reason), (&["a".to_owned(), "b".to_owned()][..], PoolReason::SourceInvalid));
        assert!(message.contains("ConfigMap jobs, key jobs.txt") && message.contains(words), "{message}");
    }
}

/// UTF-16 without a byte order mark can be valid UTF-8, so kubectl takes it for a text.
#[rstest]
#[case::utf_16("a\0\n\0c\0\n\0")]
#[case::utf_16_list("-\0 \0a\0\n\0")]
#[case::lost_characters("a\ncaf\u{fffd}\n")]
#[case::lost_characters_of_a_list("- a\n- caf\u{fffd}\n")]
#[case::bracket("- [")]
fn a_text_that_is_no_list_of_jobs_leaves_jobs_where_they_are(#[case] text: &str) {
    let (jobs, problem) = merged(&source(&[("jobs", text)], &[]));
    assert_eq!((jobs, problem.unwrap().0), (vec!["a".to_owned(), "b".to_owned()], PoolReason::SourceInvalid));
}

#[test]
fn a_source_without_any_key_leaves_jobs_where_they_are_and_one_with_an_empty_text_has_none() {
    let (jobs, problem) = merged(&source(&[], &[]));
    let (reason, message) = problem.unwrap();
    assert_eq!((jobs.len(), reason), (2, PoolReason::SourceInvalid));
    assert!(message.starts_with("ConfigMap jobs, it has no key"), "{message}");
    assert_eq!(merged(&source(&[("jobs", "")], &[])), (Vec::new(), None));
    assert_eq!(merged(&source(&[("jobs", "# none\n\n")], &[])), (Vec::new(), None));
    assert_eq!(merged(&source(&[("jobs", "[]")], &[])), (Vec::new(), None));
    assert_eq!(merged(&source(&[("x", "c"), ("y", "")], &[])), (vec!["c".to_owned()], None));
}
