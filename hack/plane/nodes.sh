# shellcheck shell=bash
# nodes: creates simulated nodes, as a kubelet would register itself.

# node_manifests FROM TO: prints node-FROM … node-(TO-1), except those in HAVE.
# Each node has its own address; InternalDNS and the port lead to kwok, which
# answers for every kubelet.
node_manifests() {
  awk -v from="$1" -v to="$2" -v zones="$ZONES" -v cpu="$NODE_CPU" -v memory="$NODE_MEMORY" \
    -v pods="$NODE_PODS" -v version="$KUBE_VERSION" -v port="$(port_of kwok)" -v have="$HAVE" '
    function zone(i,   n) { n = i % zones; return n < 26 ? sprintf("%c", 97 + n) : sprintf("z%d", n) }
    function size(name) { return "  " name ": {cpu: \"" cpu "\", memory: \"" memory "\", ephemeral-storage: 500Gi, pods: \"" pods "\"}\n" }
    BEGIN {
      n = split(have, names, " ")
      for (i = 1; i <= n; i++) there[names[i]] = 1
      for (i = from; i < to; i++) {
        name = "node-" i
        if (name in there) continue
        printf "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: %s\n", name
        printf "  annotations:\n    kwok.x-k8s.io/node: fake\n"
        printf "    metrics.k8s.io/resource-metrics-path: /metrics/nodes/%s/metrics/resource\n", name
        printf "  labels:\n    kubernetes.io/hostname: %s\n    kubernetes.io/os: linux\n    kubernetes.io/arch: amd64\n", name
        printf "    topology.kubernetes.io/region: region-a\n    topology.kubernetes.io/zone: zone-%s\n", zone(i)
        printf "status:\n%s%s", size("capacity"), size("allocatable")
        printf "  addresses:\n  - {type: InternalIP, address: 10.%d.%d.%d}\n", 16 + int(i / 62500), int(i / 250) % 250, i % 250 + 1
        printf "  - {type: Hostname, address: %s}\n  - {type: InternalDNS, address: localhost}\n", name
        printf "  daemonEndpoints: {kubeletEndpoint: {Port: %d}}\n", port
        printf "  nodeInfo: {kubeletVersion: %s, kubeProxyVersion: \"\", operatingSystem: linux, architecture: amd64, ", version
        printf "containerRuntimeVersion: \"containerd://2.1.0\", kernelVersion: \"6.12.0\", osImage: \"Debian GNU/Linux 13 (trixie)\", "
        printf "machineID: \"%032d\", systemUUID: \"%08d-0000-4000-8000-000000000000\", bootID: \"\"}\n", i + 1, i + 1
      }
    }'
}

# ready_nodes: number of nodes that are Ready and without a taint.
ready_nodes() {
  plane_kubectl get nodes -o \
    'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{.spec.taints}{"\n"}{end}' |
    grep -cx True || true
}

# add_nodes COUNT: creates the missing ones of node-0 … node-(COUNT-1), and
# waits for them. Uses several writers, because a single one would wait for each
# response.
add_nodes() {
  local count=$1 from step jobs=() job failed=0 file before
  HAVE=$(plane_kubectl get nodes -o 'jsonpath={.items[*].metadata.name}')
  before=$(ready_nodes)
  step=$((count / 4 + 25))
  for ((from = 0; from < count; from += step)); do
    file=$DIR/run/nodes-$from.yaml
    node_manifests "$from" $((from + step < count ? from + step : count)) >"$file"
    [[ -s $file ]] || continue
    plane_kubectl create -f "$file" >>"$DIR/logs/nodes.log" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
  ((failed == 0)) || die "the nodes could not be created"
  await_nodes $((before + $(cat "$DIR"/run/nodes-*.yaml | grep -c '^kind: Node$')))
  rm -f "$DIR"/run/nodes-*.yaml
}

await_nodes() {
  local deadline=$((SECONDS + 60 + $1 / 10)) ready
  while :; do
    ready=$(ready_nodes)
    ((ready >= $1)) && return 0
    ((SECONDS < deadline)) || die "only $ready of $1 nodes became Ready"
    # Listing many nodes is expensive, so the pause grows with their number.
    sleep "$(($1 / 1000)).$((1 + $1 % 1000 / 200))"
  done
}

# Simulates a node with a dead kubelet. Another holder takes its lease and does
# not renew it. kwok then ignores the node and its pods, and the controller
# manager marks the node as unreachable. The condition is written at once to
# skip the grace period.
pause_node() {
  local now
  now=$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)
  plane_kubectl -n kube-node-lease patch lease "$1" --type merge -p '{"metadata":{"labels":{"kwok.ganglion.dev/paused":"true"}},"spec":{"holderIdentity":"nobody","leaseDurationSeconds":1000000,"renewTime":"'"$now"'"}}' >&2
  # Waits until kwok has seen the lease; it would otherwise set the node to
  # Ready again.
  sleep 0.3
  plane_kubectl patch node "$1" --subresource status -p '{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"Kubelet stopped posting node status.","lastTransitionTime":"'"${now%.*}Z"'"}]}}' >&2
}

resume_node() {
  plane_kubectl -n kube-node-lease delete lease "$1" >&2
}

# Deletes the leases of the previous kwok; a new kwok would wait until they
# expire.
free_leases() {
  ask apiserver '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?labelSelector=kwok.ganglion.dev/paused!=true' \
    -X DELETE >/dev/null 2>&1 || true
}
