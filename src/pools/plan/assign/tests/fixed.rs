//! Assignments that must never change: otherwise an upgrade of the operator would move nearly all jobs of every pool.

use super::hashed::{hash, mix};
use super::*;

#[test]
fn hashes() {
    // The hash of the empty text with an all-zero key, as in other implementations of SipHash-2-4.
    assert_eq!(hash(""), 0x1e92_4b9d_7377_00d7);
    assert_eq!(hash("stream:cctv0"), 0x3756_7041_6df5_a76e);
    // The first output of SplitMix64 from seed 0.
    assert_eq!(mix(0, 1), 0xe220_a839_7b1d_cdaf);
}

fn assigned(jobs: &[Job], workers: &[u32], rules: AssignmentRules) -> String {
    let owner = assign(jobs, workers, rules).owner;
    owner.into_iter().map(|owner| owner.map_or("-".to_owned(), |owner| workers[owner as usize].to_string())).collect()
}

#[test]
fn small_deals() {
    let (stable, contiguous) = (rules(AssignmentStrategy::Stable), rules(AssignmentStrategy::Contiguous));
    let weighted: Vec<Job> = (0..30).map(|number| job(number, number as u32 % 4 * 3 + 1, false)).collect();
    let equal: Vec<Job> = (0..30).map(|number| job(number, 3, false)).collect();
    let dedicated: Vec<Job> = (0..30).map(|number| job(number, 1, number % 10 == 0)).collect();
    let max = AssignmentRules { max_jobs: Some(5), ..stable };
    assert_eq!(assigned(&plain(30), &slots(5), stable), "211201203134331240144034003422");
    assert_eq!(assigned(&plain(30), &[0, 1, 4, 7], stable), "771401714714140170174014007470");
    assert_eq!(assigned(&plain(30), &slots(5), contiguous), "000000222222444444333333111111");
    assert_eq!(assigned(&equal, &slots(5), stable), "444301231044221011330243100322");
    assert_eq!(assigned(&equal, &[0, 1, 4, 7], stable), "474471701044171001010740107747");
    assert_eq!(assigned(&weighted, &slots(5), stable), "234320204410034421034122431142");
    assert_eq!(assigned(&weighted, &slots(5), contiguous), "000000022222444444433333111111");
    assert_eq!(assigned(&dedicated, &slots(5), stable), "233300303340330303001030003300");
    assert_eq!(assigned(&plain(30), &slots(5), max), "211241233110-342-0--40340034-2");
    assert_eq!(assigned(&weighted, &slots(6), max), "152314503042221542105034343105");
}

#[test]
fn large_deals() {
    let digest = |jobs: &[Job], workers: &[u32]| {
        let owner = assign(jobs, workers, AssignmentRules::default()).owner;
        owner.into_iter().fold(0, |digest, owner| mix(digest, owner.map_or(u64::MAX, u64::from)))
    };
    let weighted: Vec<Job> =
        (0..20_000).map(|number| job(number, number as u32 * 7919 % 1000 + 1, number % 999 == 0)).collect();
    assert_eq!(digest(&plain(20_000), &slots(300)), 0x80b7_4fe1_ff3e_2401);
    let equal: Vec<Job> = (0..20_000).map(|number| job(number, 3, false)).collect();
    assert_eq!(digest(&equal, &slots(300)), 0x3e49_f5a1_031e_5520);
    assert_eq!(digest(&weighted, &slots(300)), 0xb50e_0324_34a8_4c9c);
    let holes: Vec<u32> = (0..300).filter(|slot| slot % 3 > 0).collect();
    assert_eq!(digest(&plain(20_000), &holes), 0x1b58_03a5_1b82_1af6);
}
