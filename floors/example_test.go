package floors_test

import (
	"context"
	"fmt"

	"github.com/kubeletkit/kubeletkit/floors"
)

// The writer below is there until the worker above has handed over its last line.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	lines := make(chan string)
	writer := floors.RunnerFunc(func(ctx context.Context) error {
		for {
			select {
			case line := <-lines:
				fmt.Println(line)
			case <-ctx.Done():
				fmt.Println("writer: closed")
				return nil
			}
		}
	})
	worker := floors.RunnerFunc(func(ctx context.Context) error {
		lines <- "worker: hello"
		stop() // as SIGTERM would
		<-ctx.Done()
		lines <- "worker: goodbye"
		return nil
	})
	err := floors.Run(ctx,
		[]floors.Runner{floors.Named("writer", writer)},
		[]floors.Runner{floors.Named("worker", worker)},
	)
	fmt.Println("error:", err)
	// Output:
	// worker: hello
	// worker: goodbye
	// writer: closed
	// error: <nil>
}
