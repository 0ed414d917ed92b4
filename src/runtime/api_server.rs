//! Addresses of the API server: the endpoints of the Service `kubernetes`.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};

use super::error::Error;

/// Namespace and name of the EndpointSlice that the API servers maintain for themselves.
const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

/// Reads the addresses and ports at which the API servers listen.
pub async fn endpoints(client: &Client) -> Result<Vec<SocketAddr>, Error> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    Ok(slices.get_opt(NAME).await?.as_ref().map(addresses).unwrap_or_default())
}

fn addresses(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let ports = slice.ports.iter().flatten().filter_map(|port| u16::try_from(port.port?).ok());
    let ports: Vec<u16> = ports.collect();
    let all = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    let all = all.filter_map(|address| address.parse::<IpAddr>().ok());
    all.flat_map(|address| ports.iter().map(move |port| SocketAddr::new(address, *port))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_address_goes_with_each_port() {
        let slice = json!({
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2", "no address"]}],
            "ports": [{"name": "https", "port": 6443}, {"name": "none"}],
        });
        let all = addresses(&serde_json::from_value(slice).unwrap());
        assert_eq!(all, ["10.0.0.1:6443".parse().unwrap(), "10.0.0.2:6443".parse().unwrap()]);
    }
}
