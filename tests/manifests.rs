//! Manifests and downloads are closed: peers of the tests are pinned by hash, the operator may read only its own
//! Secrets in its namespace, and its ports have known clients. Schedulers do not disturb each other.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Name of the component's scheduler, and of its lease.
const SECOND: &str = "ganglion-scheduler";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The only document of this kind and name.
fn document(path: &str, kind: &str, name: &str) -> Value {
    let mut found = documents(path);
    found.retain(|document| document["kind"] == kind && document["metadata"]["name"] == name);
    assert_eq!(found.len(), 1, "{path} has {} objects {kind} {name}", found.len());
    found.remove(0)
}

/// Names of the folders below this one.
fn folders(path: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert!(!names.is_empty(), "{path} is empty");
    names
}

/// Packages of a pip requirements file without an exact version or without a hash.
fn unpinned_python(locked: &str) -> Vec<String> {
    let lines = locked.replace("\\\n", " ");
    let packages = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_pinned = |line: &&str| line.contains("==") && line.contains("--hash=sha256:");
    packages.filter(|line| !is_pinned(line)).map(str::to_owned).collect()
}

/// Packages of an npm lock file without a strong hash; the root package has none.
fn unpinned_node(lock: &str) -> Vec<String> {
    let lock: Value = serde_json::from_str(lock).unwrap();
    let packages = lock["packages"].as_object().unwrap();
    assert!(packages.len() > 1, "no packages are locked");
    let is_pinned = |package: &Value| package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-"));
    let unpinned = packages.iter().filter(|(path, package)| !path.is_empty() && !is_pinned(package));
    unpinned.map(|(path, _)| path.clone()).collect()
}

#[test]
fn every_package_of_a_peer_is_pinned_by_its_hash() {
    for peer in folders("hack/peers.d/python") {
        assert_eq!(unpinned_python(&text(format!("hack/peers.d/python/{peer}/locked.txt"))), [""; 0], "{peer}");
    }
    for peer in folders("hack/peers.d/node") {
        assert_eq!(unpinned_node(&text(format!("hack/peers.d/node/{peer}/package-lock.json"))), [""; 0], "{peer}");
    }
    // Modules of Go are checked against go.sum; -mod=readonly refuses to add to it.
    for peer in folders("hack/peers.d/go") {
        assert!(text(format!("hack/peers.d/go/{peer}/go.sum")).lines().count() > 1, "{peer}");
    }
    let script = text("hack/peers");
    for option in ["--require-hashes", "npm ci", "-mod=readonly"] {
        assert!(script.contains(option), "hack/peers does not use {option}");
    }
}

#[test]
fn a_package_without_a_hash_is_found() {
    let pinned = "# comment\na==1 \\\n    --hash=sha256:00\nb==2 --hash=sha256:00\n";
    assert_eq!(unpinned_python(pinned), [""; 0]);
    assert_eq!(
        unpinned_python("a==1\nb>=2 --hash=sha256:00\nc==3 --hash=sha256:00\n"),
        ["a==1", "b>=2 --hash=sha256:00"]
    );
    let lock = json!({"packages": {"": {}, "a": {"integrity": "sha512-x"}, "b": {"integrity": "sha1-x"}, "c": {}}});
    assert_eq!(unpinned_node(&lock.to_string()), ["b", "c"]);
}

/// Rules of a role for Secrets that are not limited to names, or that read or change other names than these.
fn open_rules(role: &Value, names: &[&str]) -> Vec<Value> {
    let is_open = |rule: &&Value| {
        let is_for_secrets = rule["resources"].as_array().is_some_and(|all| all.contains(&json!("secrets")));
        let limited =
            rule["resourceNames"].as_array().is_some_and(|own| own.iter().all(|name| names.iter().any(|n| name == n)));
        // A request that creates an object is checked before it has a name.
        let only_creates = rule["verbs"] == json!(["create"]);
        is_for_secrets && !limited && !only_creates
    };
    role["rules"].as_array().unwrap().iter().filter(is_open).cloned().collect()
}

