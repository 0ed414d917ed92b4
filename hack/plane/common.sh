# shellcheck shell=bash
# What every verb of hack/controlplane shares: messages, paths, the record of a
# process and the locks. It starts nothing and knows no component.

# The order in which a plane comes up; it goes down in the reverse order.
COMPONENTS=(etcd apiserver kcm scheduler kwok)

say() { printf '%s\n' "controlplane: $*" >&2; }
die() { say "$*"; exit 1; }

# A wrong command line is not a failed plane: it exits with 2.
misuse() { say "$*"; say "see: hack/controlplane --help"; exit 2; }

# need TOOL PACKAGE: names the Debian package that brings a missing tool.
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
}

known_component() {
  local c
  for c in "${COMPONENTS[@]}"; do [[ $c == "$1" ]] && return 0; done
  misuse "no component '$1'; there are: ${COMPONENTS[*]}"
}

# One verb at a time changes a plane. The lock file lies beside the directory, as
# `down` removes the directory, and goes with the plane: hence the look whether
# what was locked is still the file of that name. Readers take no lock.
lock_plane() {
  local file
  file=$(planes_dir)/.$PLANE.lock
  mkdir -p "$(planes_dir)"
  while :; do
    exec {PLANE_LOCK}>"$file"
    flock -w 120 "$PLANE_LOCK" ||
      die "plane '$PLANE' has been busy with another command for two minutes"
    [[ $file -ef /proc/$BASHPID/fd/$PLANE_LOCK ]] && return 0
    exec {PLANE_LOCK}>&-
  done
}

unlock_plane() { exec {PLANE_LOCK}>&-; }

# For a plane that is no more.
drop_lock() {
  rm -f "$(planes_dir)/.$PLANE.lock"
  unlock_plane
}

# Start times count from the boot, so a record of an earlier one means nothing.
BOOT=none
if [[ -r /proc/sys/kernel/random/boot_id ]]; then read -r BOOT </proc/sys/kernel/random/boot_id; fi

# proc_stat PID sets PROC_STATE, PROC_THREADS and PROC_START (in ticks since
# boot, field 22); false if there is no such process. The command's name, field
# 2, may hold blanks and brackets, so fields are counted from the last bracket.
proc_stat() {
  local line rest
  PROC_STATE='' PROC_START='' PROC_THREADS=0
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  rest=${line##*) }
  read -r -a rest <<<"$rest"
  PROC_STATE=${rest[0]} PROC_THREADS=${rest[17]} PROC_START=${rest[19]}
}

# A zombie has ended, whether or not its parent has asked for it; but not while
# it has threads left, which still hold its port and its files.
proc_lives() {
  proc_stat "$1" && [[ $PROC_START == "$2" ]] || return 1
  [[ $PROC_STATE != [ZX] ]] || ((PROC_THREADS > 1))
}

# read_pid FILE sets PID if the recorded process still is that very process:
# same pid, same start, same boot. A pid that was handed to someone else is not.
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

# launch NAME COMMAND…: starts a process that outlives us, in its own session,
# with no descriptor of ours (a lock it inherited would never be released; a
# caller's pipe would never end). It records itself before it becomes the
# command, so that an `up` killed at any moment leaves no unrecorded process.
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
    # The components share few cores and have memory: they collect garbage seldom,
    # but for one that would take all of it.
    GOGC=$(<gogc) GOMEMLIMIT=6GiB exec setsid "$@"
  ) &
  # Not a job of ours: bash would report its end.
  disown
  for ((i = 0; i < 500; i++)); do
    [[ -f $DIR/run/$name.pid ]] && return 0
    sleep 0.01
  done
  die "$name could not be started"
}
