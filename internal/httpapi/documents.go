package httpapi

import (
	"encoding/json"
	"fmt"
	"time"

	"pictor/internal/job"
)

// Documents writes jobs as the API shows them, for a program that serves
// nothing: the operator's commands.
type Documents struct{ api *API }

// NewDocuments takes the public roots that the links in a job begin with.
func NewDocuments(baseURL, resultsURL string) (*Documents, error) {
	a := new(API)
	var err error
	if a.base, err = root(baseURL); err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	if a.results, err = root(resultsURL); err != nil {
		return nil, fmt.Errorf("results URL: %w", err)
	}
	if a.zone, err = time.LoadLocation(zone); err != nil {
		return nil, fmt.Errorf("load the time zone: %w", err)
	}
	return &Documents{a}, nil
}

// Job is the contract's Job.
func (d *Documents) Job(j job.Job) (json.RawMessage, error) {
	document, err := d.api.toJob(j)
	if err != nil {
		return nil, err
	}
	return document.MarshalJSON()
}
