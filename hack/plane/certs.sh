# shellcheck shell=bash
# Certificate authority and credentials of the plane, new for each plane. Uses
# elliptic curve keys, because creating RSA keys would take longer than the rest
# of the start.

# ssl ARGUMENT…: runs openssl; on failure, exits with the end of its log.
ssl() {
  openssl "$@" 2>>"$DIR/logs/openssl.log" ||
    die "openssl $1 failed: $(tail -n 3 "$DIR/logs/openssl.log")"
}

# issue NAME SUBJECT AUTHORITY EXTENSIONS
issue() {
  local pki=$DIR/pki serial
  serial=0x$(ssl rand -hex 8)
  ssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -config "$pki/openssl.cnf" -subj "$2" -keyout "$pki/$1.key" -out "$pki/$1.csr"
  ssl x509 -req -sha256 -days 3650 -in "$pki/$1.csr" -set_serial "$serial" \
    -CA "$pki/$3.crt" -CAkey "$pki/$3.key" \
    -extfile "$pki/openssl.cnf" -extensions "$4" -out "$pki/$1.crt"
}

authority() {
  ssl req -x509 -sha256 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -days 3650 -config "$DIR/pki/openssl.cnf" -extensions authority -subj "/CN=$2" \
    -keyout "$DIR/pki/$1.key" -out "$DIR/pki/$1.crt"
}

# Uses a separate configuration, because the machine's own may add unwanted
# settings.
openssl_config() {
  cat <<EOF
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,digitalSignature,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:10.96.0.1
[client]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = clientAuth
EOF
}

make_certificates() {
  local pki=$DIR/pki
  mkdir -p "$pki"
  openssl_config >"$pki/openssl.cnf"
  authority ca "ganglion plane"
  # Aggregated APIs trust every certificate of this second authority. It must
  # differ from the first, or every client could impersonate any user.
  authority front-proxy-ca "ganglion plane front proxy"
  issue server /CN=kubernetes ca server
  issue front-proxy /CN=front-proxy front-proxy-ca client
  issue admin /O=system:masters/CN=plane-admin ca client
  issue kwok /O=system:masters/CN=kwok ca client
  issue kcm /CN=system:kube-controller-manager ca client
  issue scheduler /CN=system:kube-scheduler ca client
  ssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$pki/service-account.key"
  ssl pkey -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"
  rm -f "$pki"/*.csr
}

# Embeds all data, so that the file may be copied elsewhere.
write_kubeconfig() {
  local name=$1 file=$2 pki=$DIR/pki
  cat >"$file" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: $PLANE
  cluster:
    server: https://127.0.0.1:$(port_of apiserver)
    certificate-authority-data: $(base64 -w0 <"$pki/ca.crt")
users:
- name: $name
  user:
    client-certificate-data: $(base64 -w0 <"$pki/$name.crt")
    client-key-data: $(base64 -w0 <"$pki/$name.key")
contexts:
- name: $PLANE
  context: {cluster: $PLANE, user: $name}
current-context: $PLANE
EOF
}

write_kubeconfigs() {
  local name
  write_kubeconfig admin "$DIR/kubeconfig"
  for name in kcm scheduler kwok; do write_kubeconfig "$name" "$DIR/pki/$name.kubeconfig"; done
}
