//! A move by the program of the image: its root is read-only, its user has no rights, and the API server and a receiver
//! of notifications are verified by the certificates that the kubeconfig and the image have.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::workload_action::status::{Notification, NotificationOutcome};
use serde_json::json;
use testkit::action::{move_pod, with};
use testkit::operator::Operator;
use testkit::plane::{NODES, Plane, kubeconfig};
use testkit::servers::http::{Authority, Manner, Server};
use testkit::testbed::{Road, Testbed, story_on};
use testkit::{block_on, root};

use super::file;
use super::image::{USER, UnpackedImage};
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Settings with which notifications may be sent to servers of the test.
const SETTINGS: &str = "outbound:\n  allowedNetworks: [127.0.0.0/8]";

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Script that runs the program of the image in it, with this directory from outside.
fn entrance(image: &UnpackedImage, directory: &Path) -> Result<PathBuf> {
    let entry_point = image.config["config"]["Entrypoint"][0].as_str().context("no entry point")?;
    let paths = [root().join("hack/release.d/enter"), image.root(), directory.to_owned(), entry_point.into()];
    let words = paths.map(|path| format!("'{}'", path.display()));
    let script = image.home.path().join("entrance");
    fs::write(&script, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// Replaces the operator of a testbed by that of the image.
async fn take_over(testbed: &Testbed, image: &UnpackedImage) -> Result<()> {
    let home = image.home.path().join("operator");
    let kubeconfig = kubeconfig::direct(&testbed.plane.cluster.config, &testbed.plane.token);
    ensure!(kubeconfig.contains("certificate-authority-data"), "the API server would not be verified");
    let mut operator = Operator::other(entrance(image, &home)?, "run", &home, &kubeconfig)?;
    let settings = home.join("settings.yaml");
    fs::write(&settings, SETTINGS)?;
    // The user of the image is another one. The directory above is private.
    fs::set_permissions(home.join("kubeconfig"), fs::Permissions::from_mode(0o644))?;
    let settings = settings.display().to_string();
    operator.add_options(&["--log", "text", "--identity", "image", "--settings", &settings]);
    operator.add_options(&["--lease-namespace", &testbed.ns, "--watch-namespace", &testbed.ns]);
    operator.start()?;
    operator.ready().await?;
    let previous = std::mem::replace(&mut *testbed.operator.lock().await, operator);
    previous.stop().await
}

/// Values of a line in the status of a process, such as `Uid:`.
fn status_line(pid: u32, name: &str) -> Result<Vec<String>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line in /proc/PID/status")?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// Id of a user in the user namespace of a process.
fn inner_id(pid: u32, outer: u32) -> Result<u32> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    for line in map.lines() {
        let numbers: Vec<u32> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [inside, outside, count] = numbers[..] else { bail!("an unknown /proc/PID/uid_map: {line}") };
        if outer >= outside && outer - outside < count {
            return Ok(inside + (outer - outside));
        }
    }
    bail!("user {outer} has no id in the namespace of the process")
}

/// Checks that a process has the rights of the container in kustomize/base, and sees no more files.
fn confined(pid: u32) -> Result<()> {
    for outer in status_line(pid, "Uid:")? {
        let id = inner_id(pid, outer.parse()?)?;
        ensure!(id == USER, "the program runs as user {id}");
    }
    for name in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
        let set = status_line(pid, name)?;
        ensure!(set == ["0000000000000000"], "{name} {set:?}");
    }
    ensure!(status_line(pid, "NoNewPrivs:")? == ["1"], "the program may gain privileges");
    // Mount points that the process can reach, with their options.
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let column = |line: &str, at| line.split(' ').nth(at).unwrap_or_default().to_owned();
    let mounts: Vec<_> = table.lines().map(|line| (column(line, 4), column(line, 5))).collect();
    let is_read_only = mounts.iter().any(|(point, options)| point == "/" && options.split(',').any(|one| one == "ro"));
    ensure!(is_read_only && mounts.len() == 2, "not a read-only root and one directory: {mounts:?}");
    Ok(())
}

/// Adds an authority to the certificates of the image.
fn add_authority(image: &UnpackedImage, authority: &Authority) -> Result<()> {
    let bundle = image.root().join("etc/ssl/certs/ca-certificates.crt");
    let certificates = fs::read_to_string(&bundle)?;
    let count = certificates.matches(BEGIN).count();
    ensure!(count > 50, "the image has only {count} certificates");
    Ok(fs::write(bundle, certificates + &String::from_utf8(authority.pem())?)?)
}

/// Notifications of an action, once each was tried.
async fn notified(testbed: &Testbed, name: &str) -> Result<Vec<Notification>> {
    let tried = |seen: &testkit::eye::Seen| {
        let sent = &seen.actions.get(name)?.status.as_ref()?.notifications;
        (!sent.is_empty() && sent.iter().all(|one| one.attempts > 0)).then(|| sent.clone())
    };
    testbed.eye.until(&format!("the notifications of action {name}"), tried).await
}

#[test]
fn the_program_of_the_image_moves_a_replica_on_a_cluster_with_install_yaml() {
    let manifests = file("install.yaml").expect("install.yaml");
    let own = block_on(Plane::own_with("release", NODES, &manifests)).expect("a plane with install.yaml");
    story_on(&own.0, Road::Direct, "release", async |testbed| {
        let image = UnpackedImage::unpack().await?;
        let (known, unknown) = (Authority::create(), Authority::create());
        add_authority(&image, &known)?;
        take_over(testbed, &image).await?;
        confined(testbed.operator.lock().await.pid()?)?;

        let answer = || Manner::Says("204 No Content", String::new());
        let (trusted, foreign) = (Server::secure(answer(), &known).await, Server::secure(answer(), &unknown).await);
        let receivers = [&trusted, &foreign].map(|server| json!({"url": server.url("/").replace("http", "https")}));
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let ((pod, _), node) = (scene.pod(1), scene.free(0));
        testbed.act("go", with(move_pod(&pod, &node), json!({"notify": receivers}))).await?;
        testbed.ends("go", DONE).await?;
        scene.moved(testbed, &[&pod], &[&node]).await?;
        let sent = notified(testbed, "go").await?;
        ensure!(
            sent[0].outcome == NotificationOutcome::Delivered && trusted.heard().starts_with("POST / "),
            "{sent:?}"
        );
        let message = sent[1].message.as_deref().unwrap_or_default();
        ensure!(
            message.contains("the certificate of the server is not trusted") && foreign.heard().is_empty(),
            "{sent:?}"
        );
        Ok(())
    });
}
