//! The addresses that may be connected to.
//!
//! The addresses of a name are checked when it is resolved for a connection, so that the name cannot change between check and
//! connection. Concurrent lookups of one name share one resolution: a resolver that hangs blocks one thread per name.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;
use tokio::sync::Semaphore;

/// Maximum number of concurrent lookups; each blocks a thread.
const LOOKUPS: usize = 128;

/// Addresses of cloud metadata that are not link-local: of AWS, Alibaba and Azure.
const METADATA: [IpAddr; 3] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// Exceptions to the default rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Allows loopback addresses.
    pub loopback: bool,
    /// Allows link-local addresses, which include the metadata services of clouds.
    pub link_local: bool,
    /// Host and port of the API server, which are refused; none if they are allowed.
    pub api_server: Option<(String, u16)>,
}

/// An address that is refused, and why.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{address} is {kind}")]
pub struct RefusedAddress {
    address: IpAddr,
    kind: &'static str,
}

impl Rules {
    /// Checks whether this address is allowed; [`Names`] checks the API server's.
    ///
    /// # Errors
    /// The address is refused.
    pub fn check(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let kind = match meant(address) {
            meant if is_nowhere(meant) => "not a host's address",
            meant if meant.is_loopback() && !self.loopback => "a loopback address",
            meant if is_link_local(meant) && !self.link_local => "a link-local address",
            _ => return Ok(()),
        };
        Err(RefusedAddress { address, kind })
    }
}

/// The address that is actually reached: some IPv6 addresses embed an IPv4 address.
fn meant(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let tail = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match six.segments() {
        // IPv4-mapped, NAT64, and IPv4-compatible addresses; :: and ::1 are not among the latter.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => tail(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => tail(high, low),
        // 6to4.
        [0x2002, high, low, ..] => tail(high, low),
        _ => address,
    }
}

/// Unspecified addresses, which reach this host, multicast and broadcast.
fn is_nowhere(address: IpAddr) -> bool {
    let special = match address {
        IpAddr::V4(four) => four.octets()[0] == 0 || four.is_broadcast(),
        IpAddr::V6(six) => six.is_unspecified(),
    };
    special || address.is_multicast()
}

fn is_link_local(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    link_local || METADATA.contains(&address)
}

/// The blocking resolver of the system.
pub type System = fn(&str) -> io::Result<Vec<IpAddr>>;

type Found = Result<Vec<IpAddr>, String>;
type Lookup = Shared<BoxFuture<'static, Found>>;

/// Resolves names and filters out refused addresses.
#[derive(Clone)]
pub struct Names {
    rules: Rules,
    system: System,
    running: Arc<Mutex<HashMap<String, Lookup>>>,
    turns: Arc<Semaphore>,
}

impl Names {
    /// A resolver with these rules.
    #[must_use]
    pub fn new(rules: Rules, system: System) -> Self {
        Self { rules, system, running: Arc::default(), turns: Arc::new(Semaphore::new(LOOKUPS)) }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Lookup>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the API server listens on this port.
    #[must_use]
    pub fn is_api_port(&self, port: u16) -> bool {
        self.rules.api_server.as_ref().is_some_and(|(_, api)| *api == port)
    }

    /// The allowed addresses of this name, or this address itself. `guarded`: the port is the API server's.
    ///
    /// # Errors
    /// There are none; a [`RefusedAddress`] if all were refused.
    pub async fn allowed(
        &self,
        name: &str,
        guarded: bool,
    ) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.lookup(name).await?;
        let api = match &self.rules.api_server {
            Some((host, _)) if guarded => self.lookup(host).await?,
            Some(_) | None => Vec::new(),
        };
        let mut refused = None;
        let mut allowed = Vec::with_capacity(found.len());
        for address in found {
            let is_api = api.iter().any(|one| meant(*one) == meant(address));
            let api = is_api.then_some(RefusedAddress { address, kind: "the API server's" });
            match api.map_or(self.rules.check(address), Err) {
                Ok(()) => allowed.push(address),
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            Some(why) if allowed.is_empty() => Err(why.into()),
            Some(_) | None => Ok(allowed),
        }
    }

    /// All addresses of this name; an address resolves to itself.
    async fn lookup(&self, name: &str) -> Found {
        if let Ok(address) = name.trim_start_matches('[').trim_end_matches(']').parse() {
            return Ok(vec![address]);
        }
        let lookup = {
            let mut running = self.running();
            match running.get(name) {
                Some(known) => known.clone(),
                None => running.entry(name.to_owned()).or_insert(self.begin(name)).clone(),
            }
        };
        lookup.await
    }

    /// Runs the lookup in a task of its own: a lookup of the system cannot be cancelled.
    fn begin(&self, name: &str) -> Lookup {
        let (all, name) = (self.clone(), name.to_owned());
        let job = tokio::spawn(async move {
            let turn = all.turns.acquire().await;
            let (system, host) = (all.system, name.clone());
            let found = tokio::task::spawn_blocking(move || system(&host)).await;
            drop(turn);
            all.running().remove(&name);
            match found {
                Ok(Ok(addresses)) => Ok(addresses),
                Ok(Err(error)) => Err(format!("{name} has no address: {error}")),
                Err(_) => Err(format!("{name} was not resolved")),
            }
        });
        job.map(|done| done.unwrap_or_else(|error| Err(error.to_string()))).boxed().shared()
    }
}

/// Resolves a name with the resolver of the system.
///
/// # Errors
/// The name has no address.
pub fn system(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// The resolver of one HTTP client.
pub struct Resolver {
    pub names: Names,
    /// The connections go to the API server's port.
    pub guarded: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, guarded) = (self.names.clone(), self.guarded);
        Box::pin(async move {
            let allowed = names.allowed(name.as_str(), guarded).await?;
            // Port 0 means the port of the request.
            let addresses: Addrs = Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
