package criclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// The kubelet's limits for what a container leaves as its last words.
const (
	maxMessageFile  = 4096
	maxLogMessage   = 2048
	maxLogRecords   = 80
	logTailWindow   = 64 << 10 // holds maxLogRecords of prefixes and maxLogMessage many times over
	fallbackToLogs  = "FallbackToLogsOnError"
	reasonCannotRun = "ContainerCannotRun"
)

// exitMessage is the message of a container that has exited: the runtime's, and
// after it what the container left in its termination message file or, where the
// pod asked for it, in its log. What can't be read is said in the message, as the
// kubelet does: it must not keep the pod from being seen.
func exitMessage(c observed.Container, mounts []*runtimeapi.Mount) string {
	text := messageFile(c.Annotations[observed.AnnotationTerminationMessagePath], mounts)
	if text == "" && c.Annotations[observed.AnnotationTerminationMessagePolicy] == fallbackToLogs &&
		c.ExitCode != 0 && c.Reason != reasonCannotRun {
		text = logMessage(c.LogPath)
	}
	// Cut bytes and binary output would make the pod's status unreadable as JSON.
	text = strings.ToValidUTF8(text, "?")
	switch {
	case text == "":
		return c.Message
	case c.Message == "":
		return text
	}
	return c.Message + ": " + text
}

// messageFile reads the end of the host's file behind the mount at path.
func messageFile(path string, mounts []*runtimeapi.Mount) string {
	if path == "" {
		return ""
	}
	for _, m := range mounts {
		if m.GetContainerPath() != path || m.GetHostPath() == "" {
			continue
		}
		text, _, err := tail(m.GetHostPath(), maxMessageFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("Error on reading termination log %s: %v", m.GetHostPath(), err)
		}
		return string(text)
	}
	return ""
}

// logMessage reads the last words from a CRI log.
func logMessage(path string) string {
	if path == "" {
		return ""
	}
	log, whole, err := tail(path, logTailWindow)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return lastRecords(log, whole)
}

// lastRecords returns the text of the last [maxLogRecords] records in the end of a
// CRI log, at most [maxLogMessage] bytes. Lines that are no record are left out.
// If the log is not whole, its first line lacks its beginning; what is there of it
// is text when a text of its length is still wanted, for a record's prefix is
// short beside the window.
func lastRecords(log []byte, whole bool) string {
	var parts [][]byte
	size := 0
	for n := 0; len(log) > 0 && n < maxLogRecords && size < maxLogMessage; {
		line := log
		start := bytes.LastIndexByte(bytes.TrimSuffix(log, []byte{'\n'}), '\n') + 1
		line, log = log[start:], log[:start]
		text, ok := recordText(line)
		if start == 0 && !whole && len(line) > 2*maxLogMessage {
			text, ok = line[len(line)-maxLogMessage:], true
		}
		if ok {
			parts = append(parts, text)
			size += len(text)
			n++
		}
	}
	var b bytes.Buffer
	for i := len(parts) - 1; i >= 0; i-- {
		b.Write(parts[i])
	}
	text := b.Bytes()
	return string(text[max(0, len(text)-maxLogMessage):])
}

// recordText returns the text of one line "TIME STREAM TAGS TEXT\n" of a CRI log.
// A partial record (tag P) goes on in the next and so has no line end of its own.
func recordText(line []byte) ([]byte, bool) {
	fields := bytes.SplitN(line, []byte{' '}, 4)
	if len(fields) < 4 {
		return nil, false
	}
	if stream := string(fields[1]); stream != string(runtimeapi.Stdout) && stream != string(runtimeapi.Stderr) {
		return nil, false
	}
	first, _, _ := bytes.Cut(fields[2], []byte(runtimeapi.LogTagDelimiter))
	switch runtimeapi.LogTag(first) {
	case runtimeapi.LogTagPartial:
		return bytes.TrimSuffix(fields[3], []byte{'\n'}), true
	case runtimeapi.LogTagFull:
		return fields[3], true
	}
	return nil, false
}

// tail reads the last limit bytes of a regular file and tells if that is all of
// it. It follows no symbolic link at the path's end and opens nothing that could
// block: the container may have had a say in what is there.
func tail(path string, limit int64) (text []byte, whole bool, err error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	start := max(0, info.Size()-limit)
	text, err = io.ReadAll(io.NewSectionReader(f, start, limit))
	return text, start == 0, err
}