#[test]
fn the_operator_reads_only_its_own_secrets_in_its_namespace() {
    let own = ["ganglion-extender-tls", "ganglion-extender-tls-ca"];
    let role = document("kustomize/base/rbac.yaml", "Role", "ganglion-lease");
    assert_eq!(open_rules(&role, &own), Vec::<Value>::new());
    let cluster = document("kustomize/base/rbac.yaml", "ClusterRole", "ganglion");
    assert_eq!(open_rules(&cluster, &[]), Vec::<Value>::new(), "the whole cluster's Secrets");
    let opened = json!({"rules": [
        {"resources": ["secrets"], "verbs": ["create"]},
        {"resources": ["secrets"], "verbs": ["get"]},
        {"resources": ["secrets"], "resourceNames": ["other"], "verbs": ["get"]},
        {"resources": ["secrets"], "resourceNames": own, "verbs": ["get"]},
    ]});
    assert_eq!(open_rules(&opened, &own).len(), 2);
}

/// Ports of the pods that have no rule with known clients: an empty list of clients means everybody.
fn open_ports(policy: &Value, deployment: &Value) -> Vec<Value> {
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let names_clients = |rule: &Value| rule["from"].as_array().is_some_and(|from| !from.is_empty());
    let covers = |port: &Value| {
        let of_port = |rule: &&Value| {
            rule["ports"].as_array().is_none_or(|ports| ports.iter().any(|one| one["port"] == port["name"]))
        };
        let mut rules = rules.iter().filter(of_port).peekable();
        rules.peek().is_some() && rules.all(names_clients)
    };
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let ports = containers.iter().flat_map(|container| container["ports"].as_array().into_iter().flatten());
    ports.filter(|port| !covers(port)).cloned().collect()
}

#[test]
fn every_port_of_the_operator_has_known_clients() {
    let mut policy = document("kustomize/base/network.yaml", "NetworkPolicy", "ganglion");
    let deployment = document("kustomize/base/deployment.yaml", "Deployment", "ganglion");
    assert_eq!(open_ports(&policy, &deployment), Vec::<Value>::new());
    let label = &policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"];
    assert_eq!(*label, deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]);
    let kustomization = &documents("kustomize/base/kustomization.yaml")[0];
    assert!(kustomization["resources"].as_array().unwrap().contains(&json!("network.yaml")));

    policy["spec"]["ingress"][0]["from"] = json!([]);
    assert_eq!(open_ports(&policy, &deployment).len(), 1, "everybody may read the metrics");
    policy["spec"]["ingress"] = json!([]);
    assert_eq!(open_ports(&policy, &deployment).len(), 2, "a port without a rule is an oversight");
}

/// Bytes of a quantity with a binary suffix.
fn bytes(quantity: &Value) -> u64 {
    let text = quantity.as_str().unwrap();
    let (number, unit) = text.split_at(text.len() - 2);
    let unit = match unit {
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => panic!("{text}"),
    };
    number.parse::<u64>().unwrap() * unit
}

/// Memory with 5,000 nodes and 100,000 pods, as measured by `hack/bench placement`.
const LARGE_CLUSTER: u64 = 300 << 20;

/// Sum of the maximums in the settings that bound what users can make the operator keep in memory at the same time.
fn bounds(settings: &Value) -> u64 {
    let at = |path: &str| settings.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path}"));
    // Two requests of kube-scheduler are read at the same time.
    let bodies = 2 * at("/placement/maxBodyBytes");
    at("/objects/maxBytesInAll") + at("/swarmPools/maxBytesInAll") + at("/outbound/maxBytes/inFlight") + bodies
}

