package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/testkit/pgtest"
)

var inHoChiMinh = time.FixedZone("", 7*60*60)

func TestCreate_answers_202_with_a_charged_job(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	before := time.Now()
	r := s.do(cup(t, key, "/upscale?scale=4&wait=0"))
	r.want(http.StatusAccepted)
	got := r.job()
	want := jobBody{
		Task: "upscale-4x", Status: "queued", Cost: "0.15",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(jobBody{}, "ID", "Message", "CreatedAt", "UpdatedAt", "Billing")); diff != "" {
		t.Error(diff)
	}
	if got.Message == "" {
		t.Error("no message")
	}
	if diff := cmp.Diff(`{"cost":0.15,"balance":0.85,"currency":"Point"}`, string(field(t, r.body, "billing"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("/api/v1/jobs/"+got.ID, r.header.Get("Location")); diff != "" {
		t.Error(diff)
	}
	created, err := time.ParseInLocation(time.DateTime, got.CreatedAt, inHoChiMinh)
	must(t, err)
	if created.Before(before.Add(-2*time.Second)) || created.After(time.Now().Add(2*time.Second)) {
		t.Errorf("created at %s, and it is %s", created, before)
	}
	if r.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first answer is no replay")
	}
}

func field(t testing.TB, body []byte, name string) json.RawMessage {
	t.Helper()
	var fields map[string]json.RawMessage
	must(t, json.Unmarshal(body, &fields))
	return fields[name]
}

func TestJob_has_the_fields_of_the_contract_in_every_state(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	done, failed := s.create(key), s.create(key)
	path := func(id job.ID) string { return "/jobs/" + string(id) }

	queued := s.do(get(key, path(done)))
	queued.want(http.StatusOK)
	order := regexp.MustCompile(`"([a-z_]+)":`).FindAllStringSubmatch(string(queued.body), -1)
	var names []string
	for _, m := range order {
		names = append(names, m[1])
	}
	if diff := cmp.Diff("id task status progress message result_url download_url cost refunded created_at updated_at", strings.Join(names, " ")); diff != "" {
		t.Error(diff)
	}
	if j := queued.job(); j.Status != "queued" || j.Progress != 0 || j.ResultURL != nil || j.DownloadURL != nil {
		t.Errorf("queued: %+v", j)
	}

	s.complete(done, job.PNG, photo(t, "cup.png"))
	j := s.do(get(key, path(done))).job()
	if j.Status != "completed" || j.Progress != 100 || j.Refunded {
		t.Errorf("completed: %+v", j)
	}
	if j.ResultURL == nil || *j.ResultURL != results+"/r/token-of-"+string(done)+".png" {
		t.Errorf("result_url: %v", j.ResultURL)
	}
	if j.DownloadURL == nil || *j.DownloadURL != s.server.URL+"/api/v1"+path(done)+"/result" {
		t.Errorf("download_url: %v", j.DownloadURL)
	}

	s.fail(failed, "The image is damaged and cannot be read.")
	j = s.do(get(key, path(failed))).job()
	if j.Status != "failed" || !j.Refunded || j.Cost != "0.1" || j.ResultURL != nil || j.Message != "The image is damaged and cannot be read." {
		t.Errorf("failed: %+v", j)
	}
	if diff := cmp.Diff("0.9", string(field(t, s.do(get(key, "/me")).body, "balance"))); diff != "" {
		t.Errorf("one of two charges was given back: %s", diff)
	}
}

func TestJob_id_is_taken_in_any_spelling_and_nothing_else_is(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	id := string(s.create(key))
	s.do(get(key, "/jobs/"+strings.ToUpper(id))).want(http.StatusOK)
	for _, bad := range []string{"1", "nope", id + "0", id[:35], "%00", "..%2f" + id, "'"} {
		s.do(get(key, "/jobs/"+bad)).refused(http.StatusNotFound, "not_found")
		s.do(get(key, "/jobs/"+bad+"?wait=99")).refused(http.StatusNotFound, "not_found")
		s.do(get(key, "/jobs/"+bad+"/result")).refused(http.StatusNotFound, "not_found")
	}
	s.do(get(key, "/jobs/"+id+"?wait=61")).refused(http.StatusUnprocessableEntity, "invalid_request")
	s.do(get(key, "/jobs/"+id+"/result?download=yes")).refused(http.StatusUnprocessableEntity, "invalid_request")
}

func TestWait_answers_at_the_moment_the_job_is_final(t *testing.T) {
	t.Parallel()
	s := start(t)
	account, key := s.account("1")
	answers := make(chan reply, 2)
	go func() { answers <- s.do(cup(t, key, "/remove-bg?wait=60")) }()
	var id job.ID
	s.until(func() bool {
		jobs, err := s.db.Jobs(t.Context(), account, 1)
		must(t, err)
		if len(jobs) == 1 {
			id = jobs[0].ID
		}
		return id != ""
	})
	go func() { answers <- s.do(get(key, "/jobs/"+string(id)+"?wait=60")) }()
	s.complete(id, job.PNG, photo(t, "cup.png"))
	finished := time.Now()
	for range 2 {
		r := <-answers
		r.want(http.StatusOK)
		if r.job().Status != "completed" || r.header.Get("Location") != "" {
			t.Errorf("got %+v", r)
		}
	}
	if late := time.Since(finished); late > 20*time.Second {
		t.Errorf("answered %s after the job was final", late)
	}
}

func TestWait_answers_with_the_job_as_it_is_when_the_time_is_up(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	begin := time.Now()
	r := s.do(cup(t, key, "/remove-bg?wait=1"))
	r.want(http.StatusAccepted)
	if took := time.Since(begin); took < time.Second {
		t.Errorf("answered after %s", took)
	}
	r = s.do(get(key, "/jobs/"+r.job().ID+"?wait=1"))
	r.want(http.StatusOK)
	if r.job().Status != "queued" {
		t.Errorf("got %+v", r.job())
	}
}

func TestCreate_answers_200_for_a_job_that_failed_while_waiting(t *testing.T) {
	t.Parallel()
	s := start(t)
	account, key := s.account("1")
	answer := make(chan reply, 1)
	go func() { answer <- s.do(cup(t, key, "/remove-bg?wait=60")) }()
	s.until(func() bool {
		jobs, err := s.db.Jobs(t.Context(), account, 1)
		must(t, err)
		if len(jobs) == 1 {
			s.fail(jobs[0].ID, "The image is damaged and cannot be read.")
		}
		return len(jobs) == 1
	})
	r := <-answer
	r.want(http.StatusOK)
	if j := r.job(); j.Status != "failed" || !j.Refunded || j.Billing.Balance != "0.9" {
		t.Errorf("got %+v", j)
	}
}

func TestCreate_repeats_a_request_under_the_same_idempotency_key(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("0.35")
	_, other := s.account("1")
	const header = "Idempotency-Key: order-7"
	first := s.do(cup(t, key, "/upscale", header))
	first.want(http.StatusAccepted)
	s.do(cup(t, key, "/upscale")).want(http.StatusAccepted) // another charge in between

	contentType, body := form(t, part{name: "image", file: "cup.png", data: photo(t, "cup.png")}, part{name: "wait", data: []byte("0")})
	again := s.do(upload(key, "/upscale", contentType, body, header)) // another envelope, the same image and options
	again.want(http.StatusAccepted)
	if got := again.header.Get("Idempotent-Replayed"); got != "true" {
		t.Errorf("Idempotent-Replayed is %q", got)
	}
	if first.job().ID != again.job().ID || again.job().Billing.Balance != "0.25" {
		t.Errorf("%+v was repeated as %+v", first.job(), again.job())
	}
	s.do(cup(t, key, "/upscale?scale=4", header)).refused(http.StatusUnprocessableEntity, "invalid_request")
	s.do(cup(t, key, "/remove-bg", header)).refused(http.StatusUnprocessableEntity, "invalid_request")
	s.do(upload(key, "/upscale", "image/jpeg", photo(t, "rocket.jpg"), header)).refused(http.StatusUnprocessableEntity, "invalid_request")
	if theirs := s.do(cup(t, other, "/upscale", header)); theirs.job().ID == first.job().ID {
		t.Error("a key of one account answered another")
	}
	s.complete(job.ID(first.job().ID), job.PNG, photo(t, "cup.png"))
	s.do(cup(t, key, "/upscale", header)).want(http.StatusOK)
	if diff := cmp.Diff("0.15", string(field(t, s.do(get(key, "/me")).body, "balance"))); diff != "" {
		t.Error(diff)
	}
}

func TestCreate_makes_one_job_of_repeats_that_run_at_once(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	const repeats = 12
	var all sync.WaitGroup
	answers := make([]reply, repeats)
	for i := range repeats {
		all.Go(func() { answers[i] = s.do(cup(t, key, "/remove-bg", "Idempotency-Key: same")) })
	}
	all.Wait()
	fresh := 0
	for _, r := range answers {
		r.want(http.StatusAccepted)
		if r.job().ID != answers[0].job().ID {
			t.Errorf("two jobs: %s and %s", r.job().ID, answers[0].job().ID)
		}
		if r.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d answers say that they are the first", fresh)
	}
	if diff := cmp.Diff("0.9", string(field(t, s.do(get(key, "/me")).body, "balance"))); diff != "" {
		t.Error(diff)
	}
}

func TestCreate_keeps_to_five_running_jobs_and_the_balance_under_concurrency(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, rich := s.account("10")
	_, poor := s.account("0.3") // 0.3 / 0.1 affords 3, and in floats only 2
	for key, want := range map[string]int{rich: job.MaxRunning, poor: 3} {
		statuses := make(chan int, 12)
		var all sync.WaitGroup
		for range cap(statuses) {
			all.Go(func() { statuses <- s.do(cup(t, key, "/remove-bg")).status })
		}
		all.Wait()
		close(statuses)
		accepted := 0
		for status := range statuses {
			if status == http.StatusAccepted {
				accepted++
			}
		}
		if accepted != want {
			t.Errorf("%d were accepted, want %d", accepted, want)
		}
	}
	if diff := cmp.Diff("0", string(field(t, s.do(get(poor, "/me")).body, "balance"))); diff != "" {
		t.Error(diff)
	}
}

func TestMe_shows_exact_amounts(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, row := range []struct {
		balance, shown string
		affordable     int
	}{
		{"0.3", "0.3", 3}, {"12.5", "12.5", 125}, {"0.7", "0.7", 7}, {"0", "0", 0}, {"0.099", "0.099", 0}, {"1000000000", "1000000000", 10_000_000_000},
	} {
		_, key := s.account(row.balance)
		r := s.do(get(key, "/me"))
		r.want(http.StatusOK)
		want := map[string]string{
			"balance": row.shown, "currency": `"Point"`, "cost_per_image": "0.1", "images_affordable": fmt.Sprint(row.affordable), "is_vip": "false",
		}
		got := map[string]string{}
		for name := range want {
			got[name] = string(field(t, r.body, name))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		wantCosts(t, r.body)
	}
}

func wantCosts(t *testing.T, me []byte) {
	t.Helper()
	var costs map[string]json.Number
	must(t, json.Unmarshal(field(t, me, "cost_per_task"), &costs))
	if diff := cmp.Diff(map[string]json.Number{"remove-bg": "0.1", "upscale-2x": "0.1", "upscale-4x": "0.15"}, costs); diff != "" {
		t.Error(diff)
	}
}

// VIP is a flag for another product's quota: here it is shown, and nothing else.
func TestVIP_pays_the_same(t *testing.T) {
	t.Parallel()
	s := start(t)
	account, err := s.db.CreateAccount(t.Context(), "vip", point.Point, true)
	must(t, err)
	key := string(pgtest.NewKey(t, s.db, account.ID))
	r := s.do(cup(t, key, "/upscale?scale=4"))
	r.want(http.StatusAccepted)
	if diff := cmp.Diff(`{"cost":0.15,"balance":0.85,"currency":"Point"}`, string(field(t, r.body, "billing"))); diff != "" {
		t.Error(diff)
	}
	me := s.do(get(key, "/me"))
	me.want(http.StatusOK)
	if got := string(field(t, me.body, "is_vip")); got != "true" {
		t.Errorf("is_vip is %s", got)
	}
	wantCosts(t, me.body)
}
