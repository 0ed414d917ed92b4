//! Requests as the operator sends them.

use std::time::Duration;

use ganglion_outbound::address::{Names, Rules, system};
use ganglion_outbound::private::AddressOrigin;
use ganglion_outbound::web::{Call, Web};
use ganglion_runtime::fairness::FairLimit;
use prometheus_client::metrics::counter::Counter;

/// Client for requests to this host.
pub fn web() -> Web {
    let rules = Rules { allowed_networks: vec!["127.0.0.0/8".parse().unwrap()], ..Rules::default() };
    Web::new(Names::new(rules, system), FairLimit::new(64 << 20, Counter::default()))
}

/// A request to this URL.
pub fn call(url: impl Into<String>) -> Call {
    let within = Duration::from_secs(30);
    let (auth, ca, insecure, redirects) = (None, None, false, false);
    let (limit, tenant, origin) = (8 << 20, "a".into(), AddressOrigin::User);
    Call { url: url.into(), auth, headers: Vec::new(), ca, insecure, redirects, within, limit, tenant, origin }
}
