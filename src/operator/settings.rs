//! The operator's settings: typed and validated at start; unknown keys are rejected.
//!
//! This module defines the defaults. `config/settings.yaml` documents them; a test compares the two. It reads only the
//! given file and no environment variables.

mod node_configs;
mod objects;
mod placement;
mod swarm_pools;

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use serde::Deserialize;
use thiserror::Error;

use ganglion_actions_plan::Limits;
use ganglion_core::namespaces::Namespaces;
use ganglion_core::world::OccupancyLimits;
use ganglion_nodes_plan::news::WriteRule;
pub use node_configs::{Deadband, NodeConfigs};
pub use objects::Objects;
pub use placement::Placement;
pub use swarm_pools::SwarmPools;

/// All settings. A missing key has its default.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    pub workload_actions: WorkloadActions,
    pub closed_loops: ClosedLoops,
    pub node_configs: NodeConfigs,
    pub swarm_pools: SwarmPools,
    pub placement: Placement,
    pub namespaces: NamespaceSettings,
    pub objects: Objects,
    pub outbound: Outbound,
    pub api: Api,
    pub lease: Lease,
}

/// Settings of the workload-action controller.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkloadActions {
    /// Maximum number of replicas that actions change at the same time. `null` or 0: unlimited.
    pub limits: LimitSettings,
    /// Number of actions that are reconciled at the same time, 1 to 1000. Default: 16.
    pub concurrency: usize,
    /// Seconds after which an unfinished action is reconciled again without a change, 10 to 86400; this covers events
    /// that a watch missed. Default: 300.
    pub resync_seconds: u64,
}

/// See [`WorkloadActions::limits`].
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Replicas in the cluster. Default: 50.
    pub in_all: Option<usize>,
    /// Replicas in one namespace. Default: 25.
    pub per_namespace: Option<usize>,
    /// Replicas of one workload. Default: 5.
    pub per_workload: Option<usize>,
    /// Replicas that leave one node. Default: 5.
    pub per_source_node: Option<usize>,
    /// Replicas that arrive at one node that their action chooses. Default: 5.
    pub per_target_node: Option<usize>,
    /// Seconds in one step after which a replica no longer counts for `inAll`, `perSourceNode` and `perTargetNode`, 60
    /// to 86400. Default: 900.
    pub idle_after_seconds: u32,
}

/// Settings of the closed-loop controllers.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClosedLoops {
    /// Number of objects that each of the four loop controllers reconciles at the same time, 1 to 1000. Default: 16.
    pub concurrency: usize,
    /// Maximum number of loops with their own series in the metrics, 0 to 10000; the first loops by namespace and name
    /// have them. 0 disables these series. Default: 500.
    pub series: usize,
    /// Kinds whose fields loops may change (rung `patch`). Default: none.
    pub patchable_kinds: Vec<PatchableKind>,
}

/// A kind in any version.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchableKind {
    /// API group of the kind; empty for the core group.
    pub group: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
}

/// Namespaces in which the operator acts.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NamespaceSettings {
    /// true: the operator also acts on objects in `kube-system` and other namespaces whose names begin with `kube-`.
    /// Default: false.
    pub allow_kube: bool,
}

/// Requests to servers that users name, such as the sources of loops. Denied addresses are refused. Allowed addresses
/// are permitted even if a built-in rule refuses them: loopback, link-local, cloud metadata, and address translators.
/// Private addresses and names of the cluster are refused unless `privateNetworks` permits them. All other addresses
/// are permitted unless `onlyAllowed` is set.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Outbound {
    /// Networks and addresses that are refused. Default: none.
    pub denied_networks: Vec<String>,
    /// Hosts that are refused; `.example.com` includes all hosts below it. A host with another name and the same
    /// address is not refused. Default: none.
    pub denied_hosts: Vec<String>,
    /// Networks and addresses that are permitted even if a built-in rule refuses them. Default: none.
    pub allowed_networks: Vec<String>,
    /// Hosts that are permitted with `onlyAllowed`, and whose connection errors are shown to users in detail. Default:
    /// none.
    pub allowed_hosts: Vec<String>,
    /// Rules that permit requests to private addresses and to names of the cluster, at most 100. Default: none.
    pub private_networks: Vec<PrivateNetwork>,
    /// true: refuses all addresses and hosts that are not allowed. Default: false.
    pub only_allowed: bool,
    /// true: allows requests to the API server, at the address by which the operator reaches it and at its endpoints.
    /// Default: false.
    pub allow_api_server: bool,
    /// Timeout of a request in seconds, 1 to 60; the loop's interval applies if it is shorter. Default: 10.
    pub timeout_seconds: u64,
    /// Maximum number of concurrent requests, 1 to 100000; one namespace can use a quarter of it. The head of an
    /// answer, which counts for no other limit, may occupy 408 KiB. Default: 2048.
    pub concurrency: usize,
    /// Maximum sizes of responses, in bytes.
    pub max_bytes: MaxBytes,
}

