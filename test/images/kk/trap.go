package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// trap waits for any signal, says which one it was, and exits. With a file it
// appends there, too, where the order of several containers can be seen.
func trap(args []string) int {
	f := flag.NewFlagSet("trap", flag.ContinueOnError)
	file := f.String("file", "", "file to append a line to")
	name := f.String("name", "", "first word of the line")
	code := f.Int("exit", 0, "exit status after the signal")
	delay := f.Duration("delay", 0, "time between the signal and the exit")
	if _, err := parse(f, args, 0, 0); err != nil {
		return complain(err)
	}
	got := make(chan os.Signal, 8)
	signal.Notify(got)
	say("ready")
	for sig := range got {
		number, ok := sig.(syscall.Signal)
		if !ok || number == syscall.SIGURG || number == syscall.SIGCHLD {
			continue // the Go runtime's own, and those of children
		}
		word := unix.SignalName(number)
		if word == "" {
			word = "signal " + strconv.Itoa(int(number))
		}
		line := strings.TrimSpace(*name + " " + word)
		say(line)
		if *file != "" {
			if status := appendLine([]string{*file, line}); status != 0 {
				return status
			}
		}
		time.Sleep(*delay)
		os.Exit(*code)
	}
	return 0
}

// first exits with CODE the first N times that it runs with FILE, and then goes
// on with the step. It counts in the file.
func first(args []string) int {
	if len(args) < 3 {
		return complain(errors.New("first: needs a number, a file and a status"))
	}
	n, err := strconv.Atoi(args[0])
	code, codeErr := strconv.Atoi(args[2])
	if err = errors.Join(err, codeErr); err != nil {
		return complain(fmt.Errorf("first: %w", err))
	}
	if status := appendLine([]string{args[1], "run"}); status != 0 {
		return status
	}
	data, err := os.ReadFile(args[1])
	if err != nil {
		return complain(err)
	}
	if bytes.Count(data, []byte("\n")) <= n {
		os.Exit(code) // a status of 0 is to end a seq, too
	}
	if rest := args[3:]; len(rest) > 0 {
		return run(rest)
	}
	return 0
}

const mostEaten = 512 << 20

// eat uses that many MiB of memory, then runs the step that follows.
func eat(args []string) int {
	if len(args) < 1 {
		return complain(errors.New("eat: needs a number of MiB"))
	}
	n, err := strconv.Atoi(args[0])
	if err != nil || n < 0 || n<<20 > mostEaten {
		return complain(fmt.Errorf("eat: %q is not a number of MiB up to %d", args[0], mostEaten>>20))
	}
	eaten := make([]byte, n<<20)
	for i := 0; i < len(eaten); i += os.Getpagesize() {
		eaten[i] = 1
	}
	fmt.Println("ate", n, "MiB")
	status := 0
	if rest := args[1:]; len(rest) > 0 {
		status = run(rest)
	}
	runtime.KeepAlive(eaten)
	return status
}
