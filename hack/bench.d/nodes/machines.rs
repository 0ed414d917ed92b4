//! Many machines on loopback. Each is a small Redfish service over TLS at its own address, and records who polls it
//! when.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::servers::http::{Authority, TlsAcceptor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Document with the inlet temperature.
pub const METRICS: &str = "/redfish/v1/Chassis/1/ThermalSubsystem/ThermalMetrics";

/// Documents that lead to it.
const DOCUMENTS: [(&str, &str); 4] = [
    ("/redfish/v1", r#"{"Chassis":{"@odata.id":"/redfish/v1/Chassis"}}"#),
    ("/redfish/v1/Chassis", r#"{"Members":[{"@odata.id":"/redfish/v1/Chassis/1"}]}"#),
    (
        "/redfish/v1/Chassis/1",
        r#"{"ChassisType":"RackMount","ThermalSubsystem":{"@odata.id":"/redfish/v1/Chassis/1/ThermalSubsystem"}}"#,
    ),
    (
        "/redfish/v1/Chassis/1/ThermalSubsystem",
        r#"{"ThermalMetrics":{"@odata.id":"/redfish/v1/Chassis/1/ThermalSubsystem/ThermalMetrics"}}"#,
    ),
];

/// Maximum length of a request head.
const HEAD: usize = 8 << 10;

/// Side of the comparison; the bare loop identifies itself in its User-Agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Operator,
    Bare,
}

impl Side {
    pub const BARE: &str = "bare";

    fn of(head: &str) -> Self {
        match head.contains(&format!("user-agent: {}\r\n", Self::BARE)) {
            true => Self::Bare,
            false => Self::Operator,
        }
    }
}

/// Address of the machine with this number.
pub fn address(machine: usize) -> Ipv4Addr {
    let [_, high, middle, low] = u32::try_from(machine + 1).unwrap_or(u32::MAX).to_be_bytes();
    Ipv4Addr::new(127, 1 + high, middle, low)
}

/// The machines; they stop with the tokio runtime.
pub struct Machines {
    pub port: u16,
    /// Inlet temperature of each machine, in tenths of a degree.
    tenths: Vec<AtomicU32>,
    seen: [Mutex<Seen>; 2],
}

/// Polls of the temperature by one side.
#[derive(Default)]
struct Seen {
    last: Vec<Option<Instant>>,
    gaps: Vec<Duration>,
    polls: usize,
}

/// Polls since the last look.
pub struct Asked {
    pub polls: usize,
    pub gaps: Vec<Duration>,
}

impl Machines {
    /// Starts this number of machines, all with the same certificate.
    pub async fn start(count: usize, authority: &Authority) -> Result<Arc<Self>> {
        let first = TcpListener::bind((address(0), 0)).await?;
        let port = first.local_addr()?.port();
        let seen = || Mutex::new(Seen { last: vec![None; count], ..Seen::default() });
        let tenths = (0..count).map(|_| AtomicU32::new(200)).collect();
        let machines = Arc::new(Self { port, tenths, seen: [seen(), seen()] });
        let tls = authority.acceptor();
        tokio::spawn(Arc::clone(&machines).listen(0, first, tls.clone()));
        for machine in 1..count {
            let listener = TcpListener::bind((address(machine), port)).await;
            let listener = listener.with_context(|| format!("machine {machine} cannot listen"))?;
            tokio::spawn(Arc::clone(&machines).listen(machine, listener, tls.clone()));
        }
        Ok(machines)
    }

    async fn listen(self: Arc<Self>, machine: usize, listener: TcpListener, tls: TlsAcceptor) {
        while let Ok((stream, _)) = listener.accept().await {
            let (this, tls) = (Arc::clone(&self), tls.clone());
            tokio::spawn(async move { this.serve(machine, stream, tls).await });
        }
    }

    async fn serve(&self, machine: usize, stream: TcpStream, tls: TlsAcceptor) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = tls.accept(stream).await?;
        let mut head = Vec::new();
        loop {
            while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
                if stream.read_buf(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            let body = self.answer(machine, &String::from_utf8_lossy(&head).to_lowercase());
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
            head.clear();
        }
    }

    /// Answers the request. `head` is in lower case.
    fn answer(&self, machine: usize, head: &str) -> String {
        let path = head.split(' ').nth(1).unwrap_or_default().trim_end_matches('/');
        if path.eq_ignore_ascii_case(METRICS) {
            self.note(machine, Side::of(head));
            let tenths = self.tenths[machine].load(Ordering::Relaxed);
            let reading = format!("{}.{}", tenths / 10, tenths % 10);
            return format!(
                r#"{{"Id":"ThermalMetrics","TemperatureSummaryCelsius":{{"Intake":{{"Reading":{reading}}}}}}}"#
            );
        }
        let found = DOCUMENTS.iter().find(|(known, _)| path.eq_ignore_ascii_case(known));
        found.map(|(_, body)| (*body).to_owned()).unwrap_or_default()
    }

    fn seen(&self, side: Side) -> MutexGuard<'_, Seen> {
        self.seen[usize::from(side == Side::Bare)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, machine: usize, side: Side) {
        let (now, mut seen) = (Instant::now(), self.seen(side));
        if let Some(before) = seen.last[machine].replace(now) {
            seen.gaps.push(now.duration_since(before));
        }
        seen.polls += 1;
    }

    /// Number of machines that this side has polled.
    pub fn reached(&self, side: Side) -> usize {
        self.seen(side).last.iter().flatten().count()
    }

    /// Polls of this side since the last look. A pause that still lasts counts as a gap.
    pub fn look(&self, side: Side) -> Asked {
        let (now, mut seen) = (Instant::now(), self.seen(side));
        let lasting: Vec<Duration> = seen.last.iter().flatten().map(|at| now.duration_since(*at)).collect();
        let mut gaps = std::mem::take(&mut seen.gaps);
        gaps.extend(lasting.into_iter().filter(|gap| *gap > super::polls::INTERVAL));
        Asked { polls: std::mem::take(&mut seen.polls), gaps }
    }

    /// Makes these machines one degree warmer.
    pub fn warm(&self, machines: impl Iterator<Item = usize>) {
        for machine in machines {
            self.tenths[machine].fetch_add(10, Ordering::Relaxed);
        }
    }
}
