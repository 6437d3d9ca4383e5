package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const mit = `MIT License

Copyright (c) 2026 Someone

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`

const agpl = `This program is free software: you can redistribute it and/or modify
it under the terms of the GNU Affero General Public License as published by
the Free Software Foundation, either version 3 of the License, or
(at your option) any later version.

This program is distributed in the hope that it will be useful,
but WITHOUT ANY WARRANTY; without even the implied warranty of
MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.  See the
GNU Affero General Public License for more details.

You should have received a copy of the GNU Affero General Public License
along with this program.  If not, see <https://www.gnu.org/licenses/>.
`

func TestClassify(t *testing.T) {
	commons := strings.Repeat("The grant of rights under the license does not include the right to sell the software. ", 12)
	for name, tc := range map[string]struct {
		text, want, err string
	}{
		"permissive":         {text: mit, want: "MIT"},
		"copyleft":           {text: agpl, err: "AGPL-3.0-or-later is not a permissive licence"},
		"permissive or not":  {text: mit + "\n" + agpl, err: "AGPL-3.0-or-later is not a permissive licence"},
		"source available":   {text: "Business Source License 1.1\n\nLicensor: Someone\nChange Date: 2030-01-01\n", err: "known"},
		"no licence text":    {text: "All rights reserved.", err: "no known licence"},
		"condition added":    {text: mit + commons, err: "% of it is known licence text (MIT)"},
		"only a link to one": {text: "See https://opensource.org/licenses/MIT", err: "no known licence"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := classify([]byte(tc.text))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, %v; want an error that says %q", got, err, tc.err)
				}
				return
			}
			if err != nil || strings.Join(got, " ") != tc.want {
				t.Fatalf("got %v, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// What a person has read counts for that text in that module, and no other.
func TestReviewsHoldForOneText(t *testing.T) {
	text := []byte("https://commons.wikimedia.org/wiki/File:Memory_infra_logo.png\n")
	if found, ok := reviewed("modernc.org/memory", "LICENSE-LOGO", text); !ok || len(found) != 1 {
		t.Errorf("the text that was read is not known: %v", found)
	}
	for _, other := range [][2]string{{"modernc.org/memory", "LICENSE"}, {"modernc.org/sqlite", "LICENSE-LOGO"}} {
		if _, ok := reviewed(other[0], other[1], text); ok {
			t.Errorf("it counts as %s of %s too", other[1], other[0])
		}
	}
	if _, ok := reviewed("modernc.org/memory", "LICENSE-LOGO", append(text, "You may not."...)); ok {
		t.Error("it counts although a sentence was added")
	}
	for _, r := range reviews {
		if r.because == "" || len(r.licences) == 0 {
			t.Errorf("the review of %s of %s says nothing", r.file, r.module)
		}
	}
}

func TestReadLooksWhereLinkedCodeIs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE":              mit,
		"NOTICE":               "Made by someone.",
		"LICENSE.docs":         agpl,
		"license.go":           "package license",
		"copied/LICENSE":       mit,
		"copied/deep/x.go":     "package deep",
		"unlinked/COPYING":     agpl,
		"copied/deep/more/a.c": "",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := part{Path: "example.test/m", Version: "v1.0.0", Dir: dir, Packages: []string{"copied/deep"}}
	if err := p.read(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range p.Files {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "LICENSE NOTICE copied/LICENSE" {
		t.Errorf("read %q", got)
	}
	if text := string(render([]part{p})); strings.Contains(text, dir) || strings.Count(text, "MIT License") != 1 {
		t.Errorf("notices name a directory of this machine or repeat a text:\n%s", text)
	}

	p = part{Path: "example.test/m", Version: "v1.0.0", Dir: dir, Packages: []string{"unlinked"}}
	if err := p.read(); err == nil || !strings.Contains(err.Error(), "unlinked/COPYING: AGPL-3.0-or-later") {
		t.Errorf("got %v for a linked package under the AGPL", err)
	}
	p = part{Path: "example.test/m", Version: "v1.0.0", Dir: filepath.Join(dir, "copied", "deep"), Packages: []string{"."}}
	if err := p.read(); err == nil || !strings.Contains(err.Error(), "no licence file") {
		t.Errorf("got %v for a module without a licence", err)
	}
}

func TestCheckNoticesAChange(t *testing.T) {
	t.Chdir("../..")
	out := filepath.Join(t.TempDir(), "notices.md")
	patterns := []string{"./cmd/agentdock"}
	if err := run(patterns, out, true); err == nil || !strings.Contains(err.Error(), "make notices") {
		t.Errorf("got %v for a file that is missing", err)
	}
	if err := run(patterns, out, false); err != nil {
		t.Fatal(err)
	}
	if err := run(patterns, out, true); err != nil {
		t.Errorf("got %v for a file just written", err)
	}
	if err := os.WriteFile(out, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(patterns, out, true); err == nil || !strings.Contains(err.Error(), "make notices") {
		t.Errorf("got %v for a file that is out of date", err)
	}
}
