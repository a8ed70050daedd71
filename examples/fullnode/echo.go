package main

import (
	"maps"
	"sync"
	"time"
)

// sayAgain is how long the same warning about the same pod is not repeated. What is
// tried once a second, for a hundred pods, must not fill the log.
const sayAgain = time.Minute

// echo is one warning.
type echo struct{ pod, container, reason, message string }

// echoes remembers the warnings of the last minutes.
type echoes struct {
	mu struct {
		sync.Mutex
		said  map[echo]time.Time
		swept time.Time
	}
}

// is reports whether the warning was given within the last minute; if not, it counts
// as given now.
func (e *echoes) is(what echo, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.mu.swept) >= sayAgain {
		e.mu.swept = now
		maps.DeleteFunc(e.mu.said, func(_ echo, at time.Time) bool { return now.Sub(at) >= sayAgain })
	}
	if at, ok := e.mu.said[what]; ok && now.Sub(at) < sayAgain {
		return true
	}
	if e.mu.said == nil {
		e.mu.said = map[echo]time.Time{}
	}
	e.mu.said[what] = now
	return false
}
