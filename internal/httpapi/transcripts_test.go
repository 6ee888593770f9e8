package httpapi_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"pictor/internal/apikey"
	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/openapi"
)

const transcripts = "../../testdata/api"

// scenario provokes one error code: it prepares what must be there, and gives
// the request that is refused.
type scenario struct {
	story   string
	request func(s *stack) request
}

func scenarios() map[fault.Code]scenario {
	return map[fault.Code]scenario{
		fault.BadRequest: {"The body breaks off.", func(s *stack) request {
			_, key := s.account("1")
			return send(key, "/upscale", `{"image_url": "https://example.com/cat.jpg", "scale":`)
		}},
		fault.Unauthorized: {"The request has no key.", func(*stack) request { return get("", "/me") }},
		fault.InvalidKey: {"The key has the right form, but nobody has it.", func(*stack) request {
			return get(string(apikey.New(prefix)), "/me")
		}},
		fault.InsufficientBalance: {"The account has 0.05 Point.", func(s *stack) request {
			_, key := s.account("0.05")
			return cup(s.t, key, "/upscale?scale=4")
		}},
		fault.AccountNotFound: {"The account was deleted; its key is still there.", func(s *stack) request {
			id, key := s.account("1")
			must(s.t, s.db.DeleteAccount(s.t.Context(), id))
			return get(key, "/me")
		}},
		fault.NotFound: {"There is no such job.", func(s *stack) request {
			_, key := s.account("1")
			return get(key, "/jobs/"+uuid.NewString())
		}},
		fault.MethodNotAllowed: {"Jobs are not deleted.", func(s *stack) request {
			_, key := s.account("1")
			return request{method: http.MethodDelete, path: "/jobs/" + uuid.NewString(), header: []string{"X-Api-Key: " + key}}
		}},
		fault.JobNotReady: {"The job is still queued.", func(s *stack) request {
			_, key := s.account("1")
			return get(key, "/jobs/"+string(s.create(key))+"/result")
		}},
		fault.JobFailed: {"The job failed, and its Point were given back.", func(s *stack) request {
			_, key := s.account("1")
			id := s.create(key)
			s.fail(id, "The image is damaged and cannot be read.")
			return get(key, "/jobs/"+string(id)+"/result")
		}},
		fault.FileTooLarge: {"The image has 20,971,521 bytes, one too many.", func(s *stack) request {
			_, key := s.account("1")
			r := upload(key, "/remove-bg", "image/png", pngOfSize(s.t, job.MaxImageBytes+1))
			r.shown = "<20,971,521 bytes of a PNG>"
			return r
		}},
		fault.UnsupportedMediaType: {"GIF is no accepted type.", func(s *stack) request {
			_, key := s.account("1")
			return upload(key, "/remove-bg", "image/gif", []byte("GIF89a"))
		}},
		fault.MissingImage: {"The body names no image.", func(s *stack) request {
			_, key := s.account("1")
			return send(key, "/remove-bg", `{"wait": 30}`)
		}},
		fault.InvalidImage: {"The bytes are no image, whatever Content-Type says.", func(s *stack) request {
			_, key := s.account("1")
			return upload(key, "/remove-bg", "image/png", []byte("these bytes are no image"))
		}},
		fault.InvalidImageURL: {"The URL is not http(s).", func(s *stack) request {
			_, key := s.account("1")
			return send(key, "/remove-bg", `{"image_url": "ftp://example.com/cat.jpg"}`)
		}},
		fault.ImageURLUnreachable: {"Nothing listens at the URL.", func(s *stack) request {
			_, key := s.account("1")
			r := send(key, "/remove-bg", `{"image_url": "http://`+closedAddress(s.t)+`/cat.jpg"}`)
			r.shown = `{"image_url": "http://<address>/cat.jpg"}`
			return r
		}},
		fault.InvalidRequest: {"There is no 3x.", func(s *stack) request {
			_, key := s.account("1")
			return cup(s.t, key, "/upscale?scale=3")
		}},
		fault.TooManyJobs: {"Five jobs of the account are queued.", func(s *stack) request {
			_, key := s.account("1")
			for range job.MaxRunning {
				s.create(key)
			}
			return cup(s.t, key, "/remove-bg")
		}},
		fault.QueueError: {"NATS was stopped.", func(s *stack) request {
			_, key := s.account("1")
			s.nats.Stop()
			return cup(s.t, key, "/remove-bg")
		}},
		fault.BillingUnavailable: {"The database went away after the key had been checked.", func(s *stack) request {
			_, key := s.account("1")
			s.do(get(key, "/jobs/"+uuid.NewString())).want(http.StatusNotFound) // the key is known from here on
			must(s.t, s.db.Close())
			return cup(s.t, key, "/remove-bg")
		}},
		fault.Unavailable: {"The database is away, so that the key cannot be checked.", func(s *stack) request {
			_, key := s.account("1")
			must(s.t, s.db.Close())
			return get(key, "/me")
		}},
	}
}

