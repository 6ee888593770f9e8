package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/logctx"
	"pictor/internal/render"
	"pictor/internal/work"
)

// flushTimeout bounds how long a stop waits for the last spans to be sent.
const flushTimeout = 5 * time.Second

const (
	// traceHeader is W3C's name of what a request, a message and a job's row carry.
	traceHeader = "traceparent"
	// requestHeader is the id of the request, in a message.
	requestHeader = "pictor-request"
)

// traces is one trace per job: the request that made it, and the worker's
// stages. What it sends where, the standard variables of OpenTelemetry say;
// without them nothing is made and nothing is sent.
type traces struct {
	provider *sdktrace.TracerProvider // nil: off
	tracer   trace.Tracer
}

// newTraces reads the environment. process tells this process from others.
func newTraces(ctx context.Context, process string, log *slog.Logger) (*traces, error) {
	if !tracesWanted() {
		return &traces{tracer: noop.Tracer{}}, nil
	}
	if err := traceMistakes(); err != nil {
		return nil, err
	}
	// The SDK's own handler is the process's: without ours, that no trace
	// arrives would be told at the level of what goes well.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are not sent", "error", err) }))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up OTLP: %w", err)
	}
	// What the environment says of the resource comes last, and counts.
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "pictor"), attribute.String("service.instance.id", process)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe the process for traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &traces{provider, provider.Tracer("pictor")}, nil
}

// stop sends what has not been sent.
func (t *traces) stop(log *slog.Logger) {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.Warn("the last traces were not sent", "error", err)
	}
}

// request begins the span of a request that came then, under that of the client
// when it names one. One that was held comes back under its own first span. The
// URL is not told: paths hold tokens, queries may hold anything.
func (t *traces) request(r *http.Request, host string, came time.Time) (*http.Request, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(came),
		trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("pictor.host", host)))
	return r.WithContext(traced(ctx)), span
}

// noStatus is of a request that is held: its answer is a span of its own.
const noStatus = -1

// answered ends the span of a request. status 0 is an answer that broke off.
func answered(span trace.Span, route, method string, status int) {
	if route != "" {
		span.SetName(method + " " + route)
		span.SetAttributes(attribute.String("http.route", route))
	}
	if status > 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if status == 0 || status >= 500 {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
	span.End()
}

// traced puts the trace's id on the log lines of the context.
func traced(ctx context.Context) context.Context {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsSampled() {
		return ctx
	}
	return logctx.With(ctx, slog.String("trace", span.TraceID().String()))
}

// parent names the span of the context for others, "" when it is not recorded.
func (t *traces) parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceHeader]
}

// carry is what a message tells of its request, for the worker's spans and log.
func (t *traces) carry(ctx context.Context) map[string]string {
	told := make(map[string]string)
	if parent := t.parent(ctx); parent != "" {
		told[traceHeader] = parent
	}
	if id := logctx.Get(ctx, "request"); id != "" {
		told[requestHeader] = id
	}
	return told
}

// claimed begins the span of a claim, under the request that made the job. A
// message that the sweeper published again has no trace, but the job has.
func (t *traces) claimed(ctx context.Context, j job.Job, m bus.Message) context.Context {
	parent := m.Header(traceHeader)
	if parent == "" {
		parent = j.Trace
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceHeader: parent})
	ctx, _ = t.tracer.Start(ctx, "work "+string(j.Task), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("pictor.job", string(j.ID)), attribute.String("pictor.task", string(j.Task)),
		attribute.Int64("pictor.account", j.Account), attribute.Int64("pictor.fence", j.Fence)))
	if id := m.Header(requestHeader); id != "" {
		ctx = logctx.With(ctx, slog.String("request", id))
	}
	return traced(ctx)
}

// stage is a span that is over already.
func (t *traces) stage(ctx context.Context, lap render.Lap) {
	_, span := t.tracer.Start(ctx, string(lap.Stage), trace.WithTimestamp(lap.From),
		trace.WithAttributes(attribute.Float64("pictor.busy_seconds", lap.Busy.Seconds())))
	span.End(trace.WithTimestamp(lap.To))
}

// ended ends the span of a claim.
func (t *traces) ended(ctx context.Context, o work.Outcome) {
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String("pictor.outcome", string(o)))
	if o != work.Completed && o != work.Returned {
		span.SetStatus(codes.Error, string(o))
	}
	span.End()
}
