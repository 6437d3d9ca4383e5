package receipt

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestKeyIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker", "key.pem")
	const starters = 8
	keys := make([]ed25519.PrivateKey, starters)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = LoadOrCreateKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if !k.Equal(keys[0]) {
			t.Fatal("two processes that started together have two keys")
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

func TestKeysThatMustNotBeUsed(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if _, err := LoadOrCreateKey(good); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		data []byte
		mode os.FileMode
		says string
	}{
		"readable by a group": {data, 0o640, "others may read it"},
		"readable by all":     {data, 0o604, "others may read it"},
		"empty":               {nil, 0o600, "cannot read"},
		"no PEM":              {[]byte("secret"), 0o600, "not PKCS#8 in PEM"},
		"cut":                 {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der[:20]}), 0o600, "not PKCS#8"},
		"another kind":        {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600, "not an Ed25519 key"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, tc.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tc.mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadOrCreateKey(path)
		if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, tc.data) {
			t.Errorf("%s: the file was written", name)
		}
	}
}

func TestPublicKeysOfAFile(t *testing.T) {
	var file []byte
	for seed := byte(1); seed <= 3; seed++ {
		block, err := EncodePublicKey(signer(t, seed).Public())
		if err != nil {
			t.Fatal(err)
		}
		file = append(file, block...)
	}
	keys, err := ParsePublicKeys(file)
	if err != nil || len(keys) != 3 || !keys[2].Equal(signer(t, 3).Public()) {
		t.Errorf("%v, %v", keys, err)
	}
	private, err := os.ReadFile(func() string {
		path := filepath.Join(t.TempDir(), "k")
		_, _ = LoadOrCreateKey(path)
		return path
	}())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"nothing": nil, "a private key": private, "text": []byte("x")} {
		if keys, err := ParsePublicKeys(data); err == nil {
			t.Errorf("%s: %v", name, keys)
		}
	}
}
