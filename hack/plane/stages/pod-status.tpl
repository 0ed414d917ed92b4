{{/* Status of a pod's containers and its readiness. $want is one of ready, */}}
{{/* warming, unready, crash, image-missing; unchanged fields are omitted. */}}
{{ $root := . }}
{{ $now := Now }}
{{ $annotations := or .metadata.annotations dict }}
{{ $was := dict }}
{{ range .status.conditions }}{{ $_ := set $was .type .status }}{{ end }}
{{ $old := dict }}
{{ range .status.containerStatuses }}{{ $_ := set $old .name . }}{{ end }}
{{ $ready := eq $want "ready" }}
{{ $delay := "" }}
{{ if eq $want "warming" }}
{{ $place := splitList "." .spec.nodeName }}
{{ $slow := eq (or (index $annotations "kwok.ganglion.dev/behavior") (first $place)) "slow-start" }}
{{ $word := index (append $place "") 1 }}
{{ if and $slow (regexMatch "^([0-9]+(ms|s|m))+$" $word) }}{{ $delay = $word }}{{ else if $slow }}{{ $delay = "5s" }}{{ end }}
{{ $delay = or (index $annotations "kwok.ganglion.dev/start-delay") $delay }}
{{ end }}
{{ if eq $want "crash" }}{{ $delay = or (index $annotations "kwok.ganglion.dev/restart-interval") "2s" }}{{ end }}
{{ $until := "" }}
{{ if $delay }}{{ $until = printf "; next %s" (dateInZone "2006-01-02T15:04:05.000000000Z" (now | mustDateModify $delay) "UTC") }}{{ end }}
{{/* Pods have a generation from Kubernetes 1.33 on. */}}
{{ with .metadata.generation }}observedGeneration: {{ . }}{{ end }}
conditions:
{{ range $type := list "PodReadyToStartContainers" "Initialized" "ContainersReady" "Ready" }}
{{ $value := "True" }}
{{ if and (has $type (list "ContainersReady" "Ready")) (not $ready) }}{{ $value = "False" }}{{ end }}
- type: {{ $type }}
  status: {{ $value | Quote }}
  {{ with $root.metadata.generation }}observedGeneration: {{ . }}{{ end }}
  {{ if ne (or (index $was $type) "") $value }}
  lastTransitionTime: {{ $now | Quote }}
  {{ end }}
  {{ if eq $value "False" }}
  reason: ContainersNotReady
  message: {{ printf "containers with unready status%s" $until | Quote }}
  {{ else }}
  reason: null
  message: null
  {{ end }}
{{ end }}
{{ with .spec.resources }}
allocatedResources: {{ or .requests dict | toJson }}
resources: {{ pick . "requests" "limits" | toJson }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
{{ $before := or (index $old .name) dict }}
{{ $restarts := atoi (toString (or $before.restartCount 0)) }}
{{ if eq $want "crash" }}{{ $restarts = add $restarts 1 }}{{ end }}
{{ $startedAt := dig "state" "running" "startedAt" $now $before }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ ternary "" .image (eq $want "image-missing") | Quote }}
  containerID: {{ ternary "" (printf "kwok://%s-%s" $root.metadata.uid .name) (eq $want "image-missing") | Quote }}
  ready: {{ $ready }}
  started: {{ has $want (list "ready" "warming" "unready") }}
  restartCount: {{ $restarts }}
  allocatedResources: {{ dig "resources" "requests" dict . | toJson }}
  resources: {{ pick (or .resources dict) "requests" "limits" | toJson }}
  {{ if eq $want "crash" }}
  state:
    waiting:
      reason: CrashLoopBackOff
      message: back-off restarting failed container
  lastState:
    terminated:
      exitCode: 1
      reason: Error
      startedAt: {{ $startedAt | Quote }}
      finishedAt: {{ $now | Quote }}
  {{ else if eq $want "image-missing" }}
  state:
    waiting:
      reason: ImagePullBackOff
      message: {{ printf "Back-off pulling image %q" .image | Quote }}
  {{ else }}
  state:
    running:
      startedAt: {{ $startedAt | Quote }}
  {{ with $before.lastState }}
  lastState: {{ . | toJson }}
  {{ end }}
  {{ end }}
{{ end }}
{{ if .spec.initContainers }}
initContainerStatuses:
{{ range .spec.initContainers }}
{{ $sidecar := eq (or .restartPolicy "") "Always" }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: {{ .image | Quote }}
  ready: true
  restartCount: 0
  allocatedResources: {{ dig "resources" "requests" dict . | toJson }}
  resources: {{ pick (or .resources dict) "requests" "limits" | toJson }}
  {{ if $sidecar }}
  started: true
  state:
    running:
      startedAt: {{ or $root.status.startTime $now | Quote }}
  {{ else }}
  started: false
  state:
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ or $root.status.startTime $now | Quote }}
      finishedAt: {{ or $root.status.startTime $now | Quote }}
  {{ end }}
{{ end }}
{{ end }}
{{ if not .status.podIP }}
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
hostIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
{{ with PodIPsWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") }}
podIP: {{ index . 0 | Quote }}
podIPs:
{{ range . }}
- ip: {{ . | Quote }}
{{ end }}
{{ end }}
{{ end }}
phase: {{ ternary "Pending" "Running" (eq $want "image-missing") }}
startTime: {{ or .status.startTime $now | Quote }}
