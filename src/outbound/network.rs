//! Networks and hosts in the operator's settings.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ganglion_core::words::quoted;

use thiserror::Error;

/// Network such as `10.0.0.0/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

/// The text is neither a network nor an address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{} is not a network: write an address such as 10.1.2.3, or a network such as 10.0.0.0/8 or fd00::/8",
    quoted(.0)
)]
pub struct NoNetwork(String);

/// Address bits, left-aligned, and their number.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(four) => (u128::from(four.to_bits()) << 96, 32),
        IpAddr::V6(six) => (six.to_bits(), 128),
    }
}

impl Network {
    /// Whether the network contains the address. An IPv4 network contains no IPv6 addresses.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((own, width), (other, others)) = (bits(self.address), bits(address));
        width == others && (own ^ other).leading_zeros() >= self.prefix
    }
}

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let wrong = || NoNetwork(text.to_owned());
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (bits, width) = bits(address);
        let prefix: u32 = prefix.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        // Bits after the prefix are a mistake: 10.1.2.3/8 may mean the host or the network.
        let behind = bits.checked_shl(prefix).unwrap_or(0);
        if prefix > width || behind != 0 {
            return Err(wrong());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Host such as `prometheus.monitoring.svc`, or all hosts below a domain: `.example.com` or `*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    name: String,
    below: bool,
}

/// The text is not a host.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{} is not a host: write a name such as a.example.com, or .example.com for all names below it; addresses are networks",
    quoted(.0)
)]
pub struct NoHost(String);

impl HostPattern {
    /// Whether the pattern matches the host. Case and a trailing dot do not matter.
    pub fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        match host.strip_suffix(&self.name) {
            Some(rest) if self.below => rest.len() > 1 && rest.ends_with('.'),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }
}

impl FromStr for HostPattern {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        let domain = text.strip_prefix('*').unwrap_or(text).strip_prefix('.');
        let name = domain.unwrap_or(text);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let may = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_name = name.split('.').all(|label| !label.is_empty() && label.chars().all(may));
        // URL parsers also accept 127.1 and 2130706433 as addresses.
        let is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if !is_name || is_number {
            return Err(NoHost(text.to_owned()));
        }
        Ok(Self { name, below: domain.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("10.0.0.0/8", "10.255.0.1", true)]
    #[case("10.0.0.0/8", "11.0.0.1", false)]
    #[case("10.1.2.3", "10.1.2.3", true)]
    #[case("10.1.2.3", "10.1.2.4", false)]
    #[case("0.0.0.0/0", "1.2.3.4", true)]
    #[case("0.0.0.0/0", "::1", false)]
    #[case("::/0", "::1", true)]
    #[case("fd00::/8", "fdff::1", true)]
    #[case("fd00:ec2::254", "fd00:ec2::254", true)]
    #[case("fd00:ec2::254", "fd00:ec2::255", false)]
    fn networks_contain_addresses(#[case] network: Network, #[case] address: IpAddr, #[case] expected: bool) {
        assert_eq!(network.contains(address), expected);
    }

    #[rstest]
    fn what_is_no_network_is_refused(
        #[values("", "10", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "::1/127", "::/129", "a", "/8", "1.2.3.4/-1")]
        text: &str,
    ) {
        assert_eq!(text.parse::<Network>(), Err(NoNetwork(text.to_owned())));
    }

    #[rstest]
    #[case("a.example.com", "a.example.com", true)]
    #[case("a.example.com", "A.Example.com.", true)]
    #[case("a.example.com", "b.a.example.com", false)]
    #[case(".example.com", "a.example.com", true)]
    #[case("*.Example.com", "b.a.example.com.", true)]
    #[case(".example.com", "example.com", false)]
    #[case(".example.com", "badexample.com", false)]
    #[case(".example.com", ".example.com", false)]
    fn hosts_match_patterns(#[case] pattern: HostPattern, #[case] host: &str, #[case] expected: bool) {
        assert_eq!(pattern.matches(host), expected);
    }

    #[rstest]
    fn what_is_no_host_is_refused(
        #[values(
            "", ".", "*", "*.", "a..b", "a b", "*a.b", "a.*.b", "10.0.0.1", "::1", "127.1", "http://a", "a/b", "ä.de"
        )]
        text: &str,
    ) {
        assert_eq!(text.parse::<HostPattern>(), Err(NoHost(text.to_owned())));
    }

    proptest! {
        #[test]
        fn a_network_contains_its_addresses_and_no_others(address: u128, other: u128, prefix in 0_u32..=128) {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            let network: Network = format!("{}/{prefix}", std::net::Ipv6Addr::from(address & mask)).parse().unwrap();
            prop_assert_eq!(network.to_string().parse(), Ok(network));
            prop_assert!(network.contains(IpAddr::V6(address.into())));
            let inside = (other & mask) == (address & mask);
            prop_assert_eq!(network.contains(IpAddr::V6(other.into())), inside);
        }
    }
}
