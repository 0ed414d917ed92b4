//! Properties of any published lists, and of any edits to them.

use std::collections::BTreeSet;

use super::*;
use crate::file::text;

/// Lines of all kinds, in any order.
fn soup() -> impl Strategy<Value = String> {
    let lines = [
        "workloads:",
        "workloads: {}",
        "workloads: []",
        "  web-0:",
        "  web-1:",
        "  \"1\":",
        "  web-0: {jobs: [x], version: 2}",
        "    jobs:",
        "    jobs: []",
        "    jobs: [a, 1, null]",
        "      - a",
        "      - \"b c\"",
        "      - 'd'",
        "      - 7",
        "      - {name: e}",
        "      - f # why",
        "      - *x",
        "      -",
        "    version: 3",
        "    version: x",
        "    version: -1",
        "version: 7",
        "version: 99999999999999999999",
        "version: 07",
        "x: y",
        "# z",
        "",
        " ",
        "\t",
        "---",
        "version: 5\r",
        "&x",
    ];
    prop::collection::vec(prop::sample::select(lines.to_vec()), 0..14)
        .prop_map(|lines| lines.iter().map(|line| format!("{line}\n")).collect())
}

/// An edit of a text.
#[derive(Clone, Debug)]
enum Edit {
    Remove(prop::sample::Index),
    Repeat(prop::sample::Index),
    Insert(prop::sample::Index, String),
    Cut(prop::sample::Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let piece = prop_oneof![soup(), name(), Just(" ".to_owned()), Just("\"".to_owned()), Just("1".to_owned())];
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Edit::Remove),
        any::<prop::sample::Index>().prop_map(Edit::Repeat),
        (any::<prop::sample::Index>(), piece).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        any::<prop::sample::Index>().prop_map(Edit::Cut),
    ]
}

fn apply(text: &str, edit: &Edit) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    if lines.is_empty() {
        return "x".to_owned();
    }
    match edit {
        Edit::Remove(line) => drop(lines.remove(line.index(lines.len()))),
        Edit::Repeat(line) => lines.push(lines[line.index(lines.len())]),
        Edit::Insert(at, piece) => {
            let (before, after) = text.split_at(*at.get(&boundaries));
            return format!("{before}{piece}{after}");
        }
        Edit::Cut(at) => return text[..*at.get(&boundaries)].to_owned(),
    }
    lines.concat()
}

