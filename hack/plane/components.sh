# shellcheck shell=bash
# Start, health check and stop of each component. Data, ports and command lines are stored in the plane's directory, so
# a restart uses the same ones.

extra_args() {
  [[ -f $DIR/args ]] || return 0
  sed -n "s/^$1=//p" "$DIR/args"
}

# start_component NAME
start_component() {
  local args=()
  mapfile -t args < <("args_$1"; extra_args "$1")
  launch "$1" "$(program_of "$1")" "${args[@]}"
}

program_of() {
  case $1 in
    etcd | kwok) printf '%s\n' "$BIN/$1" ;;
    apiserver) printf '%s\n' "$BIN/kube-apiserver" ;;
    kcm) printf '%s\n' "$BIN/kube-controller-manager" ;;
    scheduler) printf '%s\n' "$BIN/kube-scheduler" ;;
  esac
}

# Disables fsync, which would take most of etcd's time: a plane's data need not survive a crash of the machine.
args_etcd() {
  local client peer
  client=http://127.0.0.1:$(port_of etcd)
  peer=http://127.0.0.1:$(port_of etcd-peer)
  cat <<EOF
--name=plane
--data-dir=$DIR/etcd
--unsafe-no-fsync
--listen-client-urls=$client
--advertise-client-urls=$client
--listen-peer-urls=$peer
--initial-advertise-peer-urls=$peer
--initial-cluster=plane=$peer
--quota-backend-bytes=4294967296
--log-level=warn
EOF
}

# Admission plugins are the defaults. Priority and fairness stays on, with twice the default total, so that tests are
# not throttled. The endpoint reconciler is off because it rejects loopback addresses.
args_apiserver() {
  local pki=$DIR/pki
  cat <<EOF
--etcd-servers=http://127.0.0.1:$(port_of etcd)
--bind-address=127.0.0.1
--advertise-address=127.0.0.1
--secure-port=$(port_of apiserver)
--endpoint-reconciler-type=none
--service-cluster-ip-range=10.96.0.0/12
--authorization-mode=RBAC
--allow-privileged=true
--client-ca-file=$pki/ca.crt
--tls-cert-file=$pki/server.crt
--tls-private-key-file=$pki/server.key
--service-account-issuer=https://kubernetes.default.svc
--service-account-key-file=$pki/service-account.pub
--service-account-signing-key-file=$pki/service-account.key
--requestheader-client-ca-file=$pki/front-proxy-ca.crt
--requestheader-allowed-names=front-proxy
--requestheader-username-headers=X-Remote-User
--requestheader-group-headers=X-Remote-Group
--requestheader-extra-headers-prefix=X-Remote-Extra-
--proxy-client-cert-file=$pki/front-proxy.crt
--proxy-client-key-file=$pki/front-proxy.key
--kubelet-client-certificate=$pki/admin.crt
--kubelet-client-key=$pki/admin.key
--kubelet-preferred-address-types=InternalDNS
--max-requests-inflight=800
--max-mutating-requests-inflight=400
EOF
}

# Disables the controllers of Endpoints: EndpointSlices already list a Service's pods, and Endpoints would double the
# writes.
args_kcm() {
  local pki=$DIR/pki
  cat <<EOF
--kubeconfig=$pki/kcm.kubeconfig
--authentication-kubeconfig=$pki/kcm.kubeconfig
--authorization-kubeconfig=$pki/kcm.kubeconfig
--bind-address=127.0.0.1
--secure-port=$(port_of kcm)
--tls-cert-file=$pki/server.crt
--tls-private-key-file=$pki/server.key
--leader-elect=false
--use-service-account-credentials
--service-account-private-key-file=$pki/service-account.key
--root-ca-file=$pki/ca.crt
--cluster-signing-cert-file=$pki/ca.crt
--cluster-signing-key-file=$pki/ca.key
--kube-api-qps=1000
--kube-api-burst=2000
--controllers=*,-endpoints-controller,-endpointslice-mirroring-controller
--endpointslice-updates-batch-period=200ms
EOF
}

args_scheduler() {
  local pki=$DIR/pki
  cat <<EOF
--config=$DIR/scheduler.yaml
--authentication-kubeconfig=$pki/scheduler.kubeconfig
--authorization-kubeconfig=$pki/scheduler.kubeconfig
--bind-address=127.0.0.1
--secure-port=$(port_of scheduler)
--tls-cert-file=$pki/server.crt
--tls-private-key-file=$pki/server.key
EOF
}

args_kwok() {
  cat <<EOF
--kubeconfig=$DIR/pki/kwok.kubeconfig
--config=$DIR/kwok.yaml
--server-address=127.0.0.1:$(port_of kwok)
--tls-cert-file=$DIR/pki/server.crt
--tls-private-key-file=$DIR/pki/server.key
EOF
}

