// Package settings is every variable that a process of AgentDock reads: its
// name, its default, what it means, and what is wrong with a value.
// docs/settings.md is generated from it, and --help prints it.
//
// The fields of a settings structure carry their variable in the tag "env" and
// its meaning in "help". A field of type Secret can also be given as a file, by
// the variable with "_FILE" behind its name.
package settings

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Setting is one variable, for people.
type Setting struct {
	Name    string
	Default string
	Meaning string
	// Secret values are never printed, and may come from a file.
	Secret bool
}

// Describe lists the variables of a settings structure that holds its defaults.
func Describe(defaults any) []Setting {
	var all []Setting
	walk(reflect.ValueOf(defaults), func(f reflect.StructField, v reflect.Value) {
		s := Setting{Name: f.Tag.Get("env"), Meaning: f.Tag.Get("help"), Default: text(v)}
		_, s.Secret = v.Interface().(Secret)
		if s.Secret {
			s.Default = ""
			s.Meaning += " (secret)"
		}
		all = append(all, s)
	})
	return all
}

// walk visits each field that is a variable, those of structures inside too.
func walk(v reflect.Value, visit func(reflect.StructField, reflect.Value)) {
	v = reflect.Indirect(v)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Tag.Get("env") != "":
			visit(f, v.Field(i))
		case f.Type.Kind() == reflect.Struct && f.IsExported():
			walk(v.Field(i), visit)
		}
	}
}

func text(v reflect.Value) string {
	if v.Kind() == reflect.Slice {
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = text(v.Index(i))
		}
		return strings.Join(parts, ",")
	}
	if d, ok := v.Interface().(time.Duration); ok && d > 0 {
		// "30s" ends like the zero in "5m0s".
		s := d.String()
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
		return s
	}
	return fmt.Sprint(v.Interface())
}

const fileSuffix = "_FILE"

// Load reads variables ("NAME=value" each) into a settings structure that holds
// its defaults, a pointer. The error names every variable that is wrong, and no
// secret.
func Load(into any, environ []string) error {
	vars := env.ToMap(environ)
	byField := map[string]Setting{}
	var wrong []error
	walk(reflect.ValueOf(into), func(f reflect.StructField, v reflect.Value) {
		name := f.Tag.Get("env")
		_, secret := v.Interface().(Secret)
		byField[f.Name] = Setting{Name: name, Secret: secret}
		if secret {
			wrong = append(wrong, fromFile(vars, name))
		}
	})
	err := env.ParseWithOptions(into, env.Options{Environment: vars})
	var all env.AggregateError
	if errors.As(err, &all) {
		for _, e := range all.Errors {
			wrong = append(wrong, explain(e, byField, vars))
		}
	} else {
		wrong = append(wrong, err)
	}
	return together(wrong)
}

// OnlyKnown refuses a variable that begins with prefix and is no setting of any
// process: a limit whose name is misspelt would not be one.
func OnlyKnown(environ []string, prefix string) error {
	known := map[string]bool{}
	for _, s := range all() {
		known[s.Name] = true
	}
	var wrong []error
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, prefix) && !known[name] {
			wrong = append(wrong, fmt.Errorf("%s is no setting; see --help for those there are", name))
		}
	}
	return errors.Join(wrong...)
}

// fromFile puts what the file holds into the place of the variable.
func fromFile(vars map[string]string, name string) error {
	path, given := vars[name+fileSuffix]
	if !given {
		return nil
	}
	if vars[name] != "" {
		return fmt.Errorf("%s and %s are both set; unset one", name, name+fileSuffix)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w; name a file that this process may read", name+fileSuffix, err)
	}
	value := strings.TrimRight(string(data), "\r\n")
	if value == "" {
		return fmt.Errorf("%s names a file that is empty; write the value into it", name+fileSuffix)
	}
	vars[name] = value
	return nil
}

// explain says what is wrong with a variable in the words of whoever set it.
func explain(err error, byField map[string]Setting, vars map[string]string) error {
	var parse env.ParseError
	if !errors.As(err, &parse) {
		return err
	}
	s := byField[parse.Name]
	if s.Secret {
		return fmt.Errorf("%s is malformed", s.Name)
	}
	return fmt.Errorf("%s is %q: %s", s.Name, vars[s.Name], hint(parse))
}

// hint is the value's own word on what it wants, or one for what Go parses.
func hint(parse env.ParseError) string {
	switch reflect.Zero(parse.Type).Interface().(type) {
	case bool:
		return "write true or false"
	case time.Duration:
		return "write a length of time like 90s, 1m30s or 2h"
	case int, int64, float64, []uint:
		return "write a number"
	case Level:
		return "write debug, info, warn or error"
	}
	return parse.Err.Error()
}

// together is one error for all that is wrong, or nil.
func together(wrong []error) error {
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	return nil
}

// secretsOf are the values that nobody may see.
func secretsOf(loaded any) []string {
	var values []string
	walk(reflect.ValueOf(loaded), func(_ reflect.StructField, v reflect.Value) {
		if s, ok := v.Interface().(Secret); ok && s != "" {
			values = append(values, s.Reveal())
		}
	})
	return values
}
