//! Allowed dependencies between packages. Cargo enforces what a manifest says. This test checks that the manifests say
//! no more than the table below, and that the code of a room does not name what its dependencies would give it.

use std::collections::BTreeSet;

use crate::source::{Package, WORKSPACE, path};

/// A package, the packages of the workspace that it may use, and what its code must not name.
struct Room {
    name: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
    /// Libraries of others that it may depend on; None if it may depend on any.
    libraries: Option<&'static [&'static str]>,
    must_not_name: &'static [&'static [&'static str]],
}

/// Libraries that compute only: no I/O, no tasks, no log.
const PURE: &[&str] = &[
    "base64",
    "cel",
    "chrono",
    "chrono-tz",
    "croner",
    "foldhash",
    "http",
    "jiff",
    "json-patch",
    "k8s-openapi",
    "kube",
    "minijinja",
    "num-bigint",
    "regex",
    "ring",
    "schemars",
    "serde",
    "serde-saphyr",
    "serde_json",
    "sha2",
    "siphasher",
    "strsim",
    "thiserror",
    "time",
];

/// Time is an argument.
const CLOCKS: &[&str] = &[
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "k8s_openapi::jiff::Timestamp::now",
    "k8s_openapi::jiff::Zoned::now",
    "chrono::Local",
    "chrono::Utc::now",
    "std::time::SystemTime",
    "time::OffsetDateTime::now_utc",
];
/// Configuration is an argument.
const ENVIRONMENT: &[&str] = &["std::env", "std::fs", "std::process"];
/// Everything else that acts on the world, by way of libraries that are pure otherwise.
const EFFECTS: &[&str] = &[
    "kube::Api",
    "kube::Client",
    "kube::Config",
    "kube::api::Api",
    "kube::client",
    "kube::config",
    "kube::discovery",
    "kube::runtime",
    "ring::rand",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::time::Instant",
];
/// Controllers are started by the frame (`ganglion_runtime::frame::run`).
const UNFRAMED: &[&str] = &["ganglion_runtime::run::run"];
const COMMAND_LINE: &[&str] = &["anyhow", "clap"];
const WEB_SERVER: &[&str] = &["axum"];

const PLAN: &[&str] = &["ganglion-core", "ganglion-api"];

/// A room without effects.
const fn pure(name: &'static str, may_use: &'static [&'static str]) -> Room {
    Room { name, may_use, tests_may_use: &[], libraries: Some(PURE), must_not_name: &[CLOCKS, ENVIRONMENT, EFFECTS] }
}

/// The controller of a product. It never uses another product.
const fn controller(name: &'static str, may_use: &'static [&'static str]) -> Room {
    let must_not_name: &[&[&str]] = &[CLOCKS, ENVIRONMENT, COMMAND_LINE, WEB_SERVER, UNFRAMED];
    Room { name, may_use, tests_may_use: &["testkit"], libraries: None, must_not_name }
}

const ROOMS: &[Room] = &[
    pure("ganglion-api", &[]),
    pure("ganglion-core", &["ganglion-api"]),
    pure("ganglion-actions-plan", PLAN),
    pure("ganglion-loops-plan", PLAN),
    pure("ganglion-nodes-plan", PLAN),
    pure("ganglion-pools-plan", PLAN),
    pure("ganglion-placement-plan", PLAN),
    Room {
        name: "ganglion-runtime",
        may_use: &["ganglion-core"],
        tests_may_use: &["ganglion-api"],
        libraries: None,
        must_not_name: &[ENVIRONMENT, COMMAND_LINE],
    },
    Room {
        name: "ganglion-outbound",
        may_use: &["ganglion-runtime", "ganglion-core", "ganglion-api"],
        tests_may_use: &["testkit"],
        libraries: None,
        must_not_name: &[CLOCKS, ENVIRONMENT, COMMAND_LINE, WEB_SERVER],
    },
    controller(
        "ganglion-actions",
        &["ganglion-actions-plan", "ganglion-runtime", "ganglion-outbound", "ganglion-core", "ganglion-api"],
    ),
    controller(
        "ganglion-loops",
        &["ganglion-loops-plan", "ganglion-runtime", "ganglion-outbound", "ganglion-core", "ganglion-api"],
    ),
    controller(
        "ganglion-nodes",
        &["ganglion-nodes-plan", "ganglion-runtime", "ganglion-outbound", "ganglion-core", "ganglion-api"],
    ),
    controller(
        "ganglion-pools",
        &["ganglion-pools-plan", "ganglion-runtime", "ganglion-outbound", "ganglion-core", "ganglion-api"],
    ),
    Room {
        // It serves the scheduler extender, whose requests start at no reconcile that would know the time.
        must_not_name: &[ENVIRONMENT, COMMAND_LINE, UNFRAMED],
        ..controller(
            "ganglion-placement",
            &["ganglion-placement-plan", "ganglion-runtime", "ganglion-outbound", "ganglion-core", "ganglion-api"],
        )
    },
    Room {
        name: "ganglion",
        may_use: &[
            "ganglion-actions",
            "ganglion-actions-plan",
            "ganglion-api",
            "ganglion-core",
            "ganglion-loops",
            "ganglion-loops-plan",
            "ganglion-nodes",
            "ganglion-nodes-plan",
            "ganglion-outbound",
            "ganglion-placement",
            "ganglion-placement-plan",
            "ganglion-pools",
            "ganglion-pools-plan",
            "ganglion-runtime",
        ],
        tests_may_use: &["lab", "testkit"],
        libraries: None,
        must_not_name: &[UNFRAMED],
    },
    Room {
        name: "lab",
        may_use: &[
            "ganglion-actions-plan",
            "ganglion-api",
            "ganglion-core",
            "ganglion-loops-plan",
            "ganglion-placement",
            "ganglion-placement-plan",
            "ganglion-runtime",
            "testkit",
        ],
        tests_may_use: &[],
        libraries: None,
        must_not_name: &[CLOCKS],
    },
    Room {
        name: "testkit",
        may_use: &["ganglion-api", "ganglion-loops-plan"],
        tests_may_use: &[],
        libraries: None,
        must_not_name: &[],
    },
];

/// Libraries that only one file may use; its interface hides their types.
const BEHIND_A_BORDER: [(&str, &str); 3] = [
    ("chrono", "src/loops/plan/schedule/cron_times.rs"),
    ("chrono_tz", "src/loops/plan/schedule/cron_times.rs"),
    ("croner", "src/loops/plan/schedule/cron_times.rs"),
];

/// Dependencies of this package that its room does not allow.
fn forbidden_dependencies(room: &Room, package: &Package, workspace: &BTreeSet<&str>) -> Vec<String> {
    let mut forbidden = Vec::new();
    for name in &package.dependencies {
        let is_allowed = match (workspace.contains(name.as_str()), room.libraries) {
            (true, _) => room.may_use.contains(&name.as_str()),
            (false, Some(libraries)) => libraries.contains(&name.as_str()),
            (false, None) => true,
        };
        if !is_allowed {
            forbidden.push(format!("{} depends on {name}", room.name));
        }
    }
    for name in package.test_dependencies.iter().filter(|name| workspace.contains(name.as_str())) {
        if !room.may_use.contains(&name.as_str()) && !room.tests_may_use.contains(&name.as_str()) {
            forbidden.push(format!("the tests of {} depend on {name}", room.name));
        }
    }
    forbidden
}

/// Places at which the code of this package names what its room must not name.
fn forbidden_names(room: &Room, package: &Package) -> Vec<String> {
    let forbidden: Vec<Vec<String>> = room.must_not_name.concat().into_iter().map(path).collect();
    let modules = package.modules();
    let mut places = Vec::new();
    for file in &package.files {
        for used in file.code.used(&file.module, &modules) {
            if forbidden.iter().any(|forbidden| used.starts_with(forbidden)) {
                places.push(format!("{} names {}", file.path.display(), used.join("::")));
            }
        }
    }
    places
}

fn room(package: &Package) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == package.name)
}