/// See [`Outbound::private_networks`]. Each list narrows the rule, an empty one does not. A rule without namespaces is
/// for all of them; it names networks or hosts, and ports and methods.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrivateNetwork {
    /// Namespaces of the objects that name a server; `*` stands for all.
    pub namespaces: Vec<String>,
    /// Networks and addresses.
    pub networks: Vec<String>,
    /// Hosts; `.example.com` includes all hosts below it.
    pub hosts: Vec<String>,
    /// Ports, 1 to 65535.
    pub ports: Vec<u16>,
    /// GET or POST.
    pub methods: Vec<RequestMethod>,
}

/// Method of a request to a server that a user names.
#[derive(Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestMethod {
    #[serde(rename = "GET")]
    Get,
    #[serde(rename = "POST")]
    Post,
}

/// See [`Outbound::max_bytes`].
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MaxBytes {
    /// Response of a source `http` or `prometheus`. Default: 65536.
    pub sample: usize,
    /// Object that a source `object` reads, or a Secret or ConfigMap. Default: 2097152.
    pub object: usize,
    /// Pods of a source `resource`, or their metrics. Default: 8388608.
    pub pods: usize,
    /// One document of a machine or server that a NodeConfig names. Default: 262144.
    pub node: usize,
    /// One response about all nodes: usage from Prometheus or metrics.k8s.io, or a batch of predictions. Default:
    /// 8388608.
    pub nodes: usize,
    /// Total of all responses that are being read, 65536 to 1073741824. One namespace can use a quarter of it, and no
    /// other maximum may exceed this quarter. Default: 33554432.
    pub in_flight: usize,
}

/// Requests to the API server.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Api {
    /// Timeout of a request in seconds, 1 to 60. Default: 10.
    pub request_timeout_seconds: u64,
}

/// The lease that lets one replica of the operator act at a time.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Lease {
    /// Name of the Lease object. Default: ganglion.
    pub name: String,
    /// Seconds without a renewal after which another replica takes over. Default: 15.
    pub duration_seconds: u64,
    /// Seconds without a successful renewal after which the holder exits; less than `durationSeconds`. Default: 10.
    pub renew_deadline_seconds: u64,
    /// Seconds between two attempts to acquire or renew it; less than `renewDeadlineSeconds`. Default: 2.
    pub retry_seconds: u64,
}

impl Default for WorkloadActions {
    fn default() -> Self {
        Self { limits: LimitSettings::default(), concurrency: 16, resync_seconds: 300 }
    }
}

impl Default for ClosedLoops {
    fn default() -> Self {
        Self { concurrency: 16, series: 500, patchable_kinds: Vec::new() }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            in_all: Some(50),
            per_namespace: Some(25),
            per_workload: Some(5),
            per_source_node: Some(5),
            per_target_node: Some(5),
            idle_after_seconds: 900,
        }
    }
}

impl Default for Outbound {
    fn default() -> Self {
        Self {
            denied_networks: Vec::new(),
            denied_hosts: Vec::new(),
            allowed_networks: Vec::new(),
            allowed_hosts: Vec::new(),
            private_networks: Vec::new(),
            only_allowed: false,
            allow_api_server: false,
            timeout_seconds: 10,
            concurrency: 2048,
            max_bytes: MaxBytes::default(),
        }
    }
}

impl Default for MaxBytes {
    fn default() -> Self {
        Self { sample: 64 << 10, object: 2 << 20, pods: 8 << 20, node: 256 << 10, nodes: 8 << 20, in_flight: 32 << 20 }
    }
}

impl Default for Api {
    fn default() -> Self {
        Self { request_timeout_seconds: 10 }
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self { name: "ganglion".to_owned(), duration_seconds: 15, renew_deadline_seconds: 10, retry_seconds: 2 }
    }
}

