//! Variables of template expressions.

use minijinja::Value;

use ganglion_core::facts::NodeFact;

/// Well-known label with the hostname that the machine reports.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Names of the octets of an IPv4 address.
pub const OCTETS: [&str; 4] = ["octet1", "octet2", "octet3", "octet4"];

/// Variables for one node. Missing properties are undefined.
pub fn context(node: &NodeFact) -> Value {
    let name = node.id.key.name.as_str();
    let hostname = node.labels.get(HOSTNAME).map_or(name, String::as_str);
    let labels = Value::from_pairs(node.labels.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))));
    Value::from_pairs([
        ("hostname", Value::from(hostname)),
        ("node", Value::from_pairs([("name", Value::from(name)), ("labels", labels)])),
        ("ipv4", ipv4(node)),
        ("ipv6", Value::from_pairs(ipv6_of(node).map(|address| ("address", Value::from(address))))),
    ])
}

fn ipv4(node: &NodeFact) -> Value {
    let Some((address, octets)) = ipv4_of(node) else { return Value::from_pairs::<_, &str, Value>([]) };
    let octets = OCTETS.into_iter().zip(octets.map(Value::from));
    Value::from_pairs(octets.chain([("address", Value::from(address))]))
}

/// First internal IPv4 address, and its octets.
pub fn ipv4_of(node: &NodeFact) -> Option<(&str, [u8; 4])> {
    node.addresses.iter().find_map(|address| Some((address.as_str(), octets(address)?)))
}

/// First internal IPv6 address.
pub fn ipv6_of(node: &NodeFact) -> Option<&str> {
    node.addresses.iter().map(String::as_str).find(|address| address.contains(':'))
}

/// Octets of an IPv4 address; None if the text is not one.
pub fn octets(address: &str) -> Option<[u8; 4]> {
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<u8> = address.split('.').filter(is_number).filter_map(|part| part.parse().ok()).collect();
    (address.split('.').count() == 4).then(|| parts.try_into().ok()).flatten()
}
