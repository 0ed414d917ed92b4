# shellcheck shell=bash
# Functions that hack/peers and hack/release share: they fetch Debian packages and unpack them into the cache, without
# their maintainer scripts. The caller sets SELF, the name in its messages.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/ganglion/peers

say() { printf '%s\n' "$SELF: $*" >&2; }
die() { say "$*"; exit 1; }

need() {
  command -v "$1" >/dev/null 2>&1 ||
    die "$1 is missing; on Debian it comes with the package $2 (apt-get install $2)"
}

# alone NAME: locks, so that only one process at a time fetches a program.
alone() {
  need flock util-linux
  mkdir -p "$CACHE"
  exec {LOCK}>"$CACHE/.$1.lock"
  flock "$LOCK"
}

# fresh NAME sets WORK, a directory that is removed at exit.
fresh() {
  WORK=$(mktemp -d "$CACHE/.$1.XXXXXX")
  trap 'rm -rf "$WORK"' EXIT
  trap 'exit 130' INT TERM HUP
}

update() {
  apt-get -qq update >&2 || die "the package lists cannot be read; is the package registry reachable? As root: apt-get update"
}

# version_of PACKAGE: candidate version in the package lists; updates the lists only if they do not contain the package.
version_of() {
  local found
  need apt-get apt
  found=$(apt-cache policy "$1" | sed -n 's/^  Candidate: //p')
  if [[ -z $found || $found == '(none)' ]]; then
    update
    found=$(apt-cache policy "$1" | sed -n 's/^  Candidate: //p')
  fi
  [[ -n $found && $found != '(none)' ]] || die "there is no Debian package $1 here"
  printf '%s\n' "$found"
}

# download PACKAGE VERSION [PACKAGE…]: downloads into WORK. Further packages have the version in the package lists.
download() {
  (cd "$WORK" && apt-get -qq download "$1=$2" "${@:3}" 2>"$WORK/log" >&2)
}

# debian PACKAGE FILE [PACKAGE…]: prints the path of a file of a package. Further packages that it needs are unpacked
# into the same directory. Its folder .control has the control file of each package.
debian() {
  local version dir package
  version=$(version_of "$1")
  # The colon of an epoch would end an entry of a search path.
  dir=$CACHE/$1-${version//:/-}
  if [[ ! -d $dir ]]; then
    need dpkg-deb dpkg
    alone "$1"
    if [[ ! -d $dir ]]; then
      fresh "$1"
      # Outdated lists name a package version that no longer exists.
      if ! download "$1" "$version" "${@:3}"; then
        update
        version=$(version_of "$1")
        dir=$CACHE/$1-${version//:/-}
        download "$1" "$version" "${@:3}" ||
          die "cannot download the Debian package $1; is the package registry reachable? $(<"$WORK/log")"
      fi
      mkdir -p "$WORK/root/.control"
      for package in "$WORK"/*.deb; do
        dpkg-deb -x "$package" "$WORK/root"
        dpkg-deb -f "$package" >"$WORK/root/.control/$(dpkg-deb -f "$package" Package)"
      done
      mv -T "$WORK/root" "$dir"
      say "$1 $version: unpacked"
    fi
  fi
  printf '%s\n' "$dir$2"
}
