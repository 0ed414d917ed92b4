//! The recorded values of a loop: from a Prometheus server, a CSV file, or the Decision of the running loop.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::metrics::counter::Counter;

use super::{Error, LoopFile, ReplayArgs};
use crate::cli::cluster::{self, ClusterOptions};
use crate::cli::objects::{self, LoopFamily};
use crate::cli::progress::CommandProgress;
use ganglion_api::decision::DecisionStatus;
use ganglion_loops_plan::decision::{Executor, settlement};
use ganglion_loops_plan::explain::ExplainedLoop;
use ganglion_loops_plan::replay::{RecordedSample, Recording, read_csv, recorded_decisions};
use ganglion_outbound::address::{Names, Rules, system};
use ganglion_outbound::private::AddressOrigin;
use ganglion_outbound::prometheus::range::{QueryRange, RangePoint, fetch_range};
use ganglion_outbound::web::{Call, Credentials, Web};
use ganglion_runtime::fairness::FairLimit;

/// Length of the range of a Prometheus server if none is given.
const DEFAULT_SINCE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Timeout of one request.
const WITHIN: Duration = Duration::from_secs(60);

/// Maximum size of one answer in bytes: each time of a series takes about 30.
const MAX_ANSWER: usize = 64 << 20;

/// Reason of a time without a value.
const NO_SERIES: &str = "the query gives no series";

/// Origin of the values.
pub enum HistorySource {
    Prometheus { web: Box<Web>, call: Call, queries: BTreeMap<String, String>, start: Timestamp, end: Timestamp },
    Csv { path: PathBuf, text: String, known: BTreeSet<String>, range: GivenRange },
    Recorded { cluster: ClusterOptions, namespace: Option<String>, range: GivenRange },
}

/// Range of time, as far as it is given.
#[derive(Clone, Copy)]
pub struct GivenRange {
    since: Option<SignedDuration>,
    until: Option<Timestamp>,
}

impl GivenRange {
    /// The part of the recording in this range.
    fn of(self, recording: &Recording) -> Result<Recording, Error> {
        let end = self.until.unwrap_or(recording.end());
        let start = self.since.map(|since| before(end, since));
        Ok(recording.between(start.unwrap_or(recording.start()), end)?)
    }
}

fn before(end: Timestamp, since: SignedDuration) -> Timestamp {
    end.checked_sub(since).unwrap_or(Timestamp::MIN)
}

impl HistorySource {
    /// The source that the options name.
    pub fn new(args: &ReplayArgs, loops: &[LoopFile]) -> Result<Self, Error> {
        let range = GivenRange { since: args.since, until: args.until };
        if let Some(url) = &args.prometheus {
            let end = args.until.unwrap_or_else(Timestamp::now);
            let end = Timestamp::from_second(end.as_second()).unwrap_or(end);
            let start = before(end, args.since.unwrap_or(DEFAULT_SINCE));
            let call = call(url, args)?;
            let queries = args.queries.iter().cloned().collect();
            return Ok(Self::Prometheus { web: Box::new(web()), call, queries, start, end });
        }
        if let Some(path) = &args.csv {
            let text = read(path)?;
            let text = String::from_utf8(text)
                .map_err(|error| Error::Read { path: path.clone(), source: std::io::Error::other(error) })?;
            let known = loops.iter().flat_map(|one| one.rules.recordable()).collect();
            return Ok(Self::Csv { path: path.clone(), text, known, range });
        }
        Ok(Self::Recorded { cluster: args.cluster.clone(), namespace: args.namespace.clone(), range })
    }

