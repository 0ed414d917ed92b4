# shellcheck shell=bash
# The notes of a release: a section of the changelog.

# section FILE NAME: prints the section [NAME] of a changelog without its heading; fails if there is none.
section() {
  awk -v heading="## [$2]" '
    /^## / { inside = index($0, heading) == 1; found = found || inside; next }
    inside && !/^\[[^]]*\]: / { print }
    END { exit !found }' "$1"
}

# notes FILE VERSION [given]: prints the notes of a version. If the user gave the version, it must have a section with
# text. Otherwise the section Unreleased takes its place.
notes() {
  local text
  if ! text=$(section "$1" "$2"); then
    [[ -z ${3:-} ]] || die "$1 has no section [$2]: rename its section [Unreleased] to [$2], with the date"
    text=$(section "$1" Unreleased) || die "$1 has neither a section [$2] nor a section [Unreleased]"
  fi
  text=$(sed '/./,$!d' <<<"$text")
  if [[ -z $text ]]; then
    [[ -z ${3:-} ]] || die "the section [$2] of $1 is empty: say there what users see"
    text='No changes are noted yet.'
  fi
  printf '# Ganglion %s\n\n%s\n' "$2" "$text"
}
