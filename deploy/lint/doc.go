// Package lint holds the files of deploy/ to what reads them: Docker's parser
// and linter, Compose's loader, Kubernetes' own types, Prometheus' parser and
// systemd. It is a module of its own, so that none of that is in Pictor's.
//
// Run it with `go tool task deploy`.
package lint
