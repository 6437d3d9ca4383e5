package githubapp

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// Revoke makes the token worthless, and drops it whether that succeeds or not.
// An error is an *Unrevoked: the token lives on.
func (a *App) Revoke(ctx context.Context, t *Token) error {
	defer t.Drop()
	if len(t.secret) == 0 {
		return nil
	}
	at := call{app: a, as: "Bearer " + string(t.secret), byToken: true}
	err := at.do(ctx, http.MethodDelete, "/installation/token", nil, nil)
	if err == nil || errors.Is(err, errNoToken) {
		return nil
	}
	return &Unrevoked{Until: t.Expires, Code: cmp.Or(reason.Of(err), reason.Unavailable), cause: err}
}

// Unrevoked says that a token could not be revoked and so opens its repository,
// for reading, until it expires. It does not wrap why: what ended the revocation
// did not end what the token was for.
type Unrevoked struct {
	// Until is when it expires; zero if GitHub did not say.
	Until time.Time
	// Code is the reason for which it was not revoked.
	Code  reason.Code
	cause error
}

func (u *Unrevoked) Error() string { return u.Message() + ": " + u.cause.Error() }

// LivesOn is for whoever no longer asks what became of the fetch.
func (u *Unrevoked) LivesOn() string { return u.Message() }

// Message is the text without the cause.
func (u *Unrevoked) Message() string {
	until := "for an hour or more"
	if !u.Until.IsZero() {
		until = "until " + u.Until.UTC().Format(time.RFC3339)
	}
	return "the token that was made for this could not be revoked, and opens the repository for reading " + until
}
