// external-scaler is an external scaler of KEDA, made with the package that KEDA generates from its protocol. It
// answers what a file says, which is read again for each call. The metadata of a request select the entry of the file,
// by the key `of`, and the way in which a method misbehaves, by its name: hang, slow, garbage, large, end, break,
// flood, or the name of a gRPC status. It logs each call as a line of JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	pb "github.com/kedacore/keda/v2/pkg/scalers/externalscaler"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// slowness is the delay of a slow answer.
	slowness = 700 * time.Millisecond
	// largeBytes is the size of a large answer: above the limit of a loop's sample.
	largeBytes = 128 << 10
	// floodStep is the number of messages of a flood after which it is logged.
	floodStep = 1_000
	// checkPause is the time between two looks at the file by a stream.
	checkPause = 20 * time.Millisecond
)

// answers is an entry of the file. The messages are in the JSON form of protocol buffers.
type answers struct {
	Active  bool            `json:"active"`
	Spec    json.RawMessage `json:"spec"`
	Metrics json.RawMessage `json:"metrics"`
}

// call is a line of the log.
type call struct {
	Method    string            `json:"method"`
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Metadata  map[string]string `json:"metadata"`
	Metric    string            `json:"metric"`
	Peer      string            `json:"peer"`
}

type scaler struct {
	pb.UnimplementedExternalScalerServer
	file  string
	token string
	log   sync.Mutex
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "external-scaler:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on; the first line of the output is the address")
	file := flag.String("answers", "", "file with the answers")
	token := flag.String("token", "", "bearer token that requests must have")
	certificate := flag.String("certificate", "", "certificate and key of the server, in PEM; without it, there is no TLS")
	clients := flag.String("clients", "", "authorities of the certificates that clients must have, in PEM")
	flag.Parse()
	options, err := security(*certificate, *clients)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := grpc.NewServer(options...)
	pb.RegisterExternalScalerServer(server, &scaler{file: *file, token: *token})
	return server.Serve(listener)
}

func security(certificate, clients string) ([]grpc.ServerOption, error) {
	if certificate == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clients != "" {
		pem, err := os.ReadFile(clients)
		if err != nil {
			return nil, err
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("no certificate in " + clients)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(config))}, nil
}

func (s *scaler) IsActive(ctx context.Context, ref *pb.ScaledObjectRef) (*pb.IsActiveResponse, error) {
	reply := &pb.IsActiveResponse{}
	return reply, s.answer(ctx, "IsActive", ref, "", reply, func(found answers) error {
		reply.Result = found.Active
		return nil
	})
}

func (s *scaler) GetMetricSpec(ctx context.Context, ref *pb.ScaledObjectRef) (*pb.GetMetricSpecResponse, error) {
	reply := &pb.GetMetricSpecResponse{}
	return reply, s.answer(ctx, "GetMetricSpec", ref, "", reply, func(found answers) error {
		return protojson.Unmarshal(found.Spec, reply)
	})
}

func (s *scaler) GetMetrics(ctx context.Context, request *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	reply := &pb.GetMetricsResponse{}
	ref := request.GetScaledObjectRef()
	return reply, s.answer(ctx, "GetMetrics", ref, request.GetMetricName(), reply, func(found answers) error {
		return protojson.Unmarshal(found.Metrics, reply)
	})
}

// StreamIsActive sends the activity, and sends it again whenever it changes.
func (s *scaler) StreamIsActive(ref *pb.ScaledObjectRef, stream grpc.ServerStreamingServer[pb.IsActiveResponse]) error {
	ctx := stream.Context()
	reply := &pb.IsActiveResponse{}
	err := s.answer(ctx, "StreamIsActive", ref, "", reply, func(found answers) error {
		reply.Result = found.Active
		return nil
	})
	mode := ref.GetScalerMetadata()["StreamIsActive"]
	if err != nil || mode == "end" {
		return err
	}
	for count := 1; mode == "flood"; count++ {
		if err := stream.Send(&pb.IsActiveResponse{}); err != nil {
			return err
		}
		if count%floodStep == 0 {
			s.record(ctx, "flood", ref, "")
		}
	}
	for {
		if err := stream.Send(reply); err != nil {
			return err
		}
		if mode == "break" {
			return status.Error(codes.Unavailable, "the stream breaks as it is asked to")
		}
		for last := reply.Result; reply.Result == last; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(checkPause):
			}
			found, err := s.read(ref)
			if err != nil {
				return err
			}
			reply = &pb.IsActiveResponse{Result: found.Active}
		}
	}
}

// answer logs the call, and fills the reply as the metadata ask for.
func (s *scaler) answer(
	ctx context.Context,
	method string,
	ref *pb.ScaledObjectRef,
	metric string,
	reply proto.Message,
	fill func(answers) error,
) error {
	s.record(ctx, method, ref, metric)
	if s.token != "" {
		sent, _ := metadata.FromIncomingContext(ctx)
		if values := sent.Get("authorization"); len(values) != 1 || values[0] != "Bearer "+s.token {
			return status.Error(codes.Unauthenticated, "another token is needed")
		}
	}
	switch mode := ref.GetScalerMetadata()[method]; mode {
	case "", "end", "break", "flood":
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "slow":
		time.Sleep(slowness)
	case "garbage":
		// A field that is longer than the message.
		reply.ProtoReflect().SetUnknown([]byte{0x0a, 0xff, 0xff, 0x03, 'x'})
		return nil
	case "large":
		field := protowire.AppendTag(nil, 100, protowire.BytesType)
		reply.ProtoReflect().SetUnknown(protowire.AppendBytes(field, make([]byte, largeBytes)))
		return nil
	default:
		var code codes.Code
		if err := code.UnmarshalJSON([]byte(`"` + mode + `"`)); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		return status.Error(code, "as it is asked to")
	}
	found, err := s.read(ref)
	if err != nil {
		return err
	}
	return fill(found)
}

// read returns the entry of the file that the metadata select.
func (s *scaler) read(ref *pb.ScaledObjectRef) (answers, error) {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return answers{}, err
	}
	all := map[string]answers{}
	if err := json.Unmarshal(text, &all); err != nil {
		return answers{}, err
	}
	of := ref.GetScalerMetadata()["of"]
	found, ok := all[of]
	if !ok {
		return answers{}, status.Errorf(codes.NotFound, "there is no entry %q", of)
	}
	return found, nil
}

func (s *scaler) record(ctx context.Context, method string, ref *pb.ScaledObjectRef, metric string) {
	line := call{Method: method, Metadata: ref.GetScalerMetadata(), Metric: metric}
	line.Name, line.Namespace = ref.GetName(), ref.GetNamespace()
	if from, ok := peer.FromContext(ctx); ok {
		line.Peer = from.Addr.String()
	}
	s.log.Lock()
	defer s.log.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "external-scaler:", err)
	}
}
