package receipt

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/strictjson"
)

// maxEnvelope bounds what Verify reads. Ten thousand artifacts with long names
// stay below.
const maxEnvelope = 64 << 20

// maxDepth is how deep an envelope or a statement may nest. Ours nest to 7.
const maxDepth = 16

// Signer signs receipts with one key.
type Signer struct {
	key       ed25519.PrivateKey
	keyID     string
	envelopes *dsse.EnvelopeSigner
}

// NewSigner makes a signer.
func NewSigner(key ed25519.PrivateKey) (*Signer, error) {
	pub, ok := key.Public().(ed25519.PublicKey)
	if !ok || len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("cannot sign with this key: it is not an Ed25519 key")
	}
	id, err := KeyID(pub)
	if err != nil {
		return nil, err
	}
	s := &Signer{key: key, keyID: id}
	if s.envelopes, err = dsse.NewEnvelopeSigner(signing{s}); err != nil {
		return nil, err
	}
	return s, nil
}

// KeyID is on every receipt.
func (s *Signer) KeyID() string { return s.keyID }

// Public is the key with which receipts are verified.
func (s *Signer) Public() ed25519.PublicKey {
	return ed25519.PublicKey(s.key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])
}

// Sign makes the receipt of a job that has ended.
func (s *Signer) Sign(job run.Job, artifacts []run.Artifact) ([]byte, error) {
	st, err := Of(job, artifacts)
	if err != nil {
		return nil, err
	}
	payload, err := encode(st)
	if err != nil {
		return nil, fmt.Errorf("cannot make a receipt for job %s: %w", job.ID, err)
	}
	env, err := s.envelopes.SignPayload(context.Background(), PayloadType, payload)
	if err != nil {
		return nil, fmt.Errorf("cannot sign the receipt of job %s: %w", job.ID, err)
	}
	return encode(env)
}

// signing is what the envelope's library asks of a signer.
type signing struct{ *Signer }

func (s signing) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(s.key, data), nil
}
func (s signing) KeyID() (string, error) { return s.keyID, nil }

// verifying is what it asks of a verifier.
type verifying struct {
	key ed25519.PublicKey
	id  string
}

func (v verifying) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(v.key, data, sig) {
		return errors.New("the signature is not this key's")
	}
	return nil
}
func (v verifying) KeyID() (string, error)   { return v.id, nil }
func (v verifying) Public() crypto.PublicKey { return v.key }

// Verified is a receipt that one of the keys has signed.
type Verified struct {
	Statement Statement
	KeyID     string
}

// Verify checks an envelope against keys, any of which may have signed it, and
// returns what it says. Nothing of an envelope that does not verify is returned.
func Verify(envelope []byte, keys []ed25519.PublicKey) (Verified, error) {
	if len(envelope) > maxEnvelope {
		return Verified{}, fmt.Errorf("cannot verify the receipt: it has more than %d bytes", maxEnvelope)
	}
	var env dsse.Envelope
	if err := strict(envelope, &env); err != nil {
		return Verified{}, fmt.Errorf("cannot verify the receipt: it is no DSSE envelope: %w", err)
	}
	if env.PayloadType != PayloadType || len(env.Signatures) != 1 {
		return Verified{}, fmt.Errorf("cannot verify the receipt: want one signature on %s, there are %d on %q", PayloadType, len(env.Signatures), env.PayloadType)
	}
	var verifiers []dsse.Verifier
	for _, key := range keys {
		id, err := KeyID(key)
		if err != nil {
			return Verified{}, err
		}
		verifiers = append(verifiers, verifying{key, id})
	}
	v, err := dsse.NewEnvelopeVerifier(verifiers...)
	if err != nil {
		return Verified{}, errors.New("cannot verify the receipt: no public key is given")
	}
	if !canonical(env.Payload) || !canonical(env.Signatures[0].Sig) {
		return Verified{}, errors.New("cannot verify the receipt: its base64 is not in the one form in which it was signed")
	}
	accepted, payload, err := v.VerifyAndDecode(context.Background(), &env)
	if err != nil || len(accepted) != 1 || accepted[0].KeyID != env.Signatures[0].KeyID {
		return Verified{}, fmt.Errorf("the receipt is NOT valid: none of the %d keys has signed it (it names key %q)", len(keys), env.Signatures[0].KeyID)
	}
	var st Statement
	if err := strict(payload, &st); err != nil {
		return Verified{}, fmt.Errorf("cannot read the receipt: it is signed, and made by another version: %w", err)
	}
	if st.Type != StatementType || st.PredicateType != PredicateType {
		return Verified{}, fmt.Errorf("cannot read the receipt: it is signed, and is a %q about %q", st.Type, st.PredicateType)
	}
	return Verified{Statement: st, KeyID: accepted[0].KeyID}, nil
}

// canonical reports whether text is base64 in the form of the standard, without
// line breaks and with nothing in the bits that are left over.
func canonical(text string) bool {
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	return err == nil && base64.StdEncoding.EncodeToString(data) == text
}

// strict reads one JSON value whose fields are all known, and each given once:
// what is not shown to the reader must not be in a receipt, and another reader
// must not find something else in it.
func strict(data []byte, into any) error { return strictjson.Decode(data, maxDepth, into) }
