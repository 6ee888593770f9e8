package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"pictor/internal/apikey"
	"pictor/internal/httpapi"
)

func TestAuth_takes_either_header_or_both(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	_, other := s.account("1")
	for _, row := range []struct {
		name   string
		header []string
		code   string // "" for success
	}{
		{"bearer", []string{"Authorization: Bearer " + key}, ""},
		{"lower-case scheme", []string{"Authorization: bearer " + key}, ""},
		{"upper-case scheme", []string{"Authorization: BEARER " + key}, ""},
		{"two spaces", []string{"Authorization: Bearer  " + key}, ""},
		{"x-api-key", []string{"X-Api-Key: " + key}, ""},
		{"both alike", []string{"Authorization: Bearer " + key, "X-Api-Key: " + key}, ""},
		{"a foreign scheme beside the key", []string{"Authorization: Basic eDp5", "X-Api-Key: " + key}, ""},
		{"both different", []string{"Authorization: Bearer " + key, "X-Api-Key: " + other}, "invalid_key"},
		{"one of them broken", []string{"Authorization: Bearer " + key, "X-Api-Key: nonsense"}, "invalid_key"},
		{"nothing", nil, "unauthorized"},
		{"foreign scheme", []string{"Authorization: Basic eDp5"}, "unauthorized"},
		{"key without scheme", []string{"Authorization: " + key}, "unauthorized"},
		{"scheme without key", []string{"Authorization: Bearer"}, "unauthorized"},
		{"empty", []string{"X-Api-Key: "}, "unauthorized"},
		{"malformed", []string{"X-Api-Key: " + key + "x"}, "invalid_key"},
		{"wrong checksum", []string{"X-Api-Key: " + key[:len(key)-1] + swapped(key)}, "invalid_key"},
		{"another prefix", []string{"X-Api-Key: " + string(apikey.New("other"))}, "invalid_key"},
		{"unknown", []string{"Authorization: Bearer " + string(apikey.New(prefix))}, "invalid_key"},
		{"in the query", nil, "unauthorized"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := "/me"
			if row.name == "in the query" {
				path += "?api_key=" + key
			}
			r := s.in(t).do(get("", path, row.header...))
			if row.code == "" {
				r.want(http.StatusOK)
				return
			}
			r.refused(http.StatusUnauthorized, row.code)
			if got := r.header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
				t.Errorf("WWW-Authenticate is %q", got)
			}
		})
	}
}

// swapped is another last character than the key's.
func swapped(key string) string {
	if strings.HasSuffix(key, "0") {
		return "1"
	}
	return "0"
}

func TestAuth_refuses_malformed_keys_without_the_database(t *testing.T) {
	t.Parallel()
	s := start(t)
	must(t, s.db.Close())
	s.do(get("nonsense", "/me")).refused(http.StatusUnauthorized, "invalid_key")
	s.do(get(prefix+"_"+strings.Repeat("0", 36), "/me")).refused(http.StatusUnauthorized, "invalid_key")
	s.do(get("", "/me")).refused(http.StatusUnauthorized, "unauthorized")
	s.do(get(string(apikey.New(prefix)), "/me")).refused(http.StatusServiceUnavailable, "unavailable")
}

func TestAuth_forgets_a_revoked_key_when_told_so(t *testing.T) {
	t.Parallel()
	s := start(t)
	stop, err := s.queue.OnRevoked(func(h apikey.Hash) { s.api.Forget(h) })
	must(t, err)
	defer stop()
	account, key := s.account("1")
	path := "/jobs/" + uuid.NewString()
	s.do(get(key, path)).refused(http.StatusNotFound, "not_found")

	keys, err := s.db.Keys(t.Context(), account)
	must(t, err)
	_, err = s.db.RevokeKey(t.Context(), keys[0].ID)
	must(t, err)
	s.do(get(key, path)).refused(http.StatusNotFound, "not_found") // still remembered
	s.do(get(key, "/me")).refused(http.StatusUnauthorized, "invalid_key")

	must(t, s.queue.Revoked(apikey.Key(key).Hash()))
	s.until(func() bool { return s.do(get(key, path)).status == http.StatusUnauthorized })
	s.do(get(key, path)).refused(http.StatusUnauthorized, "invalid_key")
}

func TestAuth_looks_a_key_up_again_when_it_has_aged(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *httpapi.Config) { c.KeyCache = 1 }) // a nanosecond
	account, key := s.account("1")
	path := "/jobs/" + uuid.NewString()
	s.do(get(key, path)).refused(http.StatusNotFound, "not_found")
	must(t, s.db.DeleteAccount(t.Context(), account))
	s.do(get(key, path)).refused(http.StatusForbidden, "account_not_found")
}

func TestAuth_shows_another_accounts_job_as_a_missing_one(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	_, other := s.account("1")
	id := string(s.create(key))
	for _, path := range []string{"", "?wait=1", "/result"} {
		theirs, missing := s.do(get(other, "/jobs/"+id+path)), s.do(get(other, "/jobs/"+uuid.NewString()+path))
		theirs.refused(http.StatusNotFound, "not_found")
		if diff := cmp.Diff(string(missing.body), string(theirs.body)); diff != "" {
			t.Errorf("%s tells them apart: %s", path, diff)
		}
	}
}

// until asks again and again: something arrives by a broadcast.
func (s *stack) until(done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			s.t.Fatal("it did not happen")
		}
	}
}
