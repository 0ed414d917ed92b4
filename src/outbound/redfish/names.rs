//! Vendors' names of the intake sensor, for machines that do not mark it.

/// Names by rank: explicit names of the inlet, names of the ambient air in front of the machine, and a name that means
/// the board on some machines (Supermicro). Comparison uses only letters and digits, in lower case, without leading and
/// trailing digits.
const NAMES: [&[&str]; 3] = [
    &[
        "inlet",
        "inlettemp",
        "inlettemperature",
        "temperatureinlet",
        "tempinlet",
        "airinlettemp",
        "inletairtemp",
        "inletairtemperature",
        "inletambient",
        "inletambienttemp",
        "ambientinlettemp",
        "systemboardinlettemp",
        "systeminlettemp",
        "sysinlettemp",
        "chassisinlettemp",
        "serverinlettemp",
        "frontinlettemp",
        "fpinlettemp",
        "intake",
        "intaketemp",
        "intaketemperature",
        "temperatureintake",
        "airintaketemp",
        "intakeairtemp",
        "chassisintaketemp",
        "frontintake",
        "frontintaketemp",
    ],
    &[
        "ambient",
        "ambienttemp",
        "ambienttemperature",
        "temperatureambient",
        "systemambienttemp",
        "systemboardambienttemp",
        "chassisambienttemp",
        "frontambient",
        "frontambienttemp",
        "frontpanelambient",
        "frontpanelambienttemp",
        "frontpaneltemp",
        "lfrontpaneltemp",
        "fronttemp",
        "fptempsensor",
    ],
    &["systemtemp"],
];

/// Rank of a name, 0 is best. None if it is not a name of the intake sensor.
pub(super) fn rank(name: &str) -> Option<usize> {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let letters = letters.trim_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
    NAMES.iter().position(|names| names.contains(&letters.as_str()))
}

/// Whether the last segment of a path suggests an intake sensor. Used if a machine has too many sensors to read them
/// all.
pub(super) fn is_hint(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    ["inlet", "intake", "ambient", "front"].iter().any(|hint| last.contains(hint))
}
