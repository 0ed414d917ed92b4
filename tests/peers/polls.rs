//! A thousand machines on loopback, some of which hang or reject connections: the others are polled on time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ganglion_outbound::web::{Call, Web};
use ganglion_runtime::polls::{BrokenOff, PollLimits, PollOutcome, PollSet, PollTarget, Poller, run};
use testkit::block_on;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{call, web};

const MACHINES: u32 = 1000;
const INTERVAL: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_secs(35);

/// Polls machines by their number over HTTP.
struct Machines {
    web: Web,
    /// A port with a listener, and one without.
    ports: (u16, u16),
    begun: Mutex<HashMap<u32, Vec<Instant>>>,
}

fn hangs(machine: u32) -> bool {
    machine.is_multiple_of(10)
}

fn refuses(machine: u32) -> bool {
    machine % 10 == 1
}

fn address(machine: u32) -> String {
    format!("127.2.{}.{}", machine / 250, machine % 250 + 1)
}

impl Poller for Machines {
    type Key = u32;

    async fn poll(self: Arc<Self>, machine: u32) -> PollOutcome {
        self.begun.lock().unwrap().entry(machine).or_default().push(Instant::now());
        let port = if refuses(machine) { self.ports.1 } else { self.ports.0 };
        let request = call(format!("http://{}:{port}/", address(machine)));
        let answer = self.web.get(&Call { within: Duration::from_secs(4), ..request }).await;
        match answer.is_ok_and(|answer| answer.good().is_ok()) {
            true => PollOutcome::Ok,
            false => PollOutcome::Failed,
        }
    }

    fn broken_off(&self, _: &u32, _: BrokenOff) {}
}

async fn listen(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream));
    }
}

/// Answers each request, unless the machine with this address hangs.
async fn serve(mut stream: TcpStream) -> Result<()> {
    let IpAddr::V4(own) = stream.local_addr()?.ip() else { return Ok(()) };
    let [_, _, high, low] = own.octets();
    if hangs(u32::from(high) * 250 + u32::from(low) - 1) {
        std::future::pending::<()>().await;
    }
    let mut head = Vec::new();
    loop {
        head.push(stream.read_u8().await?);
        if head.ends_with(b"\r\n\r\n") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await?;
            head.clear();
        }
    }
}

#[test]
fn healthy_machines_are_polled_on_time_while_a_tenth_hangs_and_a_tenth_refuses() {
    block_on(async {
        let done: Result<()> = async {
            let first = TcpListener::bind((address(0).as_str(), 0)).await?;
            let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
            let ports = (first.local_addr()?.port(), closed);
            tokio::spawn(listen(first));
            for machine in 1..MACHINES {
                tokio::spawn(listen(TcpListener::bind((address(machine).as_str(), ports.0)).await?));
            }
            let machines = Arc::new(Machines { web: web(), ports, begun: Mutex::default() });
            let polls = Arc::new(PollSet::default());
            for machine in 0..MACHINES {
                let host = address(machine).into();
                let target = PollTarget {
                    host,
                    at_once: 1,
                    tenant: "a".into(),
                    interval: INTERVAL,
                    timeout: Duration::from_secs(20),
                };
                polls.put(machine, target);
            }
            // About as many places as hanging machines.
            run(Arc::clone(&machines), polls, PollLimits { polls: 128 }, tokio::time::sleep(LOOK)).await;
            let begun = machines.begun.lock().unwrap();
            let healthy = (0..MACHINES).filter(|machine| !hangs(*machine) && !refuses(*machine));
            let mut gaps: Vec<f64> = healthy
                .flat_map(|machine| {
                    begun.get(&machine).cloned().unwrap_or_default().windows(2).map(gap).collect::<Vec<_>>()
                })
                .collect();
            gaps.sort_by(f64::total_cmp);
            let p99 = gaps.get(gaps.len() * 99 / 100).copied().unwrap_or(f64::INFINITY);
            ensure!(gaps.len() >= 800 * 5, "only {} gaps", gaps.len());
            ensure!(p99 <= 1.2, "the p99 of the gaps is {p99} intervals");
            let hanging = begun.get(&0).map_or(0, Vec::len);
            ensure!((1..=4).contains(&hanging), "{hanging} polls of a machine that hangs");
            Ok(())
        }
        .await;
        done.unwrap();
    });
}

/// Number of intervals between two polls.
fn gap(pair: &[Instant]) -> f64 {
    pair[1].duration_since(pair[0]).as_secs_f64() / INTERVAL.as_secs_f64()
}
