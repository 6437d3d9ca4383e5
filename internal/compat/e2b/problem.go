package e2b

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
)

// problemBody is an error as these clients read it: the code in it decides.
type problemBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func problem(w http.ResponseWriter, status int, message string) {
	answer(w, status, problemBody{status, message})
}

func answer(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"code":500,"message":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// fail answers with an error of a use case.
func fail(w http.ResponseWriter, err error) {
	status, ok := statuses[fault.CodeOf(err)]
	if !ok {
		status = http.StatusInternalServerError
	}
	if wait, ok := retryAfter(err); ok {
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(max(wait, time.Second).Seconds()))))
	}
	problem(w, status, fault.Public(err))
}

func retryAfter(err error) (time.Duration, bool) {
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		return later.RetryAfter(), true
	}
	return 0, false
}

var statuses = map[fault.Code]int{
	fault.Invalid:           http.StatusBadRequest,
	control.Unauthenticated: http.StatusUnauthorized,
	fault.Denied:            http.StatusForbidden,
	fault.NotFound:          http.StatusNotFound,
	fault.Conflict:          http.StatusConflict,
	fault.Gone:              http.StatusNotFound,
	fault.Exhausted:         http.StatusTooManyRequests,
	fault.Unsupported:       http.StatusNotImplemented,
	fault.Unavailable:       http.StatusServiceUnavailable,
}

// asConnect is an error of a use case as the data plane's calls answer it.
func asConnect(err error) error {
	var already *connect.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	code, ok := connectCodes[fault.CodeOf(err)]
	if !ok {
		code = connect.CodeInternal
	}
	return connect.NewError(code, errors.New(fault.Public(err)))
}

var connectCodes = map[fault.Code]connect.Code{
	fault.Invalid:           connect.CodeInvalidArgument,
	control.Unauthenticated: connect.CodeUnauthenticated,
	fault.Denied:            connect.CodePermissionDenied,
	fault.NotFound:          connect.CodeNotFound,
	fault.Conflict:          connect.CodeAlreadyExists,
	fault.Gone:              connect.CodeUnavailable,
	fault.Exhausted:         connect.CodeResourceExhausted,
	fault.Unsupported:       connect.CodeUnimplemented,
	fault.Unavailable:       connect.CodeUnavailable,
}
