package chaos_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"pictor/internal/job"
	"pictor/internal/testkit/contract"
)

// patience is how long beyond its `wait` a client listens for an answer. It
// exceeds what the server allows itself for any step.
const patience = 20 * time.Second

// load is the customers: each client asks for pictures, follows what it got to
// the end and keeps the book.
type load struct {
	book  *book
	bases []string // of every API process
	http  *http.Client
	small [2]picture
	large picture // keeps a worker busy for a while
}

// picture is an input in one format.
type picture struct {
	mediaType string
	bytes     []byte
	side      int
}

func newLoad(t testing.TB, b *book, bases []string) *load {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	return &load{
		book: b, bases: bases,
		http:  &http.Client{Transport: contract.NewTransport(t, transport)},
		small: [2]picture{drawPNG(t, 64), drawJPEG(t, 48)},
		large: drawJPEG(t, 256),
	}
}

func draw(side int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			dx, dy := x-side/2, y-side/2
			c := color.NRGBA{40, 90, uint8(100 + y), 255}
			if dx*dx+dy*dy < side*side/9 {
				c = color.NRGBA{220, uint8(120 + x), 60, 255}
			}
			m.SetNRGBA(x, y, c)
		}
	}
	return m
}

func drawPNG(t testing.TB, side int) picture {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, draw(side)); err != nil {
		t.Fatal(err)
	}
	return picture{job.PNG, b.Bytes(), side}
}

func drawJPEG(t testing.TB, side int) picture {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, draw(side), nil); err != nil {
		t.Fatal(err)
	}
	return picture{job.JPEG, b.Bytes(), side}
}

// run is one client of an account, until asking is done. It follows what it
// was given until following is done.
func (l *load) run(asking, following context.Context, a *account, r *rand.Rand) {
	for asking.Err() == nil {
		k := &ticket{account: a, task: job.Upscale2x, began: time.Now()}
		switch n := r.IntN(20); {
		case n < 3:
			k.task = job.Upscale4x
		case n < 5:
			k.task = job.RemoveBG
		}
		if r.IntN(5) > 0 {
			k.key = uuid.NewString()
		}
		l.book.open(k)
		wait := []int{0, 0, 1, 5, 10}[r.IntN(5)]
		if id, ok := l.submit(asking, k, wait, r); ok {
			l.follow(following, a, id, r)
			continue
		}
		pause(asking, time.Duration(50+r.IntN(250))*time.Millisecond)
	}
}

// submit asks until it gets a job or a refusal. A request without a known
// outcome is repeated only under a key, as the API tells its clients.
func (l *load) submit(ctx context.Context, k *ticket, wait int, r *rand.Rand) (job.ID, bool) {
	p, form := l.small[r.IntN(2)], r.IntN(3)
	if r.IntN(12) == 0 {
		p = l.large
	}
	for range 5 {
		status, a, err := l.post(ctx, k, wait, p, form, r)
		switch {
		case err == nil && (status == http.StatusOK || status == http.StatusAccepted):
			l.book.accepted(k, a, p.side)
			return a.ID, true
		case status == http.StatusBadGateway:
			l.book.denied(k)
			return "", false
		case status == http.StatusPaymentRequired, status == http.StatusTooManyRequests:
			if k.unknown == 0 {
				return "", false
			}
			// An attempt before may still be on its way: find out.
		case err != nil || status == http.StatusServiceUnavailable:
			l.book.blank(k)
			if k.key == "" {
				return "", false
			}
		default:
			l.book.problem("a good request was answered %d", status)
			return "", false
		}
		if !pause(ctx, time.Duration(100+r.IntN(400))*time.Millisecond) {
			return "", false
		}
	}
	return "", false
}