/// Checks that lists that were read are written and read back unchanged.
fn assert_settles(read: &Published) -> Result<(), TestCaseError> {
    let (file, record) = render(read);
    prop_assert_eq!(parse(Some(&file), Some(&record)), Published { edited: false, ..read.clone() });
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_as_it_was(published in published()) {
        let (file, record) = render(&published);
        prop_assert_eq!(parse(Some(&file), Some(&record)), published);
    }

    #[test]
    fn what_is_read_is_written_as_it_was(published in published()) {
        let (file, record) = render(&published);
        prop_assert_eq!(render(&parse(Some(&file), Some(&record))), (file, record));
    }

    #[test]
    fn yaml_readers_read_what_is_read_by_lines(published in published()) {
        let (file, _) = render(&published);
        let (listing, is_ours) = text::read_lines(&file);
        prop_assert!(is_ours, "{}", file);
        prop_assert_eq!(text::read_yaml(&file), Some(listing));
    }

    #[test]
    fn what_passes_for_ours_is_read_alike_by_yaml_readers(published in published(),
        edits in prop::collection::vec(edit(), 1..3)) {
        let file = edits.iter().fold(render(&published).0, |file, edit| apply(&file, edit));
        let (listing, is_ours) = text::read_lines(&file);
        if is_ours {
            prop_assert_eq!(text::read_yaml(&file), Some(listing), "{}", file);
        }
    }

    #[test]
    fn edits_are_seen_and_no_version_goes_back(published in published(), edits in prop::collection::vec(edit(), 1..3)) {
        let (file, record) = render(&published);
        let edited = edits.iter().fold(file.clone(), |file, edit| apply(&file, edit));
        let read = parse(Some(&edited), Some(&record));
        prop_assert_eq!(read.edited, edited != file);
        let since = published.lists.values().flat_map(|list| &list.jobs).map(|job| job.since);
        if read.edited {
            prop_assert!(Some(read.version) >= since.chain(published.changes.keys().copied()).max());
            prop_assert!(read.lists.values().all(|list| list.version <= read.version));
            prop_assert!(read.lists.values().all(|list| list.jobs.iter()
                .all(|job| job.since == list.version)));
        }
        for (name, list) in &published.lists {
            prop_assert!(read.lists[name].releasing.keys().eq(list.releasing.keys()));
            prop_assert!(read.edited || read.lists[name] == *list);
            prop_assert_eq!(&read.lists[name].pod, &list.pod);
        }
        assert_settles(&read)?;
    }

    #[test]
    fn a_line_that_is_lost_leaves_the_jobs_of_the_others(published in published(),
        line in any::<prop::sample::Index>()) {
        let (file, record) = render(&published);
        let broken = apply(&file, &Edit::Insert(line, "\n\"\n".to_owned()));
        let read = parse(Some(&broken), Some(&record));
        let jobs = |published: &Published| -> BTreeSet<(String, Arc<str>)> {
            let jobs = published.lists.iter().flat_map(|(worker, list)| list.jobs.iter()
                .map(move |job| (worker, job)));
            jobs.map(|(worker, job)| (worker.clone(), Arc::clone(&job.name))).collect()
        };
        // In the worst case, the line that begins a worker is lost.
        let most = published.lists.values().map(|list| list.jobs.len()).max().unwrap_or_default();
        let lost = jobs(&published).difference(&jobs(&read)).count();
        prop_assert!(lost <= most.max(1), "{} lost of\n{}", lost, broken);
    }

    #[test]
    fn any_texts_are_read(file in prop::option::of(any::<String>()), record in prop::option::of(any::<String>())) {
        let read = parse(file.as_deref(), record.as_deref());
        prop_assert_eq!(read.edited, file.is_some() || record.is_some());
        assert_settles(&read)?;
    }

    #[test]
    fn any_lines_are_read(file in soup(), published in published(), is_there in any::<bool>()) {
        let (_, record) = render(&published);
        let read = parse(Some(&file), is_there.then_some(record.as_str()));
        assert_settles(&read)?;
    }

    #[test]
    fn any_record_is_read(published in published(), edits in prop::collection::vec(edit(), 1..3)) {
        let (file, record) = render(&published);
        let record = edits.iter().fold(record, |record, edit| apply(&record, edit));
        let read = parse(Some(&file), Some(&record));
        let names = |published: &Published| published.lists.values().flat_map(|h| h.jobs.clone()).map(|j| j.name)
            .collect::<Vec<_>>();
        prop_assert_eq!(names(&read), names(&published));
        assert_settles(&read)?;
    }

    #[test]
    fn any_text_is_one_line_that_yaml_reads_as_it_was(text in prop_oneof![any::<String>(), name(), any::<char>()
        .prop_map(String::from)]) {
        let mut written = String::new();
        text::write_name(&mut written, &text);
        prop_assert!(!written.chars().any(char::is_control), "{}", written);
        prop_assert_eq!(text::read_name(&written), (text.as_str().into(), true));
        let read: Result<Vec<String>, _> = serde_saphyr::from_str(&format!("- {written}\n"));
        prop_assert_eq!(read.unwrap(), vec![text.clone()]);
        let read: Result<BTreeMap<String, u8>, _> = serde_saphyr::from_str(&format!("{written}: 1\n"));
        prop_assert!(written.len() > 1000 || read.unwrap().contains_key(&text));
    }

    #[test]
    fn own_files_together_are_all(mut published in published()) {
        published.version = published.lists.values().map(|list| list.version).max().unwrap_or_default();
        published.gaps.retain(|(_, after)| *after <= published.version);
        prune(&mut published);
        let own = split(&published);
        prop_assert!(own.keys().eq(published.lists.keys()));
        let read = own.values().map(|own| {
            let (file, record) = render(own);
            parse(Some(&file), Some(&record))
        });
        prop_assert_eq!(join(read), published.clone());
        prop_assert_eq!(join(own.into_values().rev()), published);
    }

    #[test]
    fn an_own_file_does_not_change_with_others(published in published(), other in some_list(),
        version in version()) {
        let mut changed = published.clone();
        changed.version = version;
        changed.lists.insert("other".to_owned(), other);
        let (before, after) = (split(&published), split(&changed));
        for (name, own) in before.iter().filter(|(name, _)| *name != "other") {
            prop_assert_eq!(Some(own), after.get(name));
        }
    }

    #[test]
    fn few_changes_are_remembered_and_no_job_becomes_younger_than_its_list(
        mut published in many_changes(),
    ) {
        let before = published.clone();
        let referred = referenced_versions(&before);
        let has_surplus = before.changes.keys().filter(|version| referred.contains(version)).count() > MAX_CHANGES;
        prune(&mut published);
        prop_assert!(!has_surplus || published.changes.len() == MAX_CHANGES);
        let named = referenced_versions(&published);
        prop_assert!(published.changes.len() <= MAX_CHANGES);
        prop_assert!(published.changes.keys().all(|version| named.contains(version)));
        prop_assert!(published.changes.iter().all(|(version, change)| before.changes.get(version) == Some(change)));
        let oldest = published.changes.keys().next().copied().unwrap_or(i64::MAX);
        for (name, list) in &before.lists {
            let now = &published.lists[name];
            prop_assert_eq!((&now.releasing, &now.pod, now.version), (&list.releasing, &list.pod,
                list.version));
            prop_assert_eq!(now.jobs.len(), list.jobs.len());
            for (now, before) in now.jobs.iter().zip(&list.jobs) {
                prop_assert_eq!(&now.name, &before.name);
                let is_forgotten = has_surplus && before.since < oldest;
                prop_assert_eq!(now.since, if is_forgotten { oldest.min(list.version) } else { before.since });
            }
        }
        let mut again = published.clone();
        prune(&mut again);
        prop_assert_eq!(again, published);
    }
}

/// More changes than the maximum, and workers whose lists are older than most of them.
fn many_changes() -> impl Strategy<Value = Published> {
    let list = (0..60_i64, prop::collection::vec(any::<prop::sample::Index>(), 0..30)).prop_map(|(version, since)| {
        let jobs = since.iter().enumerate().map(|(at, since)| ListedJob {
            name: format!("j{at:02}").into(),
            since: i64::try_from(since.index(60)).unwrap().min(version),
        });
        JobList { version, jobs: jobs.collect(), releasing: [("x".into(), version)].into(), ..JobList::default() }
    });
    let lists = prop::collection::btree_map("[a-z]", list, 0..20);
    let changes =
        prop::collection::vec(prop::option::weighted(0.9, (0..1000_i64).prop_map(|at| change(at, "why"))), 60);
    (lists, changes).prop_map(|(lists, changes)| {
        let changes = (0..).zip(changes).filter_map(|(version, change)| Some((version, change?)));
        Published { lists, version: 60, changes: changes.collect(), ..Published::default() }
    })
}
