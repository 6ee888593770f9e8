package app

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// tracesWanted says whether the standard variables of OpenTelemetry ask for
// traces.
func tracesWanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" {
		return exporter != "none"
	}
	_, endpoint := otlp("ENDPOINT")
	return endpoint != ""
}

// otlp is a variable of the exporter: that of traces goes before that of all
// signals.
func otlp(what string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_TRACES_" + what
	if value = os.Getenv(name); value != "" {
		return name, value
	}
	name = "OTEL_EXPORTER_OTLP_" + what
	return name, os.Getenv(name)
}

// traceMistakes names what of the standard variables cannot be had. The exporter
// itself passes over most of it, and sends nothing, or to another place. Values
// are not repeated: headers hold keys, and an endpoint may.
func traceMistakes() error {
	if !tracesWanted() {
		return nil
	}
	var mistakes []error
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		mistakes = append(mistakes, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: want otlp or none", exporter))
	}
	if name, protocol := otlp("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		mistakes = append(mistakes, fmt.Errorf("%s is %q: want http/protobuf, whose port is 4318 with most collectors", name, protocol))
	}
	if name, endpoint := otlp("ENDPOINT"); endpoint != "" {
		if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			mistakes = append(mistakes, fmt.Errorf("%s is no http:// or https:// URL", name))
		}
	}
	if name, headers := otlp("HEADERS"); headers != "" {
		for header := range strings.SplitSeq(headers, ",") {
			if _, value, ok := strings.Cut(header, "="); !ok || !escaped(value) {
				mistakes = append(mistakes, fmt.Errorf("%s: want name=value, separated by commas, with values escaped as in a URL", name))
				break
			}
		}
	}
	if name, timeout := otlp("TIMEOUT"); timeout != "" {
		if ms, err := strconv.Atoi(timeout); err != nil || ms <= 0 {
			mistakes = append(mistakes, fmt.Errorf("%s is %q: want milliseconds", name, timeout))
		}
	}
	for _, what := range []string{"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
		mistakes = append(mistakes, checkFile(otlp(what)))
	}
	return errors.Join(append(mistakes, samplerMistakes())...)
}

func escaped(s string) bool {
	_, err := url.PathUnescape(s)
	return err == nil
}

func samplerMistakes() error {
	const name, arg = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	sampler := strings.ToLower(strings.TrimSpace(os.Getenv(name)))
	known := []string{"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"}
	if !slices.Contains(known, sampler) {
		return fmt.Errorf("%s is %q: want one of %s", name, sampler, strings.Join(known[1:], ", "))
	}
	if ratio := strings.TrimSpace(os.Getenv(arg)); ratio != "" && strings.HasSuffix(sampler, "ratio") {
		if r, err := strconv.ParseFloat(ratio, 64); err != nil || r < 0 || r > 1 {
			return fmt.Errorf("%s is %q: want a number from 0 to 1", arg, ratio)
		}
	}
	return nil
}
