# shellcheck shell=bash
# down: stops exactly the processes that `up` started, and removes the plane's
# directory. Also contains the watchdog that does this when the owner of the
# plane has ended.

down() {
  local name='' all='' dir
  while (($#)); do
    case $1 in
      --name) [[ $# -ge 2 ]] || misuse "down: --name wants a value"; name=$2; shift 2 ;;
      --all) all=yes; shift ;;
      *) misuse "down: unknown option $1" ;;
    esac
  done
  [[ -z $all || -z $name ]] || misuse "down: either --name or --all"
  need flock util-linux
  if [[ -z $all ]]; then
    down_one "${name:-default}"
    return
  fi
  for dir in "$(planes_dir)"/*/; do
    if [[ -d $dir ]]; then down_one "$(basename "$dir")"; fi
  done
}

down_one() {
  use_plane "$1"
  if [[ ! -d $DIR ]]; then
    say "plane '$PLANE' does not exist"
    return
  fi
  lock_plane
  tear_down
  drop_lock
  say "plane '$PLANE' is down"
}

# tear_down stops the API server before etcd, because without etcd it hangs
# while it shuts down. It uses SIGKILL: all data is removed anyway.
tear_down() {
  local c i
  [[ -d $DIR ]] || return 0
  rm -f "$DIR/ready"
  # A watchdog that removes its plane must not kill itself.
  if [[ ${1:-} != from-watchdog ]]; then stop_component owner kill; fi
  for ((i = ${#COMPONENTS[@]} - 1; i >= 0; i--)); do
    c=${COMPONENTS[i]}
    [[ $c == etcd ]] && continue
    signal_pid "$DIR/run/$c.pid" KILL
  done
  for c in kwok scheduler kcm apiserver etcd; do stop_component "$c" kill; done
  release_ports
  rm -rf "$DIR"
}

# watch NAME ID OWNER START: the watchdog, which `up --owner-pid` starts in the
# background.
watch() {
  local id=$2 owner=$3 start=$4 pause
  use_plane "$1"
  declare -gA REMEMBERED=()
  # Waits without starting a process each time: a read that times out.
  exec {pause}<> <(:)
  while proc_lives "$owner" "$start"; do
    still_ours "$id" || return 0
    read -r -t 0.5 -u "$pause" _ || true
  done
  lock_plane
  still_ours "$id" || return 0
  say "the owner of plane '$PLANE', process $owner, has ended: stopping the plane"
  tear_down from-watchdog
  drop_lock
}

# still_ours ID: whether the watched plane still exists. If its directory was
# removed together with the pid files, the processes of the last known pid files
# are stopped.
still_ours() {
  local now='' c pid start _
  { read -r now <"$DIR/id"; } 2>/dev/null || true
  if [[ $now == "$1" ]]; then
    for c in "${COMPONENTS[@]}"; do
      if { read -r pid start _ <"$DIR/run/$c.pid"; } 2>/dev/null; then REMEMBERED[$pid]=$start; fi
    done
    return 0
  fi
  for pid in "${!REMEMBERED[@]}"; do
    if proc_lives "$pid" "${REMEMBERED[$pid]}"; then kill -s KILL "$pid" 2>/dev/null || true; fi
  done
  return 1
}
