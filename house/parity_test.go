package house_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// docs/parity.md and docs/fields.md promise that each line is proven by the test it
// names.
func TestParityNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../docs/parity.md")
	if err != nil {
		t.Fatal(err)
	}
	// Nested modules count too: their tests are not in this module's go list.
	out, err := exec.Command("git", "-C", "..", "ls-files", "-co", "--exclude-standard", "*_test.go").Output()
	if err != nil {
		t.Fatalf("list test files: %v", err)
	}
	exists := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for file := range strings.FieldsSeq(string(out)) {
		code, err := os.ReadFile("../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range function.FindAllSubmatch(code, -1) {
			exists[string(m[1])] = true
		}
	}
	fields, err := os.ReadFile("../docs/fields.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page)+string(fields), -1) {
		if !exists[m[1]] {
			t.Errorf("docs/parity.md or docs/fields.md names %s, and there is no such test", m[1])
		}
	}
	for i, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], " Behaviour") || strings.HasPrefix(cells[1], "---") {
			continue
		}
		if !strings.Contains(cells[3], "`Test") && !strings.Contains(cells[2], "not yet") {
			t.Errorf("docs/parity.md line %d names no test: %s", i+1, line)
		}
	}
}
