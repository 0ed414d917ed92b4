# shellcheck shell=bash
# Functions shared by all verbs of hack/controlplane: messages, paths, pid files
# and locks. This file starts nothing and does not depend on any component.

# Start order of the components; they stop in reverse order.
COMPONENTS=(etcd apiserver kcm scheduler kwok)

say() { printf '%s\n' "controlplane: $*" >&2; }
die() { say "$*"; exit 1; }

# A wrong command line is not a failed plane, so it exits with 2.
misuse() { say "$*"; say "see: hack/controlplane --help"; exit 2; }

# need TOOL PACKAGE: exits with the name of the Debian package if the tool is
# missing.
need() {
  command -v "$1" >/dev/null 2>&1 ||
    die "$1 is missing; on Debian it comes with the package $2 (apt-get install $2)"
}

need_base_tools() {
  need flock util-linux
  need setsid util-linux
  need awk mawk
  need curl curl
  need openssl openssl
}

absolute() {
  case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s\n' "$PWD/$1" ;;
  esac
}

planes_dir() {
  absolute "${GANGLION_PLANES:-${XDG_STATE_HOME:-$HOME/.local/state}/ganglion/planes}"
}

# use_plane NAME sets PLANE (its name) and DIR (its directory).
use_plane() {
  [[ $1 =~ ^[a-z0-9][a-z0-9-]{0,61}$ ]] ||
    misuse "a plane's name is made of a-z, 0-9 and '-': '$1' is not"
  PLANE=$1
  DIR=$(planes_dir)/$PLANE
}

need_plane() {
  [[ -f $DIR/ready ]] || die "plane '$PLANE' is not up (hack/controlplane up --name $PLANE)"
  read -r KUBERNETES <"$DIR/kubernetes"
}

known_component() {
  local c
  for c in "${COMPONENTS[@]}"; do [[ $c == "$1" ]] && return 0; done
  misuse "no component '$1'; there are: ${COMPONENTS[*]}"
}

# Lets only one verb at a time change a plane. The lock file lies beside the
# plane's directory, because `down` removes the directory, and is deleted with
# the plane. After locking, it must therefore check that the locked file still
# has this name. Readers take no lock.
lock_plane() {
  local file
  file=$(planes_dir)/.$PLANE.lock
  mkdir -p "$(planes_dir)"
  while :; do
    exec {PLANE_LOCK}>"$file"
    flock -w 120 "$PLANE_LOCK" ||
      die "plane '$PLANE' has been locked by another command for two minutes"
    [[ $file -ef /proc/$BASHPID/fd/$PLANE_LOCK ]] && return 0
    exec {PLANE_LOCK}>&-
  done
}

unlock_plane() { exec {PLANE_LOCK}>&-; }

# drop_lock deletes the lock file of a removed plane.
drop_lock() {
  rm -f "$(planes_dir)/.$PLANE.lock"
  unlock_plane
}

# Start times count from boot, so a pid file of an earlier boot is invalid.
BOOT=none
if [[ -r /proc/sys/kernel/random/boot_id ]]; then read -r BOOT </proc/sys/kernel/random/boot_id; fi

# proc_stat PID sets PROC_STATE, PROC_THREADS and PROC_START (in ticks since
# boot, field 22); false if there is no such process. The command name (field 2)
# may contain blanks and parentheses, so fields are counted from the last
# parenthesis.
proc_stat() {
  local line rest
  PROC_STATE='' PROC_START='' PROC_THREADS=0
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  rest=${line##*) }
  read -r -a rest <<<"$rest"
  PROC_STATE=${rest[0]} PROC_THREADS=${rest[17]} PROC_START=${rest[19]}
}

# A zombie counts as ended, even if its parent has not waited for it. While it
# has other threads, it still runs: they hold its port and files.
proc_lives() {
  proc_stat "$1" && [[ $PROC_START == "$2" ]] || return 1
  [[ $PROC_STATE != [ZX] ]] || ((PROC_THREADS > 1))
}

# read_pid FILE sets PID if the recorded process still exists: same pid, same
# start time, same boot. A reused pid does not match.
read_pid() {
  local start boot
  PID=''
  [[ -f $1 ]] || return 1
  { read -r PID start boot <"$1"; } 2>/dev/null || true
  if [[ -n $PID && -n $start && $boot == "$BOOT" ]] && proc_lives "$PID" "$start"; then
    return 0
  fi
  PID=''
  return 1
}

# signal_pid FILE SIGNAL
signal_pid() {
  read_pid "$1" || return 0
  kill -s "$2" "$PID" 2>/dev/null || true
}

# await_end FILE TENTHS: true once the recorded process has ended.
await_end() {
  local i
  for ((i = 0; i < $2; i++)); do
    read_pid "$1" || return 0
    sleep 0.1
  done
  ! read_pid "$1"
}

# launch NAME COMMAND…: starts a process that outlives this shell, in its own
# session and without any of our file descriptors (an inherited lock would never
# be released, and a caller's pipe would never end). It writes its pid file
# before it becomes the command, so that an `up` killed at any moment leaves no
# unrecorded process.
launch() {
  local name=$1 i
  shift
  rm -f "$DIR/run/$name.pid"
  (
    cd "$DIR" || exit
    proc_stat "$BASHPID"
    printf '%s %s %s\n' "$BASHPID" "$PROC_START" "$BOOT" >"run/.$name"
    mv "run/.$name" "run/$name.pid"
    exec >>"logs/$name.log" 2>&1 </dev/null
    local fd
    for fd in "/proc/$BASHPID/fd/"*; do
      fd=${fd##*/}
      ((fd > 2)) && eval "exec $fd>&-"
    done
    # The components share few cores but have enough memory, so they collect
    # garbage rarely. GOMEMLIMIT stops a component from using all memory.
    GOGC=$(<gogc) GOMEMLIMIT=6GiB exec setsid "$@"
  ) &
  # Removes the job, so that bash does not report its end.
  disown
  for ((i = 0; i < 500; i++)); do
    [[ -f $DIR/run/$name.pid ]] && return 0
    sleep 0.01
  done
  die "$name could not be started"
}
