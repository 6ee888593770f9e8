package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server is a NATS server with JetStream inside this process: for a laptop and
// for tests. A company runs NATS beside Pictor.
type Server struct{ ns *server.Server }

// StartServer starts a server on 127.0.0.1 with its store under dir. Port 0 or
// -1 takes a free one. What an earlier server left in dir is taken up, also
// after it was killed.
func StartServer(dir string, port int, log *slog.Logger) (*Server, error) {
	if port == 0 {
		port = server.RANDOM_PORT
	}
	ns, err := server.NewServer(&server.Options{
		ServerName: "pictor",
		Host:       "127.0.0.1",
		Port:       port,
		JetStream:  true,
		StoreDir:   dir,
		NoSigs:     true, // signals are the process's own business
		NoLog:      false,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the NATS server: %w", err)
	}
	ns.SetLoggerV2(natsLog{log}, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(20 * time.Second) {
		ns.Shutdown()
		return nil, errors.New("start the NATS server: not ready after 20 s")
	}
	return &Server{ns}, nil
}

// URL is where clients connect.
func (s *Server) URL() string { return s.ns.ClientURL() }

// Stop ends the server and returns when its store is closed.
func (s *Server) Stop() {
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
}

// natsLog passes on what an operator must see; the rest is for debugging.
type natsLog struct{ log *slog.Logger }

func (l natsLog) Noticef(format string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Warnf(format string, v ...any)   { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Errorf(format string, v ...any)  { l.log.Warn("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Fatalf(format string, v ...any)  { l.log.Error("nats: " + fmt.Sprintf(format, v...)) }
func (l natsLog) Debugf(string, ...any)           {}
func (l natsLog) Tracef(string, ...any)           {}
