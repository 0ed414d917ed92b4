//! Tests of the plan for each stored Secret, by its owner and the state of its certificate.

use jiff::{SignedDuration, ToSpan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

const NAME: &str = "ganglion.system.svc";

fn now() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

fn in_days(days: i64) -> Timestamp {
    now() + SignedDuration::from_hours(24 * days)
}

fn plan_at(secret: Option<&Secret>, at: Timestamp) -> SecretPlan {
    plan_for(secret, &[NAME], at).unwrap()
}

fn plan_for(secret: Option<&Secret>, names: &[&str], at: Timestamp) -> Result<SecretPlan, CertificateError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    plan(secret, WantedSecret { namespace: "system", name: "ganglion-tls", server_names: &names }, at)
}

/// The Secret as the API server stores it after its creation.
fn stored() -> Secret {
    let SecretPlan::Create(SecretWrite { mut secret, .. }) = plan_at(None, now()) else { panic!() };
    secret.metadata.uid = Some("u1".to_owned());
    secret.metadata.resource_version = Some("17".to_owned());
    secret.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
    *secret
}

/// The same Secret of another owner.
fn given() -> Secret {
    let mut secret = stored();
    secret.metadata.labels = Some(BTreeMap::from([("controller.cert-manager.io/fao".to_owned(), "true".to_owned())]));
    let data = secret.data.as_mut().unwrap();
    data.remove(CA_KEY);
    data.insert(CA_CRT.to_owned(), ByteString(b"of another kind".to_vec()));
    secret
}

fn with(mut secret: Secret, key: &str, value: &[u8]) -> Secret {
    secret.data.get_or_insert_default().insert(key.to_owned(), ByteString(value.to_vec()));
    secret
}

fn without(mut secret: Secret, key: &str) -> Secret {
    secret.data.as_mut().unwrap().remove(key);
    secret
}

/// Name of the plan, and its reason.
fn outline(plan: &SecretPlan) -> (&'static str, Option<Reason>) {
    let word = match plan {
        SecretPlan::Use(_) => "use",
        SecretPlan::UseAndReplace(..) => "use and replace",
        SecretPlan::Create(_) => "create",
        SecretPlan::Replace(_) => "replace",
        SecretPlan::Wait(_) => "wait",
    };
    let reason = match plan {
        SecretPlan::Wait(blocked) => Some(blocked.reason.clone()),
        plan => plan.write().map(|write| write.reason.clone()),
    };
    (word, reason)
}

#[test]
fn a_secret_is_created_and_then_used() {
    let plan = plan_at(None, now());
    assert_eq!(outline(&plan), ("create", Some(Reason::Missing)));
    assert_eq!((plan.usable(), plan.next_look()), (None, None));
    let write = plan.write().unwrap();
    assert!(write.is_new_ca);
    let secret = &write.secret;
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(
        (secret.metadata.namespace.as_deref(), secret.metadata.name.as_deref()),
        (Some("system"), Some("ganglion-tls"))
    );
    assert_eq!(secret.metadata.labels.as_ref().unwrap()["app.kubernetes.io/managed-by"], "ganglion");
    let keys: Vec<_> = secret.data.as_ref().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["ca.crt", "ca.key", "tls.crt", "tls.key"]);

    let SecretPlan::Use(usable) = plan_at(Some(secret), now()) else { panic!() };
    assert_eq!(usable.pair.certificate, secret.data.as_ref().unwrap()["tls.crt"].0);
    assert_eq!(usable.pair.key, secret.data.as_ref().unwrap()["tls.key"].0);
    assert_eq!((usable.expires, usable.warning, usable.is_ours), (in_days(90), None, true));
}

