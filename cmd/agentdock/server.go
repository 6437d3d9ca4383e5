package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/settings"
)

// configFile is what the config file holds.
type configFile struct {
	URL    string `json:"url"`
	APIKey string `json:"api_key"`
}

// server is the API that is configured, by variables or by the config file; a
// variable wins. An empty URL says that there is none.
func server(environ []string) (url, key string, err error) {
	set := settings.DefaultCLI()
	if err := settings.Load(&set, environ); err != nil {
		return "", "", fault.New(fault.Invalid, "%s", strings.TrimPrefix(err.Error(), "cannot start: "))
	}
	url, key = set.URL, set.Key.Reveal()
	path, named := set.Config, set.Config != ""
	if !named {
		dir, err := os.UserConfigDir()
		if err != nil {
			return url, key, nil // nowhere to look
		}
		path = filepath.Join(dir, "agentdock", "config.json")
	}
	if url != "" && key != "" {
		return url, key, nil
	}
	file, err := readConfig(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return url, key, nil
	}
	if err != nil {
		return "", "", err
	}
	if url == "" || url == file.URL {
		// The key of one server is not for another.
		url = file.URL
		if key == "" {
			key = file.APIKey
		}
	}
	return url, key, nil
}

// readConfig refuses a file whose key others can read.
func readConfig(path string) (c configFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("cannot read the config file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return c, fmt.Errorf("cannot read the config file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return c, fault.New(fault.Invalid, "cannot use %s: others may read the key in it; run: chmod 600 %s", path, path)
	}
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		// The decoder's words may quote the file.
		return c, fault.New(fault.Invalid, `cannot use %s: it is not {"url": "…", "api_key": "…"}`, path)
	}
	return c, nil
}

var errNoServer = fault.New(fault.Invalid, "there is no server: set AGENTDOCK_URL (and AGENTDOCK_API_KEY), or start one with: agentdock up")

// dial makes a client of the server that is configured.
func dial() (*client.Client, error) {
	url, key, err := server(os.Environ())
	if err != nil {
		return nil, err
	}
	if url == "" {
		return nil, errNoServer
	}
	return dialTo(url, key)
}

func dialTo(url, key string) (*client.Client, error) {
	options := []client.Option{client.WithUserAgent("agentdock")}
	if key != "" {
		options = append(options, client.WithAPIKey(key))
	}
	return client.New(url, options...)
}

// withClient makes a command of a function that needs the server.
func withClient(do func(cmd *cobra.Command, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.CloseIdleConnections()
		return do(cmd, c, args)
	}
}
