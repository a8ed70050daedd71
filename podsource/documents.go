package podsource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"sigs.k8s.io/yaml"
)

// document is one part of a manifest: what stands between two "---" lines.
type document struct {
	number int // from 1, in the manifest
	line   int // lines before it, so that errors tell the manifest's line
	text   []byte
}

// split cuts a manifest into documents and leaves out those without content.
// A line that begins with "---" or "..." can't be anything but a boundary in
// YAML, not even inside a block of text.
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var docs []document
	var current []byte
	start, line := 0, 0
	finish := func() {
		if hasContent(current) {
			docs = append(docs, document{len(docs) + 1, start, current})
		}
		current, start = nil, line
	}
	begin := 0
	for rest := data; len(rest) > 0; line++ {
		text := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			text = rest[:i+1]
		}
		rest = rest[len(text):]
		end := len(data) - len(rest)
		if !boundary(text) {
			current = data[begin:end]
			continue
		}
		finish()
		// What follows "---" on its line belongs to the next document.
		begin = end - len(text) + len("---")
		current = data[begin:end]
	}
	finish()
	return docs
}

func boundary(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0
}

// hasContent reports whether a document holds more than comments and directives.
func hasContent(text []byte) bool { return len(firstContent(text)) > 0 }

// firstContent is text from its first line that is more than a comment on.
func firstContent(text []byte) []byte {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		trimmed := bytes.TrimSpace(line)
		if len(trimmed) > 0 && trimmed[0] != '#' && line[0] != '%' {
			return text
		}
		text = rest
	}
	return nil
}

// objects returns the JSON of the document: one object in YAML, one or more in JSON.
func (d document) objects() ([]json.RawMessage, error) {
	text := firstContent(d.text)
	skipped := d.line + bytes.Count(d.text[:len(d.text)-len(text)], []byte("\n"))
	if bytes.TrimLeft(text, " \t")[0] == '{' {
		if all, err := jsonStream(text); err == nil {
			return all, nil
		}
		// YAML's own notation in braces. The reader of YAML stops after the
		// closing brace without a look at the rest; in brackets it can't.
		one, err := yaml.YAMLToJSONStrict(bytes.Join([][]byte{[]byte("[\n"), text, []byte("\n]")}, nil))
		if err != nil {
			return nil, shiftLines(err, skipped-1)
		}
		var all []json.RawMessage
		if err := json.Unmarshal(one, &all); err != nil || len(all) != 1 {
			return nil, errors.New("more than one object in braces; put \"---\" on a line between them")
		}
		return all, nil
	}
	if n := outdented(text); n > 0 {
		// Here too the reader of YAML would stop and say nothing.
		return nil, fmt.Errorf("yaml: line %d: indented less than the document's first line", skipped+n)
	}
	one, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, shiftLines(err, skipped)
	}
	return []json.RawMessage{one}, nil
}

func jsonStream(text []byte) ([]json.RawMessage, error) {
	var all []json.RawMessage
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var one json.RawMessage
		if err := dec.Decode(&one); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// outdented is the first line (from 1) with less indentation than line 1, or 0.
func outdented(text []byte) int {
	indent := func(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }
	want := indent(text)
	if want == 0 {
		return 0
	}
	for n := 1; len(text) > 0; n++ {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		if indent(line) < want && hasContent(line) {
			return n
		}
		text = rest
	}
	return 0
}

var (
	yamlLine = regexp.MustCompile(`line (\d+):`)
	newLine  = regexp.MustCompile(`(unmarshal errors:)?\n\s*`)
)

// values are the places in YAML errors that repeat a value, which may be a
// Secret's, and what stands there instead.
var values = []struct {
	at      *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?s)unknown anchor '.*' referenced`), "unknown anchor; a value that begins with '*' needs quotes"},
	{regexp.MustCompile("(?s)`.*`"), "a value"},
	{regexp.MustCompile(`(?s)invalid map key: .*`), "a map stands where a key or a value is wanted; what begins with '{' needs quotes"},
	{regexp.MustCompile(`(?s)(unsupported map key of type: [^,]*), key: .*`), "$1"},
}

// shiftLines makes the lines that a YAML error names those of the manifest, and
// the error one line long. It takes out what the error says of values.
func shiftLines(err error, by int) error {
	text := err.Error()
	for _, v := range values {
		text = v.at.ReplaceAllString(text, v.instead)
	}
	text = yamlLine.ReplaceAllStringFunc(text, func(s string) string {
		n, convErr := strconv.Atoi(yamlLine.FindStringSubmatch(s)[1])
		if convErr != nil {
			return s
		}
		return fmt.Sprintf("line %d:", n+by)
	})
	return errors.New(newLine.ReplaceAllString(text, ""))
}
