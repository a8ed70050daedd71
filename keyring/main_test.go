package keyring_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the plug-in that the tests run, when it is told so.
func TestMain(m *testing.M) {
	if mode := os.Getenv("KEYRING_TEST_PLUGIN"); mode != "" {
		os.Exit(beAPlugin(mode))
	}
	goleak.VerifyTestMain(m)
}
