//! Addresses to which connections are allowed.
//!
//! The addresses of a name are checked when it is resolved for a connection, so that the name cannot change between
//! check and connection. Concurrent lookups of one name share one resolution: a resolver that hangs blocks one thread
//! per name. The number of resolutions is bounded, and fair by namespace.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use prometheus_client::metrics::counter::Counter;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;

use super::network::{HostPattern, Network};
use super::private::{PrivateAccess, PrivateRule, is_cluster_name, is_private};
use ganglion_runtime::fairness::{FairLimit, FairPermit};

/// Maximum number of concurrent lookups; each blocks a thread. One namespace can use a quarter of it.
const LOOKUPS: usize = 128;

tokio::task_local! {
    /// Namespace of the request that a task sends. The resolver of an HTTP client is called from the task that sends
    /// the request, and gets only the name.
    pub static TENANT: String;
}

/// Allowed and denied addresses and hosts. Deny rules win over allow rules. Allow rules win over the built-in rules,
/// which refuse loopback, link-local, cloud metadata and translator addresses. Private addresses and names of the
/// cluster need a rule in `private`. Everything else is allowed unless `only_allowed` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub denied_networks: Vec<Network>,
    pub denied_hosts: Vec<HostPattern>,
    pub allowed_networks: Vec<Network>,
    /// Names do not lift the built-in rules: the owner of a DNS name could otherwise open this host to requests.
    pub allowed_hosts: Vec<HostPattern>,
    /// Rules that permit private addresses.
    pub private: Vec<PrivateRule>,
    /// Refuses everything that is not explicitly allowed.
    pub only_allowed: bool,
    /// Errors show the cause of a failed connection for every host, not only for allowed hosts.
    pub show_causes: bool,
    /// Host and port of the API server, which are refused even if they are allowed; None if they are not refused.
    pub api_server: Option<(String, u16)>,
}

/// Refused address, with the reason.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{address} is {kind}")]
pub struct RefusedAddress {
    address: IpAddr,
    kind: &'static str,
}

/// Description of an address that the settings can permit; see [`super::private`].
const PRIVATE: &str = "a private address";

/// The same for an address whose name is one of the cluster.
const OF_CLUSTER: &str = "the address of a name of the cluster";

impl RefusedAddress {
    /// Whether a line in the settings would permit the address.
    pub fn is_private(&self) -> bool {
        matches!(self.kind, PRIVATE | OF_CLUSTER)
    }
}

/// Name that does not resolve to an address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Unresolved(pub String);

fn any(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address) || network.contains(meant(address)))
}

