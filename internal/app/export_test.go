package app

import (
	"context"
	"net/http"
)

// The clocks of a claim.
const (
	Lease = lease
	Beat  = beat
)

// Waiting is the number of requests that the API holds.
func (a *API) Waiting() int { return a.waits.Waiting() }

// Leave is what SIGTERM begins with; Stop comes when the notice is over.
func (a *API) Leave() { a.leave() }

// Checked names what fails of what /readyz looks at, and whether it is ready.
func (w *Worker) Checked(ctx context.Context) (failed map[string]bool, ready bool) {
	parts, ready := w.ops.look(ctx)
	failed = make(map[string]bool)
	for name, said := range parts {
		if said != "ok" {
			failed[name] = true
		}
	}
	return failed, ready
}

// Servers are the HTTP servers of the API.
func Servers(a *API) map[string]*http.Server {
	return map[string]*http.Server{"api": a.api.http, "results": a.host.http, "ops": a.opsS.http}
}
