//! `hack/release` and `hack/Dockerfile`, as far as they can be checked without a network: both make the same image, and
//! wrong input is refused before anything is built. `hack/test release` makes the files and uses them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rest of the only line of a text that starts with this.
fn line<'a>(text: &'a str, start: &str) -> &'a str {
    let found: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(start)).collect();
    assert_eq!(found.len(), 1, "{start} {found:?}");
    found[0].trim()
}

fn words(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    both.concat()
}

/// Runs hack/release. Returns its exit code and what it said.
fn release(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(root().join("hack/release")).args(arguments).output().unwrap();
    (output.status.code(), words(&output))
}

/// Runs a function of a part of hack/release.
fn function(part: &str, call: &[&str]) -> Output {
    let script =
        format!("set -euo pipefail; SELF=release; source hack/debian.sh; source hack/release.d/{part}; \"$@\"");
    Command::new("bash").args(["-c", &script, "bash"]).args(call).current_dir(root()).output().unwrap()
}

/// User, entry point and toolchain of the image in hack/Dockerfile that differ from those of hack/release.
fn differences(dockerfile: &str) -> Vec<String> {
    let image = text("hack/release.d/image.sh");
    let last_stage = dockerfile.rsplit("\nFROM ").next().unwrap();
    let entry_point = format!("[\"{}\"]", line(&image, "IMAGE_ENTRYPOINT="));
    let pinned = text("rust-toolchain.toml");
    let toolchain = line(&pinned, "channel = ").trim_matches('"');
    let facts = [
        (line(last_stage, "USER ").to_owned(), line(&image, "IMAGE_USER=").to_owned()),
        (line(last_stage, "ENTRYPOINT ").to_owned(), entry_point),
        (line(dockerfile, "FROM rust:").split('-').next().unwrap().to_owned(), toolchain.to_owned()),
        (line(dockerfile, "ENV RUSTUP_TOOLCHAIN=").to_owned(), toolchain.to_owned()),
        (last_stage.lines().next().unwrap().to_owned(), "scratch".to_owned()),
    ];
    facts
        .into_iter()
        .filter(|(here, there)| here != there)
        .map(|(here, there)| format!("{here}, not {there}"))
        .collect()
}

#[test]
fn the_dockerfile_makes_the_image_of_hack_release() {
    let dockerfile = text("hack/Dockerfile");
    assert_eq!(differences(&dockerfile), [""; 0]);
    // One script selects the packages for both, and every file that it reads is copied.
    assert!(text("hack/release.d/image.sh").contains("hack/release.d/root \"$PROGRAM\""));
    assert!(dockerfile.contains("/source/hack/release.d/root /ganglion"));
    for file in ["LICENSE", "hack/debian.sh", "hack/release.d/root"] {
        assert!(dockerfile.contains(&format!("COPY {file} /source/")), "{file} is not copied");
    }
    let changed = dockerfile.replace("USER 65532", "USER 0").replace("/usr/bin/ganglion\"", "/bin/sh\"");
    assert_eq!(differences(&changed), ["0:65532, not 65532:65532", "[\"/bin/sh\"], not [\"/usr/bin/ganglion\"]"]);
}

#[test]
fn the_user_of_the_image_is_that_of_the_deployment() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text("kustomize/base/deployment.yaml")).unwrap();
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let context = &deployment["spec"]["template"]["spec"]["securityContext"];
    let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
    assert_eq!(user, line(&text("hack/release.d/image.sh"), "IMAGE_USER="));
    let passwd = format!("ganglion:x:{user}:");
    assert!(text("hack/release.d/root").contains(&passwd), "no entry {passwd}");
    assert!(text("hack/release.d/enter").contains(&format!("--userspec={user}")));
}

