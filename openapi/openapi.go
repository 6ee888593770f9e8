// Package openapi owns the contract: openapi.json is the source of truth, and
// the server and client types in gen/ are generated from it.
//
// It does not know what the operations do. Changes to the document are
// additive; info.version stays.
package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
)

//go:generate go run ./oasgen ogen.yml openapi.json ../gen

// Document is the contract as it is checked in. Nobody writes to it.
//
//go:embed openapi.json
var Document []byte

// Prefix is the path under which every operation of the contract is served.
const Prefix = "/api/v1"

// Served is the contract with the API's public root as its only server. Every
// byte outside of `servers` stays as it is checked in.
func Served(baseURL string) ([]byte, error) {
	start, end, err := findServers(Document)
	if err != nil {
		return nil, fmt.Errorf("find servers in openapi.json: %w", err)
	}
	servers, err := json.MarshalIndent([]map[string]string{{"url": baseURL}}, "  ", "  ")
	if err != nil {
		return nil, fmt.Errorf("write servers: %w", err)
	}
	return bytes.Join([][]byte{Document[:start], servers, Document[end:]}, nil), nil
}

// findServers returns where the value of the top-level key `servers` lies.
func findServers(document []byte) (start, end int64, err error) {
	d := json.NewDecoder(bytes.NewReader(document))
	if _, err := d.Token(); err != nil {
		return 0, 0, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, 0, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, 0, err
		}
		if key == "servers" {
			return d.InputOffset() - int64(len(value)), d.InputOffset(), nil
		}
	}
	return 0, 0, errors.New("no such key")
}
