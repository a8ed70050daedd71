// Command kk is what runs inside the containers of demos and tests: one small
// static program whose arguments say how it behaves.
//
//	kk sleep [--ignore-term] [--term-delay D] [--print S] D|forever
//	kk exit [--after D] [--print S] [--message S] CODE
//	kk print [--every D] [--lines N] [--size BYTES] [TEXT]
//	kk serve [--status CODE] [ADDR]
//	kk append FILE LINE [STEP]
//	kk write FILE TEXT [STEP]
//	kk link TARGET NAME [STEP]
//	kk mount DIR [STEP]
//	kk cat FILE...
//	kk env [NAME...]
//	kk look [PATH...]
//	kk trap [--file FILE] [--name WORD] [--delay D] [--exit CODE]
//	kk first N FILE CODE [STEP]
//	kk eat MIB [STEP]
//	kk crash
//	kk seq STEP... , STEP... , STEP...
//
// As process 1 of a container it gets no signal that it does not ask for, so
// every step that waits listens for TERM and INT and then exits 0, unless
// told to ignore them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// step runs one subcommand. It returns the exit status; seq goes on with the
// next step only after status 0.
type step func(args []string) int

func steps() map[string]step {
	return map[string]step{
		"sleep":  sleep,
		"exit":   exit,
		"print":  printLines,
		"serve":  serve,
		"append": appendLine,
		"write":  writeFile,
		"link":   link,
		"mount":  mountMemory,
		"cat":    cat,
		"env":    env,
		"crash":  crash,
		"trap":   trap,
		"first":  first,
		"eat":    eat,
		"look":   look,
		"seq":    seq,
	}
}

const usage = 64 // EX_USAGE of sysexits.h: distinct from any status a test asks for

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) == 0 {
		return complain(errors.New("no command; see the top of test/images/kk/main.go"))
	}
	s, ok := steps()[args[0]]
	if !ok {
		return complain(fmt.Errorf("unknown command %q", args[0]))
	}
	return s(args[1:])
}

// seq runs its steps, separated by a lone comma, until one is not 0.
func seq(args []string) int {
	for len(args) > 0 {
		var one []string
		for len(args) > 0 && args[0] != "," {
			one, args = append(one, args[0]), args[1:]
		}
		if len(args) > 0 {
			args = args[1:]
		}
		if status := run(one); status != 0 {
			return status
		}
	}
	return 0
}

// parse reads flags and words in any order, and checks the number of words.
func parse(f *flag.FlagSet, args []string, least, most int) ([]string, error) {
	f.SetOutput(io.Discard)
	var words []string
	for {
		if err := f.Parse(args); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if f.NArg() == 0 {
			break
		}
		words, args = append(words, f.Arg(0)), f.Args()[1:]
	}
	if n := len(words); n < least || n > most {
		return nil, fmt.Errorf("%s: %d words besides the flags", f.Name(), n)
	}
	return words, nil
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "kk:", err)
	return usage
}
