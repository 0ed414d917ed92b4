module ganglion.dev/hack/peers/external-scaler

go 1.26.0

require github.com/kedacore/keda/v2 v2.21.0

require google.golang.org/grpc v1.85.0

require google.golang.org/protobuf v1.36.12

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260904194346-d0f1323225a4 // indirect
)
