package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/logctx"
	"pictor/internal/onnx"
)

// Address is host:port to listen on. Empty is the default of its field, which
// some commands may move to another port when it is taken; a given one must be
// free.
type Address string

// The default addresses.
const (
	defaultListen  Address = "127.0.0.1:8080"
	defaultResults Address = "127.0.0.1:8081"
	defaultOps     Address = "127.0.0.1:8082"
	anyPort        Address = "127.0.0.1:0"
)

// apiRoot is the path under which the contract's endpoints are.
const apiRoot = "/api/v1"

// Links are the public roots of the links that clients get.
type Links struct {
	BaseURL    string `name:"base-url" env:"PICTOR_BASE_URL" placeholder:"http://LISTEN/api/v1" help:"Public URL of the API's root, which ends in /api/v1."`
	ResultsURL string `name:"results-url" env:"PICTOR_RESULTS_URL" placeholder:"http://RESULTS_LISTEN" help:"Public URL of the result host."`
}

// Edge is the configuration of the two HTTP servers that clients meet.
type Edge struct {
	Listen        Address `env:"PICTOR_LISTEN" placeholder:"127.0.0.1:8080" help:"Address of the API."`
	ResultsListen Address `env:"PICTOR_RESULTS_LISTEN" placeholder:"127.0.0.1:8081" help:"Address of the public result host."`
	Links
	ResultsRedirect bool           `env:"PICTOR_RESULTS_REDIRECT" help:"Show readers of a result the way to the bucket, by a signed URL, instead of passing the bytes through."`
	ImageURLAllow   []netip.Prefix `name:"image-url-allow" env:"PICTOR_IMAGE_URL_ALLOW" placeholder:"CIDR" help:"Networks from which image_url may download although they are not public."`
	Keys
}

// Keys is what API keys look like. The API and whoever makes keys must agree.
type Keys struct {
	KeyPrefix string `env:"PICTOR_KEY_PREFIX" default:"pictor" help:"What API keys begin with."`
}

// Stores says where jobs, messages and pictures are. A dev stack that runs
// here fills in what is not given.
type Stores struct {
	DatabaseURL string `env:"PICTOR_DATABASE_URL" placeholder:"URL" help:"Postgres database, with libpq's parameters: ?sslmode=verify-full&sslrootcert=FILE, sslcert and sslkey. Empty: the dev stack that runs here."`
	NATSURL     string `name:"nats-url" env:"PICTOR_NATS_URL" placeholder:"nats://127.0.0.1:4222" help:"NATS servers with JetStream, separated by commas; nats:// or tls://, with user:password@ where they ask."`
	NATSFiles
	BlobURL string `env:"PICTOR_BLOB_URL" placeholder:"file:///var/lib/pictor/blobs" help:"Store of inputs and results: file:///folder, s3://bucket, gs://bucket or azblob://container."`
}

// NATSFiles is what a URL cannot carry.
type NATSFiles struct {
	NATSCreds string `name:"nats-creds" env:"PICTOR_NATS_CREDS" placeholder:"FILE" help:"Credentials of a NATS user, a .creds file."`
	NATSCA    string `name:"nats-ca" env:"PICTOR_NATS_CA" placeholder:"FILE" help:"Certificates (PEM) that the NATS servers' must descend from. Empty: the system's."`
	NATSCert  string `name:"nats-cert" env:"PICTOR_NATS_CERT" placeholder:"FILE" help:"Our certificate (PEM) for NATS servers that ask for one."`
	NATSKey   string `name:"nats-key" env:"PICTOR_NATS_KEY" placeholder:"FILE" help:"Key (PEM) of PICTOR_NATS_CERT."`
}

// Times is when a job is given up, and a result deleted.
type Times struct {
	StuckAfter time.Duration `env:"PICTOR_STUCK_AFTER" default:"5m" help:"A job without a sign of life for this long is failed and refunded."`
	ResultTTL  time.Duration `name:"result-ttl" env:"PICTOR_RESULT_TTL" default:"24h" help:"How long a result is kept."`
}

// Pictures is the configuration of what works on pictures.
type Pictures struct {
	Tasks   []string `env:"PICTOR_TASKS" placeholder:"all" help:"Tasks that a worker takes, separated by commas; it loads the models of these only. Some worker must take each of the others."`
	Workers int      `env:"PICTOR_WORKERS" placeholder:"one per core" help:"Jobs that one process works on at a time."`
	Engine  string   `env:"PICTOR_ENGINE" default:"auto" help:"What runs the models: auto, onnxruntime, onnxruntime-cuda or onnx-go."`
	ORTLib  string   `name:"ort-lib" env:"PICTOR_ORT_LIB" placeholder:"FILE" help:"ONNX Runtime's shared library. Empty: where \"go tool task setup\" puts it."`
	ModelChoice
}

