//! Names that vendors give the sensor at the intake, for machines that do not mark it.

/// Names of one rank each: those that say what is meant, those of the air before the machine, and one that is the board's
/// on some machines (Supermicro). Only letters and digits count, in lower case, without digits at the ends.
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

/// The rank of a name, 0 the best; none if it is not the name of a sensor at the intake.
pub(super) fn rank(name: &str) -> Option<usize> {
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let letters = letters.trim_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase();
    NAMES.iter().position(|names| names.contains(&letters.as_str()))
}

/// Whether the last part of a path looks as if it were worth a request, where a machine has too many sensors to ask for all.
pub(super) fn is_hint(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    ["inlet", "intake", "ambient", "front"].iter().any(|hint| last.contains(hint))
}
