package main

import (
	"bytes"
	"fmt"
	"strings"
)

const preamble = `# Third-party notices

AgentDock is under the licence in the file LICENSE. Its binaries also contain the modules below,
each under its own licence, for which we thank their authors. ` + "`make notices`" + ` writes this file.

| module | version | licence | in |
|---|---|---|---|
`

// render lays out the notices. Modules that share a text to the letter share
// one copy of it. Nothing in the result depends on the machine.
func render(parts []part) []byte {
	var out bytes.Buffer
	out.WriteString(preamble)
	type text struct {
		owners []string
		body   string
	}
	var order []*text
	known := map[string]*text{}
	for _, p := range parts {
		var licences []string
		for _, f := range p.Files {
			for _, name := range f.Licences {
				licences = add(licences, name)
			}
			body := strings.TrimSpace(f.Text)
			t := known[body]
			if t == nil {
				t = &text{body: body}
				known[body] = t
				order = append(order, t)
			}
			t.owners = append(t.owners, p.Path+" ("+f.Name+")")
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", p.Path, p.Version, strings.Join(licences, ", "), strings.Join(p.Binaries, ", "))
	}
	for _, t := range order {
		out.WriteString("\n---\n\n")
		for _, owner := range t.owners {
			fmt.Fprintf(&out, "- %s\n", owner)
		}
		fence := "```"
		for strings.Contains(t.body, fence) {
			fence += "`"
		}
		fmt.Fprintf(&out, "\n%stext\n%s\n%s\n", fence, t.body, fence)
	}
	return out.Bytes()
}
