package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/report"
)

// terminationLog is terminationMessagePath's default in the Kubernetes API.
const terminationLog = "/dev/termination-log"

func sleep(args []string) int {
	f := flag.NewFlagSet("sleep", flag.ContinueOnError)
	ignore := f.Bool("ignore-term", false, "outlive TERM and INT")
	delay := f.Duration("term-delay", 0, "time between TERM and the exit")
	text := f.String("print", "", "line to print first")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return complain(err)
	}
	say(*text)
	d, err := length(words[0])
	if err != nil {
		return complain(err)
	}
	terminated := wait(d, *ignore)
	if terminated {
		time.Sleep(*delay)
		os.Exit(0)
	}
	return 0
}

func exit(args []string) int {
	f := flag.NewFlagSet("exit", flag.ContinueOnError)
	after := f.Duration("after", 0, "time before the exit")
	text := f.String("print", "", "line to print first")
	message := f.String("message", "", "termination message")
	words, err := parse(f, args, 1, 1)
	if err != nil {
		return complain(err)
	}
	code, err := strconv.Atoi(words[0])
	if err != nil {
		return complain(fmt.Errorf("exit: %w", err))
	}
	say(*text)
	if *message != "" {
		if err := os.WriteFile(terminationLog, []byte(*message), 0o644); err != nil {
			return complain(err)
		}
	}
	wait(*after, false)
	os.Exit(code) // ends a seq too, whatever the code
	return code
}

func printLines(args []string) int {
	f := flag.NewFlagSet("print", flag.ContinueOnError)
	every := f.Duration("every", 0, "time between lines")
	lines := f.Int("lines", 1, "how many; 0 is without end")
	size := f.Int("size", 0, "pad each line to this many bytes")
	words, err := parse(f, args, 0, 1)
	if err != nil {
		return complain(err)
	}
	text := strings.Join(words, "")
	for n := 1; *lines == 0 || n <= *lines; n++ {
		line := strings.TrimSpace(fmt.Sprintf("%s %d", text, n))
		if pad := *size - len(line); pad > 0 {
			line += strings.Repeat(".", pad)
		}
		fmt.Println(line)
		if *every > 0 && wait(*every, false) {
			os.Exit(0)
		}
	}
	return 0
}

// serve answers on every path, and with the status a test asks for on /healthz.
func serve(args []string) int {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	status := f.Int("status", http.StatusOK, "status of /healthz")
	words, err := parse(f, args, 0, 1)
	if err != nil {
		return complain(err)
	}
	addr := ":8080"
	if len(words) > 0 {
		addr = words[0]
	}
	host, _ := os.Hostname()
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(*status)
		fmt.Fprintln(w, http.StatusText(*status))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		fmt.Fprintf(w, "hello from %s\n", host)
	})
	fmt.Println("serving on", addr)
	ended := make(chan error, 1)
	go func() { ended <- http.ListenAndServe(addr, mux) }()
	select {
	case <-terminations():
		fmt.Println("told to end")
		os.Exit(0)
	case err := <-ended:
		fmt.Fprintln(os.Stderr, "kk: serve:", err)
	}
	return 1
}

// appendLine adds one line to a file in one write, then runs the step that
// follows, if any. Tests count the lines to learn how often a container ran.
func appendLine(args []string) int {
	if len(args) < 2 {
		return complain(errors.New("append: needs a file and a line"))
	}
	name, line := args[0], args[1]
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return complain(err)
	}
	out, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return complain(err)
	}
	_, err = fmt.Fprintf(out, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), line)
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return complain(err)
	}
	if rest := args[2:]; len(rest) > 0 {
		return run(rest)
	}
	return 0
}

// writeFile makes a file with the text as it is, then runs the step that follows.
func writeFile(args []string) int {
	if len(args) < 2 {
		return complain(errors.New("write: needs a file and a text"))
	}
	if err := os.WriteFile(args[0], []byte(args[1]), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "kk: write:", err)
		return 1
	}
	if rest := args[2:]; len(rest) > 0 {
		return run(rest)
	}
	return 0
}

// link makes a symlink, then runs the step that follows.
func link(args []string) int {
	if len(args) < 2 {
		return complain(errors.New("link: needs a target and a name"))
	}
	if err := os.Symlink(args[0], args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "kk: link:", err)
		return 1
	}
	if rest := args[2:]; len(rest) > 0 {
		return run(rest)
	}
	return 0
}

func cat(args []string) int {
	for _, name := range args {
		data, err := os.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "kk: cat:", err)
			return 1
		}
		os.Stdout.Write(data)
	}
	return 0
}

// env prints the named variables, or all, and the working directory as PWD.
func env(args []string) int {
	if dir, err := os.Getwd(); err == nil {
		os.Setenv("PWD", dir)
	}
	if len(args) == 0 {
		fmt.Println(strings.Join(os.Environ(), "\n"))
	}
	for _, name := range args {
		fmt.Printf("%s=%s\n", name, os.Getenv(name))
	}
	return 0
}

// look prints one line of JSON: what the process sees of itself, and of the paths.
func look(paths []string) int {
	data, err := json.Marshal(report.Make(paths))
	if err != nil {
		return complain(err)
	}
	fmt.Println(string(data))
	return 0
}

// crash ends as a broken Go program does: a trace on stderr and status 2.
func crash([]string) int { panic("kk: crash, as asked") }

func say(text string) {
	if text != "" {
		fmt.Println(text)
	}
}

// length reads a duration; "forever" is negative.
func length(s string) (time.Duration, error) {
	if s == "forever" {
		return -1, nil
	}
	return time.ParseDuration(s)
}

func terminations() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	return c
}

// wait lasts d, for ever when d is negative, and reports whether TERM or INT
// ended it early.
func wait(d time.Duration, ignore bool) bool {
	var told <-chan os.Signal
	if c := terminations(); !ignore {
		told = c
	}
	var over <-chan time.Time
	if d >= 0 {
		over = time.After(d)
	}
	select {
	case <-told:
		return true
	case <-over:
		return false
	}
}
