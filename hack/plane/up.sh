# shellcheck shell=bash
# shellcheck disable=SC2034 # other files read the variables set by the options
# up: starts a plane and waits until it is ready; for a running plane, prints
# its kubeconfig.

up_defaults() {
  NODES=0 ZONES=3 NODE_CPU=32 NODE_MEMORY=256Gi NODE_PODS=110
  OWNER='' SCHEDULER_CONFIG='' ARGS=() GARBAGE=400 WANTED=${GANGLION_KUBERNETES:-}
}

whole() { [[ $2 =~ ^[0-9]+$ ]] || misuse "$1 wants a whole number, not '$2'"; }

up_options() {
  local name=default
  up_defaults
  while (($#)); do
    [[ $# -ge 2 ]] || misuse "up: $1 wants a value, or is not known"
    case $1 in
      --name) name=$2 ;;
      --nodes) whole "$@"; NODES=$2 ;;
      --zones) whole "$@"; ZONES=$2 ;;
      --node-cpu) NODE_CPU=$2 ;;
      --node-memory) NODE_MEMORY=$2 ;;
      --node-pods) whole "$@"; NODE_PODS=$2 ;;
      --owner-pid) whole "$@"; OWNER=$2 ;;
      --scheduler-config) SCHEDULER_CONFIG=$(absolute "$2") ;;
      --arg) ARGS+=("$2") ;;
      --kubernetes) WANTED=$2 ;;
      --gogc) whole "$@"; GARBAGE=$2 ;;
      *) misuse "up: unknown option $1" ;;
    esac
    shift 2
  done
  ((ZONES > 0)) || misuse "--zones wants at least 1"
  ((GARBAGE > 0)) || misuse "--gogc wants at least 1"
  [[ -z $SCHEDULER_CONFIG || -f $SCHEDULER_CONFIG ]] || misuse "no file $SCHEDULER_CONFIG"
  use_plane "$name"
  local arg
  for arg in "${ARGS[@]}"; do
    known_component "${arg%%=*}"
    [[ $arg == *=--* ]] || misuse "--arg wants COMPONENT=--FLAG=VALUE, not '$arg'"
  done
}

up() {
  local began=$SECONDS
  up_options "$@"
  # Checks the tools before a build that takes minutes.
  need_base_tools
  if [[ -n $OWNER ]]; then
    proc_stat "$OWNER" || die "the owner process $OWNER does not exist"
    OWNER_START=$PROC_START
  fi
  choose_kubernetes
  build
  lock_plane
  if plane_is_there; then
    up_again
  else
    # Removes the remains of a plane whose start failed or was killed.
    tear_down
    trap 'up_failed $?' EXIT
    trap 'exit 130' INT TERM HUP
    bring_up
    trap - EXIT INT TERM HUP
    say "plane '$PLANE' is up after $((SECONDS - began))s"
  fi
  unlock_plane
  printf '%s\n' "$DIR/kubeconfig"
}

# Sets KUBERNETES: the version of a running plane, otherwise the wanted one.
choose_kubernetes() {
  KUBERNETES=${WANTED:-$DEFAULT_KUBERNETES}
  if plane_is_there; then
    need_plane
    [[ -z $WANTED || $WANTED == "$KUBERNETES" ]] || die "plane '$PLANE' runs Kubernetes $KUBERNETES, not $WANTED"
  fi
}

up_failed() {
  say "plane '$PLANE' did not start; removing its remains"
  tear_down
  drop_lock
  exit $(($1 == 0 ? 1 : $1))
}

# Whether the plane was started since boot. Without fsync, the data of an
# earlier boot cannot be trusted.
plane_is_there() {
  local since=''
  [[ -f $DIR/ready ]] || return 1
  read -r since <"$DIR/ready" || true
  [[ $since == "$BOOT" ]]
}

# Starts the components that are not running; leaves the others alone.
up_again() {
  local c
  for c in "${COMPONENTS[@]}"; do
    read_pid "$DIR/run/$c.pid" && continue
    say "$c of plane '$PLANE' is not running; starting it"
    TARGET=$c
    start_again
  done
  if ((NODES > 0)); then add_nodes "$NODES"; fi
  say "plane '$PLANE' is up already"
}

bring_up() {
  (umask 077 && mkdir -p "$DIR"/{run,logs,pki,etcd})
  # etcd requires a directory that only its owner can read.
  chmod 700 "$DIR" "$DIR/etcd"
  printf '%s\n' "${ARGS[@]}" >"$DIR/args"
  printf '%s\n' "$GARBAGE" >"$DIR/gogc"
  printf '%s\n' "$KUBERNETES" >"$DIR/kubernetes"
  # The id prevents the watchdog of this plane from stopping a later plane of
  # the same name.
  od -An -N8 -tx8 /dev/urandom | tr -d ' ' >"$DIR/id"
  if [[ -n $OWNER ]]; then
    launch owner bash "$PLANE_SRC/../controlplane" _watch "$PLANE" "$(<"$DIR/id")" "$OWNER" "$OWNER_START"
  fi
  take_ports etcd etcd-peer apiserver kcm scheduler kwok
  start_component etcd
  make_certificates
  write_kubeconfigs
  write_scheduler_config "$SCHEDULER_CONFIG"
  # A lease is renewed four times in its duration. Frequent renewals bring a
  # resumed node back fast. With many nodes they are less frequent, because each
  # renewal costs 2 ms, but well within the 50 s after which a node counts as
  # lost.
  printf '%s\n' $((NODES < 416 ? 16 + NODES / 4 : 120)) >"$DIR/lease"
  write_kwok_config
  await_healthy etcd || exit 1
  start_component apiserver
  await_healthy apiserver || exit 1
  start_component kcm
  start_component scheduler
  start_component kwok
  await_rest || exit 1
  if ((NODES > 0)); then add_nodes "$NODES"; fi
  printf '%s\n' "$BOOT" >"$DIR/ready"
}

await_rest() {
  local c
  for c in kcm scheduler kwok; do await_healthy "$c" || return 1; done
  await_default_account || return 1
}

# Without the default service account, pods in the default namespace are
# rejected.
await_default_account() {
  local deadline=$((SECONDS + 30))
  until ask apiserver /api/v1/namespaces/default/serviceaccounts/default >/dev/null 2>&1; do
    ((SECONDS < deadline)) || { fail_component kcm "made no default service account"; return 1; }
    sleep 0.05
  done
}
