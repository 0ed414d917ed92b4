# shellcheck shell=bash
# Functions that hack/demo and hack/bench share: they check the tools on this
# machine, and build, with progress on standard error.

# tell NAME TEXT…: prints a message of a command.
tell() { printf '%s: %s\n' "$1" "${*:2}" >&2; }

# has TOOL PACKAGE HINT: if the tool is missing, names the package that provides
# it, and counts it.
MISSING=0
has() {
  command -v "$1" >/dev/null 2>&1 && return 0
  tell "$SELF" "$1 is missing; on Debian it comes with the package $2${3:+ ($3)}"
  MISSING=$((MISSING + 1))
}

# Reports all missing tools at once, before a build that takes minutes.
check_machine() {
  has cargo cargo 'or from https://rustup.rs, which has newer ones'
  has cc gcc
  has setsid util-linux
  has setpriv util-linux
  if [[ ${1:-} == plane ]]; then
    has curl curl
    has openssl openssl
    has flock util-linux
    has awk mawk
  fi
  ((MISSING == 0)) || exit 1
  check_rust
}

check_rust() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  have=$(rustc --version | awk '{ print $2 }')
  if [[ $(printf '%s\n%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1) != "$wanted" ]]; then
    tell "$SELF" "rustc is $have, but $wanted or newer is needed (rustup update, or https://rustup.rs)"
    exit 1
  fi
}

# build_rust CARGO-ARGUMENT…: builds; cargo shows its own progress. Without a variable that hack/test sets for its test
# programs: some crates are compiled in another way with it.
build_rust() {
  env -u RUSTC_BOOTSTRAP cargo build --locked "$@" >&2 || { tell "$SELF" "the build failed"; exit 1; }
  # Removes cargo's last line ("Finished …") on a terminal.
  if [[ -t 2 ]]; then printf '\033[1A\033[2K' >&2; fi
}
