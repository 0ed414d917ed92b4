# shellcheck shell=bash
# The manifests: kustomize/base with the image of this release, and the CRDs alone.

# Prints the path of kubectl: the one that hack/controlplane has built, or one on PATH, or else one that is built now.
find_kubectl() {
  local built
  built=$(hack/controlplane bin)/kubectl
  if [[ ! -x $built ]]; then
    if command -v kubectl; then return; fi
    hack/controlplane build >/dev/null || die "kubectl is missing and cannot be built: install kubectl 1.30 or later"
  fi
  printf '%s\n' "$built"
}

manifests() {
  local overlay=$WORK/overlay
  mkdir "$overlay"
  # The admission policies come first, so that no object is written before they exist.
  cat >"$overlay/kustomization.yaml" <<TEXT
resources: ["$(realpath --relative-to="$(realpath "$overlay")" kustomize/base)"]
sortOptions: {order: fifo}
images: [{name: ganglion, newName: "$REGISTRY", digest: "$DIGEST"}]
TEXT
  { echo "# Ganglion $VERSION: kubectl apply --server-side -f install.yaml"; "$KUBECTL" kustomize "$overlay"; } \
    >"$FILES/install.yaml"
  { echo "# CRDs of Ganglion $VERSION; install.yaml contains them, too."; "$KUBECTL" kustomize crds; } >"$FILES/crds.yaml"
  check_manifests "$FILES/install.yaml"
}

# check_manifests FILE: checks what an old version of kubectl renders otherwise.
check_manifests() {
  local images first
  images=$(sed -n 's/^ *\(- \)\{0,1\}image: *//p' "$1")
  [[ $images == "$REGISTRY@$DIGEST" ]] || die "$1 has other images than $REGISTRY@$DIGEST:" $images
  first=$(sed -n 's/^kind: //p' "$1" | head -n 1)
  [[ $first == ValidatingAdmissionPolicy ]] ||
    die "$KUBECTL put a $first first, before the admission policies: use kubectl 1.30 or later"
}
