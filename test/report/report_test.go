package report_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/test/report"
)

func TestReportSaysWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o640))
	require.NoError(t, os.Symlink("file", link))
	t.Setenv("KK_LOOK", "a=b")

	data, err := json.Marshal(report.Make([]string{dir, link, file + ".no"}))
	require.NoError(t, err)
	var r report.Report
	require.NoError(t, json.Unmarshal(data, &r))

	require.Equal(t, os.Getuid(), r.UID)
	require.Equal(t, "a=b", r.Env["KK_LOOK"])
	require.Equal(t, "file", r.Files[link].Link)
	require.Equal(t, "text", r.Files[link].Content)
	require.True(t, strings.HasPrefix(r.Files[link].Mode, "-rw-r-----"), r.Files[link].Mode)
	require.Equal(t, []string{"file", "link"}, r.Files[dir].List)
	require.NotEmpty(t, r.Files[file+".no"].Error)
	if _, err := os.Stat("/proc/self/status"); err == nil {
		require.NotEmpty(t, r.Status["CapEff"])
		require.Contains(t, r.Processes, os.Getpid())
		root, ok := r.Mount("/")
		require.True(t, ok)
		require.NotEmpty(t, root.Type)
		require.True(t, r.Files[dir].Writable)
	}
}
