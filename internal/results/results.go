// Package results is the public result host: GET /r/<token><extension>.
//
// Whoever knows the token reads the picture, from any web page, without a key.
// The token says nothing of the job or the account, and a result that never
// existed cannot be told from one that has expired. Answers may be cached until
// the result expires; ranges and conditional requests work. So a cache may stand
// in front of it; or it only shows readers the way to the store (Config.Redirect).
package results

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"pictor/internal/blob"
	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/logctx"
	"pictor/internal/postgres"
)

const (
	methods        = "GET, HEAD, OPTIONS"
	exposedHeaders = "X-Request-Id, Retry-After, Content-Disposition, ETag, Accept-Ranges, Content-Length, Content-Range"
	preflightAge   = "86400" // seconds

	// An answer has headStart plus a second for every leastSpeed bytes, so that
	// a reader who stands still does not hold its connection for ever.
	headStart  = 30 * time.Second
	leastSpeed = 32 << 10

	// signed is how long a reader has to follow a redirect. A download that has
	// begun goes on.
	signed = time.Minute
)

// Config sets what the host serves.
type Config struct {
	TTL time.Duration // a result is served for so long after its job finished

	// Redirect answers GET with a signed URL of the store, which must be a
	// bucket, instead of the bytes. The URL names the job.
	Redirect bool
}

type host struct {
	Config
	db    *postgres.DB
	store *blob.Store
	log   *slog.Logger
}

// New makes the handler.
func New(c Config, db *postgres.DB, store *blob.Store, log *slog.Logger) http.Handler {
	return &host{c, db, store, log}
}

// ServeHTTP is http.Handler.
func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := uuid.NewString()
	r = r.WithContext(logctx.With(r.Context(), slog.String("request", id)))
	header := w.Header()
	header.Set("X-Request-Id", id)
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Access-Control-Expose-Headers", exposedHeaders)
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store") // of everything but a result

	switch r.Method {
	case http.MethodGet, http.MethodHead:
		j, left, err := h.find(r.Context(), r.URL.Path)
		if err == nil {
			r = r.WithContext(logctx.With(r.Context(), slog.String("job", string(j.ID)), slog.Int64("account", j.Account)))
			err = h.send(w, r, j, left)
		}
		if err != nil {
			h.refuse(w, r, err)
		}
	case http.MethodOptions:
		header.Set("Allow", methods)
		header.Set("Access-Control-Allow-Methods", methods)
		header.Set("Access-Control-Allow-Headers", "*")
		header.Set("Access-Control-Max-Age", preflightAge)
		w.WriteHeader(http.StatusNoContent)
	default:
		header.Set("Allow", methods)
		refuse(w, http.StatusMethodNotAllowed, fault.New(fault.MethodNotAllowed, "A result can only be read, with GET or HEAD."))
	}
}

// send answers with the result of a job that can be read for so long yet.
func (h *host) send(w http.ResponseWriter, r *http.Request, j job.Job, left time.Duration) error {
	object, err := h.store.Open(r.Context(), j.ResultKey())
	if errors.Is(err, blob.ErrNotFound) {
		return gone() // the sweeper was faster
	}
	if err != nil {
		return err
	}
	defer object.Close()
	if h.Redirect && r.Method == http.MethodGet {
		url, err := h.store.SignedURL(r.Context(), j.ResultKey(), min(left, signed))
		if err != nil {
			return err
		}
		w.Header().Set("Location", url)
		w.WriteHeader(http.StatusFound)
		return nil
	}

	_ = http.NewResponseController(w).SetWriteDeadline(
		time.Now().Add(headStart + time.Duration(object.Size)*time.Second/leastSpeed))
	header := w.Header()
	header.Set("Content-Type", j.ResultType)
	header.Set("Content-Disposition", `inline; filename="`+string(j.Task)+job.Extension(j.ResultType)+`"`)
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("ETag", object.ETag)
	header.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(left.Seconds()))+", immutable")
	if strings.Contains(r.Header.Get("Range"), ",") {
		// Several ranges would be answered as multipart/byteranges, which no
		// reader of pictures needs; a server may ignore them.
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	out := &answer{ResponseWriter: w}
	http.ServeContent(out, r, "", j.FinishedAt, object)
	if out.refused != 0 {
		header.Set("Cache-Control", "no-store")
		refuse(w, out.refused, fault.New(fault.InvalidRequest, "The result has no bytes in the range, or is not in the version, that the request asks for."))
	}
	return nil
}

// find is the job of a result that can still be read, and for how long.
func (h *host) find(ctx context.Context, urlPath string) (job.Job, time.Duration, error) {
	name, ok := strings.CutPrefix(urlPath, "/r/")
	token := strings.TrimSuffix(name, path.Ext(name))
	if !ok || !isToken(token) {
		return job.Job{}, 0, gone()
	}
	j, err := h.db.JobByToken(ctx, token)
	if err != nil {
		if fault.From(err).Code == fault.NotFound {
			err = gone() // not the words for a job
		}
		return job.Job{}, 0, err
	}
	left := time.Until(j.FinishedAt.Add(h.TTL))
	if j.State != job.Completed || left <= 0 || name != j.ResultToken+job.Extension(j.ResultType) {
		return job.Job{}, 0, gone()
	}
	return j, left, nil
}

// isToken keeps what cannot be a token away from the database.
func isToken(s string) bool {
	return len(s) >= 16 && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}

func gone() *fault.Error {
	return fault.New(fault.NotFound, "There is no such result, or it has expired. Ask for the job to learn more.")
}

func (h *host) refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.From(err)
	if f.Code == fault.NotFound {
		refuse(w, http.StatusNotFound, f)
		return
	}
	if r.Context().Err() == nil { // a reader that left is no failure of ours
		h.log.ErrorContext(r.Context(), "could not send a result", "error", err)
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(max(f.RetryAfter, time.Second).Seconds())))
	refuse(w, http.StatusServiceUnavailable, f)
}

// refuse writes the error envelope of the API.
func refuse(w http.ResponseWriter, status int, f *fault.Error) {
	type detail struct {
		Code      fault.Code `json:"code"`
		Message   string     `json:"message"`
		Retryable *bool      `json:"retryable,omitempty"`
	}
	body := struct {
		Error detail `json:"error"`
	}{detail{Code: f.Code, Message: f.Message}}
	if retryable, known := f.Retryable(); known {
		body.Error.Retryable = &retryable
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings and a bool
	}
	h := w.Header()
	for _, name := range []string{"ETag", "Last-Modified", "Content-Disposition", "Accept-Ranges"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// answer keeps back the refusals that net/http writes as plain text: of a range
// (416) and of a condition (412).
type answer struct {
	http.ResponseWriter
	refused int
}

// WriteHeader is http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if status >= 400 {
		a.refused = status
		return
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write is http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.refused != 0 {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}
