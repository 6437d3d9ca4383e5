package gitwire

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// Target is what a name turned out to be.
type Target struct {
	// Object is what is fetched: the commit, or the tag object that names it.
	Object string
	// Commit is what is checked out. For a Target that was named by its hash it
	// is only a claim until the object has been looked at.
	Commit string
	// Ref is the full name; empty for a commit that was named by its hash.
	Ref string
}

var (
	commitHash  = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	shortHash   = regexp.MustCompile(`^[0-9a-f]{7,39}$`)
	pullRequest = regexp.MustCompile(`^pull/[1-9][0-9]{0,9}(/head|/merge)?$`)
)

// ValidRef returns an error unless name could be a branch, a tag, a full ref, a
// pull request, a commit, or nothing, which is the default branch: the rules of
// git-check-ref-format(1).
func ValidRef(name string) error {
	bad := func(why string) error {
		return reason.New(reason.BadSource, "the ref %q %s", reason.Clean(name), why)
	}
	switch {
	case name == "":
		return nil
	case len(name) > 1024:
		return bad("is too long")
	case strings.Contains(name, ".."), strings.Contains(name, "@{"), strings.Contains(name, "//"), name == "@",
		strings.HasPrefix(name, "/"), strings.HasSuffix(name, "/"), strings.HasSuffix(name, "."):
		return bad("is not a name that git allows")
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return bad("holds a character that git does not allow")
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return bad("is not a name that git allows")
		}
	}
	return nil
}

// Resolve finds what a name means on the server.
func (s *Session) Resolve(ctx context.Context, name string) (Target, error) {
	if err := ValidRef(name); err != nil {
		return Target{}, err
	}
	if commitHash.MatchString(name) {
		if len(name) != s.hashLen() {
			return Target{}, reason.New(reason.RefNotFound, "the repository names commits with %d digits", s.hashLen())
		}
		return Target{Object: name, Commit: name}, nil
	}
	candidates := meanings(name)
	found, err := s.list(ctx, candidates)
	if err != nil {
		return Target{}, err
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Target{}, reason.New(reason.RefAmbiguous, "%q is both a branch and a tag; write %s or %s", name, found[0].Ref, found[1].Ref)
	case name == "":
		return Target{}, reason.New(reason.RefNotFound, "the repository has no default branch; name a ref")
	case shortHash.MatchString(name):
		return Target{}, reason.New(reason.RefNotFound, "there is no branch or tag %q; if it is a commit, write all of its digits", name)
	}
	return Target{}, reason.New(reason.RefNotFound, "there is no branch, tag or ref %q", name)
}

// meanings are the full names that a name can stand for.
func meanings(name string) []string {
	switch {
	case name == "", name == "HEAD":
		return []string{"HEAD"}
	case strings.HasPrefix(name, "refs/"):
		return []string{name}
	case strings.HasPrefix(name, "heads/"), strings.HasPrefix(name, "tags/"):
		return []string{"refs/" + name, "refs/heads/" + name, "refs/tags/" + name}
	case pullRequest.MatchString(name):
		if strings.Count(name, "/") == 1 {
			name += "/head"
		}
		return []string{"refs/" + name}
	}
	return []string{"refs/heads/" + name, "refs/tags/" + name}
}

func (s *Session) hashLen() int {
	if s.format == "sha256" {
		return 64
	}
	return 40
}

// list asks for refs by their full names.
func (s *Session) list(ctx context.Context, names []string) ([]Target, error) {
	body, err := s.command(ctx, "ls-refs", func(r *request) {
		r.line("peel")
		r.line("symrefs")
		for _, n := range names {
			r.line("ref-prefix %s", n)
		}
	})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// A prefix brings more than the name, and a server may send what it likes.
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var found []Target
	in := newLines(io.LimitReader(body, maxAnswer))
	for {
		kind, line, err := in.next()
		if err != nil {
			return nil, s.failure(ctx, err)
		}
		if kind == flush {
			return found, nil
		}
		if message, ok := remoteError(text(line)); ok {
			return nil, reason.New(reason.Malformed, "%s does not list refs: %s", s.host(), message)
		}
		t, err := s.parseRef(text(line))
		if err != nil {
			return nil, s.failure(ctx, err)
		}
		if wanted[t.name] {
			found = append(found, t.Target)
			delete(wanted, t.name)
		}
	}
}

type listed struct {
	Target
	name string
}

// parseRef reads "HASH NAME[ symref-target:NAME][ peeled:HASH]".
func (s *Session) parseRef(line string) (listed, error) {
	fields := strings.Split(line, " ")
	if len(fields) < 2 || fields[0] == "unborn" {
		return listed{}, nil
	}
	t := listed{name: fields[1], Target: Target{Object: fields[0], Commit: fields[0], Ref: fields[1]}}
	for _, attribute := range fields[2:] {
		key, value, _ := strings.Cut(attribute, ":")
		switch key {
		case "peeled":
			t.Commit = value
		case "symref-target":
			t.Ref = value
		}
	}
	for _, hash := range []string{t.Object, t.Commit} {
		if len(hash) != s.hashLen() || !commitHash.MatchString(hash) {
			return listed{}, fmt.Errorf("%w: a ref with the hash %q", errMalformed, reason.Clean(hash))
		}
	}
	if !strings.HasPrefix(t.Ref, "refs/") {
		t.Ref = "" // HEAD that points nowhere but to a commit
	}
	if err := ValidRef(t.Ref); err != nil {
		return listed{}, fmt.Errorf("%w: a ref with an impossible name", errMalformed)
	}
	return t, nil
}
