package app

import (
	"pictor/internal/job"
	"pictor/internal/models"
)

// Model is a row of `pictor models list`.
type Model struct {
	Name    string   `json:"name"`
	Task    job.Task `json:"task"`
	SHA256  string   `json:"sha256"`
	Shipped bool     `json:"shipped"`
	Origin  string   `json:"origin"`
	Licence string   `json:"licence"`
}

// Models lists the models that the configuration may name.
func Models() []Model {
	var rows []Model
	for _, d := range models.Shipped() {
		rows = append(rows, Model{d.Name, d.Task, d.SHA256, true, d.Origin, d.Licence})
	}
	return rows
}

// VerifyModels compares every model with its checksum.
func VerifyModels() (found []Finding, intact bool) {
	intact = true
	for _, d := range models.Shipped() {
		f := Finding{Name: d.Name, OK: true, Detail: "intact"}
		if _, err := d.Bytes(); err != nil {
			f, intact = Finding{d.Name, false, err.Error(), modelsHint}, false
		}
		found = append(found, f)
	}
	return found, intact
}
