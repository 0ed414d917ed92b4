//! Kubeconfigs for a token: directly to the API server, or through a proxy.

use std::net::SocketAddr;

use kube::Config;
use serde_json::{Value, json};

/// Direct access: address and authority of the cluster, with this token instead of the user's credentials.
pub fn direct(config: &Config, token: &str) -> String {
    let mut server = json!({
        "server": config.cluster_url.to_string(),
        "insecure-skip-tls-verify": config.accept_invalid_certs,
    });
    if let Some(name) = &config.tls_server_name {
        server["tls-server-name"] = json!(name);
    }
    if let Some(proxy) = &config.proxy_url {
        server["proxy-url"] = json!(proxy.to_string());
    }
    if !config.accept_invalid_certs
        && let Some(authority) = authority(config)
    {
        server["certificate-authority-data"] = json!(base64(authority.as_bytes()));
    }
    text(&server, token)
}

/// Access through a proxy at this address, without TLS.
pub fn through(proxy: &SocketAddr, token: &str) -> String {
    text(&json!({"server": format!("http://{proxy}")}), token)
}

/// Certificates of the cluster's authority, as PEM.
pub fn authority(config: &Config) -> Option<String> {
    let lines = |der: &Vec<u8>| {
        let text = base64(der);
        let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    config.root_cert.as_ref().map(|certificates| certificates.iter().map(lines).collect())
}

fn text(cluster: &Value, token: &str) -> String {
    // JSON is valid YAML.
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "ganglion",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "ganglion", "user": {"token": token}}],
        "contexts": [{"name": "ganglion", "context": {"cluster": "cluster", "user": "ganglion"}}],
    })
    .to_string()
}

fn base64(bytes: &[u8]) -> String {
    // Encodes as base64 with the type of the Kubernetes API.
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    text.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    //! Checks that a client can read the generated kubeconfigs.

    use super::*;
    use kube::config::{KubeConfigOptions, Kubeconfig};

    async fn read(text: &str) -> Config {
        let kubeconfig = Kubeconfig::from_yaml(text).unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    #[tokio::test]
    async fn the_token_stands_in_place_of_the_administrators_credentials() {
        let mut admin = Config::new("https://127.0.0.1:6443/".parse().unwrap());
        // Longer than one line of PEM.
        admin.root_cert = Some(vec![(0..100).collect(), vec![1]]);
        admin.tls_server_name = Some("kubernetes".to_owned());
        admin.auth_info.username = Some("admin".to_owned());
        let config = read(&direct(&admin, "secret")).await;
        assert_eq!((config.cluster_url, config.root_cert), (admin.cluster_url, admin.root_cert));
        assert_eq!((config.tls_server_name, config.accept_invalid_certs), (admin.tls_server_name, false));
        assert_eq!((config.auth_info.token.is_some(), config.auth_info.username), (true, None));
    }

    #[tokio::test]
    async fn a_proxy_is_spoken_to_without_tls() {
        let config = read(&through(&"127.0.0.1:80".parse().unwrap(), "secret")).await;
        assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:80/");
        assert!(config.root_cert.is_none() && config.auth_info.token.is_some());
    }
}
