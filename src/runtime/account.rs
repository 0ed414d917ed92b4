//! Requests as a service account of a namespace, by impersonation over the operator's own connection.

use std::fmt::Debug;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::{GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::Error;
use super::writer::{AnswerBounds, Writer, strict};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::kind_path::{KindPath, MetricPath, segment};

/// The impersonation header.
const HEADER: &str = "impersonate-user";

/// A service account.
#[derive(Clone)]
pub struct Account {
    pub writer: Writer,
    pub namespace: String,
    pub name: String,
    /// Field manager of its writes.
    pub manager: &'static str,
}

/// Namespace and name of a service account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccountId {
    pub namespace: String,
    pub name: String,
}

/// Path of an object or of a subresource.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPath<'a> {
    /// Path of the kind in its namespace.
    pub kind: &'a KindPath,
    pub name: &'a str,
    pub subresource: Option<&'a str>,
}

impl ObjectPath<'_> {
    /// Builds the request that reads the object.
    pub fn request(&self) -> Result<http::Request<Vec<u8>>, Error> {
        let (request, params) = (Request::new(self.kind.as_str()), GetParams::default());
        let name = segment(self.name)?;
        let request = match self.subresource {
            Some(subresource) => request.get_subresource(subresource, name),
            None => request.get(name, &params),
        };
        request.map_err(malformed)
    }
}

