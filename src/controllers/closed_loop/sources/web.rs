//! Servers outside of the cluster's API: Prometheus, JSON documents; with secrets that the loop's own account may read.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::{SourceReader, name};
use crate::api::closed_loop::source::{Auth as AuthRef, CaRef, Http, KeyRef, Prometheus};
use crate::clients::web::{Auth, Call};
use crate::clients::{json, prometheus as client};
use crate::controllers::closed_loop::target::account::ObjectPath;
use crate::logic::closed_loop::monitoring::{SourceResult, SourceValue};

/// The value of a query.
pub async fn prometheus(asker: &SourceReader<'_>, source: &Prometheus, within: Duration) -> SourceResult {
    let call = asker.call(&source.url, source.auth.as_ref(), source.ca.as_ref(), within).await?;
    let found = client::instant(&asker.ctx.web, &call, &source.query).await.map_err(|error| error.to_string())?;
    Ok(SourceValue { value: found.value, at: Some(found.at) })
}

/// A number in a document.
pub async fn http(asker: &SourceReader<'_>, source: &Http, within: Duration) -> SourceResult {
    let call = asker.call(&source.url, source.auth.as_ref(), source.ca.as_ref(), within).await?;
    let found = json::number(&asker.ctx.web, &call, &source.path).await.map_err(|error| error.to_string())?;
    Ok(found.into())
}

impl SourceReader<'_> {
    /// The request, with what it takes to be let in. Secrets are read anew each time: who takes one away, or the right to
    /// read it, is obeyed at once.
    ///
    /// # Errors
    /// In words: what it takes is not there, or may not be read.
    pub async fn call(
        &self,
        url: &str,
        auth: Option<&AuthRef>,
        ca: Option<&CaRef>,
        within: Duration,
    ) -> Result<Call, String> {
        let auth = match auth {
            None => None,
            Some(AuthRef { bearer: Some(key), .. }) => Some(Auth::Bearer(text(&self.secret(key).await?, key)?)),
            Some(AuthRef { basic: Some(secret), .. }) => {
                let data = self.secret_data(&secret.name).await?;
                let part = |part: &str| {
                    let key = KeyRef { name: secret.name.clone(), key: part.to_owned() };
                    text(&taken(&data, &key)?, &key)
                };
                Some(Auth::Basic { username: part("username")?, password: part("password")? })
            }
            Some(AuthRef { bearer: None, basic: None }) => return Err("auth names neither bearer nor basic".to_owned()),
        };
        let ca = match ca {
            None => None,
            Some(CaRef { secret: Some(key), .. }) => Some(self.secret(key).await?),
            Some(CaRef { config_map: Some(key), .. }) => Some(self.config(key).await?),
            Some(CaRef { secret: None, config_map: None }) => {
                return Err("ca names neither secret nor configMap".to_owned());
            }
        };
        Ok(Call { url: url.to_owned(), auth, ca, within })
    }

    async fn secret(&self, key: &KeyRef) -> Result<Vec<u8>, String> {
        taken(&self.secret_data(&key.name).await?, key)
    }

    async fn secret_data(&self, secret: &str) -> Result<BTreeMap<String, ByteString>, String> {
        let url = format!("/api/v1/namespaces/{}/secrets", self.account.namespace);
        let path = ObjectPath { url: &url, name: name(secret)?, subresource: None };
        match self.account.get::<Secret>(self.ctx, path).await {
            Ok(found) => Ok(found.data.unwrap_or_default()),
            Err(error) => Err(self.words(&format!("Secret {secret}"), error).await),
        }
    }

    async fn config(&self, key: &KeyRef) -> Result<Vec<u8>, String> {
        let url = format!("/api/v1/namespaces/{}/configmaps", self.account.namespace);
        let path = ObjectPath { url: &url, name: name(&key.name)?, subresource: None };
        let found = match self.account.get::<ConfigMap>(self.ctx, path).await {
            Ok(found) => found,
            Err(error) => return Err(self.words(&format!("ConfigMap {}", key.name), error).await),
        };
        let text = found.data.and_then(|mut data| data.remove(&key.key)).map(String::into_bytes);
        let bytes = || found.binary_data.and_then(|mut data| data.remove(&key.key)).map(|bytes| bytes.0);
        text.or_else(bytes).ok_or_else(|| format!("ConfigMap {} has no key {}", key.name, key.key))
    }
}

fn taken(data: &BTreeMap<String, ByteString>, key: &KeyRef) -> Result<Vec<u8>, String> {
    let found = data.get(&key.key).map(|bytes| bytes.0.clone());
    found.ok_or_else(|| format!("Secret {} has no key {}", key.name, key.key))
}

/// A word in a Secret; the end of line that an editor leaves does not belong to it.
fn text(bytes: &[u8], key: &KeyRef) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("key {} of Secret {} is no text", key.key, key.name))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
