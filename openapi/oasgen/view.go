package main

import (
	"fmt"
	"slices"

	"github.com/go-faster/yaml"
)

// View derives from the public document what ogen is to see:
//
//   - no explicit 4xx and 5xx: each would become a type of its own, where the
//     shared `default` gives one error type and one NewError;
//   - 200 and 202 of the same body as one 2XX;
//   - of the result only 200: partial answers and conditions are net/http's;
//   - no X-Request-Id response header: the edge sets it on everything;
//   - no schema `default`: ogen would fill it in, and the handler could not
//     tell a value of the body from none;
//   - raw responses for the image and the document, which ogen would copy
//     (and re-encode).
//
// It edits nodes and not maps, because ogen writes JSON properties in the
// order of the document.
func View(document []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, err
	}
	top := root.Content[0]
	for _, path := range values(get(top, "paths")) {
		for _, operation := range values(path) {
			if err := simplify(operation); err != nil {
				return nil, fmt.Errorf("%s: %w", get(operation, "operationId").Value, err)
			}
		}
	}
	components := get(top, "components")
	for _, response := range values(get(components, "responses")) {
		dropRequestID(response)
	}
	for _, schema := range values(get(components, "schemas")) {
		remove(schema, "default")
	}
	return yaml.Marshal(&root)
}

func simplify(operation *yaml.Node) error {
	responses := get(operation, "responses")
	for _, status := range keys(responses) {
		if status[0] == '4' || status[0] == '5' {
			remove(responses, status)
		}
	}
	for _, response := range values(responses) {
		dropRequestID(response)
	}
	if accepted := get(responses, "202"); accepted != nil {
		if err := mergeAccepted(responses, accepted); err != nil {
			return err
		}
	}
	switch get(operation, "operationId").Value {
	case "getJobResult":
		remove(responses, "206")
		remove(responses, "304")
		dropParameters(operation, "Range", "If-None-Match")
		remove(get(responses, "200"), "headers")
		markRaw(get(responses, "200"))
	case "getOpenAPI":
		markRaw(get(responses, "200"))
	}
	return nil
}

// mergeAccepted turns 200 and 202 into one 2XX. What 202 says holds for both,
// because every header is optional there.
func mergeAccepted(responses, accepted *yaml.Node) error {
	body := func(response *yaml.Node) string {
		return get(get(get(get(response, "content"), "application/json"), "schema"), "$ref").Value
	}
	if ok := get(responses, "200"); ok == nil || body(ok) != body(accepted) {
		return fmt.Errorf("200 and 202 differ in their body")
	}
	remove(responses, "200")
	for i := 0; i < len(responses.Content); i += 2 {
		if responses.Content[i].Value == "202" {
			responses.Content[i].Value = "2XX"
		}
	}
	return nil
}

func dropRequestID(response *yaml.Node) {
	if headers := get(response, "headers"); headers != nil {
		remove(headers, "X-Request-Id")
		if len(headers.Content) == 0 {
			remove(response, "headers")
		}
	}
}

func dropParameters(operation *yaml.Node, names ...string) {
	parameters := get(operation, "parameters")
	parameters.Content = slices.DeleteFunc(parameters.Content, func(p *yaml.Node) bool {
		name := get(p, "name")
		return name != nil && slices.Contains(names, name.Value)
	})
}

func markRaw(response *yaml.Node) {
	for _, media := range values(get(response, "content")) {
		media.Content = append(media.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: "x-ogen-raw-response"},
			&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
	}
}

// A mapping node holds its keys and values in turn.

func get(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func remove(mapping *yaml.Node, key string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		}
	}
}

func keys(mapping *yaml.Node) []string {
	var list []string
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		list = append(list, mapping.Content[i].Value)
	}
	return list
}

func values(mapping *yaml.Node) []*yaml.Node {
	var list []*yaml.Node
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		list = append(list, mapping.Content[i+1])
	}
	return list
}
