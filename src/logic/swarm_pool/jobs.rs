//! To be replaced.
use super::Job;
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobTable {
    pub jobs: Vec<Job>,
    pub repeated: usize,
    pub first_repeated: Option<(std::sync::Arc<str>, String, String)>,
}
pub fn parse(text: &str) -> Result<Vec<Job>, String> {
    Ok(text.lines().map(|l| Job { name: l.into(), weight: 1, dedicated: false }).collect())
}
pub fn merge(sources: impl IntoIterator<Item = (String, Vec<Job>)>) -> JobTable {
    let mut jobs: Vec<Job> = sources.into_iter().flat_map(|s| s.1).collect();
    jobs.sort();
    jobs.dedup();
    JobTable { jobs, repeated: 0, first_repeated: None }
}