# write_scheduler_config [FILE]: writes FILE, or the default configuration, plus the settings that belong to the plane:
# credentials, rate limit, no leader election.
write_scheduler_config() {
  local file=${1:-}
  {
    if [[ -n $file ]]; then
      if grep -qE '^(clientConnection|leaderElection):' "$file"; then
        die "$file: the plane sets clientConnection and leaderElection; remove them"
      fi
      cat "$file"
      printf '\n'
    else
      printf '%s\n' "apiVersion: kubescheduler.config.k8s.io/v1" "kind: KubeSchedulerConfiguration"
    fi
    cat <<EOF
clientConnection:
  kubeconfig: $DIR/pki/scheduler.kubeconfig
  qps: 1000
  burst: 2000
leaderElection:
  leaderElect: false
EOF
  } >"$DIR/scheduler.yaml"
}

# Configuration of the simulated kubelets: reported usage, and our stages. A line with `{{/* include NAME */}}` is
# replaced by that shared part, at the same indentation. Each start uses another pod network: after a restart, kwok does
# not remember which addresses are in use, and would assign them twice.
write_kwok_config() {
  local starts=0 stage
  [[ -f $DIR/run/kwok.starts ]] && read -r starts <"$DIR/run/kwok.starts"
  printf '%s\n' $((starts + 1)) >"$DIR/run/kwok.starts"
  {
    cat <<EOF
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  cidr: 10.$((128 + starts % 128)).0.0/16
  manageNodesWithAnnotationSelector: kwok.x-k8s.io/node=fake
  nodeLeaseDurationSeconds: $(<"$DIR/lease")
  nodeLeaseParallelism: 8
  nodePlayStageParallelism: 8
  podPlayStageParallelism: 16
  podsOnNodeSyncParallelism: 4
EOF
    for stage in "$PLANE_SRC"/stages/*.yaml; do
      printf -- '---\n'
      splice "$stage" | sed "s/@KUBE_VERSION@/$KUBE_VERSION/"
    done
    printf -- '---\n'
    cat "$PLANE_SRC/usage.yaml"
  } >"$DIR/kwok.yaml"
}

splice() {
  awk -v dir="$PLANE_SRC/stages" '
    match($0, /[{][{]\/[*] include [a-z-]+ [*]\/[}][}]/) {
      indent = substr($0, 1, RSTART - 1)
      split(substr($0, RSTART, RLENGTH), word, " ")
      file = dir "/" word[3] ".tpl"
      while ((got = (getline line < file)) > 0) if (line != "") print indent line
      if (got < 0) { print "no " file > "/dev/stderr"; exit 1 }
      close(file)
      next
    }
    { print }' "$1"
}

# ask COMPONENT PATH [CURL FLAGS]: sends a request to a component as the admin.
ask() {
  local component=$1 path=$2
  shift 2
  case $component in
    etcd | kwok) set -- "$@" "http://127.0.0.1:$(port_of "$component")$path" ;;
    *)
      set -- "$@" --cacert "$DIR/pki/ca.crt" --cert "$DIR/pki/admin.crt" \
        --key "$DIR/pki/admin.key" "https://127.0.0.1:$(port_of "$component")$path"
      ;;
  esac
  curl --silent --fail --noproxy '*' --max-time 5 "$@"
}

healthy() {
  local of_scheduler=/readyz
  # Kubernetes 1.31 brought this path.
  if [[ $KUBERNETES == 1.30.* ]]; then of_scheduler=/healthz; fi
  case $1 in
    etcd) ask etcd /readyz ;;
    apiserver) ask apiserver /readyz ;;
    kcm) ask kcm /healthz ;;
    scheduler) ask scheduler "$of_scheduler" ;;
    kwok) ask kwok /healthz ;;
  esac >/dev/null 2>&1
}

# await_healthy COMPONENT: false if it ended or does not answer in time.
await_healthy() {
  local deadline=$((SECONDS + 120))
  while ! healthy "$1"; do
    read_pid "$DIR/run/$1.pid" || { fail_component "$1" "has ended"; return 1; }
    ((SECONDS < deadline)) || { fail_component "$1" "does not answer"; return 1; }
    sleep 0.05
  done
}

fail_component() {
  say "$1 of plane '$PLANE' $2; the end of its log:"
  tail -n 30 "$DIR/logs/$1.log" 2>/dev/null | cut -c1-400 >&2 || true
}

# stop_component NAME [kill]: sends SIGTERM, then SIGKILL. Sends SIGCONT as well, because a paused process would not
# react to SIGTERM.
stop_component() {
  local file=$DIR/run/$1.pid
  read_pid "$file" || { rm -f "$file"; return 0; }
  if [[ ${2:-} != kill ]]; then
    signal_pid "$file" TERM
    signal_pid "$file" CONT
    await_end "$file" 20 || true
  fi
  signal_pid "$file" KILL
  await_end "$file" 100 || die "$1 of plane '$PLANE' did not stop"
  rm -f "$file"
}