// post makes one attempt. Only what the server said whole is an answer.
func (l *load) post(ctx context.Context, k *ticket, wait int, p picture, form int, r *rand.Rand) (int, answer, error) {
	var a answer
	path := "/remove-bg"
	query := "?wait=" + strconv.Itoa(wait)
	if s := k.task.Scale(); s != 0 {
		path, query = "/upscale", query+"&scale="+strconv.Itoa(s)
	}
	mediaType, body := envelope(p, form)
	// An attempt that has begun is brought to its end, so that the book knows
	// as much as a client can.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(wait)*time.Second+patience)
	defer cancel()
	response, err := l.send(ctx, http.MethodPost, path+query, k.account, r, func(q *http.Request) {
		q.Body = io.NopCloser(bytes.NewReader(body))
		q.ContentLength = int64(len(body))
		q.Header.Set("Content-Type", mediaType)
		if k.key != "" {
			q.Header.Set("Idempotency-Key", k.key)
		}
	})
	if err != nil {
		return 0, a, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode < 300 {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		l.book.cutOff(err)
		return 0, a, err
	}
	l.book.count(response.StatusCode)
	l.book.admission(response.StatusCode)
	return response.StatusCode, a, nil
}

func envelope(p picture, form int) (mediaType string, body []byte) {
	switch form {
	case 0:
		return p.mediaType, p.bytes
	case 1:
		return "application/json", fmt.Appendf(nil, `{"image_base64":%q}`, base64.StdEncoding.EncodeToString(p.bytes))
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, _ := w.CreateFormFile("image", "picture") // a buffer does not fail
	_, _ = part.Write(p.bytes)
	_ = w.Close()
	return w.FormDataContentType(), b.Bytes()
}

// send picks a server, as a load balancer does: one that refuses the connection
// is passed over for the next.
func (l *load) send(ctx context.Context, method, path string, a *account, r *rand.Rand, with func(*http.Request)) (*http.Response, error) {
	first := r.IntN(len(l.bases))
	for i := range l.bases {
		base := l.bases[(first+i)%len(l.bases)]
		q, err := http.NewRequestWithContext(ctx, method, base+path, nil)
		if err != nil {
			return nil, err
		}
		var fresh, answered atomic.Bool
		q = q.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn:              func(c httptrace.GotConnInfo) { fresh.Store(!c.Reused) },
			GotFirstResponseByte: func() { answered.Store(true) },
		}))
		q.Header.Set("Authorization", "Bearer "+a.key)
		with(q)
		response, err := l.http.Do(q)
		var refused *net.OpError
		if errors.As(err, &refused) && refused.Op == "dial" {
			l.book.refusal(base)
			continue
		}
		// The kernel takes connections for a process that closes its door in that
		// moment, and resets them. Had the process read anything of the request,
		// the audit would find a job that nobody knows of.
		if err != nil && fresh.Load() && !answered.Load() && ctx.Err() == nil && l.book.leaves(base) {
			l.book.refusal(base)
			continue
		}
		if err != nil {
			l.book.cutOff(err)
		}
		return response, err
	}
	l.book.count(noServer)
	return nil, errors.New("no server takes connections")
}

// follow looks at a job until it is final, and fetches most results.
func (l *load) follow(ctx context.Context, a *account, id job.ID, r *rand.Rand) {
	for ctx.Err() == nil {
		j, err := l.look(ctx, a, id, []int{0, 2, 5}[r.IntN(3)], r)
		if err == nil && j.Status.Final() {
			if j.Status == job.Completed && r.IntN(3) > 0 {
				_ = l.fetch(ctx, a, id, r)
			}
			return
		}
		pause(ctx, time.Duration(50+r.IntN(200))*time.Millisecond)
	}
}

func (l *load) look(ctx context.Context, a *account, id job.ID, wait int, r *rand.Rand) (answer, error) {
	var j answer
	asked := time.Duration(wait) * time.Second
	ctx, cancel := context.WithTimeout(ctx, asked+patience)
	defer cancel()
	began := time.Now()
	response, err := l.send(ctx, http.MethodGet, "/jobs/"+string(id)+"?wait="+strconv.Itoa(wait), a, r, func(*http.Request) {})
	if err != nil {
		return j, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		l.book.cutOff(err)
		return j, err
	}
	l.book.count(response.StatusCode)
	l.book.late(time.Since(began) - asked)
	switch response.StatusCode {
	case http.StatusOK:
		if err := json.Unmarshal(b, &j); err != nil {
			return j, err
		}
		l.book.looked(j)
		return j, nil
	case http.StatusServiceUnavailable:
	default:
		l.book.problem("looking at job %s was answered %d: %s", id, response.StatusCode, b)
	}
	return j, errors.New(response.Status)
}