impl Rules {
    /// Checks whether connections to this address of this host are allowed. [`Names`] checks the addresses of the API
    /// server.
    pub fn check(&self, host: &str, address: IpAddr, access: &PrivateAccess) -> Result<(), RefusedAddress> {
        let meant = meant(address);
        let kind = match address {
            _ if any(&self.denied_networks, address) => "in a denied network (setting outbound.deniedNetworks)",
            _ if is_nowhere(meant) => "not a host's address",
            _ if any(&self.allowed_networks, address) => return Ok(()),
            _ if meant.is_loopback() => "a loopback address",
            _ if is_link_local(meant) => "a link-local address",
            _ if is_metadata(meant) => "an address of cloud metadata",
            _ if is_translated(address) => "an address of a translator",
            _ if is_private(meant) || is_cluster_name(host) => {
                if access.permits(&self.private, address) || access.permits(&self.private, meant) {
                    return Ok(());
                }
                if is_private(meant) { PRIVATE } else { OF_CLUSTER }
            }
            _ if self.only_allowed && !self.is_allowed_host(host) => {
                "not allowed (settings outbound.allowedNetworks and allowedHosts)"
            }
            _ => return Ok(()),
        };
        Err(RefusedAddress { address, kind })
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        self.allowed_hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether this host, a name or an address, is denied by name.
    pub fn denies(&self, host: &str) -> bool {
        self.denied_hosts.iter().any(|pattern| pattern.matches(host))
    }

    /// Whether errors show the cause of a failed connection to this host, a name or an address. By default only for
    /// hosts that are explicitly allowed.
    pub fn shows_cause(&self, host: &str) -> bool {
        if self.show_causes {
            return true;
        }
        match literal(host) {
            Some(address) => any(&self.allowed_networks, address),
            None => self.is_allowed_host(host),
        }
    }
}

/// Parses the host of a URL as an address; None if it is a name.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Address that a connection actually reaches: some IPv6 addresses embed an IPv4 address.
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

/// Unspecified addresses, which reach this host, and multicast and broadcast addresses.
fn is_nowhere(address: IpAddr) -> bool {
    let special = match address {
        IpAddr::V4(four) => four.octets()[0] == 0 || four.is_broadcast(),
        IpAddr::V6(six) => six.is_unspecified(),
    };
    special || address.is_multicast()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

/// Cloud metadata addresses that are not link-local.
fn is_metadata(address: IpAddr) -> bool {
    match address {
        // Alibaba, Azure.
        IpAddr::V4(four) => matches!(four.octets(), [100, 100, 100, 200] | [168, 63, 129, 16]),
        IpAddr::V6(six) => matches!(
            six.segments(),
            // AWS has more than one service in this network.
            [0xfd00, 0xec2, ..]
            // Google, Oracle, Scaleway.
            | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
            | [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
            | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]
        ),
    }
}

/// Addresses that a translator maps to IPv4 addresses depending on its configuration: local-use NAT64 (RFC 8215) and
/// IPv4-translated (RFC 2765).
fn is_translated(address: IpAddr) -> bool {
    let IpAddr::V6(six) = address else { return false };
    matches!(six.segments(), [0x64, 0xff9b, 1, ..] | [0, 0, 0, 0, 0xffff, 0, ..])
}

/// Blocking resolver of the system.
pub type System = fn(&str) -> io::Result<Vec<IpAddr>>;

type Resolution = Result<Vec<IpAddr>, Unresolved>;
type Lookup = Shared<BoxFuture<'static, Resolution>>;

/// Resolves names and filters out refused addresses.
#[derive(Clone)]
pub struct Names {
    rules: Arc<Rules>,
    system: System,
    running: Arc<Mutex<HashMap<String, Lookup>>>,
    turns: FairLimit,
    /// Addresses of the API server behind its Service.
    endpoints: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Names {
    /// Creates a resolver with these rules.
    pub fn new(rules: Rules, system: System) -> Self {
        let turns = FairLimit::new(LOOKUPS, Counter::default());
        Self { rules: Arc::new(rules), system, running: Arc::default(), turns, endpoints: Arc::default() }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Lookup>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn endpoints(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Sets the addresses of the API server behind its Service.
    pub fn guard(&self, endpoints: Vec<SocketAddr>) {
        *self.endpoints() = endpoints;
    }

    /// Returns the port if the API server listens on it and must not be reached.
    pub fn guarded(&self, port: u16) -> Option<u16> {
        let (_, api) = self.rules.api_server.as_ref()?;
        let is_api = *api == port || self.endpoints().iter().any(|endpoint| endpoint.port() == port);
        is_api.then_some(port)
    }

    /// Resolves the allowed addresses of a name for this namespace; an address resolves to itself. `guarded`: see
    /// [`Self::guarded`]. Fails with a [`RefusedAddress`] if all addresses were refused.
    pub async fn allowed(
        &self,
        name: &str,
        guarded: Option<u16>,
        access: &PrivateAccess,
        tenant: &str,
    ) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.lookup(name, tenant).await?;
        let api = self.api_addresses(guarded, tenant).await?;
        let mut refused = None;
        let mut allowed = Vec::with_capacity(found.len());
        for address in found {
            let is_api = api.iter().any(|one| meant(*one) == meant(address));
            let api = is_api.then_some(RefusedAddress { address, kind: "the API server's" });
            match api.map_or(self.rules.check(name, address, access), Err) {
                Ok(()) => allowed.push(address),
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            Some(why) if allowed.is_empty() => Err(why.into()),
            Some(_) | None => Ok(allowed),
        }
    }

    /// Addresses at which the API server listens on this port.
    async fn api_addresses(&self, guarded: Option<u16>, tenant: &str) -> Resolution {
        let (Some((host, api)), Some(port)) = (&self.rules.api_server, guarded) else { return Ok(Vec::new()) };
        let mut all = if *api == port { self.lookup(host, tenant).await? } else { Vec::new() };
        all.extend(self.endpoints().iter().filter(|endpoint| endpoint.port() == port).map(SocketAddr::ip));
        Ok(all)
    }

    /// Resolves all addresses of a name; an address resolves to itself.
    async fn lookup(&self, name: &str, tenant: &str) -> Resolution {
        if let Some(address) = literal(name) {
            return Ok(vec![address]);
        }
        let running = self.running().get(name).cloned();
        let lookup = match running {
            Some(running) => running,
            None => {
                // A request that is cancelled while it waits for its turn leaves nothing behind.
                let turn = self.turns.acquire(tenant, 1).await;
                let mut running = self.running();
                match running.get(name) {
                    Some(known) => known.clone(),
                    None => running.entry(name.to_owned()).or_insert(self.begin(name, turn)).clone(),
                }
            }
        };
        lookup.await
    }

    /// Starts the lookup in its own task: a lookup of the system cannot be cancelled.
    fn begin(&self, name: &str, turn: FairPermit) -> Lookup {
        let (all, name) = (self.clone(), name.to_owned());
        let job = tokio::spawn(async move {
            let (system, host) = (all.system, name.clone());
            let found = tokio::task::spawn_blocking(move || system(&host)).await;
            drop(turn);
            all.running().remove(&name);
            match found {
                Ok(Ok(addresses)) => Ok(addresses),
                Ok(Err(error)) => Err(Unresolved(format!("{name} has no address: {error}"))),
                Err(_) => Err(Unresolved(format!("{name} was not resolved"))),
            }
        });
        job.map(|done| done.unwrap_or_else(|error| Err(Unresolved(error.to_string())))).boxed().shared()
    }
}

/// Resolves a name with the resolver of the system.
pub fn system(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

/// Resolver of one HTTP client.
pub struct Resolver {
    pub names: Names,
    /// See [`Names::guarded`].
    pub guarded: Option<u16>,
    pub access: PrivateAccess,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, guarded, access) = (self.names.clone(), self.guarded, self.access.clone());
        let tenant = TENANT.try_with(String::clone).unwrap_or_default();
        Box::pin(async move {
            let allowed = names.allowed(name.as_str(), guarded, &access, &tenant).await?;
            // Port 0 stands for the port of the request.
            let addresses: Addrs = Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
