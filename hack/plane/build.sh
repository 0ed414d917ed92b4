# shellcheck shell=bash
# build: builds the programs of the control plane from pinned Go modules, once
# per set of versions, into a cache outside the tree.

# Version of Kubernetes if nothing names another. Each version is a module in
# hack/plane/go/kubernetes.
DEFAULT_KUBERNETES=1.36.3
KUBERNETES=${GANGLION_KUBERNETES:-$DEFAULT_KUBERNETES}

# Program, its module under hack/plane/go, and its main package.
PROGRAMS=(
  "etcd etcd go.etcd.io/etcd/server/v3"
  "kwok kwok sigs.k8s.io/kwok/cmd/kwok"
  "kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver"
  "kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager"
  "kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler"
  "kubectl kubernetes k8s.io/kubernetes/cmd/kubectl"
)

kubernetes_versions() {
  local dir
  for dir in "$PLANE_SRC"/go/kubernetes/*/; do basename "$dir"; done
}

# module_dir MODULE: directory of a module of PROGRAMS.
module_dir() {
  case $1 in
    kubernetes) printf '%s\n' "$PLANE_SRC/go/kubernetes/$KUBERNETES" ;;
    *) printf '%s\n' "$PLANE_SRC/go/$1" ;;
  esac
}

# pinned MODULE PATH: version that go.mod requires.
pinned() {
  awk -v path="$2" '$1 == "require" { sub(/^require[ \t]+/, "") }
    $1 == path && $2 ~ /^v/ && !/=>/ { print $2; exit }' "$(module_dir "$1")/go.mod"
}

load_versions() {
  [[ -f $(module_dir kubernetes)/go.mod ]] ||
    misuse "no Kubernetes '$KUBERNETES'; there are: $(kubernetes_versions | sort -V | paste -sd ' ')"
  KUBE_VERSION=$(pinned kubernetes k8s.io/kubernetes)
  ETCD_VERSION=$(pinned etcd go.etcd.io/etcd/server/v3)
  KWOK_VERSION=$(pinned kwok sigs.k8s.io/kwok)
  [[ -n $KUBE_VERSION && -n $ETCD_VERSION && -n $KWOK_VERSION ]] ||
    die "no versions in the modules of $PLANE_SRC/go"
}

# Without these flags the server reports version v0.0.0, and clients draw wrong
# conclusions from that.
linker_flags() {
  local flags="-s -w" package major minor
  if [[ $1 == kubernetes ]]; then
    IFS=. read -r major minor _ <<<"${KUBE_VERSION#v}"
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
      flags+=" -X $package.gitVersion=$KUBE_VERSION -X $package.gitTreeState=clean"
      flags+=" -X $package.gitMajor=$major -X $package.gitMinor=$minor"
    done
  fi
  printf '%s\n' "$flags"
}

# Sets BIN. The key covers everything that determines the content of the
# programs.
find_bin() {
  local key module
  load_versions
  key=$({
    for module in etcd kubernetes kwok; do cat "$(module_dir "$module")"/go.{mod,sum}; done
    linker_flags kubernetes
  } | cksum | awk '{ printf "%08x", $1 }')
  CACHE=$(absolute "${XDG_CACHE_HOME:-$HOME/.cache}/ganglion")
  BIN=$CACHE/plane-$KUBE_VERSION-$ETCD_VERSION-$KWOK_VERSION-$key/bin
}

# version_of PROGRAM FILE: version that the program itself reports.
version_of() {
  case $1 in
    etcd) "$2" --version | sed -n 's/^etcd Version: */v/p' ;;
    kwok) "$2" --version | sed -n 's/^kwok version \(v[0-9][^ ]*\) .*/\1/p' ;;
    kubectl) "$2" version --client | sed -n 's/^Client Version: *//p' ;;
    *) "$2" --version | sed -n 's/^Kubernetes *//p' ;;
  esac 2>/dev/null
}

# found PROGRAM WANTED: path of an existing program of exactly that version, also
# of a plane with another version of Kubernetes.
found() {
  local dir candidate dirs
  IFS=: read -r -a dirs <<<"${KUBEBUILDER_ASSETS:-}:$PATH"
  for dir in "${dirs[@]}" "$CACHE"/plane-*/bin; do
    candidate=$dir/$1
    [[ -n $dir && -f $candidate && -x $candidate ]] || continue
    [[ $(version_of "$1" "$candidate") == "$2" ]] || continue
    absolute "$candidate"
    return 0
  done
  return 1
}

need_go() {
  local version minor
  version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || echo missing)
  minor=${version#go1.}
  minor=${minor%%[!0-9]*}
  [[ $version == go1.* && ${minor:-0} -ge 26 ]] ||
    die "go is $version, but 1.26 or newer is needed; on Debian it comes with golang-go, or golang-1.26-go from backports"
}

