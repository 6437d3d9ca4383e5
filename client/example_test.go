package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

// Submit a job, follow its log and see how it ended.
func Example() {
	service := exampleService()
	defer service.Close()
	c, err := client.New(service.URL, client.WithAPIKey(os.Getenv("AGENTDOCK_API_KEY")))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	job, err := c.CreateJob(ctx, api.JobSpec{
		Source:   api.Source{Kind: "fixture"},
		Commands: []api.Command{{Argv: []string{"python3", "-m", "unittest"}}},
		Limits:   api.Limits{MemoryBytes: 256 << 20},
	}, "")
	if err != nil {
		panic(err)
	}
	end, err := c.CopyLog(ctx, job.ID, os.Stdout, os.Stderr)
	if err != nil {
		panic(err)
	}
	fmt.Println(end.State, end.Outcome.Kind)
	// Output:
	// 3 tests passed
	// succeeded exited
}

// Tell errors apart by their code.
func ExampleIs() {
	service := exampleService()
	defer service.Close()
	c, err := client.New(service.URL)
	if err != nil {
		panic(err)
	}
	_, err = c.Job(context.Background(), "01938c5e-7a1b-7c3d-9e2f-000000000000")
	if client.Is(err, api.ProblemCodeNotFound) {
		fmt.Println("there is no such job")
	}
	// Output: there is no such job
}

// A live sandbox is made, used call by call, and thrown away.
func ExampleClient_RunExec() {
	service := exampleService()
	defer service.Close()
	c, err := client.New(service.URL, client.WithAPIKey(os.Getenv("AGENTDOCK_API_KEY")))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	box, err := c.CreateSandbox(ctx, api.SandboxSpec{TTLMS: time.Minute.Milliseconds()})
	if err != nil {
		panic(err)
	}
	defer func() { _, _ = c.KillSandbox(ctx, box.ID) }()
	result, err := client.CopyExec(c.RunExec(ctx, box.ID, api.ExecSpec{Argv: []string{"python3", "-c", "print(6*7)"}}), os.Stdout, os.Stderr)
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Outcome.Kind, *result.Outcome.ExitCode)
	// Output:
	// 42
	// exited 0
}

// exampleService answers as a service would, so that the examples run.
func exampleService() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":"01938c5e-7a1b-7c3d-9e2f-5a6b7c8d9e0f","state":"queued"}`)
	})
	mux.HandleFunc("GET /v1/jobs/{id}/log", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"type":"output","output":{"seq":1,"stream":"stdout","text":"3 tests passed\n"}}`)
		fmt.Fprintln(w, `{"type":"end","end":{"state":"succeeded","outcome":{"kind":"exited","exit_code":0}}}`)
	})
	mux.HandleFunc("POST /v1/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":"06h2j5a31to4b15195unf4e0p0","state":"running"}`)
	})
	mux.HandleFunc("POST /v1/sandboxes/{id}/run", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"type":"started","started":{"id":"c-1"}}`)
		fmt.Fprintln(w, `{"type":"output","output":{"stream":"stdout","offset":0,"next":3,"text":"42\n"}}`)
		fmt.Fprintln(w, `{"type":"end","end":{"outcome":{"kind":"exited","exit_code":0}}}`)
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"type":"about:blank","title":"Not Found","status":404,"code":"not_found","detail":"there is no job"}`)
	})
	return httptest.NewServer(mux)
}