#[test]
fn the_key_of_the_ca_is_in_a_secret_of_its_own() {
    let (served, ca) = divided(stored(), None).unwrap();
    let keys = |secret: &Secret| secret.data.as_ref().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        (keys(&served), keys(&ca)),
        (vec!["ca.crt".into(), "tls.crt".into(), "tls.key".into()], vec!["ca.crt".into(), "ca.key".into()])
    );
    assert_eq!(
        (ca.metadata.namespace.as_deref(), ca.metadata.name.as_deref()),
        (Some("system"), Some("ganglion-tls-ca"))
    );
    assert!(is_ours(&ca) && exposes_ca(&stored()) && !exposes_ca(&served));
    // Renewed with the key, the authority stays.
    let write = plan_at(Some(&joined(served.clone(), Some(&ca))), in_days(60)).write().unwrap().clone();
    assert!(!write.is_new_ca);
    // The key of another authority, or of a Secret of another owner, is not used.
    let (_, other) = divided(plan_at(None, now()).write().unwrap().secret.as_ref().clone(), None).unwrap();
    let foreign = Secret { metadata: ObjectMeta::default(), ..ca.clone() };
    for ca in [None, Some(&other), Some(&foreign)] {
        assert_eq!(joined(served.clone(), ca), served);
    }
    assert_eq!(divided(stored(), Some(&foreign)), None);
    // A stored Secret is replaced in the version that was read.
    let old = Secret { metadata: ObjectMeta { resource_version: Some("7".into()), ..ca.metadata.clone() }, ..ca };
    assert_eq!(divided(stored(), Some(&old)).unwrap().1.metadata.resource_version.as_deref(), Some("7"));
}

#[rstest]
#[case::good(0, ("use", None))]
#[case::good_until_its_last_third(59, ("use", None))]
#[case::due(60, ("use and replace", Some(Reason::Due)))]
#[case::last_day(89, ("use and replace", Some(Reason::Due)))]
#[case::expired(90, ("replace", Some(Reason::Expired)))]
#[case::made_by_a_fast_clock(-1, ("use and replace", Some(Reason::NotYetValid)))]
fn ours_is_renewed_in_time(#[case] days: i64, #[case] expected: (&str, Option<Reason>)) {
    let plan = plan_at(Some(&stored()), in_days(days));
    assert_eq!(outline(&plan), expected);
    let usable = plan.usable();
    assert!(usable.is_none_or(|usable| usable.is_ours && usable.expires == in_days(90)));
    assert_eq!(usable.is_some_and(|usable| usable.expires_soon()), (60..90).contains(&days));
    // The CA is just valid even for a clock that is a day behind.
    assert!(plan.write().is_none_or(|write| !write.is_new_ca));
}

#[rstest]
#[case::good(0, ("use", None), None)]
#[case::due(60, ("use", None), Some(Reason::Due))]
#[case::last_day(89, ("use", None), Some(Reason::Due))]
#[case::expired(90, ("wait", Some(Reason::Expired)), None)]
#[case::of_the_future(-1, ("use", None), Some(Reason::NotYetValid))]
fn that_of_somebody_else_is_used_until_it_expires(
    #[case] days: i64,
    #[case] expected: (&str, Option<Reason>),
    #[case] warning: Option<Reason>,
) {
    let plan = plan_at(Some(&given()), in_days(days));
    assert_eq!(outline(&plan), expected);
    assert_eq!(plan.write(), None);
    assert_eq!(plan.usable().and_then(|usable| usable.warning.clone()), warning);
    assert!(plan.usable().is_none_or(|usable| !usable.is_ours && usable.expires == in_days(90)));
}

/// Every defect of the data.
fn spoilt(secret: &Secret) -> Vec<(Secret, CertificateFlaw)> {
    let other = stored();
    let other = |key: &str| other.data.as_ref().unwrap()[key].0.clone();
    let empty = Secret { data: None, ..secret.clone() };
    vec![
        (empty, CertificateFlaw::Certificate),
        (without(secret.clone(), TLS_CRT), CertificateFlaw::Certificate),
        (without(secret.clone(), TLS_KEY), CertificateFlaw::Key),
        (with(secret.clone(), TLS_CRT, b"\xff\x00"), CertificateFlaw::Certificate),
        (with(secret.clone(), TLS_KEY, b"-----BEGIN PRIVATE KEY-----"), CertificateFlaw::Key),
        (with(secret.clone(), TLS_KEY, &other(TLS_KEY)), CertificateFlaw::OtherKey),
        (with(secret.clone(), TLS_CRT, &other(TLS_CRT)), CertificateFlaw::OtherKey),
    ]
}

