package main_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/openapi"
	oasgen "pictor/openapi/oasgen"
)

// memory holds generated files; ogen writes several at a time.
type memory struct {
	mu    sync.Mutex
	files map[string]string
}

func (m *memory) WriteFile(name string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = string(content)
	return nil
}

func TestGenerate_gives_the_code_that_is_checked_in(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("../ogen.yml")
	if err != nil {
		t.Fatal(err)
	}
	want := &memory{files: map[string]string{}}
	if err := oasgen.Generate(config, openapi.Document, want); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("../../gen")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join("../../gen", entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[entry.Name()] = string(content)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want.files)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Fatalf("gen/ has other files than the contract gives (-want +got); run go generate ./openapi\n%s", diff)
	}
	for name, content := range want.files {
		if content != got[name] {
			t.Errorf("gen/%s is not what the contract gives; run go generate ./openapi", name)
		}
	}
}

func TestView_refuses_a_creation_that_answers_200_and_202_with_different_bodies(t *testing.T) {
	t.Parallel()
	_, err := oasgen.View([]byte(`{"paths": {"/x": {"post": {"operationId": "createX", "responses": {
		"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}},
		"202": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/B"}}}}
	}}}}}`))
	if err == nil {
		t.Fatal("want an error")
	}
	if diff := cmp.Diff("createX: 200 and 202 differ in their body", err.Error()); diff != "" {
		t.Error(diff)
	}
}
