//! To be replaced.
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What one worker has been told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub version: i64,
    pub jobs: Vec<HeldJob>,
    pub releasing: BTreeSet<Arc<str>>,
    pub pod: Option<String>,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    pub name: Arc<str>,
    pub since: i64,
}
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    pub holdings: BTreeMap<String, Holding>,
    pub version: i64,
    pub changes: BTreeMap<i64, Change>,
    pub edited: bool,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub at: Timestamp,
    pub why: String,
}
pub fn render(_: &Published) -> (String, String) {
    Default::default()
}
pub fn parse(_: Option<&str>, _: Option<&str>) -> Published {
    Default::default()
}
pub fn split(_: &Published) -> BTreeMap<String, Published> {
    Default::default()
}
pub fn join(parts: impl Iterator<Item = Published>) -> Published {
    parts.last().unwrap_or_default()
}
pub fn fits(_: &str, _: &str) -> bool {
    true
}
pub fn prune(_: &mut Published) {}
