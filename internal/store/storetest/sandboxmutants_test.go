package storetest_test

import (
	"context"
	"slices"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// sandboxMutants are defects in the record of live sandboxes.
var sandboxMutants = []mutant{
	{"sandboxes have no quota", "S1_quota_of_sandboxes", noQuota},
	{"another's sandbox can be read", "S2_of_its_tenant_only", func(s store.Store) store.Store { return open{s} }},
	{"an extension may shorten what it was not to", "S5_extend", func(s store.Store) store.Store { return shortening{s} }},
	{"nothing is ever due", "S5_time_is_over", func(s store.Store) store.Store { return timeless{s} }},
	{"a sandbox is made for every call", "S8_same_key_same_sandbox", func(s store.Store) store.Store { return keyless{s} }},
	{"a key brings back whatever it has made", "S8_same_key_other_request", func(s store.Store) store.Store { return undigested{s} }},
	{"a key is for all tenants", "S8_keys_of_tenants_are_apart", func(s store.Store) store.Store { return &sharedKeys{Store: s, made: map[string]run.Sandbox{}} }},
	{"who asks for the end has the place back at once", "S6_holds_quota_to_the_end", func(s store.Store) store.Store { return hasty{s} }},
}

type open struct{ store.Store }

func (s open) Sandbox(ctx context.Context, _, id string) (run.Sandbox, error) {
	box, _, err := s.SandboxOf(ctx, id)
	return box, err
}

type shortening struct{ store.Store }

func (s shortening) ExtendSandbox(ctx context.Context, tenantID, id string, ttl time.Duration, _ bool) (run.Sandbox, error) {
	return s.Store.ExtendSandbox(ctx, tenantID, id, ttl, false)
}

type timeless struct{ store.Store }

func (timeless) EndDueSandboxes(context.Context, time.Duration, time.Duration) (int, error) {
	return 0, nil
}

type keyless struct{ store.Store }

func (s keyless) CreateSandbox(ctx context.Context, n store.NewSandbox) (run.Sandbox, error) {
	n.IdempotencyKey = ""
	return s.Store.CreateSandbox(ctx, n)
}

type undigested struct{ store.Store }

func (s undigested) CreateSandbox(ctx context.Context, n store.NewSandbox) (run.Sandbox, error) {
	n.RequestDigest = [32]byte{}
	return s.Store.CreateSandbox(ctx, n)
}

type sharedKeys struct {
	store.Store
	made map[string]run.Sandbox
}

func (s *sharedKeys) CreateSandbox(ctx context.Context, n store.NewSandbox) (run.Sandbox, error) {
	if box, ok := s.made[n.IdempotencyKey]; ok && n.IdempotencyKey != "" {
		return box, nil
	}
	box, err := s.Store.CreateSandbox(ctx, n)
	s.made[n.IdempotencyKey] = box
	return box, err
}

type hasty struct{ store.Store }

func (s hasty) EndSandbox(ctx context.Context, id string, o run.Outcome) (run.Sandbox, error) {
	box, err := s.Store.EndSandbox(ctx, id, o)
	if err == nil {
		err = s.RemovedSandbox(ctx, id)
	}
	return box, err
}

// allMutants are numbered in this order, for the child process.
func allMutants() []mutant { return slices.Concat(mutants, sandboxMutants) }