    /// Reads the values of a loop. Returns them, and the words for their origin.
    pub async fn read(&self, one: &LoopFile, progress: &CommandProgress) -> Result<(Recording, String), Error> {
        match self {
            Self::Prometheus { web, call, queries, start, end } => {
                let mut recording = Recording::new(*start, *end)?;
                let queries = loop_queries(one, queries);
                if queries.is_empty() {
                    return Err(Error::NoQueries);
                }
                let range = QueryRange { start: *start, end: *end, step: one.rules.interval() };
                for (name, query) in queries {
                    let all = range.times();
                    let say = |read| progress.set(&format!("reads {name}: {read} of {all} times"));
                    say(0);
                    let points = fetch_range(web, call, &query, range, &say).await;
                    let points =
                        points.map_err(|source| Error::Query { metric: name.clone(), source: Box::new(source) })?;
                    recording.add(&name, samples(range, points))?;
                }
                Ok((recording, format!("Prometheus {}", call.url)))
            }
            Self::Csv { path, text, known, range } => {
                let file = path.display().to_string();
                let recording = range.of(&read_csv(&file, text, known)?)?;
                Ok((recording, file))
            }
            Self::Recorded { cluster, namespace, range } => {
                let name = one.object.metadata.name.clone().unwrap_or_default();
                let namespace = namespace.clone().or_else(|| one.object.metadata.namespace.clone());
                let opened = cluster::open(cluster.clone(), namespace).await;
                let (client, namespace) = opened.map_err(objects::Error::from)?;
                let family = LoopFamily::fetch(client, namespace, name.clone()).await?;
                let decided = decided(&family.subject());
                let (recording, count) =
                    recorded_decisions(&decided).ok_or_else(|| Error::NothingRecorded(name.clone()))?;
                let values = format!("the last {count} decisions of {name}; values in between are not recorded");
                Ok((range.of(&recording?)?, values))
            }
        }
    }
}

/// Status of the loop's Decision, with the outcome of the last decision.
fn decided(subject: &ExplainedLoop) -> DecisionStatus {
    let status = subject.decision.and_then(|decision| decision.status.clone()).unwrap_or_default();
    let executor = subject.execution.and_then(Executor::from_execution);
    settlement::with_outcome(&status, executor, subject.now)
}

/// Queries of a loop by metric; those of the options count first.
fn loop_queries(one: &LoopFile, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = one.rules.recordable();
    let own = one.object.spec.metrics.iter().filter_map(|metric| {
        let source = metric.source.prometheus.as_ref()?;
        Some((metric.name.clone(), source.query.clone()))
    });
    let given = given.iter().filter(|(name, _)| known.contains(*name));
    own.chain(given.map(|(name, query)| (name.clone(), query.clone()))).collect()
}

/// Samples of all times of the range.
fn samples(range: QueryRange, points: Vec<RangePoint>) -> Vec<RecordedSample> {
    let mut found: BTreeMap<Timestamp, Result<String, String>> =
        points.into_iter().map(|point| (point.at, point.value)).collect();
    let missing: Arc<str> = NO_SERIES.into();
    let sample = |at: Timestamp| {
        let value = match found.remove(&at) {
            Some(Ok(value)) => Ok(value),
            Some(Err(why)) => Err(why.into()),
            None => Err(Arc::clone(&missing)),
        };
        RecordedSample { at, value }
    };
    range.all().map(sample).collect()
}

/// A client that connects wherever the user says.
fn web() -> Web {
    let everywhere = ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok()).collect();
    let rules = Rules { allowed_networks: everywhere, show_causes: true, ..Rules::default() };
    Web::new(Names::new(rules, system), FairLimit::new(2 * MAX_ANSWER, Counter::default()))
}

/// Call of the server.
fn call(url: &str, args: &ReplayArgs) -> Result<Call, Error> {
    let token = args.token_file.as_deref().map(read).transpose()?;
    let token = token.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let ca = args.ca_file.as_deref().map(read).transpose()?;
    Ok(Call {
        url: url.to_owned(),
        auth: token.map(Credentials::Bearer),
        headers: Vec::new(),
        ca: ca.map(Arc::from),
        insecure: false,
        redirects: false,
        within: WITHIN,
        limit: MAX_ANSWER,
        tenant: String::new(),
        origin: AddressOrigin::User,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
