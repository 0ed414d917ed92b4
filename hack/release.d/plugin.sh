# shellcheck shell=bash
# The kubectl plugin: an archive, and a manifest for krew.

plugin() {
  local home=$WORK/plugin archive=$FILES/kubectl-$NAME.tar.gz hash
  mkdir "$home"
  install -m 755 "$PROGRAM" "$home/kubectl-ganglion"
  # kubectl runs this program to complete the commands of the plugin.
  "$PROGRAM" completion kubectl >"$home/kubectl_complete-ganglion"
  chmod 755 "$home/kubectl_complete-ganglion"
  install -m 644 LICENSE "$home/LICENSE"
  pack "$home" | gzip -n -9 >"$archive"
  hash=$(sha256sum "$archive" | cut -d ' ' -f 1)
  krew_manifest "$VERSION" "$ARCH" "$hash" "$URL/${archive##*/}" >"$FILES/ganglion.yaml"
}

# krew_manifest VERSION ARCHITECTURE SHA256 URI: prints the manifest of the plugin in a krew index.
krew_manifest() {
  cat <<TEXT
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: ganglion
spec:
  version: v$1
  homepage: ${4%/*}
  shortDescription: Move, swap and drain replicas exactly
  description: |
    Shows what WorkloadActions would do before they are applied, drains nodes
    without losing a replica, explains what actions, loops, pools, placement
    policies and nodes do and why, checks loops, and approves their proposals.
  caveats: |
    The operator must run in the cluster, except for plan and check.
    kubectl completes the commands once kubectl_complete-ganglion is in your
    PATH: kubectl ganglion completion --help
  platforms:
    - selector:
        matchLabels:
          os: linux
          arch: $2
      uri: $4
      sha256: $3
      bin: kubectl-ganglion
      files:
        - from: kubectl-ganglion
          to: .
        - from: kubectl_complete-ganglion
          to: .
        - from: LICENSE
          to: .
TEXT
}