impl Account {
    /// Identity of the account.
    pub fn id(&self) -> AccountId {
        AccountId { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Reads an object or a subresource.
    pub async fn get<T: DeserializeOwned>(&self, path: ObjectPath<'_>) -> Result<T, Error> {
        self.send(path.request()?).await
    }

    /// Reads an object or a subresource. Returns the response unread, whatever its status; the caller must bound the
    /// body.
    pub async fn open(&self, path: ObjectPath<'_>) -> Result<http::Response<Body>, Error> {
        self.writer.send(self.impersonated(path.request()?)?).await
    }

    /// Lists the objects of a kind with these labels. Returns the response unread, whatever its status; the caller must
    /// bound the body.
    pub async fn open_list(&self, kind: &KindPath, labels: &str) -> Result<http::Response<Body>, Error> {
        let request = Request::new(kind.as_str()).list(&ListParams::default().labels(labels)).map_err(malformed)?;
        self.writer.send(self.impersonated(request)?).await
    }

    /// Reads the values of a metric. Returns the response unread, whatever its status; the caller must bound the body.
    pub async fn open_metric(&self, path: &MetricPath) -> Result<http::Response<Body>, Error> {
        let request = http::Request::get(path.as_str()).body(Vec::new()).map_err(malformed)?;
        self.writer.send(self.impersonated(request)?).await
    }

    /// Lists the objects of a kind with these labels. The type must have only the needed fields.
    pub async fn list<T: DeserializeOwned>(&self, kind: &KindPath, labels: &str) -> Result<T, Error> {
        let request = Request::new(kind.as_str()).list(&ListParams::default().labels(labels));
        self.writer.bounded(self.impersonated(request.map_err(malformed)?)?, AnswerBounds::LIST).await
    }

    /// Patches an object or a subresource by a merge patch. The body contains uid and resourceVersion as preconditions.
    pub async fn merge<T: DeserializeOwned>(&self, path: ObjectPath<'_>, body: &Value) -> Result<T, Error> {
        self.patch(path, &Patch::Merge(body)).await
    }

    /// Patches an object or a subresource by a JSON patch, which contains its own preconditions.
    pub async fn json<T: DeserializeOwned>(&self, path: ObjectPath<'_>, patch: JsonPatch) -> Result<T, Error> {
        self.patch(path, &Patch::<()>::Json(patch.into())).await
    }

    async fn patch<T: DeserializeOwned>(
        &self,
        path: ObjectPath<'_>,
        patch: &Patch<impl Serialize + Debug>,
    ) -> Result<T, Error> {
        let params = PatchParams { field_manager: Some(self.manager.to_owned()), ..PatchParams::default() };
        let (request, name) = (Request::new(path.kind.as_str()), segment(path.name)?);
        let request = match path.subresource {
            Some(subresource) => request.patch_subresource(subresource, name, &params, patch),
            None => request.patch(name, &params, patch),
        };
        self.send(request.map_err(malformed)?).await
    }

    /// Creates an object. Fails with [`Error::Dropped`], and creates nothing, if the API server does not know one of
    /// its fields.
    pub async fn create<T: Serialize + DeserializeOwned>(&self, kind: &KindPath, object: &T) -> Result<T, Error> {
        let params = PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
        let body = serde_json::to_vec(object).map_err(malformed)?;
        let request = Request::new(kind.as_str()).create(&params, body).map_err(malformed)?;
        self.send(strict(request).map_err(malformed)?).await
    }

    async fn send<T: DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, Error> {
        self.writer.bounded(self.impersonated(request)?, AnswerBounds::OBJECT).await
    }

    fn impersonated(&self, mut request: http::Request<Vec<u8>>) -> Result<http::Request<Vec<u8>>, Error> {
        let user = format!("system:serviceaccount:{}:{}", self.namespace, self.name);
        request.headers_mut().insert(HEADER, user.parse().map_err(malformed)?);
        Ok(request)
    }

    /// Sends a request that every account may make, to find out whether the operator may impersonate this account. If
    /// not, the error has a message with advice.
    pub async fn try_out(&self) -> Result<(), Error> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let kind = KindPath::of_review("authentication.k8s.io/v1", "selfsubjectreviews")?;
        match self.create::<Value>(&kind, &review).await {
            // The account itself was refused, so the impersonation was accepted.
            Err(Error::Forbidden(refused)) if !is_impersonation(&refused) => Ok(()),
            Err(Error::Forbidden(refused)) => Err(Error::Forbidden(self.refusal_message(&refused))),
            done => done.map(drop),
        }
    }

    /// Whether the account has this right, by a SelfSubjectAccessReview as the account. The namespace defaults to that
    /// of the account.
    pub async fn may(&self, attributes: ResourceAttributes) -> Result<bool, Error> {
        let namespace = attributes.namespace.clone().or_else(|| Some(self.namespace.clone()));
        let resource_attributes = Some(ResourceAttributes { namespace, ..attributes });
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..SelfSubjectAccessReviewSpec::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let kind = KindPath::of_review("authorization.k8s.io/v1", "selfsubjectaccessreviews")?;
        let answer = self.create(&kind, &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Message for a 403 answer. The API server's text names the user, the verb and the resource.
    pub fn refusal_message(&self, refused: &str) -> String {
        self.refusal_message_in(&self.namespace, refused)
    }

    /// The same for a request in this namespace, which may be another one.
    pub fn refusal_message_in(&self, requested: &str, refused: &str) -> String {
        let Self { namespace, name, .. } = self;
        if is_impersonation(refused) {
            return format!(
                "the operator may not act as service account {name}: {}",
                binding_advice(refused, namespace)
            );
        }
        format!(
            "grant service account {name} this verb on this resource in namespace {requested}, and create the account if \
             there is none: {refused}"
        )
    }
}

/// Whether a 403 message refuses the impersonation rather than the request of the account. The API server writes `User
/// "…" cannot impersonate resource "serviceaccounts" …`, or with constrained impersonation `User "…" cannot
/// impersonate-on:serviceaccount:create resource "pods" …`.
pub fn is_impersonation(refused: &str) -> bool {
    refused.contains(" cannot impersonate")
}

/// Advice for a right that a namespace grants to the operator by a RoleBinding: to impersonate its service accounts and
/// to read its Secrets. `refused` is the API server's message, which names the operator's user.
pub fn binding_advice(refused: &str, namespace: &str) -> String {
    let user = refused.split_once("User \"").and_then(|(_, rest)| rest.split_once("\" cannot "));
    let subject = user.map_or_else(|| "--serviceaccount=NAMESPACE:NAME".to_owned(), |(user, _)| subject(user));
    format!(
        "namespace {namespace} does not let the operator do this: kubectl create rolebinding ganglion -n {namespace} \
         --clusterrole=ganglion-namespace {subject}"
    )
}

/// Renders a user as the subject option of `kubectl create rolebinding`.
fn subject(user: &str) -> String {
    match user.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        // A kubeconfig may authenticate as a user of any name.
        None => format!("--user='{}'", user.replace('\'', "'\\''")),
    }
}

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("system:serviceaccount:ganglion-system:ganglion", "--serviceaccount=ganglion-system:ganglion")]
    #[case("admin", "--user='admin'")]
    #[case("o'hara", r"--user='o'\''hara'")]
    fn advice_names_the_binding_for_the_operators_user(#[case] user: &str, #[case] subject: &str) {
        let refused = format!(
            "secrets \"login\" is forbidden: User \"{user}\" cannot get resource \"secrets\" in API group \"\" in the namespace \
             \"shop\""
        );
        let binding = "kubectl create rolebinding ganglion -n shop --clusterrole=ganglion-namespace";
        assert_eq!(
            binding_advice(&refused, "shop"),
            format!("namespace shop does not let the operator do this: {binding} {subject}")
        );
    }

    #[test]
    fn advice_for_an_unknown_user_has_a_placeholder() {
        assert!(binding_advice("no", "shop").ends_with(" --serviceaccount=NAMESPACE:NAME"));
    }

    #[rstest]
    #[case("impersonate resource \"serviceaccounts\"", true)]
    #[case("impersonate-on:serviceaccount:get resource \"pods\"", true)]
    #[case("get resource \"secrets\"", false)]
    fn a_refused_impersonation_is_told_from_a_right_that_the_account_lacks(#[case] what: &str, #[case] is: bool) {
        assert_eq!(is_impersonation(&format!("x is forbidden: User \"o\" cannot {what} in API group \"\"")), is);
    }
}
