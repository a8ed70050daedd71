package podsource

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Looking whether a file is being written must not disturb the one who writes,
// and no look may see half of what is written in one go.
func TestReadingLeavesWritersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				data, _, _, err := readManifest(path, time.Now())
				if err != nil && !errors.Is(err, errBeingWritten) && !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
				if len(data) > 2 {
					t.Errorf("read %d bytes", len(data))
				}
			}
		})
	}
	for range 2000 {
		if err := os.WriteFile(path, []byte("ab"), 0o644); err != nil {
			t.Error("write: ", err)
			break
		}
	}
	close(stop)
	wg.Wait()
}
