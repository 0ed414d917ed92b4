//! A real Prometheus on loopback, of one of several versions, that scrapes a real node-exporter. The exporter reports
//! metrics set by a test through its textfile collector, or the metrics of this host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{attached, free_port, run, signal};
use crate::servers::http::Authority;
use crate::servers::serves;
use crate::{TIMEOUT, root};

/// User with access if a password is required.
pub const USER: &str = "me";

/// Password of [`USER`], and its bcrypt hash.
pub const PASSWORD: &str = "word";
pub(super) const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuB/GrfUOm5dtrEiT8lcouu5XB5ftbWLi";

/// Version of a Prometheus. Each tells notes on a query from warnings about its value in another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrometheusVersion {
    /// Debian's. It has no notes, and only storages warn.
    V2_42,
    /// It lists notes as warnings.
    V2_52,
    /// The current one. It lists notes as infos.
    V3,
}

impl PrometheusVersion {
    /// Name of the program for `hack/peers`.
    fn program(self) -> &'static str {
        match self {
            Self::V2_42 => "prometheus",
            Self::V2_52 => "prometheus-2.52",
            Self::V3 => "prometheus-3",
        }
    }

    /// Option to receive metrics, histograms included, by OTLP; None if there is none.
    fn receiver(self) -> Option<&'static str> {
        match self {
            Self::V2_42 => None,
            Self::V2_52 => Some("--enable-feature=otlp-write-receiver,native-histograms"),
            Self::V3 => Some("--web.enable-otlp-receiver"),
        }
    }
}

/// Prometheus and its exporter. Dropping it kills both.
pub struct PrometheusProcess {
    version: PrometheusVersion,
    home: TempDir,
    port: u16,
    arguments: Vec<String>,
    server: Option<Child>,
    exporter: Child,
    secure: bool,
}

/// Options of a Prometheus.
struct Setup<'a> {
    version: PrometheusVersion,
    /// Authority of its certificate; if set, it requires a password.
    authority: Option<&'a Authority>,
    /// Address of another scrape target besides node-exporter.
    more: Option<&'a str>,
    /// Options for additional collectors of node-exporter.
    collectors: &'a [&'a str],
    /// It also reads from a remote storage, to which it cannot connect.
    lacks_storage: bool,
    /// Another option.
    option: Option<&'a str>,
    /// File with rules, which it evaluates.
    rules: Option<&'a Path>,
}

impl Setup<'_> {
    fn of(version: PrometheusVersion) -> Self {
        Self { version, authority: None, more: None, collectors: &[], lacks_storage: false, option: None, rules: None }
    }

    /// Configuration of a Prometheus whose exporter has this address.
    fn config(&self, exporter: &str) -> String {
        let job =
            |name: &str, target: &str| format!("{{job_name: {name}, static_configs: [{{targets: ['{target}']}}]}}");
        let mut jobs = vec![job("node", exporter)];
        jobs.extend(self.more.map(|address| job("more", address)));
        // Nothing listens on this port.
        let storages = if self.lacks_storage { "{url: 'http://127.0.0.1:1/', read_recent: true}" } else { "" };
        let scrapes = "scrape_interval: 500ms, scrape_timeout: 500ms";
        let rules = self.rules.map(|file| format!("rule_files: ['{}']\n", file.display())).unwrap_or_default();
        format!("global: {{{scrapes}}}\nscrape_configs: [{}]\nremote_read: [{storages}]\n{rules}", jobs.join(", "))
    }
}

/// Directory with these samples, in the OpenMetrics text format, as the data of a Prometheus.
async fn home_with(samples: &str) -> Result<TempDir> {
    let home = TempDir::new()?;
    let (file, data) = (home.path().join("samples"), home.path().join("data"));
    fs::write(&file, samples)?;
    // All versions read the blocks of the oldest one.
    let mut command = tokio::process::Command::new(peer("prometheus")?.with_file_name("promtool"));
    command.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(file).arg(data);
    run(command, None).await?;
    Ok(home)
}

