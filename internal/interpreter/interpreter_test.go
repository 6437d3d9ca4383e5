package interpreter

import (
	"testing"
)

func TestTheNewestKernelIsTheContexts(t *testing.T) {
	k := Kernel{Context: DefaultContext, Number: 2, Dir: "/workspace/d"}
	all := Kernels{}
	all.Add(k.Next().Name(), k.Next().Argv(), true)
	all.Add(k.Name(), k.Argv(), false)
	for _, id := range []string{"e2b-7", "e2b-kernel-", "e2b-kernel-Python-1", "e2b-kernel-python-1234567890", "x-e2b-kernel-python-9"} {
		all.Add(id, []string{"python3"}, true)
	}
	all.Add("e2b-kernel-bare-1", nil, true)
	got, known := all[DefaultContext]
	if !known || !got.Runs || got.Kernel != k.Next() || len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

func TestGreetingsAreBounded(t *testing.T) {
	var g Greeting
	if g.Ready([]byte("rea")) || !g.Ready([]byte("dy\n")) {
		t.Error("it does not see what comes in two pieces")
	}
	var noisy Greeting
	for range 1000 {
		if noisy.Ready(make([]byte, 1000)) {
			t.Fatal("zeros are no greeting")
		}
		noisy.Complain([]byte("first\nlast \xff"))
	}
	if len(noisy.said) > 64 || len(noisy.complaint) > 2000 {
		t.Errorf("it holds %d and %d bytes", len(noisy.said), len(noisy.complaint))
	}
	g.Complain([]byte("Traceback\nNameError: \xff\n"))
	if got := g.Complaint(); got != "NameError: \uFFFD" {
		t.Errorf("%q", got)
	}
}
