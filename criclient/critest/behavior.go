package critest

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Behavior is what the containers of an image do. The zero value runs for ever,
// dies of TERM at once with exit code 143, and prints nothing.
type Behavior struct {
	// Exits makes the container end by itself, After its start, with ExitCode.
	Exits    bool
	After    time.Duration
	ExitCode int32
	// OOM makes that end an out-of-memory kill: code 137, reason OOMKilled.
	OOM bool

	// IgnoreTERM makes StopContainer wait out its timeout and kill (code 137).
	IgnoreTERM bool
	// TermAfter is how long the container takes to end after TERM.
	TermAfter time.Duration
	// CatchTERM makes an end by TERM exit with 0 instead of 143.
	CatchTERM bool

	// StartError, if not empty, makes StartContainer fail with this text. As in
	// containerd the container is exited then, code 128, reason StartError.
	StartError string

	// Print is written to the container's log. With PrintEvery it is written
	// again and again, each time that long after the last.
	Print      []Line
	PrintEvery time.Duration

	// TerminationMessage is written to the file mounted at the path in the
	// annotation io.kubernetes.container.terminationMessagePath (default
	// /dev/termination-log) when the container ends in any way but by KILL.
	TerminationMessage string

	// Exec answers ExecSync. Without it every command succeeds and says nothing.
	// It is called without a lock, so it may use the Runtime.
	Exec func(cmd []string) ExecResult

	// For, if set, chooses the behavior for one container when it starts, by its
	// command, environment or attempt, in place of everything else here. It must
	// not call the Runtime.
	For func(*runtimeapi.ContainerConfig) Behavior
}

// Line is one write of a container to its standard output or error.
type Line struct {
	// After is the time since the start, or since the round's begin.
	After   time.Duration
	Text    string
	Stderr  bool
	Partial bool // no end of line: tag P in the log
}

// ExecResult is how a command in a container ends.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	// Takes is how long the command runs. Longer than the caller's timeout, it
	// ends in DeadlineExceeded.
	Takes time.Duration
}

// Exit is the Behavior that exits with code, after d.
func Exit(code int32, d time.Duration) Behavior {
	return Behavior{Exits: true, ExitCode: code, After: d}
}

func (b Behavior) resolve(cfg *runtimeapi.ContainerConfig) Behavior {
	if b.For != nil {
		return b.For(cfg)
	}
	return b
}
