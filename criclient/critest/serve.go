package critest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// messageLimit is containerd's limit for messages in both directions.
const messageLimit = 16 << 20

// Server is a [Runtime] behind gRPC, where crictl and a kubelet can reach it.
type Server struct {
	grpc *grpc.Server
	addr net.Addr
	wg   sync.WaitGroup
	err  error // of Serve; read after wg
}

// Serve answers the CRI for r on a unix socket at path until [Server.Close]. A
// socket that an earlier process left there is replaced; anything else is not.
func Serve(r *Runtime, path string) (*Server, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("serve critest on %s: there is a file that is no socket; choose another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("serve critest on %s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("serve critest (a socket path may have about 100 bytes): %w", err)
	}
	return ServeOn(r, l), nil
}

// ServeOn is [Serve] on a listener of the caller's, for example one of bufconn.
// Close closes it.
func ServeOn(r *Runtime, l net.Listener) *Server {
	s := &Server{
		grpc: grpc.NewServer(grpc.MaxRecvMsgSize(messageLimit), grpc.MaxSendMsgSize(messageLimit)),
		addr: l.Addr(),
	}
	runtimeapi.RegisterRuntimeServiceServer(s.grpc, r.rpc())
	runtimeapi.RegisterImageServiceServer(s.grpc, r.rpc())
	s.wg.Go(func() { s.err = s.grpc.Serve(l) })
	return s
}

// Endpoint is where an agent finds the server: "unix:///run/x.sock".
func (s *Server) Endpoint() string { return s.addr.Network() + "://" + s.addr.String() }

// Close cuts all connections, ends all streams, removes the socket, and returns
// when nothing of the server runs any more. The Runtime goes on; it can be
// served again at the same path.
func (s *Server) Close() error {
	s.grpc.Stop()
	s.wg.Wait()
	if errors.Is(s.err, grpc.ErrServerStopped) {
		return nil
	}
	return s.err
}
