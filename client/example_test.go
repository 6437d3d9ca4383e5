package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

// Submit a job, follow its log, see how it ended and fetch what it left.
func Example() {
	defer exampleService()()

	ctx := context.Background()
	c, err := client.New(os.Getenv("AGENTDOCK_URL"), client.WithAPIKey(os.Getenv("AGENTDOCK_API_KEY")))
	if err != nil {
		log.Panic(err)
	}
	job, err := c.CreateJob(ctx, api.JobSpec{
		Source: api.Source{Kind: "none"},
		Commands: []api.Command{
			{Argv: []string{"echo", "hello"}},
			{Argv: []string{"tee", "out.txt"}, Stdin: []byte("kept\n")},
		},
		Limits:    api.Limits{MemoryBytes: 256 << 20},
		Artifacts: []string{"*.txt"},
	}, "")
	if err != nil {
		log.Panic(err)
	}
	end, err := c.CopyLog(ctx, job.ID, os.Stdout, os.Stderr)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(end.State, end.Outcome.Kind)
	artifacts, err := c.Artifacts(ctx, job.ID)
	if err != nil {
		log.Panic(err)
	}
	for _, a := range artifacts {
		fmt.Println(a.Path, a.Bytes)
	}
	// Output:
	// hello
	// kept
	// succeeded exited
	// out.txt 5
}

// Tell errors apart by their code.
func ExampleIs() {
	defer exampleService()()

	c, err := client.New(os.Getenv("AGENTDOCK_URL"), client.WithAPIKey(os.Getenv("AGENTDOCK_API_KEY")))
	if err != nil {
		log.Panic(err)
	}
	_, err = c.Job(context.Background(), "01938c5e-7a1b-7c3d-9e2f-000000000000")
	if client.Is(err, api.ProblemCodeNotFound) {
		fmt.Println("there is no such job")
	}
	// Output: there is no such job
}

// Look for jobs by their labels, and wait for each.
func ExampleClient_Jobs() {
	defer exampleService()()

	ctx := context.Background()
	c, err := client.New(os.Getenv("AGENTDOCK_URL"), client.WithAPIKey(os.Getenv("AGENTDOCK_API_KEY")))
	if err != nil {
		log.Panic(err)
	}
	for _, program := range []string{"true", "false"} {
		_, err := c.CreateJob(ctx, api.JobSpec{
			Source:   api.Source{Kind: "none"},
			Commands: []api.Command{{Argv: []string{program}}},
			Labels:   map[string]string{"build": "42"},
		}, "build-42-"+program) // the same again is the same job
		if err != nil {
			log.Panic(err)
		}
	}
	for job, err := range c.Jobs(ctx, client.JobQuery{Labels: map[string]string{"build": "42"}}) {
		if err != nil {
			log.Panic(err)
		}
		ended, err := c.Wait(ctx, job.ID)
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(ended.Spec.Commands[0].Argv, ended.State, *ended.Outcome.ExitCode)
	}
	// Output:
	// [false] failed 1
	// [true] succeeded 0
}

// A live sandbox is made, used call by call, and thrown away.
func ExampleClient_RunExec() {
	defer exampleService()()

	ctx := context.Background()
	c, err := client.New(os.Getenv("AGENTDOCK_URL"), client.WithAPIKey(os.Getenv("AGENTDOCK_API_KEY")))
	if err != nil {
		log.Panic(err)
	}
	box, err := c.CreateSandbox(ctx, api.SandboxSpec{TTLMS: time.Minute.Milliseconds()})
	if err != nil {
		log.Panic(err)
	}
	defer func() { _, _ = c.KillSandbox(ctx, box.ID) }()
	result, err := client.CopyExec(c.RunExec(ctx, box.ID, api.ExecSpec{Argv: []string{"echo", "6*7"}}), os.Stdout, os.Stderr)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(result.Outcome.Kind, *result.Outcome.ExitCode)
	// Output:
	// 6*7
	// exited 0
}

// A command runs in the background, is written to, and is followed by its id.
func ExampleClient_StartExec() {
	defer exampleService()()

	ctx := context.Background()
	c, err := client.New(os.Getenv("AGENTDOCK_URL"), client.WithAPIKey(os.Getenv("AGENTDOCK_API_KEY")))
	if err != nil {
		log.Panic(err)
	}
	box, err := c.CreateSandbox(ctx, api.SandboxSpec{})
	if err != nil {
		log.Panic(err)
	}
	defer func() { _, _ = c.KillSandbox(ctx, box.ID) }()
	cat, err := c.StartExec(ctx, box.ID, api.ExecSpec{Argv: []string{"cat"}, Stdin: true})
	if err != nil {
		log.Panic(err)
	}
	const closeAfter = true
	if err := c.WriteStdin(ctx, box.ID, cat, strings.NewReader("said to it\n"), closeAfter); err != nil {
		log.Panic(err)
	}
	result, err := client.CopyExec(c.FollowExec(ctx, box.ID, cat, 0), os.Stdout, io.Discard)
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(result.Outcome.Kind, result.StdoutBytes)
	// Output:
	// said to it
	// exited 11
}
