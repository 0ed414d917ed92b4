//! Tests: webpki accepts an issued certificate for each name, during its validity, under its CA; every flaw is named;
//! no input panics.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp, ToSpan};
use k8s_openapi::ByteString;
use proptest::prelude::*;
use rcgen::{CustomExtension, DnType};
use rstest::rstest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;

use super::*;

/// A CA issued by the first version, and one of its certificates. The format of stored CAs must not change.
const FIRST_CA: &str = include_str!("../fixtures/ca.crt");
const FIRST_CA_KEY: &str = include_str!("../fixtures/ca.key");

const NOW: &str = "2026-11-20T10:00:00Z";
const NAMES: [&str; 4] = ["ganglion.system.svc", "ganglion.system.svc.cluster.local", "10.96.0.17", "fd00::17"];

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn in_days(days: i64) -> Timestamp {
    now() + SignedDuration::from_hours(24 * days)
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn issued() -> Issued {
    issue(&names(&NAMES), now(), None).unwrap()
}

fn state_of(issued: &Issued, now: Timestamp) -> CertificateState {
    state(&issued.tls, Some(&issued.ca.certificate), &names(&NAMES), now)
}

/// Result of the check by a TLS client that trusts this CA.
fn client(issued: &Issued, ca: &Pair, name: &str, at: Timestamp) -> Result<(), rustls::Error> {
    let roots = Arc::new(roots(&ca.certificate).unwrap());
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build().unwrap();
    let chain = certificates(&issued.tls.certificate).unwrap();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds(at)));
    let name = ServerName::try_from(name).unwrap();
    verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], time).map(drop)
}

/// A self-signed pair, as other tools create them.
fn foreign(change: impl FnOnce(&mut CertificateParams)) -> Pair {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names(&NAMES)).unwrap();
    params.not_before = moment(now(), -DAY).unwrap();
    params.not_after = moment(now(), 29 * DAY).unwrap();
    change(&mut params);
    let certificate = params.self_signed(&key).unwrap();
    Pair { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
}

#[test]
fn clients_accept_an_issued_certificate_for_each_name_in_its_time() {
    let issued = issued();
    assert!(issued.is_new_ca);
    for name in NAMES {
        for at in [now() - 59.minutes(), now(), in_days(89)] {
            assert_eq!(client(&issued, &issued.ca, name, at), Ok(()), "{name} at {at}");
        }
        for at in [now() - 61.minutes(), in_days(91)] {
            assert!(client(&issued, &issued.ca, name, at).is_err(), "{name} at {at}");
        }
    }
    for name in ["system.svc", "other.system.svc", "10.96.0.18", "fd00::18"] {
        assert!(client(&issued, &issued.ca, name, now()).is_err(), "{name}");
    }
}

#[test]
fn each_certificate_has_its_own_key_and_serial_number() {
    let one = issued();
    let two = issue(&names(&NAMES), now(), Some(&one.ca)).unwrap();
    assert_ne!(one.tls.key, two.tls.key);
    assert_ne!(one.tls.certificate, two.tls.certificate);
    assert_ne!(one.ca.key, one.tls.key);
}

#[test]
fn a_renewed_certificate_has_the_same_ca() {
    let mut last = issued();
    let first = last.ca.clone();
    for days in (60..3280).step_by(60) {
        let at = in_days(days);
        last = issue(&names(&NAMES), at, Some(&last.ca)).unwrap();
        assert!(!last.is_new_ca, "after {days} days");
        assert_eq!(last.ca, first);
        assert_eq!(client(&last, &first, NAMES[0], at), Ok(()));
    }
}

#[rstest]
#[case::at_once(0, false)]
#[case::a_year_and_a_day(24 * (3650 - 366), false)]
#[case::a_day_less_than_a_year(24 * (3650 - 364), true)]
#[case::expired(24 * 4000, true)]
#[case::made_by_a_fast_clock(-23, false)]
#[case::made_by_a_very_fast_clock(-25, true)]
fn a_ca_that_is_near_its_end_or_not_valid_yet_is_replaced(#[case] hours: i64, #[case] is_new: bool) {
    let old = issued();
    let at = now() + SignedDuration::from_hours(hours);
    let new = issue(&names(&NAMES), at, Some(&old.ca)).unwrap();
    assert_eq!((new.is_new_ca, new.ca != old.ca), (is_new, is_new));
    assert_eq!(client(&new, &new.ca, NAMES[0], at), Ok(()));
}

