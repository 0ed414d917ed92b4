# shellcheck shell=bash
# The OCI image: a layout with one layer, and an archive of it.

# User and group of the program, as in kustomize/base, and its path. hack/Dockerfile has the same.
IMAGE_USER=65532:65532
IMAGE_ENTRYPOINT=/usr/bin/ganglion
# Maximum size of the archive in bytes; its layer is compressed.
MAX_IMAGE=40000000

# pack DIRECTORY: prints a tar archive of what is in it. It does not depend on times, owners, or the order of the disk.
pack() {
  (
    cd "$1"
    shopt -s dotglob
    tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -- *
  )
}

# Sets DIGEST, by which a cluster pulls the image.
image() {
  local layout=$FILES/$NAME.oci archive=$FILES/$NAME.oci.tar pair size options=()
  hack/release.d/root "$PROGRAM" "$WORK/root"
  pack "$WORK/root" >"$WORK/layer.tar"
  for pair in title=ganglion description="$DESCRIPTION" version="$VERSION" licenses="$LICENCE" revision="$REVISION" \
    created="$CREATED"; do
    options+=(--config.label "org.opencontainers.image.$pair" --manifest.annotation "org.opencontainers.image.$pair")
  done
  "$UMOCI" init --layout "$layout"
  "$UMOCI" new --image "$layout:$VERSION"
  "$UMOCI" raw add-layer --image "$layout:$VERSION" --history.created "$CREATED" \
    --history.created_by hack/release "$WORK/layer.tar"
  "$UMOCI" config --image "$layout:$VERSION" --no-history --created "$CREATED" --os linux --architecture "$ARCH" \
    --config.user "$IMAGE_USER" --config.entrypoint "$IMAGE_ENTRYPOINT" "${options[@]}"
  "$UMOCI" gc --layout "$layout"
  # umoci lets nobody else read its files.
  chmod -R u=rwX,go=rX "$layout"
  DIGEST=$(json -r '.manifests | if length == 1 then .[0].digest else error("not one image") end' "$layout/index.json")
  pack "$layout" >"$archive"
  size=$(stat -c %s "$archive")
  ((size < MAX_IMAGE)) || die "the image has $size bytes, and less than $MAX_IMAGE are allowed: remove files or packages"
  say "image: $((size / 1000000)) MB, $DIGEST"
}