#[test]
fn ours_is_replaced_when_it_is_of_no_use() {
    let secret = stored();
    let mut all = spoilt(&secret);
    // The CA that clients trust is part of the Secret.
    all.push((without(secret.clone(), CA_CRT), CertificateFlaw::Ca));
    all.push((with(secret.clone(), CA_CRT, b"nothing"), CertificateFlaw::Ca));
    all.push((with(secret, CA_CRT, &stored().data.unwrap()[CA_CRT].0), CertificateFlaw::Issuer));
    for (secret, flaw) in all {
        let has_ca = !matches!(flaw, CertificateFlaw::Ca | CertificateFlaw::Issuer) && secret.data.is_some();
        let plan = plan_at(Some(&secret), now());
        assert_eq!(outline(&plan), ("replace", Some(Reason::Flawed(flaw.clone()))));
        let write = plan.write().unwrap();
        assert_eq!(write.is_new_ca, !has_ca, "{flaw:?}");
        assert_eq!(outline(&plan_at(Some(&write.secret), now())), ("use", None));
    }
}

#[test]
fn that_of_somebody_else_is_never_overwritten() {
    for (secret, flaw) in spoilt(&given()) {
        for at in [now(), in_days(60), in_days(1000)] {
            let plan = plan_at(Some(&secret), at);
            assert_eq!(outline(&plan), ("wait", Some(Reason::Flawed(flaw.clone()))));
            assert_eq!((plan.write(), plan.usable(), plan.next_look()), (None, None, None));
        }
    }
    let SecretPlan::Wait(blocked) = plan_at(Some(&given()), in_days(90)) else { panic!() };
    assert_eq!(
        blocked.to_string(),
        "Secret system/ganglion-tls is not usable, and the operator does not manage it: the certificate has expired; \
         replace its certificate, or delete the Secret to let the operator create one"
    );
}

#[test]
fn it_is_ours_by_its_label_unless_somebody_else_writes_it_or_nobody_can() {
    let expired = |change: &dyn Fn(&mut Secret)| {
        let mut secret = stored();
        change(&mut secret);
        outline(&plan_at(Some(&secret), in_days(90))).0
    };
    let label = |value: &str| BTreeMap::from([(MANAGED_BY.0.to_owned(), value.to_owned())]);
    assert_eq!(expired(&|_| ()), "replace");
    assert_eq!(expired(&|secret| secret.immutable = Some(false)), "replace");
    assert_eq!(expired(&|secret| secret.metadata.labels = None), "wait");
    assert_eq!(expired(&|secret| secret.metadata.labels = Some(label("Helm"))), "wait");
    assert_eq!(expired(&|secret| secret.metadata.labels = Some(label("Ganglion"))), "wait");
    assert_eq!(expired(&|secret| secret.immutable = Some(true)), "wait");
    let issued = BTreeMap::from([("cert-manager.io/certificate-name".to_owned(), "extender".to_owned())]);
    assert_eq!(expired(&|secret| secret.metadata.annotations = Some(issued.clone())), "wait");
}

#[test]
fn a_replacement_keeps_what_is_not_the_certificate() {
    let mut secret = with(stored(), "note", b"of others");
    secret.type_ = Some("Opaque".to_owned());
    secret.metadata.labels.as_mut().unwrap().insert("team".to_owned(), "a".to_owned());
    secret.metadata.annotations = Some(BTreeMap::from([("note".to_owned(), "b".to_owned())]));
    secret.metadata.finalizers = Some(vec!["example.com/keep".to_owned()]);
    let plan = plan_at(Some(&secret), in_days(60));
    let new = &plan.write().unwrap().secret;
    let mut metadata = secret.metadata.clone();
    metadata.managed_fields = None;
    assert_eq!(new.metadata, metadata);
    assert_eq!(new.metadata.resource_version.as_deref(), Some("17"));
    assert_eq!(new.type_, secret.type_);
    let (old, new) = (secret.data.unwrap(), new.data.clone().unwrap());
    for (key, same) in [("note", true), (CA_CRT, true), (CA_KEY, true), (TLS_CRT, false), (TLS_KEY, false)] {
        assert_eq!(old[key] == new[key], same, "{key}");
    }
}

