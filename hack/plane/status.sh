# shellcheck shell=bash
# The read-only verbs: status, kubeconfig, kubectl.

status() {
  local name='' dir
  while (($#)); do
    case $1 in
      --name) [[ $# -ge 2 ]] || misuse "status: --name wants a value"; name=$2; shift 2 ;;
      *) misuse "status: unknown option $1" ;;
    esac
  done
  printf '%-20s %-10s %8s %6s %s\n' PLANE COMPONENT PID PORT STATE
  if [[ -n $name ]]; then
    use_plane "$name"
    status_of
    return
  fi
  for dir in "$(planes_dir)"/*/; do
    [[ -d $dir ]] || continue
    use_plane "$(basename "$dir")"
    status_of
  done
}

status_of() {
  local c state
  for c in "${COMPONENTS[@]}" owner; do
    state=down
    if read_pid "$DIR/run/$c.pid"; then
      state=up
      proc_stat "$PID" && [[ $PROC_STATE == T ]] && state=paused
    elif [[ $c == owner ]]; then
      continue
    fi
    printf '%-20s %-10s %8s %6s %s\n' "$PLANE" "$c" "${PID:--}" "$(port_or_dash "$c")" "$state"
  done
}

port_or_dash() {
  local port=''
  if [[ -f $DIR/ports ]]; then port=$(port_of "$1"); fi
  printf '%s\n' "${port:--}"
}

# plane_option VERB ARG…: parses a leading --name; REST is the rest.
plane_option() {
  local verb=$1 name=default
  shift
  if [[ ${1:-} == --name ]]; then
    [[ $# -ge 2 ]] || misuse "$verb: --name wants a value"
    name=$2
    shift 2
  fi
  REST=("$@")
  use_plane "$name"
}

kubeconfig() {
  plane_option kubeconfig "$@"
  ((${#REST[@]} == 0)) || misuse "kubeconfig: unknown option ${REST[0]}"
  need_plane
  printf '%s\n' "$DIR/kubeconfig"
}

kubectl_verb() {
  plane_option kubectl "$@"
  need_plane
  find_bin
  exec "$BIN/kubectl" --kubeconfig "$DIR/kubeconfig" --cache-dir "$DIR/kubectl-cache" "${REST[@]}"
}

nodes_verb() {
  local count=${1:-}
  up_defaults
  [[ $count =~ ^[0-9]+$ ]] || misuse "nodes: how many? (hack/controlplane nodes COUNT …)"
  shift
  up_options --nodes "$count" "$@"
  need_plane
  find_bin
  lock_plane
  add_nodes "$NODES"
  unlock_plane
}

# Uses a separate discovery cache: a later plane on the same port is another
# server.
plane_kubectl() {
  "$BIN/kubectl" --kubeconfig "$DIR/kubeconfig" --cache-dir "$DIR/kubectl-cache" "$@"
}
