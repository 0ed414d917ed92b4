# shellcheck shell=bash
# Reserves ports, without races between planes of this user that start at the
# same time. Ports are below 32768, because the kernel assigns those above to
# clients. A reservation is a file named after the port; it contains the plane's
# directory and lasts as long as the plane, so that a restart finds its port
# free.

PORT_LOW=20000
PORT_HIGH=32000

# One directory for all planes, regardless of GANGLION_PLANES: ports belong to
# the host.
ports_dir() {
  local dir
  dir=/tmp/ganglion-ports-$(id -u)
  (umask 077 && mkdir -p "$dir")
  [[ -O $dir ]] || die "$dir belongs to another user"
  printf '%s\n' "$dir"
}

# Local ports in use, in any state: a lingering connection may also prevent a
# port from being bound.
ports_in_use() {
  { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true; } |
    awk '$2 ~ /:/ { n = split($2, part, ":"); print part[n] }' |
    while read -r hex; do printf '%d\n' "0x$hex"; done | sort -un
}

# reserved PORT: whether an existing plane has reserved the port.
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
  flock -w 60 "$lock" || die "the lock on ports has been held by another process for a minute"
  busy=" $(ports_in_use | tr '\n' ' ') "
  # A random first port avoids collisions with programs that start at the same
  # time.
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
