//! Names of sensors, compared as words: which say that a sensor measures the intake air, and which name a component.

/// Words for the place where the air enters.
const INLET: [&str; 2] = ["inlet", "intake"];

/// Words for the air in front of the machine.
const FRONT: [&str; 4] = ["ambient", "front", "fp", "fio"];

/// Words that do not change what a sensor measures.
const NEUTRAL: [&str; 34] = [
    "temp",
    "temps",
    "temperature",
    "temperatures",
    "tmp",
    "t",
    "sens",
    "sensor",
    "reading",
    "thermal",
    "celsius",
    "degc",
    "air",
    "system",
    "sys",
    "server",
    "machine",
    "chassis",
    "board",
    "mb",
    "bb",
    "baseboard",
    "motherboard",
    "mainboard",
    "main",
    "panel",
    "io",
    "i",
    "o",
    "left",
    "right",
    "l",
    "r",
    "side",
];

/// Words for components of a machine, for other places, and for other quantities.
const COMPONENTS: [&str; 94] = [
    "cpu",
    "cpus",
    "proc",
    "processor",
    "core",
    "pkg",
    "package",
    "soc",
    "die",
    "dts",
    "dimm",
    "dimmg",
    "mem",
    "memory",
    "ddr",
    "hbm",
    "vr",
    "vrm",
    "vrd",
    "vcc",
    "gpu",
    "gpus",
    "accelerator",
    "accel",
    "hgx",
    "pcie",
    "pci",
    "pcb",
    "slot",
    "riser",
    "nic",
    "lan",
    "ocp",
    "mezz",
    "mezzanine",
    "lom",
    "hba",
    "raid",
    "expander",
    "adapter",
    "disk",
    "hdd",
    "ssd",
    "nvme",
    "drive",
    "storage",
    "backplane",
    "bp",
    "hsbp",
    "psu",
    "ps",
    "psus",
    "power",
    "supply",
    "pdb",
    "pdu",
    "battery",
    "bat",
    "bbu",
    "fan",
    "fans",
    "pump",
    "pch",
    "chipset",
    "bmc",
    "cbc",
    "exhaust",
    "outlet",
    "rear",
    "back",
    "out",
    "liquid",
    "coolant",
    "water",
    "fluid",
    "cdu",
    "leak",
    "switch",
    "asic",
    "fpga",
    "dpu",
    "bluefield",
    "nvswitch",
    "nvlink",
    "retimer",
    "erot",
    "irot",
    "transceiver",
    "optical",
    "qsfp",
    "module",
    "card",
    "margin",
    "delta",
];

/// Maximum length of a word that is searched for words without a separator, such as `inlettemp`.
const JOINED: usize = 40;

/// Meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameMeaning {
    /// Component of the machine, another place, or another quantity.
    Component,
    /// Neither a place nor a component.
    Nothing,
    /// Board or system as a whole. On many machines it is warmer than the intake air.
    Board,
    /// Air in front of the machine.
    Front,
    /// Air at the inlet.
    Inlet,
}

impl NameMeaning {
    pub(super) fn new(name: &str) -> Self {
        let words = words(name);
        let is_word = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
        if is_word(&COMPONENTS) {
            return Self::Component;
        }
        let is_plain = words.iter().all(|word| is_known(word) || is_number(word));
        match (is_plain, is_word(&INLET), is_word(&FRONT)) {
            _ if words.is_empty() => Self::Nothing,
            (true, true, _) => Self::Inlet,
            (true, false, true) => Self::Front,
            (true, false, false) if is_word(&["system", "sys", "board", "mb", "bb", "motherboard"]) => Self::Board,
            _ => Self::Nothing,
        }
    }
}

/// The words of a name in lower case, numbers apart. `SystemBoardInletTemp`, `system_board_inlet_temp` and
/// `systemboardinlettemp` have the same words.
pub(super) fn words(name: &str) -> Vec<String> {
    let name = name.replace("P/S", "PS");
    let pieces = name
        .split(|c: char| !c.is_alphanumeric())
        .flat_map(|piece| split(piece, |[before, c], _| before.is_ascii_digit() != c.is_ascii_digit()));
    let words = pieces.flat_map(|piece| {
        // `NVMe` is one word, although its capitals look like two.
        let whole = joined(&piece.to_lowercase());
        whole.unwrap_or_else(|| split(&piece, is_hump).iter().map(|word| word.to_lowercase()).collect())
    });
    words.collect()
}

/// Whether a capital begins a word: `InletTemp`, `FPInlet`.
fn is_hump([before, c]: [char; 2], after: Option<char>) -> bool {
    c.is_uppercase() && (before.is_lowercase() || after.is_some_and(char::is_lowercase))
}

