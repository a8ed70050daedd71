package podenv_test

import (
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/podenv"
)

func TestEnvFile(t *testing.T) {
	tests := []struct{ name, file, want, err string }{
		{name: "empty", file: ""},
		{name: "another key", file: "B='1'\n"},
		{name: "the key", file: "A='1'\nK='v'", want: "v"},
		{name: "the first one counts", file: "K='1'\nK='2'\n", want: "1"},
		{name: "blanks before, comment after", file: "\n  # comment\n\t K='v'  # text\n", want: "v"},
		{name: "taken as it is", file: `K=' $HOME ${X} \n "a" # = ü '`, want: ` $HOME ${X} \n "a" # = ü `},
		{name: "several lines", file: "K='one\n\n  # three\nB=four'\n", want: "one\n\n  # three\nB=four"},
		{name: "several lines of another key hide what is in them", file: "A='\nK='\nK='v'\n", want: "v"},
		{name: "lines of Windows", file: "A='1'\r\nK='x\r\ny'\r\n", want: "x\ny"},
		{name: "a blank after the equals sign is no value", file: "K= 'v'\nB='1'\n"},
		{name: "what is wrong behind the key is not noticed", file: "K='v'\nrubbish\n", want: "v"},
		{name: "empty value", file: "K=''"},

		{name: "no equals sign", file: "A='1'\nrubbish\nK='v'", err: "line 2: no '='"},
		{name: "no name", file: "='1'\nK='v'", err: "line 1: no name before '='"},
		{name: "blanks for a name", file: "  ='1'", err: "line 1: no name before '='"},
		{name: "blank before the equals sign", file: "K ='v'", err: "line 1: blank before '='"},
		{name: "no quotes", file: "K=v", err: "line 1: the value is not in single quotes"},
		{name: "no value", file: "K=\n", err: "line 1: the value is not in single quotes"},
		{name: "double quotes", file: `K="v"`, err: "line 1: the value is not in single quotes"},
		{name: "open quote, counted behind a value of three lines", file: "A='\n\n'\n\nK='v\n", err: "line 5: the single quote that opens the value has no end"},
		{name: "text after the quote", file: "K='v'x", err: "line 1: text after the closing quote"},
		{name: "two values", file: "K='v' 'w'", err: "line 1: text after the closing quote"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := podenv.LookUp(tt.file, "K")
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got != tt.want || text != tt.err {
				t.Errorf("%q has K = %q, %q\nwant %q, %q", tt.file, got, text, tt.want, tt.err)
			}
		})
	}
}

func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"K='v'", "A='\n'\n# c\nK='x'", "K=", "K= 'x'", "='", "'", "\r\nK='\r\n'"} {
		f.Add(s, "v")
	}
	f.Fuzz(func(t *testing.T, file, value string) {
		got, err := podenv.LookUp(file, "K")
		if err == nil && got != "" && !strings.Contains(strings.ReplaceAll(file, "\r\n", "\n"), "K='"+got+"'") {
			t.Errorf("%q has K = %q", file, got)
		}
		if strings.ContainsAny(value, "'\r") {
			return
		}
		// A well-formed entry is found whatever it holds, and in spite of what follows.
		if got, err := podenv.LookUp("K='"+value+"'\n"+file, "K"); err != nil || got != value {
			t.Errorf("K = %q, %v, want %q", got, err, value)
		}
	})
}
