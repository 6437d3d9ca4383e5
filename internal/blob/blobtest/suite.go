// Package blobtest is the contract suite of the port blob: a case or more for
// every numbered clause of its protocol, run against every adapter.
package blobtest

import (
	"context"
	"testing"

	"github.com/agentdock/agentdock/internal/blob"
)

// Harness is what the suite needs to know about an adapter.
type Harness struct {
	// New makes a store without blobs, which the test's clean-up removes.
	New func(t *testing.T) Storage
	// NewSmall is New on a storage that is full after SmallBytes or less; nil
	// where the test has no right to make one, which it must say itself.
	NewSmall func(t *testing.T) Storage
}

// SmallBytes is more than the storage of NewSmall has room for.
const SmallBytes = 8 << 20

// Storage is a store and what is behind it.
type Storage struct {
	blob.Store
	// Files names all that is kept, whatever it belongs to: blobs, and parts
	// of blobs that are not whole.
	Files func(t *testing.T) []string
	// Away takes the storage from under the store until back is called.
	Away func(t *testing.T) (back func())
}

type testCase struct {
	clause, name string
	run          func(t *testing.T, s Storage)
	small        bool
}

var cases = []testCase{
	{clause: "B1", name: "what_is_put_is_read", run: roundTrips},
	{clause: "B1", name: "reader_fails", run: readerFails},
	{clause: "B1", name: "reader_fails_over_an_older_blob", run: readerFailsOver},
	{clause: "B1", name: "size_is_wrong", run: wrongSize},
	{clause: "B1", name: "context_ends", run: contextEnds},
	{clause: "B1", name: "never_seen_in_part", run: neverSeenInPart},
	{clause: "B2", name: "replaces", run: replaces},
	{clause: "B2", name: "concurrent_puts_leave_one_of_them", run: concurrentPuts},
	{clause: "B3", name: "unknown_key", run: unknownKey},
	{clause: "B3", name: "replaced_while_read", run: replacedWhileRead},
	{clause: "B4", name: "delete", run: deletes},
	{clause: "B5", name: "delete_prefix", run: deletesPrefix},
	{clause: "B5", name: "delete_prefix_of_many", run: deletesMany},
	{clause: "B5", name: "put_beside_delete", run: putBesideDelete},
	{clause: "B6", name: "keys", run: keys},
	{clause: "B6", name: "no_keys", run: noKeys},
	{clause: "B7", name: "away", run: away},
	{clause: "B7", name: "away_in_the_middle", run: awayInTheMiddle},
	{clause: "B7", name: "full", run: full, small: true},
	{clause: "B8", name: "memory", run: memoryIsBounded},
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, c := range cases {
		if c.small && h.NewSmall == nil {
			continue
		}
		t.Run(c.clause+"_"+c.name, func(t *testing.T) {
			fresh := h.New
			if c.small {
				fresh = h.NewSmall
			}
			s := fresh(t)
			c.run(t, s)
			clean(t, s)
		})
	}
}

// clean removes the blobs of a case; nothing may be left then.
func clean(t *testing.T, s Storage) {
	ctx := context.Background()
	for _, prefix := range []string{"a/", "jobs/", "Z.z/"} {
		if err := s.DeletePrefix(ctx, prefix); err != nil {
			t.Errorf("cannot delete %s: %v", prefix, err)
		}
	}
	for _, key := range []string{"0", "-", "_", "a.b-c_D", longName()} {
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("cannot delete %s: %v", key, err)
		}
	}
	if left := s.Files(t); len(left) > 0 {
		t.Errorf("all blobs are deleted, and there is left: %q", left)
	}
}