/// Splits a text before each character that begins a piece, given its neighbours.
fn split(text: &str, begins: fn([char; 2], Option<char>) -> bool) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut pieces: Vec<String> = Vec::new();
    for (nth, c) in chars.iter().enumerate() {
        let before = nth.checked_sub(1).and_then(|before| chars.get(before));
        match pieces.last_mut().filter(|_| before.is_some_and(|b| !begins([*b, *c], chars.get(nth + 1).copied()))) {
            Some(piece) => piece.push(*c),
            None => pieces.push(c.to_string()),
        }
    }
    pieces
}

/// Known words that make up this text, longest first. None if it does not consist of known words.
fn joined(text: &str) -> Option<Vec<String>> {
    // Short pieces such as `t` or `ps` are words only if they stand alone.
    const SHORTEST: usize = 3;
    if is_known(text) || is_number(text) {
        return Some(vec![text.to_owned()]);
    }
    if text.len() > JOINED || !text.is_ascii() {
        return None;
    }
    let sizes = (SHORTEST..text.len().saturating_sub(SHORTEST - 1)).rev().filter(|size| is_known(&text[..*size]));
    sizes.into_iter().find_map(|size| {
        let (first, rest) = text.split_at(size);
        Some([vec![first.to_owned()], joined(rest)?].concat())
    })
}

fn is_known(word: &str) -> bool {
    [&INLET[..], &FRONT, &NEUTRAL, &COMPONENTS].iter().any(|list| list.contains(&word))
}

pub(super) fn is_number(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit())
}

/// Whether the last segment of a path names a component.
pub(super) fn is_component(path: &str) -> bool {
    NameMeaning::new(last(path)) == NameMeaning::Component
}

/// Whether a name, or the last segment of a path, has a word for the intake air.
pub(super) fn is_hint(path: &str) -> bool {
    words(last(path)).iter().any(|word| INLET.contains(&word.as_str()) || FRONT.contains(&word.as_str()))
}

pub(super) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    // Names of vendors.
    #[case("Inlet Temp", NameMeaning::Inlet)]
    #[case("01-Inlet Ambient", NameMeaning::Inlet)]
    #[case("temperature inlet", NameMeaning::Inlet)]
    #[case("SystemBoardInletTemp", NameMeaning::Inlet)]
    #[case("INLET_TEMP", NameMeaning::Inlet)]
    #[case("inlettemp", NameMeaning::Inlet)]
    #[case("BB Inlet Temp", NameMeaning::Inlet)]
    #[case("MB_Inlet", NameMeaning::Inlet)]
    #[case("System Inlet", NameMeaning::Inlet)]
    #[case("Air inlet", NameMeaning::Inlet)]
    #[case("FP Inlet", NameMeaning::Inlet)]
    #[case("Front Inlet", NameMeaning::Inlet)]
    #[case("Inlet 1 Temp", NameMeaning::Inlet)]
    #[case("Chassis Intake Temp", NameMeaning::Inlet)]
    #[case("TEMP_SENS_FRONT", NameMeaning::Front)]
    #[case("TEMP_FRONT", NameMeaning::Front)]
    #[case("TEMP_AMBIENT", NameMeaning::Front)]
    #[case("Temp_Ambient_FP", NameMeaning::Front)]
    #[case("Ambient_0_Temp", NameMeaning::Front)]
    #[case("Chassis 0 Front IO Temp 0", NameMeaning::Front)]
    #[case("Front Panel Temperature", NameMeaning::Front)]
    #[case("LFrontPanelTemp", NameMeaning::Front)]
    #[case("FP_TEMP_SENSOR", NameMeaning::Front)]
    // Traps.
    #[case("System Temp", NameMeaning::Board)]
    #[case("PSU1 Inlet", NameMeaning::Component)]
    #[case("P/S 1 Inlet", NameMeaning::Component)]
    #[case("PowerSupplyInletTemp", NameMeaning::Component)]
    #[case("GPU_INLET", NameMeaning::Component)]
    #[case("GPU1InletTemp", NameMeaning::Component)]
    #[case("PCIe Slot 1 Inlet", NameMeaning::Component)]
    #[case("NIC Ambient", NameMeaning::Component)]
    #[case("CPU0_TEMP", NameMeaning::Component)]
    #[case("Front Fan Temp", NameMeaning::Component)]
    #[case("HDD Front Temp", NameMeaning::Component)]
    #[case("NVMe Inlet", NameMeaning::Component)]
    #[case("PCIeInlet", NameMeaning::Component)]
    #[case("Rear Ambient", NameMeaning::Component)]
    #[case("Coolant Inlet Temp", NameMeaning::Component)]
    #[case("Exhaust Temp", NameMeaning::Component)]
    #[case("psu1inlet", NameMeaning::Component)]
    // An unknown word may be a component.
    #[case("Gearbox Inlet", NameMeaning::Nothing)]
    #[case("In", NameMeaning::Nothing)]
    #[case("128L0", NameMeaning::Nothing)]
    #[case("", NameMeaning::Nothing)]
    #[case("Ünlet Temp", NameMeaning::Nothing)]
    fn a_name_means(#[case] name: &str, #[case] meaning: NameMeaning) {
        assert_eq!(NameMeaning::new(name), meaning);
    }
}
