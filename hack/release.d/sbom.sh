# shellcheck shell=bash
# The bill of materials (CycloneDX): crates that the program contains, and Debian packages of the image.

CYCLONEDX_VERSION=0.5.9

# Path of cargo-cyclonedx, which is built when it is missing.
cargo_cyclonedx() {
  local home=${XDG_CACHE_HOME:-$HOME/.cache}/ganglion/cargo-cyclonedx-$CYCLONEDX_VERSION
  [[ -x $home/bin/cargo-cyclonedx ]] ||
    cargo install --quiet --locked --version "$CYCLONEDX_VERSION" --root "$home" cargo-cyclonedx >&2 ||
    die "cargo-cyclonedx cannot be built; is the package registry reachable?"
  printf '%s\n' "$home/bin/cargo-cyclonedx"
}

# Prints names and versions of the crates that the program contains, as a JSON list. Dependencies of build scripts and
# tests are not in it.
crates() {
  cargo tree --locked --package ganglion --edges normal --prefix none --target "$TARGET" |
    awk '{ print $1 "@" substr($2, 2) }' | sort -u | json -R . | json -s .
}

# Prints a component for each Debian package of the image, as a JSON list.
debian_components() {
  local control distribution
  distribution=$(. "$WORK/root/etc/os-release" && printf '%s-%s' "$ID" "$VERSION_ID")
  for control in "$WORK/root/var/lib/dpkg/status.d"/*; do
    json -R -s --arg distribution "$distribution" '
      (split("\n") | map(capture("^(?<key>[A-Z][A-Za-z-]*): (?<value>.*)$")) | from_entries) as $fields
      | ("pkg:deb/\($distribution | sub("-.*"; ""))/\($fields.Package)@\($fields.Version | @uri)"
          + "?arch=\($fields.Architecture)&distro=\($distribution)") as $purl
      | {type: "library", "bom-ref": $purl, name: $fields.Package, version: $fields.Version, purl: $purl}' "$control"
  done | json -s .
}

sbom() {
  local copy=$WORK/source
  mkdir "$copy"
  # cargo-cyclonedx writes beside each Cargo.toml, so it gets a copy. It reads no code, only the names of files.
  git ls-files -z --cached --others --exclude-standard -- Cargo.lock '*.toml' '*.rs' |
    xargs -0 cp --parents --target-directory "$copy"
  (
    cd "$copy"
    "$CYCLONEDX" cyclonedx --quiet --format json --spec-version 1.5 --target "$TARGET" --override-filename sbom
  ) || die "cargo-cyclonedx failed"
  json --argjson crates "$(crates)" --argjson packages "$(debian_components)" --arg created "$CREATED" \
    -f hack/release.d/sbom.jq "$copy/sbom.json" >"$FILES/$NAME.cdx.json"
}