#[test]
fn the_memory_limit_has_room_for_a_large_cluster_and_all_bounds() {
    let deployment = document("kustomize/base/deployment.yaml", "Deployment", "ganglion");
    let resources = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"];
    let mut settings = documents("config/settings.yaml").remove(0);
    let limit = bytes(&resources["limits"]["memory"]);
    assert!(limit >= LARGE_CLUSTER + bounds(&settings), "{} MiB", (LARGE_CLUSTER + bounds(&settings)) >> 20);
    assert!(bytes(&resources["requests"]["memory"]) <= limit / 4, "most clusters are small");
    settings["objects"]["maxBytesInAll"] = json!(1 << 30);
    assert!(limit < LARGE_CLUSTER + bounds(&settings), "a raised setting needs a raised limit");
}

#[test]
fn only_the_operators_pods_get_a_token_of_its_account() {
    let account = document("kustomize/base/rbac.yaml", "ServiceAccount", "ganglion");
    assert_eq!(account["automountServiceAccountToken"], json!(false));
    let deployment = document("kustomize/base/deployment.yaml", "Deployment", "ganglion");
    assert_eq!(deployment["spec"]["template"]["spec"]["automountServiceAccountToken"], json!(true));
}

#[test]
fn the_operator_reaches_every_server_but_the_metadata_of_clouds() {
    let policy = document("kustomize/base/network.yaml", "NetworkPolicy", "ganglion");
    let mut types: Vec<_> = policy["spec"]["policyTypes"].as_array().unwrap().clone();
    types.sort_by_key(Value::to_string);
    assert_eq!(types, ["Egress", "Ingress"]);
    let excepted: Vec<_> =
        policy["spec"]["egress"][0]["to"].as_array().unwrap().iter().map(|to| &to["ipBlock"]).collect();
    let expected = [
        json!({"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}),
        json!({"cidr": "::/0", "except": ["fd00:ec2::254/128"]}),
    ];
    assert_eq!(excepted, expected.iter().collect::<Vec<_>>());
}

#[test]
fn the_operator_is_never_preempted_by_users_and_preempts_nobody() {
    let class = document("kustomize/base/priority.yaml", "PriorityClass", "ganglion");
    assert!(class["value"].as_i64().unwrap() > 0 && class["preemptionPolicy"] == "Never", "{class}");
    assert_ne!(class["globalDefault"], json!(true));
    let deployment = document("kustomize/base/deployment.yaml", "Deployment", "ganglion");
    assert_eq!(deployment["spec"]["template"]["spec"]["priorityClassName"], "ganglion");
}

/// A second scheduler with the lease of the first one stops it, or waits for ever (kosmos-io/kosmos#117).
#[test]
fn the_second_scheduler_has_a_name_and_a_lease_of_its_own() {
    let folder = "kustomize/components/scheduler";
    let configuration = documents(&format!("{folder}/scheduler.yaml")).remove(0);
    let election = &configuration["leaderElection"];
    assert_eq!(election["leaderElect"], true);
    assert_eq!(
        (&election["resourceName"], &election["resourceNamespace"]),
        (&json!(SECOND), &json!("ganglion-system"))
    );
    let profiles = configuration["profiles"].as_array().unwrap();
    assert!(profiles.iter().all(|profile| profile["schedulerName"] == SECOND), "{profiles:?}");
    let role = document(&format!("{folder}/rights.yaml"), "Role", SECOND);
    let of_leases = role["rules"].as_array().unwrap().iter().filter(|rule| rule["resources"] == json!(["leases"]));
    for rule in of_leases.filter(|rule| rule["verbs"] != json!(["create"])) {
        assert_eq!(rule["resourceNames"], json!([SECOND]));
    }
    let deployment = document(&format!("{folder}/deployment.yaml"), "Deployment", SECOND);
    assert!(deployment["spec"]["replicas"].as_i64() > Some(1), "{deployment}");
}

#[test]
fn the_profile_for_aks_reads_the_same_labels() {
    let object = documents("config/aks-scheduler.yaml").remove(0);
    assert_eq!((&object["kind"], &object["metadata"]["name"]), (&json!("SchedulerConfiguration"), &json!("upstream")));
    let mut raw: Value = serde_saphyr::from_str(object["spec"]["rawConfig"].as_str().unwrap()).unwrap();
    let component = documents("kustomize/components/scheduler/scheduler.yaml").remove(0);
    let args = raw["profiles"][0]["pluginConfig"][0]["args"].as_object_mut().unwrap();
    assert_eq!(args.remove("kind").unwrap(), "NodeAffinityArgs");
    assert_eq!(args.remove("apiVersion").unwrap(), component["apiVersion"]);
    assert_eq!(raw["profiles"], component["profiles"]);
}

/// The component differs from the configuration for the cluster's own scheduler by its name, its lease, and the file
/// with the authority.
#[test]
fn the_second_scheduler_asks_as_the_first_one_would() {
    let folder = "kustomize/components/scheduler-extender";
    let configuration = documents(&format!("{folder}/scheduler.yaml")).remove(0);
    let mut expected = documents("config/kube-scheduler.yaml").remove(0)["extenders"].clone();
    let mut extenders = configuration["extenders"].clone();
    let [own, shipped] = [&mut extenders, &mut expected].map(|all| all[0]["tlsConfig"].take());
    assert_eq!((extenders, &own["serverName"]), (expected, &shipped["serverName"]));
    let labels = documents("kustomize/components/scheduler/scheduler.yaml").remove(0);
    assert_eq!(configuration["leaderElection"], labels["leaderElection"]);
    assert_eq!(configuration["profiles"], json!([{"schedulerName": SECOND}]));
    let spec = &document(&format!("{folder}/authority.yaml"), "Deployment", SECOND)["spec"]["template"]["spec"];
    let mount = spec["containers"][0]["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let secret = &spec["volumes"][0]["secret"];
    assert_eq!(own["caFile"], format!("{mount}/ca.crt"));
    assert_eq!(secret["items"], json!([{"key": "ca.crt", "path": "ca.crt"}]), "the key of the certificate is mounted");
    let network = document(&format!("{folder}/network.yaml"), "NetworkPolicy", SECOND);
    let pods = document("kustomize/components/scheduler/deployment.yaml", "Deployment", SECOND);
    let rule = &network["spec"]["ingress"][0];
    assert_eq!(rule["from"][0]["podSelector"], pods["spec"]["selector"]);
    let base = document("kustomize/base/network.yaml", "NetworkPolicy", "ganglion");
    assert_eq!(network["spec"]["podSelector"], base["spec"]["podSelector"]);
    assert_eq!(rule["ports"], base["spec"]["ingress"][1]["ports"]);
}

/// With full nodes, kube-scheduler scores all of them as empty (kubernetes/kubernetes#141781). Without `preempt`, pods
/// are preempted on nodes that the policy then rejects.
#[test]
fn a_scheduler_sends_names_of_nodes_and_asks_before_it_preempts() {
    let configuration = documents("config/kube-scheduler.yaml").remove(0);
    let extenders = configuration["extenders"].as_array().unwrap();
    assert_eq!(extenders.len(), 1);
    for (member, value) in [
        ("nodeCacheCapable", json!(true)),
        ("ignorable", json!(true)),
        ("filterVerb", json!("filter")),
        ("prioritizeVerb", json!("prioritize")),
        ("preemptVerb", json!("preempt")),
    ] {
        assert_eq!(extenders[0][member], value, "{member}");
    }
}

/// `hack/test` runs cargo deny with this configuration.
#[test]
fn dependencies_are_restricted() {
    let deny = text(".cargo/deny.toml");
    for rule in ["unknown-registry = \"deny\"", "unknown-git = \"deny\"", "yanked = \"deny\"", "allow-git = []"] {
        assert!(deny.lines().any(|line| line == rule), ".cargo/deny.toml has no {rule}");
    }
    assert!(text("hack/test").contains("--config .cargo/deny.toml check licenses bans sources"));
}