/// Versions of the image in a text, as `newTag: 1.2.3`, `ganglion:1.2.3` or `ganglion-1.2.3`.
fn image_versions(text: &str) -> Vec<String> {
    let written = Regex::new(r#"(?:newTag: "?|ganglion[:-])(\d+\.\d+\.\d+)"#).unwrap();
    written.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

#[test]
fn the_manifests_run_the_image_of_this_version() {
    for file in ["kustomize/base/kustomization.yaml", "kustomize/README.md", "README.md", "hack/Dockerfile"] {
        let versions = image_versions(&text(file));
        assert!(!versions.is_empty(), "{file} names no version");
        for version in versions {
            assert_eq!(version, env!("CARGO_PKG_VERSION"), "{file}");
        }
    }
    let forms = "newTag: \"0.1.0\", newTag: 0.1.1, ganglion:0.1.2 ganglion-0.1.3-linux";
    assert_eq!(image_versions(forms), ["0.1.0", "0.1.1", "0.1.2", "0.1.3"]);
}

#[test]
fn files_have_the_same_modes_for_every_builder() {
    for script in ["hack/release", "hack/release.d/root"] {
        assert_eq!(line(&text(script), "umask "), "022", "{script}");
    }
}

#[test]
fn no_secret_enters_the_image() {
    // The context of Docker is the whole tree, so only a stage that is thrown away may copy all of it.
    let dockerfile = text("hack/Dockerfile");
    let last_stage = dockerfile.rsplit("\nFROM ").next().unwrap();
    assert_eq!(line(last_stage, "COPY "), "--from=root /root-of-image /");
    let names_secret = Regex::new("(?i)token|password|secret|_key").unwrap();
    let settings =
        dockerfile.lines().filter(|line| ["ARG", "ENV", "LABEL", "RUN"].iter().any(|word| line.starts_with(word)));
    for setting in settings {
        assert!(!names_secret.is_match(setting), "{setting}");
    }
    assert!(text("hack/Dockerfile.dockerignore").lines().any(|line| line == ".git"));
}

#[test]
fn wrong_options_are_refused_before_anything_is_built() {
    let home = TempDir::new().unwrap();
    let own = home.path().join("own");
    fs::write(&own, "text").unwrap();
    let (files, own_path) = (home.path().display(), own.display());
    for (arguments, code, message) in [
        ("--bogus".to_owned(), 2, "unknown option --bogus".to_owned()),
        ("--out".to_owned(), 2, "--out needs a value".to_owned()),
        ("--version 9.9.9".to_owned(), 1, "not '9.9.9': set the version in Cargo.toml first".to_owned()),
        (
            "--registry ganglion".to_owned(),
            1,
            "'ganglion' is not a repository of a registry: write HOST/NAME".to_owned(),
        ),
        ("--registry ghcr.io/Acme/ganglion".to_owned(), 1, "in lower case".to_owned()),
        ("--registry ghcr.io/acme/ganglion:1".to_owned(), 1, "without tag".to_owned()),
        ("--registry ghcr.io/acme/$(id)".to_owned(), 1, "is not a repository of a registry".to_owned()),
        ("--url file:///x".to_owned(), 1, "'file:///x' is not an http or https address".to_owned()),
        (format!("--out {own_path}"), 1, format!("{own_path} is not a directory: name another with --out")),
        (format!("--out {files}"), 1, format!("{own_path} is not a file of an earlier release: remove it")),
    ] {
        let (seen, said) = release(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(seen, Some(code), "{arguments}: {said}");
        assert!(said.contains(&message), "{arguments}: {message} is not in {said}");
    }
    assert_eq!(fs::read_to_string(&own).unwrap(), "text");
}

#[test]
fn all_missing_tools_are_named_at_once() {
    // Tools of the first checks alone.
    let home = TempDir::new().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["bash", "dirname", "sed", "head", "awk", "realpath", "env"] {
        let mut files = std::env::split_paths(&path).map(|folder| folder.join(tool));
        symlink(files.find(|file| file.exists()).unwrap(), home.path().join(tool)).unwrap();
    }
    let out = home.path().join("out").display().to_string();
    let mut command = Command::new(root().join("hack/release"));
    let output = command.args(["--out", &out]).env("PATH", home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = words(&output);
    for message in [
        "git is missing; on Debian it comes with the package git",
        "dpkg-deb is missing; on Debian it comes with the package dpkg (elsewhere, use hack/Dockerfile)",
        "cargo is missing",
    ] {
        assert!(said.contains(message), "{message} is not in {said}");
    }
    assert!(!Path::new(&out).exists());
}

/// Runs `notes` on a changelog with this text.
fn notes(changelog: &str, arguments: &[&str]) -> (bool, String) {
    let home = TempDir::new().unwrap();
    let file = home.path().join("CHANGELOG.md");
    fs::write(&file, changelog).unwrap();
    let output = function("notes.sh", &[&["notes", &file.display().to_string()], arguments].concat());
    (output.status.success(), words(&output))
}

#[test]
fn the_notes_are_the_section_of_the_version() {
    let log = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- New.\n\n## [1.2.0] - 2026-01-01\n\n- Old.\n\n\
               ## [1.1.0] - 2025-01-01\n\n## [1.2.0-rc.1]\n\n- Tried.\n\n[1.2.0]: https://example.com\n";
    let of = |text: &str| (true, format!("# Ganglion {text}\n"));
    assert_eq!(notes(log, &["1.2.0", "given"]), of("1.2.0\n\n- Old."));
    assert_eq!(notes(log, &["1.2.0"]), of("1.2.0\n\n- Old."));
    assert_eq!(notes(log, &["1.2.0-rc.1", "given"]), of("1.2.0-rc.1\n\n- Tried."));
    assert_eq!(notes(log, &["1.3.0"]), of("1.3.0\n\n### Added\n\n- New."));
    assert_eq!(
        notes("## [Unreleased]\n\n## [1.0.0]\n\n- Old.\n", &["1.3.0"]),
        of("1.3.0\n\nNo changes are noted yet.")
    );
    for (version, message) in [
        ("1.3.0", "has no section [1.3.0]: rename its section [Unreleased] to [1.3.0]"),
        ("1.1.0", "the section [1.1.0] of"),
        // A prefix of another version.
        ("1.2", "has no section [1.2]"),
    ] {
        let (done, said) = notes(log, &[version, "given"]);
        assert!(!done && said.contains(message), "{version}: {said}");
    }
    assert!(notes("# Changelog\n", &["1.0.0"]).1.contains("neither a section [1.0.0] nor a section [Unreleased]"));
}

/// Mistakes in the manifest of a plugin, by the rules of krew's own validation (internal/index/validation) and of its
/// guide for plugin authors.
fn krew_mistakes(plugin: &Value) -> Vec<&'static str> {
    let has =
        |pattern: &str, value: &Value| value.as_str().is_some_and(|text| Regex::new(pattern).unwrap().is_match(text));
    let spec = &plugin["spec"];
    let mut rules = vec![
        ("apiVersion", plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"),
        ("kind", plugin["kind"] == "Plugin"),
        ("name", plugin["metadata"]["name"] == "ganglion"),
        ("version", has(r"^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$", &spec["version"])),
        ("shortDescription", has(r"^[^\r\n]{1,50}$", &spec["shortDescription"])),
        ("description", has("(?s)^.+$", &spec["description"])),
        ("homepage", has("^https?://", &spec["homepage"])),
    ];
    let platforms = spec["platforms"].as_array().cloned().unwrap_or_default();
    rules.push(("platforms", !platforms.is_empty()));
    for platform in &platforms {
        let labels = platform["selector"]["matchLabels"].as_object();
        let files = platform["files"].as_array().cloned().unwrap_or_default();
        rules.extend([
            ("selector", labels.is_some_and(|labels| labels.keys().all(|key| key == "os" || key == "arch"))),
            ("uri", has(r"^https?://.+\.tar\.gz$", &platform["uri"])),
            ("sha256", has("^[a-f0-9]{64}$", &platform["sha256"])),
            ("bin", platform["bin"] == "kubectl-ganglion"),
            ("files", files.iter().any(|file| file["from"] == platform["bin"])),
            ("completion", files.iter().any(|file| file["from"] == "kubectl_complete-ganglion")),
            ("licence", files.iter().any(|file| has("^LICENSE", &file["from"]))),
            ("to", files.iter().all(|file| has("^.+$", &file["to"]))),
        ]);
    }
    rules.into_iter().filter(|(_, holds)| !holds).map(|(rule, _)| rule).collect()
}

#[test]
fn krew_accepts_the_manifest_of_the_plugin() {
    let archive = "https://example.com/ganglion/v0.1.0/kubectl-ganglion-0.1.0-linux-amd64.tar.gz";
    let output = function("plugin.sh", &["krew_manifest", "0.1.0", "amd64", &"0a".repeat(32), archive]);
    let mut plugin: Value = serde_saphyr::from_str(&words(&output)).unwrap();
    assert_eq!(krew_mistakes(&plugin), [""; 0]);
    assert_eq!(plugin["spec"]["platforms"][0]["uri"], archive);
    plugin["spec"]["shortDescription"] = json!("two\nlines");
    plugin["spec"]["platforms"][0]["sha256"] = json!("0A");
    plugin["spec"]["platforms"][0]["selector"] = json!({"matchLabels": {"libc": "gnu"}});
    assert_eq!(krew_mistakes(&plugin), ["shortDescription", "selector", "sha256"]);
}
