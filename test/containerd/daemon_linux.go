package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/images"
)

// Config says where and what to run. Dir is required.
type Config struct {
	// Dir holds all of the daemon's state. One daemon at a time may use it.
	Dir string
	// Binary is a containerd; default the one on PATH. A shim beside it is
	// preferred to the one on PATH.
	Binary string
	// Masquerade lets pods reach beyond the machine. It costs several runs of
	// iptables per pod, and tests need no network.
	Masquerade bool
	// Log gets containerd's log; default the file containerd.log in Dir.
	Log io.Writer
}

// Daemon is a containerd that was started here. Its methods are for one
// goroutine at a time; the CRI endpoint is for any number.
type Daemon struct {
	cfg     Config
	at      layout
	version string
	lock    *os.File
	log     io.Writer
	ledger  *ledger
	conn    *grpc.ClientConn
	proc    *process // nil while stopped
}

// startWithin bounds the wait for CRI to answer; a loaded machine takes long.
const startWithin = 60 * time.Second

// Start cleans what an earlier run left in cfg.Dir, starts containerd there
// with an empty pod network and the images preloaded, and returns once CRI
// reports runtime and network ready.
func Start(ctx context.Context, cfg Config) (*Daemon, error) {
	d, err := prepare(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start containerd in %s: %w", cfg.Dir, err)
	}
	if err := d.Start(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.importImages(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func prepare(ctx context.Context, cfg Config) (*Daemon, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.Binary == "" {
		if cfg.Binary, err = exec.LookPath("containerd"); err != nil {
			return nil, fmt.Errorf("%w; hack/install.sh runtime installs it", err)
		}
	}
	d := &Daemon{cfg: cfg, at: layoutOf(dir), log: cfg.Log}
	if len(d.at.socket)+len(".ttrpc") > 107 {
		return nil, fmt.Errorf("the path %s is too long for a unix socket", d.at.socket)
	}
	if d.version, err = versionOf(ctx, cfg.Binary); err != nil {
		return nil, err
	}
	if err := d.at.make(); err != nil {
		return nil, err
	}
	if d.lock, err = lockDir(d.at.lock); err != nil {
		return nil, err
	}
	if err := d.setUp(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// setUp does everything between the lock and the first process.
func (d *Daemon) setUp(ctx context.Context) error {
	if err := reap(d.at); err != nil {
		return err
	}
	if err := d.at.make(); err != nil {
		return err
	}
	if d.log == nil {
		f, err := os.OpenFile(d.at.logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		d.log = f
	}
	if len(parents()) == 0 {
		if err := os.WriteFile(d.at.parentOurs, nil, 0o644); err != nil {
			return err
		}
	}
	if err := setUpNetwork(ctx, d.at, d.cfg.Masquerade); err != nil {
		return err
	}
	if err := makeCgroupRoot(d.at); err != nil {
		return err
	}
	config, err := render(d.at, d.version)
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.at.config, config, 0o644); err != nil {
		return err
	}
	if d.ledger, err = keepLedger(d.at); err != nil {
		return err
	}
	d.conn, err = grpc.NewClient("unix://"+d.at.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second,
		}}))
	return err
}

// Start runs a stopped daemon again on the same state: pods that kept running
// are found again. It returns once CRI is ready.
func (d *Daemon) Start(ctx context.Context) error {
	if d.proc != nil {
		return errors.New("start containerd: it runs already")
	}
	cmd := exec.Command(d.cfg.Binary, "--config", d.at.config)
	cmd.Dir = d.at.dir
	cmd.Stdout, cmd.Stderr = d.log, d.log
	// containerd looks for its shim on PATH first, and the system's shim is of
	// the system's version.
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(d.cfg.Binary)+":"+os.Getenv("PATH"))
	p, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	d.proc = p
	if err := os.WriteFile(d.at.pidFile, []byte(strconv.Itoa(p.pid)), 0o644); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	err = poll(ctx, func() error {
		if p.ended() {
			return permanent(fmt.Errorf("it ended: %v; see %s", p.err, d.at.logFile))
		}
		return d.ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	return nil
}

func (d *Daemon) ready(ctx context.Context) error {
	answer, err := d.Runtime().Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range answer.GetStatus().GetConditions() {
		if (c.Type == "RuntimeReady" || c.Type == "NetworkReady") && !c.Status {
			return fmt.Errorf("%s is false: %s", c.Type, c.Message)
		}
	}
	return nil
}

// Stop ends containerd with SIGTERM and waits for it. Pods keep running.
func (d *Daemon) Stop() error { return d.signal(syscall.SIGTERM) }

// Kill ends containerd with SIGKILL and waits for it. Pods keep running.
func (d *Daemon) Kill() error { return d.signal(syscall.SIGKILL) }

func (d *Daemon) signal(sig syscall.Signal) error {
	if d.proc == nil {
		return nil
	}
	err := d.proc.end(sig)
	d.proc = nil
	if err != nil {
		return fmt.Errorf("stop containerd: %w", err)
	}
	return os.Remove(d.at.pidFile)
}

// Endpoint is the CRI endpoint, in the form that --container-runtime-endpoint
// takes. It stays the same over Stop and Start.
func (d *Daemon) Endpoint() string { return "unix://" + d.at.socket }

// Socket is the path of containerd's own socket, for ctr and its client.
func (d *Daemon) Socket() string { return d.at.socket }

// Version is the daemon's, such as "1.6.20" or "2.4.2".
func (d *Daemon) Version() string { return d.version }

// LogFile is where containerd's log goes unless Config.Log took it.
func (d *Daemon) LogFile() string { return d.at.logFile }

// Pid is 0 while the daemon is stopped.
func (d *Daemon) Pid() int {
	if d.proc == nil {
		return 0
	}
	return d.proc.pid
}

// Runtime is a plain CRI client, independent of the code under test.
func (d *Daemon) Runtime() cri.RuntimeServiceClient { return cri.NewRuntimeServiceClient(d.conn) }

// Images is a plain CRI client, independent of the code under test.
func (d *Daemon) Images() cri.ImageServiceClient { return cri.NewImageServiceClient(d.conn) }

// importImages preloads pause, which the configuration names, and kk.
func (d *Daemon) importImages(ctx context.Context) error {
	set, err := images.Build(ctx, d.at.images)
	if err != nil {
		return err
	}
	archive := filepath.Join(d.at.images, "images.tar")
	if err := set.Archive(archive, images.Local); err != nil {
		return err
	}
	return d.ImportImage(ctx, archive, images.Ref(images.Local, images.Pause), images.Ref(images.Local, images.KK))
}

// ImportImage loads an image archive and waits until CRI knows refs, which
// takes a moment: CRI learns of images that it did not pull by an event.
func (d *Daemon) ImportImage(ctx context.Context, archive string, refs ...string) error {
	out, err := exec.CommandContext(ctx, "ctr", "--address", d.at.socket, "--namespace", namespace,
		"images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import %s: %w\n%s", archive, err, out)
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for _, ref := range refs {
		err := poll(ctx, func() error {
			answer, err := d.Images().ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
			if err == nil && answer.Image == nil {
				err = errors.New("CRI does not list it")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("import image %s: %w", ref, err)
		}
	}
	return nil
}

// process is a child that dies with this process.
type process struct {
	pid  int
	done chan struct{} // closed after err is set
	err  error
}

// startProcess starts cmd in a process group of its own, so that a Ctrl-C at
// the terminal reaches only us, and asks the kernel to end it when we die.
// That request holds while the starting thread lives, so the thread waits.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	return p, <-started
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end sends sig, waits, and does not take no for an answer.
func (p *process) end(sig syscall.Signal) error {
	if p.ended() {
		return fmt.Errorf("it had ended before: %v", p.err)
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	<-p.done
	return fmt.Errorf("it ignored %v for 20 s and was killed", sig)
}
