# shellcheck shell=bash
# Ports: taken race-free among all planes of this user, also those that start
# at the same instant, and below 32768, as the kernel hands out the ones above.
# A reservation is a file named by the port that holds the plane's directory; it
# lasts as long as the plane does, so that a restart finds its port free.

PORT_LOW=20000
PORT_HIGH=32000

# One place for all planes, whatever GANGLION_PLANES says: ports are the host's.
ports_dir() {
  local dir
  dir=/tmp/ganglion-ports-$(id -u)
  (umask 077 && mkdir -p "$dir")
  [[ -O $dir ]] || die "$dir belongs to another user"
  printf '%s\n' "$dir"
}

# Local ports in use, in whatever state. A listener is what matters, but a
# connection that lingers may keep a port from being bound as well.
ports_in_use() {
  { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true; } |
    awk '$2 ~ /:/ { n = split($2, part, ":"); print part[n] }' |
    while read -r hex; do printf '%d\n' "0x$hex"; done | sort -un
}

# reserved PORT: by a plane that is still there, and has that port.
reserved() {
  local owner=''
  [[ -f $PORTS/$1 ]] || return 1
  read -r owner <"$PORTS/$1" || true
  [[ -n $owner ]] && grep -qx "[a-z-]*=$1" "$owner/ports" 2>/dev/null && return 0
  rm -f "$PORTS/$1"
  return 1
}

# take_ports NAME…: writes NAME=PORT lines to $DIR/ports.
take_ports() {
  local lock port start span=$((PORT_HIGH - PORT_LOW)) i busy name
  PORTS=$(ports_dir)
  exec {lock}>"$PORTS/lock"
  flock -w 60 "$lock" || die "the lock on ports is held for a minute"
  busy=" $(ports_in_use | tr '\n' ' ') "
  # A random start keeps clear of what other programs are about to take.
  start=$((RANDOM % span)) i=0
  for name; do
    while :; do
      ((i < span)) || die "no free port between $PORT_LOW and $PORT_HIGH"
      port=$((PORT_LOW + (start + i) % span)) i=$((i + 1))
      [[ $busy == *" $port "* ]] || reserved "$port" || break
    done
    printf '%s\n' "$DIR" >"$PORTS/$port"
    printf '%s=%s\n' "$name" "$port"
  done >"$DIR/ports"
  exec {lock}>&-
}

release_ports() {
  local name port owner
  PORTS=$(ports_dir)
  [[ -f $DIR/ports ]] || return 0
  while IFS='=' read -r name port; do
    owner=''
    { read -r owner <"$PORTS/$port"; } 2>/dev/null || true
    if [[ $owner == "$DIR" ]]; then rm -f "$PORTS/$port"; fi
  done <"$DIR/ports"
}

# port_of NAME
port_of() { sed -n "s/^$1=//p" "$DIR/ports"; }
