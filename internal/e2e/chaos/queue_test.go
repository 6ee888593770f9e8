package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pictor/internal/job"
)

// natsServer is a NATS process: this binary again, which can be killed without
// anything else dying.
type natsServer struct {
	*process
	options natsOptions
}

// natsOptions are what a NATS process is told, as JSON in its environment.
type natsOptions struct {
	Name    string
	Listen  string // host:port for clients
	Dir     string
	Cluster string   // host:port for the other servers; "" for a server on its own
	Routes  []string // where all servers of the cluster are
}

const natsVariable = "PICTOR_CHAOS_NATS"

// newQueue prepares NATS servers and starts none.
func newQueue(t testing.TB, dir, store string, host *loopback, servers int) []*natsServer {
	t.Helper()
	all := []natsOptions{{Name: "nats", Listen: host.address(t), Dir: store}}
	if servers > 1 {
		all = nil
		for i := range servers {
			name := fmt.Sprintf("nats-%d", i+1)
			all = append(all, natsOptions{Name: name, Listen: host.address(t), Dir: filepath.Join(store, name), Cluster: host.address(t)})
		}
	}
	var queue []*natsServer
	for _, o := range all {
		if o.Cluster != "" {
			for _, other := range all {
				o.Routes = append(o.Routes, other.Cluster)
			}
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		queue = append(queue, &natsServer{options: o, process: newProcess(t, dir, o.Name, func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleVariable+"="+roleNATS, natsVariable+"="+string(b))
			return cmd
		})})
	}
	return queue
}

// serveNATS is the NATS process's own life.
func serveNATS() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	var o natsOptions
	err := json.Unmarshal([]byte(os.Getenv(natsVariable)), &o)
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(o.forServer()); err == nil {
			s.ConfigureLogger()
			s.Start()
			<-ctx.Done()
			s.Shutdown()
			s.WaitForShutdown()
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (o natsOptions) forServer() *server.Options {
	options := &server.Options{ServerName: o.Name, JetStream: true, StoreDir: o.Dir, NoSigs: true, Logtime: true}
	options.Host, options.Port = split(o.Listen)
	if o.Cluster != "" {
		options.Cluster.Name = "chaos"
		options.Cluster.Host, options.Cluster.Port = split(o.Cluster)
		for _, r := range o.Routes {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: r})
		}
	}
	return options
}

func split(address string) (host string, port int) {
	host, text, _ := net.SplitHostPort(address) // loopback.address made it
	port, _ = strconv.Atoi(text)
	return host, port
}

// natsURL names every server of the queue.
func (k *stack) natsURL() string {
	var all []string
	for _, s := range k.queue {
		all = append(all, "nats://"+s.options.Listen)
	}
	return strings.Join(all, ",")
}

// askQueue is a connection to whichever server of the queue answers.
func (k *stack) askQueue() (*nats.Conn, jetstream.JetStream, error) {
	conn, err := nats.Connect(k.natsURL(), nats.Timeout(2*time.Second))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn)
	return conn, js, err
}

// members says who leads the stream and who follows it without having fallen
// behind, "" and none when nobody says so.
func (k *stack) members(ctx context.Context) (leader string, followers []string) {
	conn, js, err := k.askQueue()
	if err != nil {
		return "", nil
	}
	defer conn.Close()
	s, err := js.Stream(ctx, "JOBS")
	if err != nil || s.CachedInfo().Cluster == nil {
		return "", nil
	}
	c := s.CachedInfo().Cluster
	for _, r := range c.Replicas {
		if r.Current && !r.Offline {
			followers = append(followers, r.Name)
		}
	}
	return c.Leader, followers
}

// awaitMembers returns the stream's leader when as many servers keep it.
func (k *stack) awaitMembers(t testing.TB, servers int) *natsServer {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; {
		leader, followers := k.members(t.Context())
		i := slices.IndexFunc(k.queue, func(s *natsServer) bool { return s.options.Name == leader })
		if i >= 0 && 1+len(followers) == servers {
			return k.queue[i]
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stream is led by %q and followed by %q, want %d servers to keep it", leader, followers, servers)
		}
		pause(t.Context(), 100*time.Millisecond)
	}
}

// awaitQueue returns when NATS answers.
func (k *stack) awaitQueue(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn, _, err := k.askQueue()
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("NATS does not answer: %v\n%s", err, k.queue[0].last(20))
		}
		pause(t.Context(), 20*time.Millisecond)
	}
}

// messagesLeft describes the messages that workers are given again and again, when
// each of them had the time to be delivered once more.
//
// A message that no worker will be given is not among them: NATS leaves some
// behind when its store was damaged and the consumer remembers more than the
// stream. Their jobs were published again.
func (k *stack) messagesLeft(t testing.TB) (left []string) {
	t.Helper()
	conn, js, err := k.askQueue()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for deadline := time.Now().Add(4 * (k.lease + k.ackWait)); ; {
		left = nil
		for _, task := range job.Tasks() {
			c, err := js.Consumer(t.Context(), "JOBS", "run-"+string(task))
			if err != nil {
				left = append(left, err.Error())
				continue
			}
			if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
				left = append(left, fmt.Sprintf("%s: %d to come, %d given out, %d of them again; delivered to %v, acknowledged to %v",
					i.Name, i.NumPending, i.NumAckPending, i.NumRedelivered, i.Delivered, i.AckFloor))
			}
		}
		s, err := js.Stream(t.Context(), "JOBS")
		if err == nil && len(left) == 0 {
			if n := s.CachedInfo().State.Msgs; n > 0 {
				t.Logf("%d messages lie in the stream and are nobody's", n)
			}
			return nil
		}
		if time.Now().After(deadline) {
			if err == nil {
				i := s.CachedInfo().State
				for n := i.FirstSeq; n <= i.LastSeq && len(left) < 20; n++ {
					if m, err := s.GetMsg(t.Context(), n); err == nil {
						left = append(left, fmt.Sprintf("%d %s %v %q", n, m.Subject, m.Header, m.Data))
					}
				}
			}
			return left
		}
		pause(t.Context(), 100*time.Millisecond)
	}
}
