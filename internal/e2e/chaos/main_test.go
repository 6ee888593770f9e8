package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// This test binary is also the other processes that it needs: it starts itself
// with a role.
const (
	roleVariable = "PICTOR_CHAOS_ROLE"
	roleGuardian = "guardian"
	roleNATS     = "nats"
)

var (
	minutes       = flag.Float64("minutes", 0, "length of the random faults in TestChaos; 0: a few faults of each urgent kind, half a minute")
	seed          = flag.Int64("seed", 0, "seed of the faults; 0: from the clock")
	mutate        = flag.Bool("mutants", false, "build every mutant and show that a test catches it")
	only          = flag.String("mutant", "", "with -mutants: only those with this in their name")
	clocks        = flag.String("clocks", "short", "short: leases and waits of a few seconds, as in mutants/clocks.edit; shipped: those of the program as it is")
	keep          = flag.Bool("keep", false, "keep the folder with the logs of all processes")
	unsafeCommits = flag.String("commits", "", "settings for the Postgres of the crash test, such as synchronous_commit=off, which must fail it")
	tested        = flag.String("tested", "", "the pictor program to test; built when empty")
)

// watch is told of everything that must not outlive the tests.
var watch *guardian

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case roleGuardian:
		guard(os.Stdin)
		return
	case roleNATS:
		serveNATS()
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // the directed tests wait more than they work
	if *seed == 0 {
		*seed = time.Now().UnixNano() % 1e9
	}
	var err error
	if watch, err = startGuardian(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	watch.end()
	os.Exit(code)
}
