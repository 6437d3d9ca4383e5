package mcpserver

import (
	"iter"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// owners knows who has begun which session.
type owners struct {
	mu        sync.Mutex
	user      map[string]string // by session
	beginning map[string]int    // how many sessions a user is about to begin
}

// begin takes a place for one more session of a user, if he may have one. Those that
// are not among all any more have ended.
func (o *owners) begin(user string, all iter.Seq[*mcp.ServerSession]) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	live := map[string]bool{}
	for session := range all {
		live[session.ID()] = true
	}
	if o.user == nil {
		o.user, o.beginning = map[string]string{}, map[string]int{}
	}
	n := o.beginning[user]
	for session, owner := range o.user {
		switch {
		case !live[session]:
			delete(o.user, session)
		case owner == user:
			n++
		}
	}
	if n >= mostOfOne {
		return false
	}
	o.beginning[user]++
	return true
}

// begun says what became of it: a session, or none if that is empty.
func (o *owners) begun(user, session string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.beginning[user]--; o.beginning[user] == 0 {
		delete(o.beginning, user)
	}
	if session != "" {
		o.user[session] = user
	}
}

// counting refuses a session to a key that has as many as one may have.
func (e *endpoint) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := auth.TokenInfoFromContext(r.Context())
		if token == nil || !begins(r) {
			next.ServeHTTP(w, r)
			return
		}
		if !e.owners.begin(token.UserID, e.server.mcp.Sessions()) {
			tooMany(w)
			return
		}
		defer func() { e.owners.begun(token.UserID, w.Header().Get("Mcp-Session-Id")) }()
		next.ServeHTTP(w, r)
	})
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "60")
	http.Error(w, "there are too many sessions; end one, or come back later", http.StatusServiceUnavailable)
}
