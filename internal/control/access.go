package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Unauthenticated is the code of an error that says nothing but that the caller
// is not known.
const Unauthenticated fault.Code = "unauthenticated"

// An API key is "adk_", 64 characters that are random and 7 that are a checksum
// of what is before them, by which a typing mistake (and a scanner of leaked
// secrets) is told from a key without looking anything up.
const (
	keyMark      = "adk_"
	keyRandom    = 40 // bytes; 320 bits
	keyShown     = len(keyMark) + 8
	keyBody      = len(keyMark) + keyRandom*8/5
	keyLength    = keyBody + 7
	touchEvery   = time.Minute
	touchedAtAll = 10_000
)

var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newSecret makes the secret of a key, the part of it that may be shown, and
// what is kept.
func newSecret() (secret, prefix string, hash [32]byte) {
	var random [keyRandom]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the process instead
	secret = keyMark + keyEncoding.EncodeToString(random[:])
	secret += checksum(secret)
	return secret, secret[:keyShown], sha256.Sum256([]byte(secret))
}

func checksum(s string) string {
	return keyEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(s))))
}

// WellFormed reports whether s could be an API key.
func WellFormed(s string) bool {
	return len(s) == keyLength && strings.HasPrefix(s, keyMark) && checksum(s[:keyBody]) == s[keyBody:]
}

// Authenticate says whose key a secret is. Callers cannot tell from the error
// why a key opens nothing; the cause says it for the log.
func (c *Control) Authenticate(ctx context.Context, secret string) (tenant.Principal, error) {
	refused := func(p tenant.Principal, why string) (tenant.Principal, error) {
		return p, fault.Wrap(Unauthenticated, errorString(why), "the API key is not valid")
	}
	if !WellFormed(secret) {
		return refused(tenant.Principal{}, "it is malformed")
	}
	hash := sha256.Sum256([]byte(secret))
	key, owner, err := c.record.KeyByHash(ctx, hash)
	if fault.Is(err, fault.NotFound) {
		return refused(tenant.Principal{}, "it is unknown")
	}
	if err != nil {
		return tenant.Principal{}, err
	}
	p := tenant.Principal{Tenant: owner, KeyID: key.ID, Scopes: key.Scopes}
	now := time.Now()
	switch {
	case subtle.ConstantTimeCompare(hash[:], key.Hash[:]) != 1:
		return refused(tenant.Principal{}, "the record has another hash")
	case !key.RevokedAt.IsZero():
		return refused(p, "it is revoked")
	case !key.Usable(now):
		return refused(p, "it has expired")
	case owner.Disabled:
		return p, fault.New(fault.Denied, "the tenant is disabled")
	}
	c.touch(ctx, key, now)
	return p, nil
}

type errorString string

func (e errorString) Error() string { return string(e) }

// touch notes that a key was used, to the minute.
func (c *Control) touch(ctx context.Context, key tenant.Key, now time.Time) {
	c.mu.Lock()
	last := c.touched[key.ID]
	if key.LastUsedAt.After(last) {
		last = key.LastUsedAt
	}
	due := now.Sub(last) >= touchEvery
	if due {
		if len(c.touched) >= touchedAtAll {
			clear(c.touched)
		}
		c.touched[key.ID] = now
	}
	c.mu.Unlock()
	if !due {
		return
	}
	if err := c.record.TouchKey(ctx, key.ID, now); err != nil {
		c.log.WarnContext(ctx, "cannot note the use of a key", slog.String("key", key.ID), slog.Any("error", err))
	}
}
