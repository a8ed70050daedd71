package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStepsReturnTheirStatus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made", "file")
	taken := filepath.Join(t.TempDir(), "taken")
	for name, c := range map[string]struct {
		args string
		want int
	}{
		"nothing to do is a mistake":            {"", usage},
		"an unknown step is a mistake":          {"fly", usage},
		"flags may follow the words":            {"sleep 1ms --print slept", 0},
		"a missing word is a mistake":           {"sleep", usage},
		"a word too many is a mistake":          {"sleep 1ms 2ms", usage},
		"a status must be a number":             {"exit soon", usage},
		"a file that is not there":              {"cat " + file + ".no", 1},
		"append makes folders and goes on":      {"append " + file + " first print more", 0},
		"trap takes no words":                   {"trap 1", usage},
		"first needs a status":                  {"first 1 " + file, usage},
		"first is over after N runs":            {"first 0 " + file + ".n 7 print over", 0},
		"eat bounds what it eats":               {"eat 100000", usage},
		"eat goes on":                           {"eat 1 print full", 0},
		"link makes a link and goes on":         {"link anything " + t.TempDir() + "/l print more", 0},
		"link does not replace":                 {"seq link a " + taken + " , link b " + taken, 1},
		"mount needs a directory":               {"mount", usage},
		"append needs a line":                   {"append " + file, usage},
		"seq runs all steps while they succeed": {"seq append " + file + " second , cat " + file, 0},
		"seq stops at the first that does not":  {"seq cat " + file + ".no , append " + file + " never", 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, run(strings.Fields(c.args)))
		})
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(data), "never")
}
