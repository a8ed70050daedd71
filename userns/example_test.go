package userns_test

import (
	"fmt"
	"os"

	"github.com/kubeletkit/kubeletkit/userns"
)

// Two pods get IDs of their own, which are still theirs after a restart.
func Example() {
	root, err := os.MkdirTemp("", "userns")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)

	for range 2 { // the agent starts, and starts again
		a, err := userns.New(userns.Config{RootDir: root})
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := a.Recover(); err != nil {
			fmt.Println(err)
			return
		}
		web, _ := a.Map("web")
		db, _ := a.Map("db")
		fmt.Printf("%+v %+v\n", web, db)
	}
	// Output:
	// {HostID:65536 ContainerID:0 Length:65536} {HostID:131072 ContainerID:0 Length:65536}
	// {HostID:65536 ContainerID:0 Length:65536} {HostID:131072 ContainerID:0 Length:65536}
}