impl PrometheusProcess {
    /// Starts one that requires no password.
    pub async fn start(version: PrometheusVersion) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup::of(version)).await
    }

    /// Starts one that requires no password, and also scrapes the metrics at this address.
    pub async fn scraping(version: PrometheusVersion, address: &str) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup { more: Some(address), ..Setup::of(version) }).await
    }

    /// The same, and it evaluates the rules in this file.
    pub async fn with_rules(version: PrometheusVersion, address: &str, rules: &Path) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup { more: Some(address), rules: Some(rules), ..Setup::of(version) }).await
    }

    /// Starts one that requires a password, over TLS.
    pub async fn guarded(version: PrometheusVersion, authority: &Authority) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup { authority: Some(authority), ..Setup::of(version) }).await
    }

    /// Starts one that scrapes processor and memory metrics of this host.
    pub async fn of_this_host(version: PrometheusVersion) -> Result<Self> {
        let collectors = &["--collector.cpu", "--collector.meminfo"];
        Self::begin(TempDir::new()?, Setup { collectors, ..Setup::of(version) }).await
    }

    /// Starts one with these samples as history, in the OpenMetrics text format.
    pub async fn with_history(version: PrometheusVersion, samples: &str) -> Result<Self> {
        Self::begin(home_with(samples).await?, Setup::of(version)).await
    }

    /// The same, but it also reads from a remote storage, to which it cannot connect: all its answers are partial.
    pub async fn without_its_storage(version: PrometheusVersion, samples: &str) -> Result<Self> {
        Self::begin(home_with(samples).await?, Setup { lacks_storage: true, ..Setup::of(version) }).await
    }

    /// Starts one that requires no password, and receives metrics by OTLP. Not all versions can.
    pub async fn receiving(version: PrometheusVersion) -> Result<Self> {
        let option = version.receiver().context("this version does not receive metrics by OTLP")?;
        Self::begin(TempDir::new()?, Setup { option: Some(option), ..Setup::of(version) }).await
    }

    async fn begin(home: TempDir, setup: Setup<'_>) -> Result<Self> {
        let (port, scraped) = (free_port()?, free_port()?);
        let text = home.path().join("text");
        fs::create_dir(&text)?;
        let mut options = vec![
            "--collector.disable-defaults".to_owned(),
            "--collector.textfile".to_owned(),
            format!("--collector.textfile.directory={}", text.display()),
            format!("--web.listen-address=127.0.0.1:{scraped}"),
        ];
        options.extend(setup.collectors.iter().map(|collector| (*collector).to_owned()));
        let exporter = spawn("node-exporter", &options)?;
        let config = home.path().join("prometheus.yml");
        fs::write(&config, setup.config(&format!("127.0.0.1:{scraped}")))?;
        let mut arguments = vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", home.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        arguments.extend(setup.option.map(str::to_owned));
        if let Some(authority) = setup.authority {
            let (cert, key) = authority.files();
            let file = home.path().join("web.yml");
            let (cert, key) = (cert.display(), key.display());
            let text = format!(
                "tls_server_config: {{cert_file: {cert}, key_file: {key}}}\nbasic_auth_users: {{{USER}: '{HASH}'}}\n"
            );
            fs::write(&file, text)?;
            arguments.push(format!("--web.config.file={}", file.display()));
        }
        let (version, secure) = (setup.version, setup.authority.is_some());
        let mut this = Self { version, home, port, arguments, server: None, exporter, secure };
        this.again().await?;
        Ok(this)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.secure { "https" } else { "http" }, self.port)
    }

    /// Sets the value of this metric from the next scrape on.
    pub fn set(&self, metric: &str, value: &str) -> Result<()> {
        self.export(metric, &format!("# TYPE {metric} gauge\n{metric} {value}\n"))
    }

    /// Sets the exported text of this metric from the next scrape on.
    pub fn export(&self, metric: &str, text: &str) -> Result<()> {
        let (place, new) = (self.home.path().join("text"), self.home.path().join("new"));
        fs::write(&new, text)?;
        Ok(fs::rename(new, place.join(format!("{metric}.prom")))?)
    }

    /// Stops Prometheus.
    pub fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Stops the exporter.
    pub fn end_exporter(&mut self) {
        let _ = self.exporter.kill();
        let _ = self.exporter.wait();
    }

    /// Restarts Prometheus, and waits until it answers.
    pub async fn again(&mut self) -> Result<()> {
        self.server = Some(spawn(self.version.program(), &self.arguments)?);
        let ready = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // Prometheus listens before its database is open, so readiness is checked. This check needs access without
            // a password.
            while !self.secure && !serves(self.port, "/-/ready").await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, ready).await.context("Prometheus does not answer")
    }

    /// Sends SIGSTOP: connections are accepted, but not answered.
    pub fn pause(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// Sends SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, word: &str) -> Result<()> {
        signal(self.server.as_ref().context("Prometheus is not running")?, word)
    }
}

impl Drop for PrometheusProcess {
    fn drop(&mut self) {
        self.end();
        self.end_exporter();
    }
}

/// Path of a program of `hack/peers`.
pub fn peer(name: &str) -> Result<PathBuf> {
    let script = root().join("hack/peers");
    let done = Command::new(script).arg(name).output().context("cannot start hack/peers")?;
    if !done.status.success() {
        bail!("hack/peers {name}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(PathBuf::from(String::from_utf8(done.stdout)?.trim()))
}

/// Starts a program; it dies with the test, even if the test is killed.
fn spawn(name: &str, arguments: &[String]) -> Result<Child> {
    let mut command = attached(peer(name)?);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {name}"))
}
