package httpapi

import (
	"fmt"
	"net/url"
	"time"

	"github.com/google/uuid"

	api "pictor/gen"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
)

const timeLayout = time.DateTime // in the zone of the contract

func (a *API) toJob(j job.Job) (*api.Job, error) {
	id, err := uuid.Parse(string(j.ID))
	if err != nil {
		return nil, fmt.Errorf("job id %q: %w", j.ID, err)
	}
	out := &api.Job{
		ID:        id,
		Task:      api.Task(j.Task),
		Status:    api.JobStatus(j.State),
		Progress:  j.Progress,
		Message:   j.Message,
		Cost:      j.Cost.Float(),
		Refunded:  j.Refunded,
		CreatedAt: a.toTime(j.CreatedAt),
		UpdatedAt: a.toTime(j.UpdatedAt),
	}
	out.ResultURL.SetToNull()
	out.DownloadURL.SetToNull()
	if j.State == job.Completed {
		out.ResultURL.SetTo(*a.results.JoinPath("r", j.ResultToken+job.Extension(j.ResultType)))
		out.DownloadURL.SetTo(*a.jobURL(j.ID).JoinPath("result"))
	}
	return out, nil
}

func (a *API) toJobWithBilling(j job.Job, balance point.Amount) (*api.JobWithBilling, error) {
	of, err := a.toJob(j)
	if err != nil {
		return nil, err
	}
	return &api.JobWithBilling{
		ID:          of.ID,
		Task:        of.Task,
		Status:      of.Status,
		Progress:    of.Progress,
		Message:     of.Message,
		ResultURL:   of.ResultURL,
		DownloadURL: of.DownloadURL,
		Cost:        of.Cost,
		Refunded:    of.Refunded,
		CreatedAt:   of.CreatedAt,
		UpdatedAt:   of.UpdatedAt,
		Billing:     api.Billing{Cost: of.Cost, Balance: balance.Float(), Currency: point.Currency},
	}, nil
}

func (a *API) jobURL(id job.ID) *url.URL { return a.base.JoinPath("jobs", string(id)) }

func (a *API) toTime(t time.Time) api.NilString {
	return api.NewNilString(t.In(a.zone).Format(timeLayout))
}

func toAccount(of postgres.Account) *api.Account {
	costs := make(api.AccountCostPerTask)
	for _, t := range job.Tasks() {
		costs[string(t)] = t.Cost().Float()
	}
	return &api.Account{
		Uname:            of.Name,
		IsVip:            of.VIP,
		Balance:          of.Balance.Float(),
		Currency:         point.Currency,
		CostPerImage:     job.LowestCost().Float(),
		CostPerTask:      costs,
		ImagesAffordable: of.Balance.Affords(job.LowestCost()),
	}
}

func toTask(t job.Task) api.TaskInfo {
	info := api.TaskInfo{
		ID:            api.Task(t),
		Name:          "Remove background",
		Endpoint:      "/remove-bg",
		Cost:          t.Cost().Float(),
		InputFormats:  []string{job.JPEG, job.PNG, job.WebP},
		OutputFormats: []string{job.PNG},
	}
	if scale := t.Scale(); scale != 0 {
		info.Name = fmt.Sprintf("Upscale %dx", scale)
		info.Endpoint = "/upscale"
		info.Scale = api.NewOptInt(scale)
		info.OutputFormats = []string{job.JPEG, job.PNG, job.WebP}
	}
	if side := t.MaxSide(); side != 0 {
		info.MaxSidePx = api.NewOptInt(side)
	}
	return info
}
