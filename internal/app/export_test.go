package app

// Waiting is the number of requests that the API holds.
func (a *API) Waiting() int { return a.waits.Waiting() }
