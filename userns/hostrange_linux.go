package userns

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	osuser "os/user"
)

// HostRange is the range of IDs that the system has set aside for pods: the
// subordinate IDs of the user kubelet, as getsubids tells them. Without that user
// or that tool, both are 0: the defaults of [Config].
func HostRange(ctx context.Context) (first, length uint32, err error) {
	var unknown osuser.UnknownUserError
	if _, err := osuser.Lookup(user); errors.As(err, &unknown) {
		return 0, 0, nil
	} else if err != nil {
		return 0, 0, fmt.Errorf("look up user %s: %w", user, err)
	}
	tool, err := exec.LookPath("getsubids")
	if err != nil {
		return 0, 0, nil
	}
	return hostRange(func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, tool, args...).Output()
		return string(out), err
	})
}