#[test]
fn every_package_stands_in_the_table() {
    let packages: BTreeSet<&str> = WORKSPACE.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(packages, ROOMS.iter().map(|room| room.name).collect());
    for package in WORKSPACE.iter() {
        assert!(!package.files.is_empty(), "{} has no files", package.name);
    }
}

#[test]
fn a_package_depends_only_on_what_it_may_use() {
    let workspace = WORKSPACE.iter().map(|package| package.name.as_str()).collect();
    let mut wrong = Vec::new();
    for package in WORKSPACE.iter() {
        wrong.extend(room(package).map(|room| forbidden_dependencies(room, package, &workspace)).unwrap_or_default());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_package_names_nothing_that_it_must_not() {
    let mut wrong = Vec::new();
    for package in WORKSPACE.iter() {
        wrong.extend(room(package).map(|room| forbidden_names(room, package)).unwrap_or_default());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_library_behind_a_border_is_named_there_only() {
    for (library, home) in BEHIND_A_BORDER {
        let mut users = BTreeSet::new();
        for package in WORKSPACE.iter() {
            let modules = package.modules();
            for file in &package.files {
                if file.code.used(&file.module, &modules).iter().any(|used| used[0] == library) {
                    users.insert(file.path.to_str().unwrap());
                }
            }
        }
        assert_eq!(users, [home].into(), "{library} is named by these files");
    }
}

#[test]
fn forbidden_dependencies_are_seen() {
    let mut package = Package::example(&[]);
    package.dependencies = ["ganglion-core", "serde", "tokio", "ganglion-loops-plan"].map(str::to_owned).into();
    package.test_dependencies = ["proptest", "testkit"].map(str::to_owned).into();
    let workspace = ["ganglion-core", "ganglion-loops-plan", "testkit"].into();
    let found = forbidden_dependencies(&pure("example", PLAN), &package, &workspace);
    let expected = [
        "example depends on ganglion-loops-plan",
        "example depends on tokio",
        "the tests of example depend on testkit",
    ];
    assert_eq!(found, expected);
}

#[test]
fn forbidden_names_are_seen() {
    let package = Package::example(&[
        ("a", "use jiff::Timestamp; fn f(now: Timestamp) -> Timestamp { Timestamp::now() }"),
        ("b", "use std::{env::var, net::IpAddr}; fn f() { g!(\"std::fs\") }"),
        ("c", "fn f() { g!(kube::Client::try_default().await) } #[cfg(test)] mod tests { use std::fs; }"),
    ]);
    let expected =
        ["a.rs names jiff::Timestamp::now", "b.rs names std::env::var", "c.rs names kube::Client::try_default"];
    assert_eq!(forbidden_names(&pure("example", PLAN), &package), expected);
}