#[test]
fn a_ca_that_is_not_ours_is_replaced() {
    let (one, two) = (issued(), issued());
    let pair =
        |certificate: &Pair, key: &Pair| Pair { certificate: certificate.certificate.clone(), key: key.key.clone() };
    let other_subject = foreign(|params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = moment(now(), 3650 * DAY).unwrap();
        params.distinguished_name.push(DnType::CommonName, "corporation");
    });
    let unusable = [
        pair(&one.ca, &two.ca),
        one.tls.clone(),
        pair(&one.ca, &one.tls),
        other_subject,
        Pair { certificate: Vec::new(), key: Vec::new() },
        Pair {
            certificate: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----".to_vec(),
            ..one.ca.clone()
        },
        Pair { key: b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----".to_vec(), ..one.ca.clone() },
    ];
    for ca in unusable {
        let new = issue(&names(&NAMES), now(), Some(&ca)).unwrap();
        assert!(new.is_new_ca, "{ca:?}");
        assert_ne!(new.ca.certificate, ca.certificate);
        assert_eq!(client(&new, &new.ca, NAMES[0], now()), Ok(()));
    }
}

#[test]
fn a_ca_stays_when_others_are_trusted_beside_it() {
    let (one, two) = (issued(), issued());
    let bundle = [one.ca.certificate.clone(), two.ca.certificate.clone()].concat();
    let bundled = Pair { certificate: bundle.clone(), key: one.ca.key.clone() };
    let new = issue(&names(&NAMES), now(), Some(&bundled)).unwrap();
    assert_eq!((new.is_new_ca, new.ca.certificate), (false, bundle));
    // The key of the second CA: clients trust the first certificate as our CA.
    let swapped = Pair { key: two.ca.key.clone(), ..bundled };
    assert!(issue(&names(&NAMES), now(), Some(&swapped)).unwrap().is_new_ca);
}

#[test]
fn the_ca_of_the_first_version_is_still_used() {
    let ca = Pair { certificate: FIRST_CA.into(), key: FIRST_CA_KEY.into() };
    let new = issue(&names(&NAMES), now(), Some(&ca)).unwrap();
    assert!(!new.is_new_ca);
    // OpenSSL, unlike webpki, also compares the key identifiers.
    let ca_der = certificates(&ca.certificate).unwrap();
    let leaf_der = certificates(&new.tls.certificate).unwrap();
    // subjectKeyIdentifier 2.5.29.14: OCTET STRING of OCTET STRING of 20 bytes.
    let at = ca_der[0].windows(9).position(|w| w == [6, 3, 0x55, 0x1d, 0x0e, 4, 0x16, 4, 0x14]).unwrap() + 9;
    let identifier = &ca_der[0][at..at + 20];
    assert!(leaf_der[0].windows(20).any(|window| window == identifier));
}

#[rstest]
#[case::no_names(&[], NOW, "a server certificate needs at least one name")]
#[case::not_a_name(&["a.svc", "not a name"], NOW, "\"not a name\" is neither a DNS name nor an IP address")]
#[case::empty(&[""], NOW, "\"\" is neither a DNS name nor an IP address")]
#[case::not_ascii(&["größe.svc"], NOW, "\"größe.svc\" is neither a DNS name nor an IP address")]
#[case::before_1970(&["a.svc"], "1969-12-31T00:00:00Z", "a certificate cannot be issued at 1969-12-31T00:00:00Z, check the clock")]
#[case::ancient(&["a.svc"], "-009999-01-02T02:00:00Z", "a certificate cannot be issued at -009999-01-02T02:00:00Z, check the clock")]
#[case::the_last(&["a.svc"], "9999-12-30T22:00:00Z", "a certificate cannot be issued at 9999-12-30T22:00:00Z, check the clock")]
fn what_cannot_be_issued(#[case] wanted: &[&str], #[case] at: &str, #[case] error: &str) {
    let result = issue(&names(wanted), at.parse().unwrap(), None);
    assert_eq!(result.unwrap_err().to_string(), error);
}

#[test]
fn the_state_changes_with_time() {
    let issued = issued();
    let (from, expires) = (now() - 1.hours(), in_days(90));
    let renew = from + SignedDuration::from_secs((90 * DAY + HOUR) / 3 * 2);
    let good = CertificateState::Good { renew, expires };
    let soon = CertificateState::RenewSoon { expires };
    let second = 1.seconds();
    let table = [
        (from - second, CertificateState::NotYetValid { from, expires }),
        (from, good.clone()),
        (now(), good.clone()),
        (renew - second, good),
        (renew, soon.clone()),
        (expires - second, soon),
        (expires, CertificateState::Expired),
        (Timestamp::MAX, CertificateState::Expired),
        (Timestamp::MIN, CertificateState::NotYetValid { from, expires }),
    ];
    for (at, expected) in table {
        assert_eq!(state_of(&issued, at), expected, "{at}");
    }
}

