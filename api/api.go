// Package api is the contract of the HTTP API in Go: the messages of
// openapi.yaml, generated, and the contract itself.
package api

import _ "embed"

// OpenAPI is the contract, as openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
