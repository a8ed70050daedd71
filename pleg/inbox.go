package pleg

import (
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// inbox is how other goroutines reach the one that owns the records. Nothing in
// it can overflow or block: marks coalesce per pod, results are at most one per
// look, and one wake-up is enough for all that came.
type inbox struct {
	wake chan struct{} // room for one
	mu   struct {
		sync.Mutex
		seq     observed.Seq // the number drawn last
		started bool
		stopped bool
		seen    time.Time // start of the last good list
		stream  stream    // read at each turn, not taken away
		mail    mail
	}
}

// mail is what the owner takes away in one go.
type mail struct {
	dirty    map[observed.UID]mark
	ids      map[observed.ContainerID]observed.Seq // events that name no pod
	nameless observed.Seq                          // an event that names nothing
	relists  []chan error
	looked   []*look
	listed   *listing
}

// mark wants a look begun after seq.
type mark struct {
	seq   observed.Seq
	lane  lane
	event bool // an event told us, it was not our own call
}

// stream is the state of the event stream.
type stream struct {
	up    bool
	since time.Time
	seq   observed.Seq // drawn when it connected
}

func (in *inbox) init() {
	in.wake = make(chan struct{}, 1)
	in.mu.mail = newMail()
}

func newMail() mail {
	return mail{dirty: map[observed.UID]mark{}, ids: map[observed.ContainerID]observed.Seq{}}
}

// post makes a change under the lock and wakes the owner. Once the owner has gone
// it does nothing, so nothing piles up.
func (in *inbox) post(change func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.stopped {
		return
	}
	change()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// draw takes the next number.
func (in *inbox) draw() observed.Seq {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.seq++
	return in.mu.seq
}

// mark needs the lock.
func (in *inbox) mark(uid observed.UID, m mark) {
	had := in.mu.mail.dirty[uid]
	in.mu.mail.dirty[uid] = mark{seq: max(had.seq, m.seq), lane: max(had.lane, m.lane), event: had.event || m.event}
}

func (in *inbox) markDirty(uid observed.UID) observed.Seq {
	seq := in.draw()
	in.post(func() { in.mark(uid, mark{seq: seq, lane: marked}) })
	return seq
}

func (in *inbox) want(uid observed.UID, after observed.Seq) {
	in.post(func() { in.mark(uid, mark{seq: after, lane: waited}) })
}

func (in *inbox) event(m Mark) {
	in.post(func() {
		in.mu.seq++
		switch {
		case m.Pod != "":
			in.mark(m.Pod, mark{seq: in.mu.seq, lane: marked, event: true})
		case m.Container != "":
			in.mu.mail.ids[m.Container] = in.mu.seq
		default:
			in.mu.mail.nameless = in.mu.seq
		}
	})
}

func (in *inbox) askRelist() <-chan error {
	reply := make(chan error, 1)
	in.post(func() { in.mu.mail.relists = append(in.mu.mail.relists, reply) })
	return reply
}

func (in *inbox) connected() {
	in.post(func() {
		in.mu.seq++
		in.mu.stream = stream{up: true, since: time.Now(), seq: in.mu.seq}
	})
}

// disconnected returns how long the stream was up; zero when it never was.
func (in *inbox) disconnected() (lived time.Duration) {
	in.post(func() {
		if in.mu.stream.up {
			lived = time.Since(in.mu.stream.since)
		}
		in.mu.stream = stream{}
	})
	return lived
}

// take hands everything to the owner.
func (in *inbox) take() (mail, stream) {
	in.mu.Lock()
	defer in.mu.Unlock()
	m := in.mu.mail
	if len(m.dirty) > 0 || len(m.ids) > 0 {
		in.mu.mail = newMail()
	} else { // the empty maps stay here
		in.mu.mail = mail{dirty: m.dirty, ids: m.ids}
		m.dirty, m.ids = nil, nil
	}
	return m, in.mu.stream
}

func (in *inbox) sawRuntime(at time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.seen = at
}

func (in *inbox) lastSeen() time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.mu.seen
}

// start is false when someone has started before.
func (in *inbox) start() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	first := !in.mu.started
	in.mu.started = true
	return first
}

func (in *inbox) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.mu.stopped = true
	in.mu.mail = mail{}
}
