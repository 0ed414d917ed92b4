//! To be replaced.
use super::Job;
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobTable {
    pub jobs: Vec<Job>,
    pub repeated: usize,
    pub first_repeated: Option<(std::sync::Arc<str>, String, String)>,
}
