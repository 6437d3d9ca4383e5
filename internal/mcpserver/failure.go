package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

// advice says what to do, by the code of the platform's error.
type advice map[api.ProblemCode]string

const (
	wantsSandbox = "make one with sandbox_create, or find one with sandbox_list"
	wantsKey     = "the person who set this server up has to give it a valid API key (AGENTDOCK_API_KEY, or the Authorization header over HTTP)"
	wantsScope   = "the API key or its tenant may not do this; ask the operator, or do it another way"
	wantsRoom    = "kill a sandbox that is not needed any more (sandbox_kill), or wait"
	wantsTime    = "wait a moment and try again"
	wantsService = "see that the service runs (agentdock up) and that AGENTDOCK_URL names it; then try again"
	wantsReport  = "report it to the operator with the request id"
)

// usual is what to do where a tool has no other advice.
var usual = advice{
	api.ProblemCodeNotFound:        wantsSandbox,
	api.ProblemCodeGone:            wantsSandbox,
	api.ProblemCodeUnauthenticated: wantsKey,
	api.ProblemCodeDenied:          wantsScope,
	api.ProblemCodeExhausted:       wantsRoom,
	api.ProblemCodeRateLimited:     wantsTime,
	api.ProblemCodeUnavailable:     wantsTime,
	api.ProblemCodeConflict:        wantsTime,
	api.ProblemCodeInternal:        wantsReport,
	api.ProblemCodeInvalid:         "change the arguments",
	api.ProblemCodeTooLarge:        "send less at once",
	api.ProblemCodeUnsupported:     "do it another way",
}

// refusal is an error of ours about what was asked for.
type refusal struct{ cause, do string }

func (r *refusal) Error() string { return r.cause + "; " + r.do }

func refuse(do, format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), do}
}

// failure is the text of an error that a model reads: what could not be done,
// why, and what to do.
func (t tool) failure(err error) error {
	var theirs *client.Error
	var ours *refusal
	switch {
	case errors.As(err, &ours):
		return fmt.Errorf("cannot %s: %s; %s", t.does, label(ours.cause), ours.do)
	case errors.As(err, &theirs):
		cause := theirs.Detail
		if cause == "" {
			cause = theirs.Title
		}
		do := t.advice[theirs.Code]
		if do == "" {
			do = usual[theirs.Code]
		}
		if do == "" {
			do = wantsService // not the platform's words: something before it
		}
		if theirs.Code == api.ProblemCodeInternal {
			cause += " (request " + theirs.RequestID + ")"
		}
		return fmt.Errorf("cannot %s: %s; %s", t.does, label(strings.TrimSuffix(cause, ".")), do)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("cannot %s: the call was cancelled; what it had started is ended", t.does)
	}
	return fmt.Errorf("cannot %s: %s; %s", t.does, label(err.Error()), wantsService)
}

// explained is a middleware that says of arguments which do not fit a schema what
// every other error says: the SDK refuses them with its own words.
func explained(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		called, ok := result.(*mcp.CallToolResult)
		if err != nil || !ok || !called.IsError || len(called.Content) != 1 {
			return result, err
		}
		said, ok := called.Content[0].(*mcp.TextContent)
		if ok && !strings.HasPrefix(said.Text, "cannot ") {
			said.Text = "cannot use the arguments: " + label(said.Text) + "; give what the tool's input schema names, and nothing else"
		}
		return result, nil
	}
}
