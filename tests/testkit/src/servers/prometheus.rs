//! A real Prometheus on loopback that scrapes a real node-exporter. The exporter reports metrics set by a test through
//! its textfile collector, or the metrics of this host.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{free_port, run, signal};
use crate::servers::http::Authority;
use crate::servers::serves;
use crate::{TIMEOUT, root};

/// User with access if a password is required.
pub const USER: &str = "me";

/// Password of [`USER`], and its bcrypt hash.
pub const PASSWORD: &str = "word";
pub(super) const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuB/GrfUOm5dtrEiT8lcouu5XB5ftbWLi";

/// Prometheus and its exporter. Dropping it kills both.
pub struct PrometheusProcess {
    home: TempDir,
    port: u16,
    arguments: Vec<String>,
    server: Option<Child>,
    exporter: Child,
    secure: bool,
}

/// Options of a Prometheus.
#[derive(Default)]
struct Setup<'a> {
    /// Authority of its certificate; if set, it requires a password.
    authority: Option<&'a Authority>,
    /// Address of another scrape target besides node-exporter.
    more: Option<&'a str>,
    /// Options for additional collectors of node-exporter.
    collectors: &'a [&'a str],
}

impl PrometheusProcess {
    /// Starts one that requires no password.
    pub async fn start() -> Result<Self> {
        Self::begin(TempDir::new()?, Setup::default()).await
    }

    /// Starts one that requires no password, and also scrapes the metrics at this address.
    pub async fn scraping(address: &str) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup { more: Some(address), ..Setup::default() }).await
    }

    /// Starts one that requires a password, over TLS.
    pub async fn guarded(authority: &Authority) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup { authority: Some(authority), ..Setup::default() }).await
    }

    /// Starts one that scrapes processor and memory metrics of this host.
    pub async fn of_this_host() -> Result<Self> {
        let collectors = &["--collector.cpu", "--collector.meminfo"];
        Self::begin(TempDir::new()?, Setup { collectors, ..Setup::default() }).await
    }

    /// Starts one with these samples as history, in the OpenMetrics text format.
    pub async fn with_history(samples: &str) -> Result<Self> {
        let home = TempDir::new()?;
        let (file, data) = (home.path().join("samples"), home.path().join("data"));
        fs::write(&file, samples)?;
        let mut command = tokio::process::Command::new(peer("prometheus")?.with_file_name("promtool"));
        command.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(file).arg(data);
        run(command, None).await?;
        Self::begin(home, Setup::default()).await
    }

    async fn begin(home: TempDir, setup: Setup<'_>) -> Result<Self> {
        let Setup { authority, more, collectors } = setup;
        let (port, scraped) = (free_port()?, free_port()?);
        let text = home.path().join("text");
        fs::create_dir(&text)?;
        let mut options = vec![
            "--collector.disable-defaults".to_owned(),
            "--collector.textfile".to_owned(),
            format!("--collector.textfile.directory={}", text.display()),
            format!("--web.listen-address=127.0.0.1:{scraped}"),
        ];
        options.extend(collectors.iter().map(|collector| (*collector).to_owned()));
        let exporter = spawn("node-exporter", &options)?;
        let config = home.path().join("prometheus.yml");
        let scraped = format!("127.0.0.1:{scraped}");
        let job =
            |(name, target): (&str, &str)| format!("{{job_name: {name}, static_configs: [{{targets: ['{target}']}}]}}");
        let jobs = [Some(("node", scraped.as_str())), more.map(|address| ("more", address))];
        let jobs: Vec<String> = jobs.into_iter().flatten().map(job).collect();
        fs::write(
            &config,
            format!(
                "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\nscrape_configs: [{}]\n",
                jobs.join(", ")
            ),
        )?;
        let mut arguments = vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", home.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        if let Some(authority) = authority {
            let (cert, key) = authority.files();
            let file = home.path().join("web.yml");
            let (cert, key) = (cert.display(), key.display());
            let text = format!(
                "tls_server_config: {{cert_file: {cert}, key_file: {key}}}\nbasic_auth_users: {{{USER}: '{HASH}'}}\n"
            );
            fs::write(&file, text)?;
            arguments.push(format!("--web.config.file={}", file.display()));
        }
        let mut this = Self { home, port, arguments, server: None, exporter, secure: authority.is_some() };
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

    /// Restarts Prometheus, and waits until it answers.
    pub async fn again(&mut self) -> Result<()> {
        self.server = Some(spawn("prometheus", &self.arguments)?);
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
        let _ = self.exporter.kill();
        let _ = self.exporter.wait();
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
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(peer(name)?).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {name}"))
}
