package containergc

import (
	"strings"
	"testing"
)

func FuzzNames(f *testing.F) {
	for _, s := range []string{"default_web_0a1b", "a_b_c_d", "web_default_app-0123456789.log", "-.log", "__", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if uid, ok := logDirUID(name); ok && (uid == "" || !strings.HasSuffix(name, "_"+string(uid))) {
			t.Errorf("logDirUID(%q) = %q", name, uid)
		}
		if id, ok := linkContainer(name); ok && (len(id) < 6 || strings.Contains(id, "-")) {
			t.Errorf("linkContainer(%q) = %q", name, id)
		}
	})
}
