package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/nats-io/nats-server/v2/server"

	"pictor"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

// What a company runs on several machines, here on one: two API and three
// worker processes, three NATS nodes, a Postgres and an S3 server. A thousand
// jobs go through while every process, and every NATS node but one, goes and
// comes back; no client sees more than what the SDK repeats.
func TestMachines_come_and_go_under_a_thousand_jobs(t *testing.T) {
	t.Parallel()
	const (
		accounts = 20
		each     = 50 // jobs of an account
		inFlight = 4
		price    = point.Point / 10
	)
	queue := startQueueNodes(t, 3)
	s := newStackOn(t, queue.urls())
	s.stores.BlobURL = startS3(t)
	secrets := []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true"}
	edge := &balancer{}
	serve := func() *process {
		p := s.run(t, "serve", append(secrets, "PICTOR_STOP_NOTICE=500ms")...)
		edge.add(p)
		return p
	}
	work := func() *process { return s.run(t, "worker", append(secrets, "PICTOR_WORKERS=2")...) }
	apis := []*process{serve(), serve()}
	workers := []*process{work(), work(), work()}

	var finished atomic.Int64
	var clients sync.WaitGroup
	for range accounts {
		account := pgtest.NewAccount(t, s.db, each*price+point.Point)
		client, err := pictor.New("http://pictor.example/api/v1", string(pgtest.NewKey(t, s.db, account.ID)),
			pictor.WithHTTPClient(&http.Client{Transport: edge}), pictor.WithRetries(20))
		must(t, err)
		todo := make(chan struct{}, each)
		for range each {
			todo <- struct{}{}
		}
		close(todo)
		for range inFlight {
			clients.Go(func() {
				for range todo {
					if err := enlarge(t, client); err != nil {
						t.Error(err)
					}
					finished.Add(1)
				}
			})
		}
	}
	for _, event := range []struct {
		after int64
		what  string
		do    func()
	}{
		{100, "an API process is replaced", func() { serve(); edge.remove(apis[0]); apis[0].stop(t) }},
		{200, "a worker is killed, and another one comes", func() { workers[0].kill(); work() }},
		{300, "a NATS node fails", func() { queue.stop(0) }},
		{450, "the NATS node is back", func() { queue.start(t, 0) }},
		{550, "a worker is replaced", func() { work(); workers[1].stop(t) }},
		{650, "an API process is killed, and another one comes", func() { apis[1].kill(); edge.remove(apis[1]); serve() }},
		{750, "another NATS node fails", func() { queue.stop(1) }},
		{850, "that NATS node is back", func() { queue.start(t, 1) }},
	} {
		for finished.Load() < event.after {
			until(t, "another job is finished", changed(&finished))
		}
		t.Logf("after %d jobs %s", finished.Load(), event.what)
		event.do()
	}
	clients.Wait()

	all, err := s.db.Accounts(t.Context())
	must(t, err)
	for _, a := range all {
		if diff := cmp.Diff(point.Point, a.Balance); diff != "" {
			t.Errorf("balance of account %d, with each job charged once: %s", a.ID, diff)
		}
	}
	s.checkInvariants(t)
}

// changed says whether n is another number than when changed was called.
func changed(n *atomic.Int64) func() bool {
	was := n.Load()
	return func() bool { return n.Load() != was }
}

// enlarge has a picture of 64 x 64 enlarged and downloads the result.
func enlarge(t *testing.T, client *pictor.Client) error {
	j, err := client.Upscale(t.Context(), pictor.Bytes(stamp(t)), 2, pictor.WithWait(5*time.Minute))
	if err != nil {
		return fmt.Errorf("send a picture: %w", err)
	}
	if err := j.Err(); err != nil {
		return err
	}
	var result bytes.Buffer
	if _, err := client.Download(t.Context(), j.ID, &result); err != nil {
		return fmt.Errorf("download the result of job %s: %w", j.ID, err)
	}
	header, _, err := image.DecodeConfig(&result)
	if err != nil || header.Width != 128 || header.Height != 128 {
		return fmt.Errorf("the result of job %s is %d x %d: %w", j.ID, header.Width, header.Height, err)
	}
	return nil
}

// stamp is a picture of 64 x 64, each time another one.
func stamp(t *testing.T) []byte {
	cup, err := png.Decode(bytes.NewReader(parts.Picture(t, "cup.png")))
	must(t, err)
	cut := image.NewRGBA(image.Rect(0, 0, 64, 64))
	from := cup.Bounds()
	draw.Draw(cut, cut.Bounds(), cup, from.Min.Add(image.Pt(rand.N(from.Dx()-64), rand.N(from.Dy()-64))), draw.Src)
	var b bytes.Buffer
	must(t, png.Encode(&b, cut))
	return b.Bytes()
}

// balancer spreads requests over the API processes that it knows.
type balancer struct {
	mu   sync.Mutex
	apis []*process
}

func (b *balancer) add(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apis = append(b.apis, p)
}

func (b *balancer) remove(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apis = slices.DeleteFunc(b.apis, func(known *process) bool { return known == p })
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	base := b.apis[rand.N(len(b.apis))].baseURL
	b.mu.Unlock()
	api, err := url.Parse(base)
	if err != nil {
		return nil, errors.Join(err, r.Body.Close())
	}
	sent := r.Clone(r.Context())
	sent.URL.Host, sent.Host = api.Host, ""
	return http.DefaultTransport.RoundTrip(sent)
}

// stop is SIGTERM, until the process has ended.
func (p *process) stop(t *testing.T) {
	t.Helper()
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.exited
	if p.ended != nil {
		t.Errorf("pictor %s ended with %v", p.command, p.ended)
	}
}

// queueNodes are NATS servers that keep the queue together. They live on a
// loopback address of their own, so that nobody takes their ports while one is
// down.
type queueNodes struct {
	host    string
	dirs    []string
	servers []*server.Server
}

func startQueueNodes(t *testing.T, n int) *queueNodes {
	t.Helper()
	q := &queueNodes{host: fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), rand.N(250), 1+rand.N(250))}
	for range n {
		q.dirs = append(q.dirs, t.TempDir())
	}
	q.servers = make([]*server.Server, n)
	for i := range n {
		q.start(t, i)
	}
	t.Cleanup(func() {
		for i := range n {
			q.stop(i)
		}
	})
	return q
}

func (q *queueNodes) start(t *testing.T, i int) {
	t.Helper()
	var routes []*url.URL
	for other := range q.dirs {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("%s:%d", q.host, 6222+other)})
	}
	var err error
	q.servers[i], err = server.NewServer(&server.Options{
		ServerName: fmt.Sprintf("node-%d", i), Host: q.host, Port: 4222 + i, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: q.dirs[i],
		Cluster: server.ClusterOpts{Name: "machines", Host: q.host, Port: 6222 + i}, Routes: routes,
	})
	must(t, err)
	q.servers[i].Start()
}

func (q *queueNodes) stop(i int) {
	q.servers[i].Shutdown()
	q.servers[i].WaitForShutdown()
}

// urls is the PICTOR_NATS_URL of all nodes.
func (q *queueNodes) urls() string {
	var all []string
	for i := range q.servers {
		all = append(all, fmt.Sprintf("nats://%s:%d", q.host, 4222+i))
	}
	return strings.Join(all, ",")
}

// startS3 is the URL of an empty bucket on an S3 server.
func startS3(t *testing.T) string {
	t.Helper()
	backend := s3mem.New()
	must(t, backend.CreateBucket("pictor"))
	s3 := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(s3.Close)
	return "s3://pictor?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(s3.URL)
}
