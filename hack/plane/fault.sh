# shellcheck shell=bash
# The fault verbs: they pause, stop or restart one component, or pause one node,
# of a running plane.

# fault_options OPTION…: sets TARGET, HARD, SCHEDULER_CONFIG, and the plane.
fault_options() {
  local verb=$1 name=default
  shift
  TARGET='' HARD='' SCHEDULER_CONFIG=''
  while (($#)); do
    case $1 in
      --name | --scheduler-config)
        [[ $# -ge 2 ]] || misuse "$verb: $1 wants a value"
        if [[ $1 == --name ]]; then name=$2; else SCHEDULER_CONFIG=$(absolute "$2"); fi
        shift
        ;;
      --kill) HARD="kill" ;;
      -*) misuse "$verb: unknown option $1" ;;
      *) [[ -z $TARGET ]] || misuse "$verb: one component at a time"; TARGET=$1 ;;
    esac
    shift
  done
  [[ -n $TARGET ]] || misuse "$verb: which component? (${COMPONENTS[*]})"
  use_plane "$name"
  if [[ $TARGET != node/* ]]; then known_component "$TARGET"; fi
  if [[ -n $SCHEDULER_CONFIG ]]; then
    [[ $TARGET == scheduler && -f $SCHEDULER_CONFIG ]] ||
      misuse "--scheduler-config FILE goes with: start scheduler, restart scheduler"
  fi
  need_plane
  find_bin
}

fault() {
  local verb=$1
  fault_options "$@"
  if [[ $TARGET == node/* ]]; then
    case $verb in
      pause) pause_node "${TARGET#node/}" ;;
      resume) resume_node "${TARGET#node/}" ;;
      *) misuse "a node can be paused and resumed" ;;
    esac
    return
  fi
  lock_plane
  case $verb in
    pause) need_running && signal_pid "$DIR/run/$TARGET.pid" STOP ;;
    resume) need_running && signal_pid "$DIR/run/$TARGET.pid" CONT ;;
    stop) stop_component "$TARGET" "$HARD" ;;
    start) start_again ;;
    restart)
      stop_component "$TARGET" "$HARD"
      start_again
      ;;
  esac
  unlock_plane
}

need_running() {
  read_pid "$DIR/run/$TARGET.pid" || die "$TARGET of plane '$PLANE' is not running"
}

# Returns when the component is healthy again, as far as possible: an API server
# without etcd is not.
start_again() {
  if read_pid "$DIR/run/$TARGET.pid"; then
    say "$TARGET of plane '$PLANE' is running already"
    return 0
  fi
  case $TARGET in
    kwok)
      write_kwok_config
      free_leases
      ;;
    scheduler)
      if [[ -n $SCHEDULER_CONFIG ]]; then write_scheduler_config "$SCHEDULER_CONFIG"; fi
      ;;
  esac
  start_component "$TARGET"
  await_healthy "$TARGET" || exit 1
}
