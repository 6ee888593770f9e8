package openapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"pictor/openapi"
)

func TestDocument_is_valid_OpenAPI(t *testing.T) {
	t.Parallel()
	loader := openapi3.NewLoader()
	document, err := loader.LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestServed_differs_from_the_contract_only_in_servers(t *testing.T) {
	t.Parallel()
	const root = `https://img.example.com/"x"/api/v1`
	got, err := openapi.Served(root)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Servers json.RawMessage `json:"servers"`
	}
	if err := json.Unmarshal(got, &document); err != nil {
		t.Fatal(err)
	}
	var servers []map[string]string
	if err := json.Unmarshal(document.Servers, &servers); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]map[string]string{{"url": root}}, servers); diff != "" {
		t.Error(diff)
	}
	var original struct {
		Servers json.RawMessage `json:"servers"`
	}
	if err := json.Unmarshal(openapi.Document, &original); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.Replace(got, document.Servers, original.Servers, 1), openapi.Document) {
		t.Error("another byte than those of servers changed")
	}
}
