package models_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/models"
)

func TestVerify_accepts_every_shipped_file(t *testing.T) {
	t.Parallel()
	if err := models.Verify(); err != nil {
		t.Fatal(err)
	}
}

func TestBytes_refuses_a_file_with_another_checksum(t *testing.T) {
	t.Parallel()
	d := models.Shipped()[0]
	d.SHA256 = models.Shipped()[1].SHA256
	if _, err := d.Bytes(); err == nil {
		t.Fatal("a wrong checksum was accepted")
	}
}

func TestDefault_has_one_model_for_each_task(t *testing.T) {
	t.Parallel()
	var got []job.Task
	for _, d := range models.Default() {
		got = append(got, d.Task)
		if d.Name != string(d.Task) {
			t.Errorf("the default model of %s is called %s", d.Task, d.Name)
		}
	}
	if diff := cmp.Diff(job.Tasks(), got); diff != "" {
		t.Error(diff)
	}
}

func TestShipped_enlarges_as_its_task_says(t *testing.T) {
	t.Parallel()
	for _, d := range models.Shipped() {
		if want := max(d.Task.Scale(), 1); d.Scale != want {
			t.Errorf("%s: scale %d, want %d", d.Name, d.Scale, want)
		}
	}
}

func TestFor_refuses_an_unknown_task(t *testing.T) {
	t.Parallel()
	if _, err := models.For("sharpen"); err == nil {
		t.Fatal("want an error")
	}
}
