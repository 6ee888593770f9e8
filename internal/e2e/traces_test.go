package e2e_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	api "pictor/gen"
	"pictor/internal/blob"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/sweep"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

// span is what the tests look at.
type span struct {
	trace, id, parent, name string
	from, to                uint64 // nanoseconds
}

// receiver takes spans as an OpenTelemetry collector does.
type receiver struct {
	url string

	mu    sync.Mutex
	spans []span
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := new(receiver)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil || request.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", request.Method, request.URL.Path, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range sent.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					r.spans = append(r.spans, span{hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId), s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano})
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// environment has a process send its traces here, soon.
func (r *receiver) environment() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.url, "OTEL_BSP_SCHEDULE_DELAY=50"}
}

func (r *receiver) named(name string) []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []span
	for _, s := range r.spans {
		if s.name == name {
			found = append(found, s)
		}
	}
	return found
}

// under names the spans below one.
func (r *receiver) under(parent span) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, s := range r.spans {
		if s.parent == parent.id && s.trace == parent.trace {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

// stages are the spans of one cut-out.
var stages = []string{"decode", "encode", "fetch", "matte", "model", "store"}

// checkTrace holds that the one cut-out is one trace, from the request to the
// stages.
func (r *receiver) checkTrace(t *testing.T) {
	t.Helper()
	until(t, "the worker's span arrives", func() bool { return len(r.named("work remove-bg")) > 0 })
	until(t, "the request's span arrives", func() bool { return len(r.named("POST /remove-bg")) > 0 })
	requests, works := r.named("POST /remove-bg"), r.named("work remove-bg")
	if len(works) != 1 {
		t.Fatalf("%d spans of the work, want 1", len(works))
	}
	if !slices.ContainsFunc(requests, func(s span) bool { return s.trace == works[0].trace && s.id == works[0].parent }) {
		t.Errorf("the work %v belongs to no request of %v", works[0], requests)
	}
	for _, s := range requests {
		if s.trace != works[0].trace {
			t.Errorf("the request %v belongs to another trace than the work %v", s, works[0])
		}
	}
	if diff := cmp.Diff(stages, r.under(works[0])); diff != "" {
		t.Errorf("the stages: %s", diff)
	}
}

func TestTrace_goes_from_the_request_through_the_queue_to_the_stages(t *testing.T) {
	t.Parallel()
	s, traces := newStack(t), newReceiver(t)
	s.account = pgtest.NewAccount(t, s.db, 10*point.Point)
	client := s.clientOf(t, s.run(t, "serve", traces.environment()...).baseURL)
	s.run(t, "worker", traces.environment()...)
	answer, err := client.RemoveBackground(t.Context(), &api.RemoveBackgroundReqImagePNG{Data: bytes.NewReader(parts.Picture(t, "cup.png"))},
		api.RemoveBackgroundParams{Wait: api.NewOptWait(60)})
	must(t, err)
	if answer.Response.Status != api.JobStatusCompleted {
		t.Fatalf("the job is %s", answer.Response.Status)
	}
	traces.checkTrace(t)
}

// A request that is held is taken out of net/http, and comes back as another
// one: what it stands for in the client's trace must not be lost on the way.
func TestTrace_of_a_held_request_is_that_of_its_client(t *testing.T) {
	t.Parallel()
	s, traces := newStack(t), newReceiver(t)
	s.account = pgtest.NewAccount(t, s.db, 10*point.Point)
	serve := s.run(t, "serve", append(traces.environment(), "PICTOR_LOG_LEVEL=info")...)
	answer, err := s.clientOf(t, serve.baseURL).RemoveBackground(t.Context(), &api.RemoveBackgroundReqImagePNG{Data: bytes.NewReader(parts.Picture(t, "cup.png"))},
		api.RemoveBackgroundParams{})
	must(t, err)
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serve.baseURL+"/jobs/"+answer.Response.ID.String()+"?wait=60", nil)
	must(t, err)
	r.Header.Set("Authorization", "Bearer "+string(pgtest.NewKey(t, s.db, s.account.ID)))
	r.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	answered := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(r)
		if err == nil {
			err = response.Body.Close()
		}
		answered <- err
	}()
	until(t, "the request is held", func() bool { return serve.metric(t, "pictor_waiting_requests") == 1 })
	s.run(t, "worker", traces.environment()...)
	must(t, <-answered)

	const name = "GET /jobs/{id}"
	until(t, "both spans of the request arrive", func() bool { return len(traces.named(name)) == 2 })
	spans := traces.named(name)
	held, back := spans[0], spans[1]
	if held.parent != parent {
		held, back = back, held
	}
	if held.trace != trace || held.parent != parent || back.trace != trace || back.parent != held.id {
		t.Errorf("the spans are %+v, want them below the client's, one below the other", spans)
	}
	if back.from > held.to || back.to < held.to {
		t.Errorf("%+v is not the whole time of the request %+v", back, held)
	}
	until(t, "the request is logged", func() bool { return strings.Contains(serve.log.String(), "path=/api/v1/jobs/") })
	for line := range strings.Lines(serve.log.String()) {
		if strings.Contains(line, "path=/api/v1/jobs/") && !strings.Contains(line, "trace="+trace) {
			t.Errorf("the trace is not on %s", line)
		}
	}
}

// The message that carries the trace is lost with the whole queue, and the
// sweeper publishes the job again, without it.
func TestTrace_survives_a_queue_that_was_wiped(t *testing.T) {
	t.Parallel()
	s, traces := newStack(t), newReceiver(t)
	s.account = pgtest.NewAccount(t, s.db, 10*point.Point)
	client := s.clientOf(t, s.run(t, "serve", traces.environment()...).baseURL)
	answer, err := client.RemoveBackground(t.Context(), &api.RemoveBackgroundReqImagePNG{Data: bytes.NewReader(parts.Picture(t, "cup.png"))},
		api.RemoveBackgroundParams{})
	must(t, err)

	conn, err := nats.Connect(s.stores.NATSURL)
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	must(t, js.DeleteStream(t.Context(), "JOBS"))
	must(t, s.queue.Ensure(t.Context()))
	store, err := blob.Open(t.Context(), s.stores.BlobURL)
	must(t, err)
	defer store.Close()
	ages := sweep.Defaults()
	ages.LostAfter = 0
	swept := 0
	sweeper := sweep.New(ages, s.db, s.queue, store, slog.New(slog.DiscardHandler))
	until(t, "the job is published again", func() bool {
		// The sweeper of the process may have the turn.
		counts, err := sweeper.Once(t.Context())
		must(t, err)
		swept += counts.Republished
		return swept > 0
	})

	s.run(t, "worker", traces.environment()...)
	until(t, "the job completes", func() bool {
		j, err := s.db.Job(t.Context(), 0, job.ID(answer.Response.ID.String()))
		must(t, err)
		return j.State == job.Completed
	})
	traces.checkTrace(t)
}
