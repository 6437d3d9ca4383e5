package clients

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/agentdock/agentdock/internal/compat/e2b/filesystempb"
	"github.com/agentdock/agentdock/internal/compat/e2b/processpb"
)

// embedded is how the package holds its descriptors.
var embedded = regexp.MustCompile(`fileDesc\)?\("([A-Za-z0-9+/]+)=*"`)

// checkDrift compares our descriptors with those inside an installed package.
func checkDrift(t *testing.T, installed string) {
	code, err := os.ReadFile(filepath.Join(installed, "node_modules/e2b/dist/index.js"))
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]protoreflect.FileDescriptor{
		"process": processpb.File_internal_compat_e2b_processpb_process_proto, "filesystem": filesystempb.File_internal_compat_e2b_filesystempb_filesystem_proto,
	}
	for _, m := range embedded.FindAllSubmatch(code, -1) {
		raw, err := base64.RawStdEncoding.DecodeString(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		var theirs descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(raw, &theirs); err != nil {
			t.Fatal(err)
		}
		file := ours[theirs.GetPackage()]
		if file == nil {
			t.Errorf("the client speaks %s, and we do not", theirs.GetPackage())
			continue
		}
		delete(ours, theirs.GetPackage())
		if diff := cmp.Diff(shape(t, &theirs), shape(t, protodesc.ToFileDescriptorProto(file))); diff != "" {
			t.Errorf("%s: the client's (-) and ours (+) differ:\n%s", theirs.GetPackage(), diff)
		}
	}
	for name := range ours {
		t.Errorf("the package holds no descriptor of %s", name)
	}
}

// shape is what matters on the wire: each message, field, value and call by its
// whole name, with everything it says about it.
func shape(t *testing.T, f *descriptorpb.FileDescriptorProto) map[string]string {
	t.Helper()
	all := map[string]string{}
	note := func(name string, m proto.Message) {
		text, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = strings.ReplaceAll(string(text), " ", "")
	}
	var message func(prefix string, m *descriptorpb.DescriptorProto)
	message = func(prefix string, m *descriptorpb.DescriptorProto) {
		name := prefix + "." + m.GetName()
		all[name] = "message"
		for _, field := range m.GetField() {
			field.JsonName = nil // some compilers leave it out
			note(name+"."+field.GetName(), field)
		}
		for i, o := range m.GetOneofDecl() {
			note(name+".oneof "+o.GetName()+" "+string(rune('0'+i)), o)
		}
		for _, n := range m.GetNestedType() {
			message(name, n)
		}
	}
	for _, m := range f.GetMessageType() {
		message(f.GetPackage(), m)
	}
	for _, e := range f.GetEnumType() {
		for _, v := range e.GetValue() {
			note(f.GetPackage()+"."+e.GetName()+"."+v.GetName(), v)
		}
	}
	for _, s := range f.GetService() {
		for _, call := range s.GetMethod() {
			call.Options = nil
			note(f.GetPackage()+"."+s.GetName()+"."+call.GetName(), call)
		}
	}
	return all
}