/// Error: the settings cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot read the settings file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the settings cannot be parsed: {0}")]
    Parse(String),
    #[error("setting {field} is {value}; it must be {rule}")]
    Bounds { field: &'static str, value: u64, rule: &'static str },
    #[error("setting closedLoops.patchableKinds[{0}] must have a kind, and a group without a version")]
    PatchableKind(usize),
    #[error("setting nodeConfigs.deadband.{0} must be a number from 0 to 1000000")]
    Deadband(&'static str),
    #[error("setting {0} must not be empty")]
    Empty(&'static str),
    #[error("setting placement.clientCaFile requires placement.tls: true")]
    ClientCaWithoutTls,
}

impl Settings {
    /// Reads a settings file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        Self::parse(&text)
    }

    /// Parses settings from YAML; an empty text results in the defaults.
    pub fn parse(yaml: &str) -> Result<Self, Error> {
        let settings: Option<Self> = serde_saphyr::from_str(yaml).map_err(|error| Error::Parse(error.to_string()))?;
        let settings = settings.unwrap_or_default();
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), Error> {
        let (actions, lease) = (&self.workload_actions, &self.lease);
        let many = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let bytes = &self.outbound.max_bytes;
        let part = 1..=many(bytes.in_flight / 4);
        let of_part = "from 1 to a quarter of outbound.maxBytes.inFlight";
        let bounds = [
            ("workloadActions.concurrency", many(actions.concurrency), 1..=1000, "from 1 to 1000"),
            ("closedLoops.concurrency", many(self.closed_loops.concurrency), 1..=1000, "from 1 to 1000"),
            ("outbound.privateNetworks", many(self.outbound.private_networks.len()), 0..=100, "at most 100 rules"),
            ("closedLoops.series", many(self.closed_loops.series), 0..=10_000, "from 0 to 10000"),
            ("outbound.timeoutSeconds", self.outbound.timeout_seconds, 1..=60, "from 1 to 60"),
            ("outbound.concurrency", many(self.outbound.concurrency), 1..=100_000, "from 1 to 100000"),
            (
                "workloadActions.limits.idleAfterSeconds",
                u64::from(actions.limits.idle_after_seconds),
                60..=86_400,
                "from 60 to 86400",
            ),
            ("outbound.maxBytes.inFlight", many(bytes.in_flight), 65_536..=1 << 30, "from 65536 to 1073741824"),
            ("outbound.maxBytes.sample", many(bytes.sample), part.clone(), of_part),
            ("outbound.maxBytes.object", many(bytes.object), part.clone(), of_part),
            ("outbound.maxBytes.pods", many(bytes.pods), part.clone(), of_part),
            ("outbound.maxBytes.node", many(bytes.node), part.clone(), of_part),
            ("outbound.maxBytes.nodes", many(bytes.nodes), part, of_part),
            ("nodeConfigs.concurrency", many(self.node_configs.concurrency), 1..=1000, "from 1 to 1000"),
            ("nodeConfigs.polls", many(self.node_configs.polls), 1..=10_000, "from 1 to 10000"),
            ("nodeConfigs.heartbeatSeconds", self.node_configs.heartbeat_seconds, 30..=86_400, "from 30 to 86400"),
            ("nodeConfigs.series", many(self.node_configs.series), 0..=100_000, "from 0 to 100000"),
            ("swarmPools.concurrency", many(self.swarm_pools.concurrency), 1..=1000, "from 1 to 1000"),
            ("swarmPools.probes", many(self.swarm_pools.probes), 1..=10_000, "from 1 to 10000"),
            (
                "swarmPools.maxBytesPerNamespace",
                many(self.swarm_pools.max_bytes_per_namespace),
                1 << 20..=1 << 36,
                "from 1048576 to 68719476736",
            ),
            (
                "swarmPools.maxBytesInAll",
                many(self.swarm_pools.max_bytes_in_all),
                many(self.swarm_pools.max_bytes_per_namespace)..=1 << 36,
                "from swarmPools.maxBytesPerNamespace to 68719476736",
            ),
            ("placement.concurrency", many(self.placement.concurrency), 1..=1000, "from 1 to 1000"),
            (
                "placement.maxBodyBytes",
                many(self.placement.max_body_bytes),
                65_536..=1 << 28,
                "from 65536 to 268435456",
            ),
            (
                "objects.maxBytesPerNamespace",
                many(self.objects.max_bytes_per_namespace),
                1 << 20..=1 << 36,
                "from 1048576 to 68719476736",
            ),
            (
                "objects.maxBytesInAll",
                many(self.objects.max_bytes_in_all),
                many(self.objects.max_bytes_per_namespace)..=1 << 36,
                "from objects.maxBytesPerNamespace to 68719476736",
            ),
            ("workloadActions.resyncSeconds", actions.resync_seconds, 10..=86_400, "from 10 to 86400"),
            ("api.requestTimeoutSeconds", self.api.request_timeout_seconds, 1..=60, "from 1 to 60"),
            ("lease.durationSeconds", lease.duration_seconds, 3..=3600, "from 3 to 3600"),
            (
                "lease.renewDeadlineSeconds",
                lease.renew_deadline_seconds,
                2..=lease.duration_seconds.saturating_sub(1),
                "at least 2 and less than lease.durationSeconds",
            ),
            (
                "lease.retrySeconds",
                lease.retry_seconds,
                1..=lease.renew_deadline_seconds.saturating_sub(1),
                "at least 1 and less than lease.renewDeadlineSeconds",
            ),
        ];
        for (field, value, range, rule) in bounds {
            if !range.contains(&value) {
                return Err(Error::Bounds { field, value, rule });
            }
        }
        let odd = |one: &PatchableKind| one.kind.is_empty() || one.group.contains('/');
        if let Some(index) = self.closed_loops.patchable_kinds.iter().position(odd) {
            return Err(Error::PatchableKind(index));
        }
        if let Some(name) = self.node_configs.deadband.wrong() {
            return Err(Error::Deadband(name));
        }
        if !self.placement.tls && !self.placement.client_ca_file.is_empty() {
            return Err(Error::ClientCaWithoutTls);
        }
        let names = [("lease.name", &lease.name), ("placement.tlsSecret", &self.placement.tls_secret)];
        names.iter().find(|(_, name)| name.is_empty()).map_or(Ok(()), |(field, _)| Err(Error::Empty(field)))
    }

    /// Limits of the planner of workload actions.
    pub fn limits(&self) -> Limits {
        let limits = &self.workload_actions.limits;
        let some = |limit: Option<usize>| limit.filter(|limit| *limit > 0);
        Limits {
            in_all: some(limits.in_all),
            per_namespace: some(limits.per_namespace),
            per_workload: some(limits.per_workload),
            per_source_node: some(limits.per_source_node),
            per_target_node: some(limits.per_target_node),
            idle_after: Some(SignedDuration::from_secs(i64::from(limits.idle_after_seconds))),
            namespaces: self.namespaces(),
        }
    }

    /// Namespaces in which the operator acts.
    pub fn namespaces(&self) -> Namespaces {
        Namespaces { allow_kube: self.namespaces.allow_kube }
    }

    /// Limits of the memory for the jobs of pools.
    pub fn job_limits(&self) -> OccupancyLimits {
        let pools = &self.swarm_pools;
        OccupancyLimits { per_namespace: pools.max_bytes_per_namespace, in_all: pools.max_bytes_in_all }
    }

    /// Limits of the memory that custom resources occupy.
    pub fn occupancy_limits(&self) -> OccupancyLimits {
        let Objects { max_bytes_per_namespace: per_namespace, max_bytes_in_all: in_all } = self.objects;
        OccupancyLimits { per_namespace, in_all }
    }

    /// Rule that decides when the status of a NodeConfig is written.
    pub fn node_write_rule(&self) -> WriteRule {
        let NodeConfigs { heartbeat_seconds, deadband: Deadband { celsius, pascals, percent, watts }, .. } =
            self.node_configs;
        // The maximum is one day.
        let heartbeat = SignedDuration::from_secs(i64::try_from(heartbeat_seconds).unwrap_or(i64::MAX));
        WriteRule { celsius, pascals, percent, watts, heartbeat }
    }

    /// Kinds whose fields loops may change, as `group/Kind`.
    pub fn patchable_kinds(&self) -> Vec<String> {
        let all = self.closed_loops.patchable_kinds.iter();
        all.map(|PatchableKind { group, kind }| format!("{group}/{kind}")).collect()
    }

    /// Timeout of a request to the API server.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.api.request_timeout_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_the_defaults() {
        let shipped = Settings::parse(include_str!("../../config/settings.yaml")).unwrap();
        assert_eq!(shipped, Settings::default());
    }

    #[test]
    fn the_shipped_file_names_every_setting() {
        let text = include_str!("../../config/settings.yaml");
        for key in [
            "inAll",
            "perNamespace",
            "perWorkload",
            "perSourceNode",
            "perTargetNode",
            "concurrency",
            "series",
            "resyncSeconds",
            "allowKube",
            "maxBytesPerNamespace",
            "maxBytesInAll",
            "deniedNetworks",
            "deniedHosts",
            "allowedNetworks",
            "allowedHosts",
            "privateNetworks",
            "onlyAllowed",
            "sample",
            "object",
            "pods",
            "node",
            "nodes",
            "inFlight",
            "polls",
            "heartbeatSeconds",
            "celsius",
            "pascals",
            "percent",
            "watts",
            "allowApiServer",
            "tls",
            "tlsSecret",
            "serverNames",
            "clientCaFile",
            "maxBodyBytes",
            "timeoutSeconds",
            "patchableKinds",
            "requestTimeoutSeconds",
            "name",
            "durationSeconds",
            "renewDeadlineSeconds",
            "retrySeconds",
        ] {
            assert!(text.contains(&format!("{key}:")), "{key}");
        }
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
        assert_eq!(Settings::parse("{}").unwrap(), Settings::default());
        assert_eq!(Settings::parse("# nothing\n").unwrap(), Settings::default());
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        let error = Settings::parse("lease: {durationSecond: 3}").unwrap_err().to_string();
        assert!(error.contains("durationSecond"), "{error}");
    }

    #[test]
    fn null_and_zero_are_unlimited_and_what_is_left_out_has_its_default() {
        let limits = Settings::parse("workloadActions: {limits: {inAll: null, perNamespace: 0}}").unwrap().limits();
        assert_eq!((limits.in_all, limits.per_namespace, limits.per_workload), (None, None, Some(5)));
    }

    #[test]
    fn bounds_are_checked_and_named() {
        for (yaml, field) in [
            ("workloadActions: {concurrency: 0}", "workloadActions.concurrency"),
            ("closedLoops: {concurrency: 1001}", "closedLoops.concurrency"),
            ("closedLoops: {series: 10001}", "closedLoops.series"),
            ("workloadActions: {resyncSeconds: 1}", "workloadActions.resyncSeconds"),
            ("outbound: {timeoutSeconds: 61}", "outbound.timeoutSeconds"),
            ("outbound: {concurrency: 0}", "outbound.concurrency"),
            ("outbound: {maxBytes: {inFlight: 1000}}", "outbound.maxBytes.inFlight"),
            ("outbound: {maxBytes: {inFlight: 100000, object: 1, pods: 1}}", "outbound.maxBytes.sample"),
            ("outbound: {maxBytes: {nodes: 100000000}}", "outbound.maxBytes.nodes"),
            ("nodeConfigs: {polls: 0}", "nodeConfigs.polls"),
            ("swarmPools: {probes: 0}", "swarmPools.probes"),
            ("swarmPools: {maxBytesPerNamespace: 1}", "swarmPools.maxBytesPerNamespace"),
            ("swarmPools: {maxBytesInAll: 1}", "swarmPools.maxBytesInAll"),
            ("placement: {maxBodyBytes: 1}", "placement.maxBodyBytes"),
            ("nodeConfigs: {heartbeatSeconds: 29}", "nodeConfigs.heartbeatSeconds"),
            ("nodeConfigs: {deadband: {watts: -1}}", "nodeConfigs.deadband.watts"),
            ("nodeConfigs: {deadband: {celsius: .nan}}", "nodeConfigs.deadband.celsius"),
            ("outbound: {maxBytes: {object: 0}}", "outbound.maxBytes.object"),
            ("outbound: {maxBytes: {pods: 100000000}}", "outbound.maxBytes.pods"),
            ("api: {requestTimeoutSeconds: 0}", "api.requestTimeoutSeconds"),
            ("lease: {renewDeadlineSeconds: 15}", "lease.renewDeadlineSeconds"),
            ("lease: {retrySeconds: 10}", "lease.retrySeconds"),
            ("objects: {maxBytesPerNamespace: 1}", "objects.maxBytesPerNamespace"),
            ("objects: {maxBytesInAll: 67108863}", "objects.maxBytesInAll"),
            ("lease: {name: ''}", "lease.name"),
            ("placement: {tls: false, clientCaFile: /ca.crt}", "placement.clientCaFile"),
            ("placement: {tlsSecret: ''}", "placement.tlsSecret"),
            ("closedLoops: {patchableKinds: [{group: apps/v1, kind: Deployment}]}", "closedLoops.patchableKinds[0]"),
        ] {
            let error = Settings::parse(yaml).unwrap_err().to_string();
            assert!(error.contains(field), "{yaml}: {error}");
        }
    }
}
