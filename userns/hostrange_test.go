package userns_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/userns"
)

func TestParseSubIDs(t *testing.T) {
	first, length, err := userns.ParseSubIDs("0: kubelet 65536 7208960\n")
	if err != nil || first != 65536 || length != 7208960 {
		t.Errorf("range = %d, %d, %v", first, length, err)
	}
	for _, out := range []string{
		"", "\n", "0: kubelet 65536\n", "0: kubelet 65536 7208960 x\n", "0: kubelet a 7208960\n", "0: kubelet 65536 -1\n",
		"0: kubelet 65536 5000000000\n", "0: kubelet 0 65536\n", "0: kubelet 65536 0\n",
		"0: kubelet 65536 65536\n1: kubelet 131072 65536\n", "0: kubelet\n65536 65536\n",
	} {
		if first, length, err := userns.ParseSubIDs(out); err == nil || !strings.Contains(err.Error(), "getsubids says") {
			t.Errorf("%q is the range %d, %d, %v", out, first, length, err)
		}
	}
}

func TestHostRangeOfUsersAndGroups(t *testing.T) {
	broken := errors.New("exit status 1")
	for name, tt := range map[string]struct {
		users, groups       string
		usersErr, groupsErr error
		want                string // part of the error; "" for none
	}{
		"alike":          {users: "0: kubelet 65536 7208960\n", groups: "0: kubelet 65536 7208960\n"},
		"different":      {users: "0: kubelet 65536 7208960\n", groups: "0: kubelet 65536 65536\n", want: "make its lines in /etc/subuid and /etc/subgid alike"},
		"no users":       {usersErr: broken, want: "read subordinate users of kubelet: exit status 1"},
		"no groups":      {users: "0: kubelet 65536 7208960\n", groupsErr: broken, want: "read subordinate groups of kubelet: exit status 1"},
		"no range":       {want: "read subordinate users of kubelet: getsubids says"},
		"several ranges": {users: "0: kubelet 1 1\n1: kubelet 3 1\n", groups: "0: kubelet 1 1\n1: kubelet 3 1\n", want: "want one range"},
	} {
		first, length, err := userns.RangeFrom(func(args ...string) (string, error) {
			switch strings.Join(args, " ") {
			case "kubelet":
				return tt.users, tt.usersErr
			case "-g kubelet":
				return tt.groups, tt.groupsErr
			}
			t.Errorf("%s: asked for %v", name, args)
			return "", nil
		})
		switch {
		case tt.want == "" && (err != nil || first != 65536 || length != 7208960):
			t.Errorf("%s: %d, %d, %v", name, first, length, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

func FuzzParseSubIDs(f *testing.F) {
	f.Add("0: kubelet 65536 7208960\n")
	f.Add("0: kubelet 1 99999999999")
	f.Fuzz(func(t *testing.T, out string) {
		first, length, err := userns.ParseSubIDs(out)
		if (err == nil) != (first != 0 && length != 0) {
			t.Errorf("%q: %d, %d, %v", out, first, length, err)
		}
	})
}
