package interpreter

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// MaxEvent bounds one event of an execution, such as a picture.
const MaxEvent = 8 << 20

// Event is a line of what an execution says.
type Event struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`

	ExecutionCount int `json:"execution_count,omitempty"`

	Main       bool            `json:"is_main_result,omitempty"`
	HTML       string          `json:"html,omitempty"`
	Markdown   string          `json:"markdown,omitempty"`
	SVG        string          `json:"svg,omitempty"`
	PNG        string          `json:"png,omitempty"`
	JPEG       string          `json:"jpeg,omitempty"`
	PDF        string          `json:"pdf,omitempty"`
	Latex      string          `json:"latex,omitempty"`
	JSON       json.RawMessage `json:"json,omitempty"`
	JavaScript string          `json:"javascript,omitempty"`

	Name      string `json:"name,omitempty"`
	Value     string `json:"value,omitempty"`
	Traceback string `json:"traceback,omitempty"`
}

// Types of events. End is the last one.
const (
	Number = "number_of_executions"
	Stdout = "stdout"
	Stderr = "stderr"
	Result = "result"
	Error  = "error"
	End    = "end_of_execution"
)

var types = map[string]bool{Number: true, Stdout: true, Stderr: true, Result: true, Error: true, End: true}

// Read passes on the events of an execution, up to the last one. Any other end is
// an error.
func Read(r io.Reader, each func(Event) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxEvent)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || !types[e.Type] {
			return errors.New("it says what nobody understands")
		}
		if err := each(e); err != nil {
			return err
		}
		if e.Type == End {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("it has ended")
}
