package e2e_test

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(discards) != "" {
		serveDiscarding()
	}
	code := m.Run()
	_ = os.RemoveAll(programDir())
	os.Exit(code)
}