# tick LABEL SECONDS: shows progress, on a terminal as one counting line, in a
# log as an occasional line.
tick() {
  if [[ -t 2 ]]; then
    printf '\rcontrolplane: %s … %ds ' "$1" "$2" >&2
  elif (($2 > 0 && $2 % 15 == 0)); then
    say "$1 … ${2}s"
  fi
}

# build_one PROGRAM MODULE PACKAGE LABEL: builds to a temporary name, then
# renames. A program under its final name is therefore always complete.
build_one() {
  local out=$BIN/.$1.$$ began=$SECONDS job log=$BIN/../$1.log
  (
    cd "$(module_dir "$2")" || exit
    # Ignores a Go workspace and flags of the caller, which would change the
    # build.
    export CGO_ENABLED=0 GOWORK=off GOFLAGS='' GOTOOLCHAIN=local GOTMPDIR=$BIN/../tmp
    exec nice go build -mod=readonly -buildvcs=false -trimpath \
      -ldflags "$(linker_flags "$2")" -o "$out" "$3"
  ) >"$log" 2>&1 {BUILD_LOCK}>&- &
  job=$!
  BUILD_JOB=$job BUILD_OUT=$out
  while kill -0 "$job" 2>/dev/null; do
    tick "$4" $((SECONDS - began))
    sleep 1
  done
  if ! wait "$job"; then
    [[ -t 2 ]] && printf '\n' >&2
    tail -n 30 "$log" >&2
    die "building $1 failed (whole log: $log)"
  fi
  mv "$out" "$BIN/$1"
  BUILD_JOB='' BUILD_OUT=''
  [[ -t 2 ]] && printf '\r\033[K' >&2
  say "$4: built in $((SECONDS - began))s"
}

# Go does not remove its work directory when it is interrupted.
build_interrupted() {
  if [[ -n ${BUILD_JOB:-} ]]; then
    kill "$BUILD_JOB" 2>/dev/null || true
    wait "$BUILD_JOB" 2>/dev/null || true
  fi
  if [[ -n ${BUILD_OUT:-} ]]; then rm -f "$BUILD_OUT"; fi
  rm -rf "$BIN/../tmp"
}

wanted_version() {
  case $1 in
    etcd) printf '%s\n' "$ETCD_VERSION" ;;
    kwok) printf '%s\n' "$KWOK_VERSION" ;;
    *) printf '%s\n' "$KUBE_VERSION" ;;
  esac
}

all_built() {
  local entry
  for entry in "${PROGRAMS[@]}"; do [[ -x $BIN/${entry%% *} ]] || return 1; done
}

# Checks for go before the build starts.
build_missing() {
  local entry program module package n=0 here missing=()
  for entry in "${PROGRAMS[@]}"; do
    program=${entry%% *}
    [[ -x $BIN/$program ]] && continue
    if here=$(found "$program" "$(wanted_version "$program")"); then
      # A hard link stays when the other name is removed; it needs the same file system.
      ln -fL "$here" "$BIN/$program" 2>/dev/null || ln -sfn "$here" "$BIN/$program"
      say "$program: found at $here"
    else
      missing+=("$entry")
    fi
  done
  ((${#missing[@]})) || return 0
  need_go
  say "building the control plane $KUBE_VERSION (some minutes, once) into $BIN"
  for entry in "${missing[@]}"; do
    read -r program module package <<<"$entry"
    n=$((n + 1))
    build_one "$program" "$module" "$package" "[$n/${#missing[@]}] $program"
  done
}

build_verb() {
  while (($#)); do
    [[ $1 == --kubernetes && $# -ge 2 ]] || misuse "build: unknown option $1"
    KUBERNETES=$2
    shift 2
  done
  build
  printf '%s\n' "$BIN"
}

# Sets BIN, and builds all missing programs.
build() {
  local began=$SECONDS
  find_bin
  all_built && return 0
  need flock util-linux
  mkdir -p "$BIN"
  exec {BUILD_LOCK}>"$BIN/../lock"
  if ! flock -n "$BUILD_LOCK"; then
    say "waiting for another build that is in progress"
    flock "$BUILD_LOCK"
  fi
  if ! all_built; then
    trap 'build_interrupted' EXIT
    trap 'exit 130' INT TERM HUP
    rm -rf "$BIN"/.*.[0-9]* "$BIN/../tmp"
    mkdir "$BIN/../tmp"
    build_missing
    rm -rf "$BIN/../tmp"
    trap - EXIT INT TERM HUP
    say "control plane complete after $((SECONDS - began))s"
  fi
  exec {BUILD_LOCK}>&-
}