// Ops is the configuration of the operator's listener.
type Ops struct {
	OpsListen Address `env:"PICTOR_OPS_LISTEN" placeholder:"127.0.0.1:8082" help:"Address of /healthz, /readyz and /metrics. When the default is taken, another free port."`
}

// Leave is how the API stops.
type Leave struct {
	StopNotice time.Duration `env:"PICTOR_STOP_NOTICE" default:"3s" help:"How long \"pictor serve\" still answers after SIGTERM while /readyz says no already, for load balancers to notice."`
}

// Log is how a process tells what it does, on stderr.
type Log struct {
	LogLevel  slog.Level `env:"PICTOR_LOG_LEVEL" default:"info" help:"Least level that is logged: debug, info, warn or error."`
	LogFormat string     `env:"PICTOR_LOG_FORMAT" default:"text" enum:"text,json" help:"text or json."`
}

// New makes the logger.
func (c Log) New(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(logctx.NewHandler(slog.NewJSONHandler(w, options)))
	}
	return slog.New(logctx.NewHandler(slog.NewTextHandler(w, options)))
}

// Settings is everything that can be configured but the log, which is the same
// for every command. Commands embed the parts that they need.
type Settings struct {
	Edge
	Stores
	Times
	Pictures
	Ops
	Leave
	Secret
}

// Config is everything that can be configured.
type Config struct {
	Settings
	Log
}

// Mistakes names every mistake, not only the first.
func (c Edge) Mistakes() error {
	return errors.Join(
		checkAddress("PICTOR_LISTEN", c.Listen),
		checkAddress("PICTOR_RESULTS_LISTEN", c.ResultsListen),
		checkApart("PICTOR_LISTEN", c.Listen, "PICTOR_RESULTS_LISTEN", c.ResultsListen),
		checkBaseURL(c.BaseURL),
		checkURL("PICTOR_RESULTS_URL", c.ResultsURL, "http", "https"),
		c.Keys.Mistakes(),
	)
}

// mistakesWith names what does not fit the stores.
func (c Edge) mistakesWith(s Stores) error {
	if c.ResultsRedirect && !blob.IsBucket(s.BlobURL) {
		return errors.New("PICTOR_RESULTS_REDIRECT needs a bucket as PICTOR_BLOB_URL: a folder has no URLs of its own")
	}
	return nil
}

// Mistakes names every mistake, not only the first.
func (c Keys) Mistakes() error {
	for _, r := range c.KeyPrefix {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' {
			return fmt.Errorf("PICTOR_KEY_PREFIX is %q: want letters, digits and _", c.KeyPrefix)
		}
	}
	if c.KeyPrefix == "" || len(c.KeyPrefix) > 32 {
		return fmt.Errorf("PICTOR_KEY_PREFIX has %d characters: want 1 to 32", len(c.KeyPrefix))
	}
	return nil
}

// Mistakes names every mistake, not only the first.
func (c Stores) Mistakes() error {
	var database error
	if c.DatabaseURL == "" {
		database = errors.New("PICTOR_DATABASE_URL is not set, and no dev stack runs here: set it, or start `pictor dev`")
	}
	return errors.Join(
		database,
		checkURL("PICTOR_DATABASE_URL", c.DatabaseURL, "postgres", "postgresql"),
		checkDatabaseFiles(c.DatabaseURL),
		checkNATS(c.NATSURL),
		c.NATSFiles.mistakes(),
		checkBlobs(c.BlobURL),
	)
}

// Mistakes names every mistake, not only the first.
func (c Times) Mistakes() error {
	return errors.Join(
		// Several heartbeats fit into a lease. A job must not be given up before
		// its lease is over, when another worker can take it.
		longer("PICTOR_STUCK_AFTER", c.StuckAfter, lease, "a worker's lease of a job"),
		// A client must have time to fetch what it waited for.
		atLeast("PICTOR_RESULT_TTL", c.ResultTTL, job.MaxWait),
	)
}

// Mistakes names every mistake, not only the first.
func (c Pictures) Mistakes() error {
	var mistakes []error
	if c.Workers < 0 || c.Workers > 1024 {
		mistakes = append(mistakes, fmt.Errorf("PICTOR_WORKERS is %d: want 1 to 1024, or 0 for one per core", c.Workers))
	}
	switch c.Engine {
	case onnx.Auto, onnx.Runtime, onnx.CUDA, onnx.Go:
	default:
		mistakes = append(mistakes, fmt.Errorf("PICTOR_ENGINE is %q: want %s, %s, %s or %s", c.Engine, onnx.Auto, onnx.Runtime, onnx.CUDA, onnx.Go))
	}
	for _, name := range c.Tasks {
		if !slices.Contains(job.Tasks(), job.Task(name)) {
			mistakes = append(mistakes, fmt.Errorf("PICTOR_TASKS has %q: there are %v", name, job.Tasks()))
		}
	}
	if _, err := c.chosen(c.tasks()); err != nil {
		mistakes = append(mistakes, err)
	}
	return errors.Join(mistakes...)
}

