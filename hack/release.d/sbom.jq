# Input: the bill of materials that cargo-cyclonedx makes for the package ganglion. Arguments: $crates, names and
# versions of the crates that the program contains; $packages, components for the Debian packages of the image;
# $created.

def is_contained: "\(.name)@\(.version)" | IN($crates[]);

# References and addresses of workspace members contain paths.
walk(if type == "string" then gsub("path\\+file://[^#]*#|\\?download_url=file://[^#]*"; "") else . end)
| .metadata.timestamp = $created
| del(.serialNumber)
| (.components |= map(select(is_contained)))
| .metadata.component["bom-ref"] as $root
| ([.components[]["bom-ref"]] + [$root]) as $kept
| (.dependencies |= map(
    select(.ref | IN($kept[]))
    | if .dependsOn then .dependsOn |= map(select(IN($kept[]))) else . end
    | if .ref == $root then .dependsOn = ((.dependsOn // []) + [$packages[]["bom-ref"]]) else . end))
| .components += $packages
