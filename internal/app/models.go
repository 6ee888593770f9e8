package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pictor/internal/job"
	"pictor/internal/models"
)

// ModelsFolder is where pulled models lie.
type ModelsFolder struct {
	ModelsDir string `env:"PICTOR_MODELS_DIR" placeholder:"DIR" help:"Folder of pulled models. Empty: pictor/models in the user's data folder."`
}

// ModelChoice names the model of each task.
type ModelChoice struct {
	ModelsFolder
	RemoveBGModel  string `name:"remove-bg-model" env:"PICTOR_REMOVE_BG_MODEL" default:"remove-bg" help:"Model of remove-bg, by its name in \"pictor models list\"."`
	Upscale2xModel string `name:"upscale-2x-model" env:"PICTOR_UPSCALE_2X_MODEL" default:"upscale-2x" help:"Model of upscale-2x; upscale-2x-fast takes a third of the time."`
	Upscale4xModel string `name:"upscale-4x-model" env:"PICTOR_UPSCALE_4X_MODEL" default:"upscale-4x" help:"Model of upscale-4x; upscale-4x-fast takes a third of the time."`
}

// folder is the folder of pulled models. It need not be there.
func (c ModelsFolder) folder() (string, error) {
	if c.ModelsDir != "" {
		return filepath.Abs(c.ModelsDir)
	}
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("PICTOR_MODELS_DIR is not set: %w", err)
		}
		data = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(data, "pictor", "models"), nil
}

// all lists every model that the configuration may name. A user without a home
// has the shipped ones.
func (c ModelsFolder) all() ([]models.Description, error) {
	folder, err := c.folder()
	if err != nil {
		return models.Shipped(), err
	}
	return models.All(folder), nil
}

func (c ModelChoice) names() map[job.Task]string {
	return map[job.Task]string{job.RemoveBG: c.RemoveBGModel, job.Upscale2x: c.Upscale2xModel, job.Upscale4x: c.Upscale4xModel}
}

// inUse names the models of the tasks in their order.
func (c ModelChoice) inUse(tasks []job.Task) string {
	var names []string
	for _, t := range tasks {
		names = append(names, c.names()[t])
	}
	return strings.Join(names, ", ")
}

// chosen is the model of each of the tasks, by the configured names. The error
// names every mistake, and a model that has to be pulled first.
func (c ModelChoice) chosen(tasks []job.Task) ([]models.Description, error) {
	var chosen []models.Description
	var mistakes []error
	all, homeless := c.all()
	for _, t := range tasks {
		setting := "PICTOR_" + strings.ToUpper(strings.ReplaceAll(string(t), "-", "_")) + "_MODEL"
		name := c.names()[t]
		var names []string
		i := slices.IndexFunc(all, func(d models.Description) bool {
			if d.Task == t {
				names = append(names, d.Name)
			}
			return d.Task == t && d.Name == name
		})
		switch {
		case i < 0:
			mistakes = append(mistakes, fmt.Errorf("%s is %q: no such model of %s; there are %s", setting, name, t, strings.Join(names, ", ")), homeless)
		case !all[i].Installed():
			mistakes = append(mistakes, fmt.Errorf("%s: %w", setting, &models.MissingError{Name: name, Path: all[i].Path}))
		default:
			chosen = append(chosen, all[i])
		}
	}
	return chosen, errors.Join(mistakes...)
}

// Model is a row of `pictor models list`.
type Model struct {
	Name      string   `json:"name"`
	Task      job.Task `json:"task"`
	Shipped   bool     `json:"shipped"`   // in the binary
	Installed bool     `json:"installed"` // in the binary or in the folder
	InUse     bool     `json:"in_use"`    // of its task, by the configuration
	Own       bool     `json:"own"`       // another export, on the operator's word

	InputSize     int    `json:"input_size"` // 0: any
	Fit           string `json:"fit"`        // how the picture becomes the input
	Normalisation string `json:"normalisation"`
	Output        string `json:"output"` // what is done to the answer
	RuntimeOnly   bool   `json:"onnxruntime_only"`

	Path    string `json:"path,omitempty"`
	URL     string `json:"url,omitempty"`
	Size    int64  `json:"size,omitempty"`
	SHA256  string `json:"sha256"`
	MD5     string `json:"md5,omitempty"`
	Witness string `json:"witness,omitempty"` // who vouches for sha256
	Origin  string `json:"origin"`
	Licence string `json:"licence"`
}

// Models lists the models that the configuration may name.
func Models(c ModelChoice) []Model {
	all, _ := c.all() // without a home, the shipped ones
	rows := make([]Model, len(all))
	for i, d := range all {
		rows[i] = Model{
			Name: d.Name, Task: d.Task,
			Shipped: d.Shipped(), Installed: d.Installed(), InUse: c.names()[d.Task] == d.Name, Own: d.Own(),
			InputSize: d.Side, Fit: fit(d), Normalisation: normalisation(d), Output: output(d), RuntimeOnly: d.RuntimeOnly,
			Path: d.Path, URL: d.URL, Size: d.Size, SHA256: d.SHA256, MD5: d.MD5, Witness: d.Witness,
			Origin: d.Origin, Licence: d.Licence,
		}
	}
	return rows
}

// VerifyModels compares every model that is there with its checksum.
func VerifyModels(c ModelsFolder) (found []Finding, intact bool) {
	intact = true
	all, _ := c.all() // without a home, the shipped ones
	for _, d := range all {
		if !d.Installed() {
			continue
		}
		f := Finding{Name: d.Name, OK: true, Detail: "intact"}
		if d.Own() {
			f.Detail = "intact, by the checksum beside it"
		}
		if _, err := d.Bytes(); err != nil {
			f, intact = Finding{Name: d.Name, Detail: err.Error()}, false
			if d.Shipped() {
				f.Hint = modelsHint
			}
		}
		found = append(found, f)
	}
	return found, intact
}

// Pulled says what became of a pull.
type Pulled struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Pulled bool   `json:"pulled"` // false: it was there
}

// PullModel downloads a model into the folder.
func PullModel(ctx context.Context, c ModelsFolder, name string, from models.Source) (Pulled, error) {
	all, err := c.all()
	if err != nil {
		return Pulled{}, err
	}
	i := slices.IndexFunc(all, func(d models.Description) bool { return d.Name == name })
	if i < 0 {
		return Pulled{}, &UsageError{Err: fmt.Errorf("no model is called %q: `pictor models list` names them", name)}
	}
	pulled, err := all[i].Pull(ctx, from)
	return Pulled{name, all[i].Path, pulled}, err
}