// TestRefusals_read_as_their_transcripts provokes every error code for real. Run
// with UPDATE_TRANSCRIPTS=1 to write the transcripts anew.
func TestRefusals_read_as_their_transcripts(t *testing.T) {
	t.Parallel()
	for code, scene := range scenarios() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			s := start(t)
			r := scene.request(s)
			got := scene.story + "\n\n" + r.transcript() + "\n" + s.do(r).transcript()
			file := filepath.Join(transcripts, string(code)+".txt")
			if os.Getenv("UPDATE_TRANSCRIPTS") != "" {
				must(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-file +now):\n%s", file, diff)
			}
		})
	}
}

// TestCodes_statuses_contract_and_transcripts_agree holds the four lists of
// error codes together: package fault, the contract's prose, the scenarios and
// the folder of transcripts, whose statuses come from real answers.
func TestCodes_statuses_contract_and_transcripts_agree(t *testing.T) {
	t.Parallel()
	want := map[string]int{}
	for _, sentence := range regexp.MustCompile("(\\d{3}): ((?:`[a-z_]+`(?:, )?)+)\\.").FindAllStringSubmatch(string(openapi.Document), -1) {
		status, err := strconv.Atoi(sentence[1])
		must(t, err)
		for _, code := range regexp.MustCompile("[a-z_]+").FindAllString(sentence[2], -1) {
			want[code] = status
		}
	}
	got := map[string]int{}
	files, err := filepath.Glob(filepath.Join(transcripts, "*.txt"))
	must(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		m := regexp.MustCompile(`(?s)\nHTTP/1\.1 (\d{3}) .*"code": "([a-z_]+)"`).FindStringSubmatch(string(data))
		if m == nil || m[2]+".txt" != filepath.Base(file) {
			t.Errorf("%s holds another code: %v", file, m)
			continue
		}
		got[m[2]], err = strconv.Atoi(m[1])
		must(t, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the contract's codes and those of the transcripts (-contract +transcripts):\n%s", diff)
	}
	var codes, provoked []string
	for _, code := range fault.Codes() {
		codes = append(codes, string(code))
	}
	for code := range scenarios() {
		provoked = append(provoked, string(code))
	}
	slices.Sort(codes)
	slices.Sort(provoked)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), codes); diff != "" {
		t.Errorf("the contract's codes and those of package fault (-contract +fault):\n%s", diff)
	}
	if diff := cmp.Diff(codes, provoked); diff != "" {
		t.Errorf("codes without a scenario (-fault +scenarios):\n%s", diff)
	}
}

// transcript is the request with holes for what differs from run to run.
func (r request) transcript() string {
	body := string(r.body)
	if r.shown != "" {
		body = r.shown
	}
	if body != "" {
		body = "\n" + body + "\n"
	}
	return holes(fmt.Sprintf("%s /api/v1%s\n%s\n%s", r.method, r.path, strings.Join(r.header, "\n"), body))
}

func (r reply) transcript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\n", r.status, http.StatusText(r.status))
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		if name == "Date" || name == "Content-Length" || name == "Connection" {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(r.header[name], ", "))
	}
	fmt.Fprintf(&b, "\n%s\n", indent(r.body))
	return holes(b.String())
}

func holes(s string) string {
	s = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(s, "<uuid>")
	return regexp.MustCompile(prefix+`_[0-9A-Za-z]{36}`).ReplaceAllString(s, "<key>")
}

// closedAddress is a loopback address at which nothing listens.
func closedAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}