// fetch downloads a result and decodes it.
func (l *load) fetch(ctx context.Context, a *account, id job.ID, r *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	response, err := l.send(ctx, http.MethodGet, "/jobs/"+string(id)+"/result", a, r, func(*http.Request) {})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		l.book.cutOff(err)
		return err
	}
	l.book.count(response.StatusCode)
	switch response.StatusCode {
	case http.StatusOK:
		if err := l.check(id, b); err != nil {
			l.book.problem("the result of job %s: %v", id, err)
		}
		return nil
	case http.StatusServiceUnavailable:
		return errors.New(response.Status)
	default:
		l.book.problem("the result of the completed job %s was answered %d: %s", id, response.StatusCode, b)
		return nil
	}
}

func (l *load) check(id job.ID, b []byte) error {
	m, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	l.book.mu.Lock()
	s := l.book.jobs[id]
	l.book.mu.Unlock()
	want := s.width * max(1, s.ticket.task.Scale())
	if m.Bounds().Dx() != want || m.Bounds().Dy() != want {
		return fmt.Errorf("it measures %s, want a side of %d", m.Bounds().Size(), want)
	}
	return nil
}

// settle looks at everything until all of it is final, then downloads every
// result. It returns when the time is up, having noted what is not.
func (l *load) settle(ctx context.Context, r *rand.Rand) {
	seed := r.Uint64()
	each := func(jobs []*seen, do func(s *seen, r *rand.Rand)) {
		var all sync.WaitGroup
		next := make(chan *seen)
		for i := range 8 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				for s := range next {
					do(s, r)
				}
			})
		}
		for _, s := range jobs {
			next <- s
		}
		close(next)
		all.Wait()
	}
	each(l.book.unfinished(), func(s *seen, r *rand.Rand) {
		for ctx.Err() == nil {
			if j, err := l.look(ctx, s.ticket.account, s.ticket.job, 5, r); err == nil && j.Status.Final() {
				return
			}
			pause(ctx, 100*time.Millisecond)
		}
	})
	for _, s := range l.book.unfinished() {
		l.book.problem("job %s is still %s", s.ticket.job, s.state)
	}
	each(l.book.completed(), func(s *seen, r *rand.Rand) {
		for l.fetch(ctx, s.ticket.account, s.ticket.job, r) != nil {
			if !pause(ctx, 100*time.Millisecond) {
				l.book.problem("the result of job %s could not be fetched", s.ticket.job)
				return
			}
		}
	})
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// row is the account of one kind of fault.
type row struct {
	name                string
	injected            int
	statuses            map[int]int
	completed, refunded int
	recovery            []time.Duration
	violations          int
	cuts                []string // what clients said that got no answer
	admissions          []admissionAnswer
	refusals            map[string]int // connections that a server did not take
	away                string         // the base of the server that is asked to stop, "" for none
}

// admissionAnswer is one answer to a client that asked for a job.
type admissionAnswer struct {
	at     time.Time
	status int
}

// What stands in a row beside HTTP statuses.
const (
	noAnswer = 0
	noServer = -1
)

func (r *row) answers(status int) {
	if r.statuses == nil {
		r.statuses = make(map[int]int)
	}
	r.statuses[status]++
}

func (r *row) byStatus() string {
	codes := make([]int, 0, len(r.statuses))
	for c := range r.statuses {
		codes = append(codes, c)
	}
	slices.Sort(codes)
	var b bytes.Buffer
	for _, c := range codes {
		name := strconv.Itoa(c)
		switch c {
		case noAnswer:
			name = "cut off"
		case noServer:
			name = "no server"
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %d", name, r.statuses[c])
	}
	return b.String()
}