#[test]
fn a_certificate_without_end_does_not_expire() {
    let endless = foreign(|params| {
        params.not_before = OffsetDateTime::from_unix_timestamp(0).unwrap();
        params.not_after = OffsetDateTime::from_unix_timestamp(LAST_SECOND).unwrap();
    });
    let CertificateState::Good { expires, renew } = state(&endless, None, &names(&NAMES), now()) else { panic!() };
    assert_eq!(expires, Timestamp::MAX);
    assert!(renew > in_days(365_000));
}

#[test]
fn what_is_wrong_with_a_certificate_is_named() {
    let (one, two) = (issued(), issued());
    let wanted = names(&NAMES);
    let with_key = |key: &Pair| Pair { key: key.key.clone(), ..one.tls.clone() };
    let ca = Some(one.ca.certificate.as_slice());
    let cut = Pair { certificate: one.tls.certificate[..300].to_vec(), ..one.tls.clone() };
    let no_key = Pair { key: Vec::new(), ..one.tls.clone() };
    let client_only = foreign(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    let backwards = foreign(|params| std::mem::swap(&mut params.not_before, &mut params.not_after));
    let critical = foreign(|params| {
        let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        unknown.set_criticality(true);
        params.custom_extensions = vec![unknown];
    });
    let table: [(&str, &Pair, Option<&[u8]>, CertificateFlaw); 13] = [
        ("the key of another", &with_key(&two.tls), ca, CertificateFlaw::OtherKey),
        ("the key of the CA", &with_key(&one.ca), ca, CertificateFlaw::OtherKey),
        ("no key", &no_key, ca, CertificateFlaw::Key),
        (
            "a certificate as the key",
            &Pair { key: one.tls.certificate.clone(), ..one.tls.clone() },
            ca,
            CertificateFlaw::Key,
        ),
        ("cut", &cut, ca, CertificateFlaw::Certificate),
        ("empty", &Pair { certificate: Vec::new(), ..one.tls.clone() }, ca, CertificateFlaw::Certificate),
        ("unknown critical extension", &critical, None, CertificateFlaw::Certificate),
        ("another CA", &one.tls, Some(&two.ca.certificate), CertificateFlaw::Issuer),
        ("self-signed", &foreign(|_| ()), ca, CertificateFlaw::Issuer),
        ("no CA", &one.tls, Some(b""), CertificateFlaw::Ca),
        ("half a CA", &one.tls, Some(&one.ca.certificate[..200]), CertificateFlaw::Ca),
        ("for clients", &client_only, None, CertificateFlaw::Purpose),
        ("backwards", &backwards, None, CertificateFlaw::Validity),
    ];
    for (what, pair, ca, flaw) in table {
        // Even if it has also expired: the flaw must be fixed first.
        for at in [now(), in_days(1000)] {
            assert_eq!(state(pair, ca, &wanted, at), CertificateState::Invalid(flaw.clone()), "{what} at {at}");
        }
    }
}

#[test]
fn a_wanted_name_that_is_missing_is_named() {
    let issued = issue(&names(&["a.svc", "*.b.svc", "10.0.0.1"]), now(), None);
    // rustls does not accept wildcards among the names of servers.
    assert!(matches!(issued, Err(CertificateError::Name(name)) if name == "*.b.svc"));
    let issued = issue(&names(&["a.svc", "10.0.0.1"]), now(), None).unwrap();
    for (name, is_there) in
        [("a.svc", true), ("A.SVC", true), ("10.0.0.1", true), ("b.svc", false), ("10.0.0.2", false), ("", false)]
    {
        let state = state(&issued.tls, None, &names(&["a.svc", name]), now());
        let expected = CertificateState::Invalid(CertificateFlaw::MissingName(name.to_owned()));
        assert_eq!(state != expected, is_there, "{name}");
    }
}

#[test]
fn certificates_of_others_are_good_without_a_ca() {
    let wanted = names(&NAMES);
    let as_ca = foreign(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let wildcard = foreign(|params| {
        params.subject_alt_names = CertificateParams::new(names(&["*.system.svc"])).unwrap().subject_alt_names;
    });
    for (pair, wanted) in
        [(foreign(|_| ()), wanted.clone()), (as_ca, wanted), (wildcard, names(&["ganglion.system.svc"]))]
    {
        assert!(matches!(state(&pair, None, &wanted, now()), CertificateState::Good { .. }));
    }
}

#[test]
fn a_chain_with_an_intermediate_is_good_under_its_root() {
    let (root_key, middle_key, key) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let root = authority("root").self_signed(&root_key).unwrap();
    let middle = authority("middle").signed_by(&middle_key, &Issuer::new(authority("root"), root_key)).unwrap();
    let mut params = CertificateParams::new(names(&NAMES)).unwrap();
    params.not_before = moment(now(), -DAY).unwrap();
    let leaf = params.signed_by(&key, &Issuer::new(authority("middle"), middle_key)).unwrap();
    let pair = |certificate: String| Pair { certificate: certificate.into(), key: key.serialize_pem().into() };
    let state = |pair: &Pair| state(pair, Some(root.pem().as_bytes()), &names(&NAMES), now());
    assert!(matches!(state(&pair(leaf.pem() + &middle.pem())), CertificateState::Good { .. }));
    assert_eq!(state(&pair(leaf.pem())), CertificateState::Invalid(CertificateFlaw::Issuer));
    assert_eq!(state(&pair(middle.pem() + &leaf.pem())), CertificateState::Invalid(CertificateFlaw::OtherKey));
}

#[test]
fn no_key_is_shown() {
    let issued = issued();
    let shown = format!("{issued:?}{issued:#?}");
    // The check includes the colon, which base64 does not contain: a certificate may contain the letters alone by
    // chance.
    assert!(shown.contains("BEGIN CERTIFICATE") && !shown.contains("PRIVATE") && !shown.contains("key:"));
}

/// Encodes these bytes as PEM.
fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let base64 = serde_json::to_string(&ByteString(der.to_vec())).unwrap();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", base64.trim_matches('"')).into_bytes()
}

/// A time to check certificates at.
fn any_time() -> impl Strategy<Value = Timestamp> {
    (Timestamp::MIN.as_second()..=Timestamp::MAX.as_second()).prop_map(|second| Timestamp::from_second(second).unwrap())
}

/// Runs all checks on these pairs; none may panic.
fn ask_everything(pair: &Pair, ca: &Pair, wanted: &[String], at: Timestamp) {
    let _ = state(pair, Some(&ca.certificate), wanted, at);
    let _ = state(pair, None, wanted, at);
    let _ = certified_key(pair);
    if let Ok(issued) = issue(wanted, at, Some(ca)) {
        let state = state(&issued.tls, Some(&issued.ca.certificate), wanted, at);
        assert!(matches!(state, CertificateState::Good { .. }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        key in prop::collection::vec(any::<u8>(), 0..300),
        wanted in prop::collection::vec(any::<String>(), 0..3),
        at in any_time(),
    ) {
        let raw = Pair { certificate: bytes.clone(), key: key.clone() };
        let wrapped = Pair { certificate: pem("CERTIFICATE", &bytes), key: pem("PRIVATE KEY", &key) };
        ask_everything(&raw, &wrapped, &wanted, at);
        ask_everything(&wrapped, &raw, &wanted, at);
    }

    #[test]
    fn damaged_certificates_and_keys_never_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        in_key in any::<bool>(),
        at in prop_oneof![any_time(), Just(now())],
    ) {
        let good = issued();
        let spoil = |pair: &Pair| {
            let mut certificate = certificates(&pair.certificate).unwrap()[0].to_vec();
            let mut key = PrivateKeyDer::from_pem_slice(&pair.key).unwrap().secret_der().to_vec();
            let spoilt = if in_key { &mut key } else { &mut certificate };
            for (index, byte) in &damage {
                let at = index.index(spoilt.len());
                spoilt[at] = *byte;
            }
            if let Some(cut) = &cut {
                spoilt.truncate(cut.index(spoilt.len()));
            }
            Pair { certificate: pem("CERTIFICATE", &certificate), key: pem("PRIVATE KEY", &key) }
        };
        ask_everything(&spoil(&good.tls), &spoil(&good.ca), &names(&NAMES), at);
    }

    #[test]
    fn whatever_is_issued_is_good_for_its_names(
        labels in prop::collection::vec("[a-z]([a-z0-9-]{0,10}[a-z0-9])?(\\.[a-z][a-z0-9]{0,8}){0,3}", 1..6),
        address in any::<[u8; 4]>(),
        second in DAY..LAST_SECOND - CA_VALIDITY - 2 * DAY,
    ) {
        let at = Timestamp::from_second(second).unwrap();
        let mut wanted = labels;
        wanted.push(address.map(|byte| byte.to_string()).join("."));
        let issued = issue(&wanted, at, None).unwrap();
        for name in &wanted {
            prop_assert_eq!(client(&issued, &issued.ca, name, at), Ok(()));
        }
    }
}
