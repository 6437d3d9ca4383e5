package httpapi

import (
	"encoding/json"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

var contract = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(api.OpenAPI)
})

func theContract(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestTheContractIsValid(t *testing.T) {
	if err := theContract(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// operations are all of the contract, by name, with where they are.
type operation struct {
	method, path string
	*openapi3.Operation
	shared openapi3.Parameters
}

func operations(t *testing.T) map[string]operation {
	t.Helper()
	all := map[string]operation{}
	for path, item := range theContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			all[op.OperationID] = operation{method, path, op, item.Parameters}
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d operations", len(all))
	}
	return all
}

// A route without access and limits is not served, and neither is an operation
// without a route.
func TestEveryOperationHasItsRoute(t *testing.T) {
	ops := operations(t)
	for _, rt := range routes {
		op, ok := ops[rt.operation]
		if !ok {
			t.Errorf("%s is no operation of the contract, or there twice", rt.operation)
			continue
		}
		delete(ops, rt.operation)
		for _, problem := range compare(rt, op) {
			t.Errorf("%s: %s", rt.operation, problem)
		}
	}
	for name := range ops {
		t.Errorf("%s is in the contract and has no route", name)
	}
}

func compare(rt route, op operation) (problems []string) {
	wrong := func(what string) { problems = append(problems, what) }
	if rt.method != op.method || rt.path != op.path {
		wrong("the contract has it at " + op.method + " " + op.path)
	}
	scopes := tenant.Scopes()
	switch {
	case rt.access == public || rt.access == anyKey:
	case !slices.Contains(scopes, tenant.Scope(rt.access)):
		wrong("it has no access")
	}
	if open := op.Security != nil && len(*op.Security) == 0; open != (rt.access == public) {
		wrong("access and the contract's security differ")
	}
	if rt.pace == 0 {
		wrong("it has no pace")
	}
	takes := ""
	if op.RequestBody != nil {
		takes = slices.Collect(maps.Keys(op.RequestBody.Value.Content))[0]
	}
	if takes != rt.takes {
		wrong("the contract takes " + takes)
	}
	if (rt.takes == jsonType) != (rt.body != nil && rt.maxBody > 0) {
		wrong("a JSON body needs a type and a bound")
	}
	query := map[string]bool{}
	for _, p := range op.Parameters {
		if p.Value.In != "query" {
			continue
		}
		schema := p.Value.Schema.Value
		query[p.Value.Name] = schema.Type.Is("array")
		if schema.Type.Is("integer") && !rangeIs(p.Value.Name, schema) {
			wrong("the contract has another range for " + p.Value.Name)
		}
	}
	if !maps.Equal(query, rt.query) {
		wrong("the contract has other parameters")
	}
	if changes := op.method != http.MethodGet; changes != (rt.changes || rt.inside) || rt.changes && rt.inside {
		wrong("what changes something is in the audit log")
	}
	for _, g := range rt.gives {
		if !slices.ContainsFunc([]string{"200", "201"}, func(s string) bool {
			res := op.Responses.Value(s)
			return res != nil && (res.Value.Content[g] != nil || g == jsonType && rt.operation == "getReceipt")
		}) {
			wrong("the contract does not give " + g)
		}
	}
	return problems
}

// rangeIs compares what is checked with what the contract says. Without a maximum
// it is what the type holds.
func rangeIs(name string, schema *openapi3.Schema) bool {
	r, ok := ranges[name]
	if !ok || schema.Min == nil || float64(r.least) != *schema.Min {
		return false
	}
	if schema.Max == nil {
		return r.most == math.MaxInt64
	}
	return float64(r.most) == *schema.Max
}

// The test of the table must be able to fail.
func TestTheTableIsHeldAgainstTheContract(t *testing.T) {
	ops := operations(t)
	for name, change := range map[string]func(*route){
		"access": func(r *route) { r.access = "" },
		"open":   func(r *route) { r.access = public },
		"pace":   func(r *route) { r.pace = 0 },
		"path":   func(r *route) { r.path = "/v1/jobs/" },
		"body":   func(r *route) { r.body = nil },
		"bound":  func(r *route) { r.maxBody = 0 },
		"query":  func(r *route) { r.query = map[string]bool{"x": false} },
		"audit":  func(r *route) { r.changes = false },
		"gives":  func(r *route) { r.gives = []string{"text/html"} },
	} {
		rt := routes[0]
		change(&rt)
		if len(compare(rt, ops[rt.operation])) == 0 {
			t.Errorf("a route with another %s passes", name)
		}
	}
}

func TestWordsOfTheContract(t *testing.T) {
	schemas := theContract(t).Components.Schemas
	words := func(name string) (all []string) {
		for _, v := range schemas[name].Value.Enum {
			all = append(all, v.(string))
		}
		slices.Sort(all)
		return all
	}
	var states, scopes, codes []string
	for _, s := range run.States() {
		states = append(states, string(s))
	}
	for _, s := range tenant.Scopes() {
		scopes = append(scopes, string(s))
	}
	for c := range statuses {
		codes = append(codes, string(c))
	}
	for name, want := range map[string][]string{"JobState": states, "Scope": scopes, "ProblemCode": codes} {
		slices.Sort(want)
		if got := words(name); !slices.Equal(got, want) {
			t.Errorf("%s: the contract has %v, the code %v", name, got, want)
		}
	}
	for _, c := range []fault.Code{
		fault.Invalid, fault.NotFound, fault.Conflict, fault.Denied, fault.Unsupported, fault.Exhausted, fault.Gone, fault.Unavailable, fault.Internal,
	} {
		if statuses[api.ProblemCode(c)] == 0 {
			t.Errorf("fault %s has no status", c)
		}
	}
}

// conforms holds an answer against the contract.
func conforms(t *testing.T, method, path string, a answer) {
	t.Helper()
	rt, _ := match(method, path)
	if rt == nil {
		return
	}
	op := operations(t)[rt.operation]
	res := op.Responses.Status(a.status)
	if res == nil {
		res = op.Responses.Default()
	}
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	if len(a.body) == 0 && len(res.Value.Content) == 0 {
		return
	}
	content := res.Value.Content[kind]
	if content == nil {
		t.Errorf("%s %s: status %d with %q is not in the contract", method, path, a.status, kind)
		return
	}
	if content.Schema == nil || !strings.HasSuffix(kind, "json") || kind == ndjsonType {
		return
	}
	var value any
	if err := json.Unmarshal(a.body, &value); err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return
	}
	if err := content.Schema.Value.VisitJSON(value, openapi3.MultiErrors()); err != nil {
		t.Errorf("%s %s: the answer does not keep the contract: %v\n%s", method, path, err, a.body)
	}
}
