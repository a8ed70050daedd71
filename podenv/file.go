package podenv

import (
	"errors"
	"fmt"
	"strings"
)

// What can be wrong with a line of an env file.
var (
	errNoEquals  = errors.New("no '='")
	errNoName    = errors.New("no name before '='")
	errBlank     = errors.New("blank before '='")
	errNoQuote   = errors.New("the value is not in single quotes")
	errOpenQuote = errors.New("the single quote that opens the value has no end")
	errTrailing  = errors.New("text after the closing quote")
)

type fileName struct{ volume, path string }

// envFile is read as far as it was asked for: lines of NAME='value', the value as
// it is between the quotes and over any number of lines. Blank lines and # comments
// are passed over. (KEP-3721)
type envFile struct {
	rest string
	line int // number of the first line of rest
	seen map[string]string
}

func newEnvFile(content string) *envFile {
	return &envFile{rest: strings.ReplaceAll(content, "\r\n", "\n"), line: 1, seen: map[string]string{}}
}

// lookUp returns the first value of a key, and the empty string for one that is not
// there. What is wrong behind the key is not noticed.
func (f *envFile) lookUp(key string) (string, error) {
	if value, ok := f.seen[key]; ok {
		return value, nil
	}
	for f.rest != "" {
		name, value, rest, err := entry(f.rest)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", f.line, err)
		}
		f.rest, f.line = rest, f.line+1+strings.Count(value, "\n")
		if _, again := f.seen[name]; name == "" || again {
			continue
		}
		f.seen[name] = value
		if name == key {
			return value, nil
		}
	}
	return "", nil
}

// entry reads one entry, and returns what comes after its last line. The name is
// empty for a line without one.
func entry(s string) (name, value, rest string, err error) {
	first, rest, _ := strings.Cut(s, "\n")
	text := strings.TrimLeft(first, blanks)
	if text == "" || text[0] == '#' {
		return "", "", rest, nil
	}
	name, quoted, ok := strings.Cut(text, "=")
	switch {
	case !ok:
		return "", "", "", errNoEquals
	case strings.Trim(name, blanks) == "":
		return "", "", "", errNoName
	case strings.TrimRight(name, blanks) != name:
		return "", "", "", errBlank
	case quoted != "" && strings.Contains(blanks, quoted[:1]):
		return name, "", rest, nil // to a shell, a variable that is empty
	case quoted == "" || quoted[0] != '\'':
		return "", "", "", errNoQuote
	}
	// From here on the end of a line is no end.
	value, rest, ok = strings.Cut(s[len(first)-len(quoted)+1:], "'")
	if !ok {
		return "", "", "", errOpenQuote
	}
	after, rest, _ := strings.Cut(rest, "\n")
	if after = strings.TrimLeft(after, blanks); after != "" && after[0] != '#' {
		return "", "", "", errTrailing
	}
	return name, value, rest, nil
}

const blanks = " \t"