// Mistakes names every mistake, not only the first.
func (c Ops) Mistakes() error {
	return errors.Join(checkAddress("PICTOR_OPS_LISTEN", c.OpsListen), traceMistakes())
}

// Mistakes names every mistake, not only the first.
func (c Leave) Mistakes() error { return atLeast("PICTOR_STOP_NOTICE", c.StopNotice, 0) }

// tasks are those that the worker takes, in the usual order.
func (c Pictures) tasks() []job.Task {
	if len(c.Tasks) == 0 {
		return job.Tasks()
	}
	return slices.DeleteFunc(job.Tasks(), func(t job.Task) bool { return !slices.Contains(c.Tasks, string(t)) })
}

func (c Pictures) workers() int {
	if c.Workers == 0 {
		return runtime.NumCPU()
	}
	return c.Workers
}

// checkApart keeps two listeners from one address. Port 0 is another one for
// each.
func checkApart(name string, a Address, other string, b Address) error {
	if _, port, err := net.SplitHostPort(string(a)); err != nil || a != b || port == "0" {
		return nil
	}
	return fmt.Errorf("%s and %s are both %s", name, other, a)
}

func checkAddress(name string, a Address) error {
	if a == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(string(a))
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s is %q: want host:port", name, a)
	}
	return nil
}

// checkURL accepts an empty URL, and one of the given schemes, or of any when
// none is given.
func checkURL(name, s string, schemes ...string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%s is no URL", name) // the cause would print the password
	}
	for _, scheme := range schemes {
		if u.Scheme == scheme {
			return nil
		}
	}
	if len(schemes) == 0 && u.Scheme != "" {
		return nil
	}
	want := strings.Join(schemes, ":// or ")
	if want == "" {
		want = "scheme"
	}
	return fmt.Errorf("%s is no %s:// URL", name, want)
}

func checkBaseURL(s string) error {
	if err := checkURL("PICTOR_BASE_URL", s, "http", "https"); err != nil || s == "" {
		return err
	}
	if !strings.HasSuffix(s, apiRoot) {
		return fmt.Errorf("PICTOR_BASE_URL is %q: it must end in %s", s, apiRoot)
	}
	return nil
}

func checkBlobs(s string) error {
	if s == "" {
		return nil
	}
	if err := blob.CheckURL(s); err != nil {
		return fmt.Errorf("PICTOR_BLOB_URL: %w", err)
	}
	return nil
}

// checkDatabaseFiles looks at the files that the URL names. The driver passes
// over some that are missing: with sslmode=require and no sslrootcert it takes
// any server's word.
func checkDatabaseFiles(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return nil // which checkURL says
	}
	var mistakes []error
	query := u.Query()
	for _, name := range []string{"sslrootcert", "sslcert", "sslkey"} {
		if file := query.Get(name); file != "system" && !query.Has("sslinline") {
			mistakes = append(mistakes, checkFile("PICTOR_DATABASE_URL: "+name, file))
		}
	}
	return errors.Join(mistakes...)
}

func checkNATS(list string) error {
	if list == "" {
		return nil
	}
	var mistakes []error
	for s := range strings.SplitSeq(list, ",") {
		mistakes = append(mistakes, checkURL("PICTOR_NATS_URL", strings.TrimSpace(s), "nats", "tls", "ws", "wss"))
	}
	return errors.Join(mistakes...)
}

func (c NATSFiles) mistakes() error {
	var pair error
	if (c.NATSCert == "") != (c.NATSKey == "") {
		pair = errors.New("PICTOR_NATS_CERT and PICTOR_NATS_KEY come together")
	}
	return errors.Join(pair,
		checkFile("PICTOR_NATS_CREDS", c.NATSCreds), checkFile("PICTOR_NATS_CA", c.NATSCA),
		checkFile("PICTOR_NATS_CERT", c.NATSCert), checkFile("PICTOR_NATS_KEY", c.NATSKey))
}

// checkFile accepts an empty name, and one of a file that can be read.
func checkFile(name, file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Close()
}

// queue is how the process of that name connects to NATS.
func (c Stores) queue(name string) bus.Config {
	return bus.Config{URL: c.NATSURL, Name: name, Credentials: bus.Credentials{
		User: c.NATSCreds, CA: c.NATSCA, Certificate: c.NATSCert, Key: c.NATSKey,
	}}
}

func longer(name string, d, than time.Duration, what string) error {
	if d <= than {
		return fmt.Errorf("%s is %s: want more than %s, %s", name, d, than, what)
	}
	return nil
}

func atLeast(name string, d, least time.Duration) error {
	if d < least {
		return fmt.Errorf("%s is %s: want at least %s", name, d, least)
	}
	return nil
}
