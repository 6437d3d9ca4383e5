package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Decode reads text that passes Check into a pointer. Every name of a field
// must be known and be written as the type has it: encoding/json takes other
// capitals too, and so lets one field be given twice.
func Decode(text []byte, most int, into any) error {
	if err := Check(text, most); err != nil {
		return err
	}
	var plain any
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if err := in.Decode(&plain); err != nil {
		return err
	}
	if err := exact(reflect.TypeOf(into), plain); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// exact holds the names in a value to a type. A type that reads itself, and a
// value that does not fit, are the decoder's business.
func exact(t reflect.Type, value any) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch v := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil
		}
		for _, e := range v {
			if err := exact(t.Elem(), e); err != nil {
				return err
			}
		}
	case map[string]any:
		return exactMembers(t, v)
	}
	return nil
}

func exactMembers(t reflect.Type, members map[string]any) error {
	switch t.Kind() {
	case reflect.Map:
		for _, m := range members {
			if err := exact(t.Elem(), m); err != nil {
				return err
			}
		}
	case reflect.Struct:
		fields := fieldsOf(t)
		for name, m := range members {
			field, ok := fields[name]
			if !ok {
				return fmt.Errorf("unknown field %q", clip(name))
			}
			if err := exact(field, m); err != nil {
				return err
			}
		}
	}
	return nil
}

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-" || (f.Anonymous && name == ""):
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}