#[test]
fn a_lost_ca_key_is_a_new_ca_only_at_the_next_renewal() {
    let secret = without(stored(), CA_KEY);
    assert_eq!(outline(&plan_at(Some(&secret), now())), ("use", None));
    let plan = plan_at(Some(&secret), in_days(60));
    assert_eq!(outline(&plan).0, "use and replace");
    assert!(plan.write().unwrap().is_new_ca);
}

#[test]
fn a_new_name_is_a_new_certificate_of_ours_and_a_wait_for_others() {
    let names = [NAME, "ganglion.example.com"];
    let missing = Reason::Flawed(CertificateFlaw::MissingName(names[1].to_owned()));
    let plan = plan_for(Some(&stored()), &names, now()).unwrap();
    assert_eq!(outline(&plan), ("replace", Some(missing.clone())));
    let write = plan.write().unwrap();
    assert!(!write.is_new_ca);
    assert_eq!(outline(&plan_for(Some(&write.secret), &names, now()).unwrap()).0, "use");
    assert_eq!(outline(&plan_for(Some(&given()), &names, now()).unwrap()), ("wait", Some(missing)));
    // A certificate with additional names stays until it is renewed.
    assert_eq!(outline(&plan_at(Some(&write.secret), now())), ("use", None));
}

#[test]
fn names_that_no_certificate_can_have_are_an_error_only_where_one_is_made() {
    assert!(matches!(plan_for(None, &[], now()), Err(CertificateError::NoNames)));
    assert!(matches!(plan_for(Some(&stored()), &["a b"], now()), Err(CertificateError::Name(_))));
    assert_eq!(outline(&plan_for(Some(&given()), &["a b"], now()).unwrap()).0, "wait");
}

#[test]
fn at_the_next_look_something_has_changed_and_just_before_it_nothing() {
    for secret in [stored(), given()] {
        let mut at = in_days(-100);
        let mut seen = Vec::new();
        loop {
            let plan = plan_at(Some(&secret), at);
            seen.push((outline(&plan), plan.usable().and_then(|usable| usable.warning.clone())));
            let Some(next) = plan.next_look() else { break };
            assert!(next > at);
            let before = plan_at(Some(&secret), next - 1.seconds());
            assert_eq!(outline(&before), outline(&plan));
            assert_eq!(before.usable(), plan.usable());
            at = next;
        }
        assert_eq!((seen.len(), at), (4, in_days(90)), "{seen:?}");
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
    }
}

#[test]
fn no_key_is_shown() {
    let mut secret = stored();
    // As `kubectl apply` does.
    let applied = serde_json::to_string(&secret).unwrap();
    secret.metadata.annotations = Some(BTreeMap::from([("last-applied".to_owned(), applied)]));
    for plan in [plan_at(None, now()), plan_at(Some(&secret), now()), plan_at(Some(&secret), in_days(60))] {
        let shown = format!("{plan:?}");
        // Bytes would be shown as numbers or as text: "BEGIN PRIVATE".
        assert!(!shown.contains("PRIVATE") && !shown.contains("80, 82, 73, 86"), "{shown}");
        assert!(!shown.contains("LS0tLS1CRUdJTiBQUklW"), "{shown}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_data_never_panics_and_ours_is_good_after_the_write(
        keys in prop::collection::vec(prop::sample::select(vec![CA_CRT, CA_KEY, TLS_CRT, TLS_KEY]), 0..4),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        days in 0_i64..4000,
    ) {
        for secret in [stored(), given()] {
            let spoilt = keys.iter().fold(secret, |secret, key| with(secret, key, &bytes));
            let plan = plan_at(Some(&spoilt), in_days(days));
            if let Some(write) = plan.write() {
                let next = plan_at(Some(&write.secret), in_days(days));
                prop_assert_eq!(outline(&next), ("use", None));
            }
        }
    }
}
