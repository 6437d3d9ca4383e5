package run

import "time"

// NetworkUse is what a sandbox did with its network.
type NetworkUse struct {
	// Connections are in the order in which they were asked for, at most
	// MaxConnectionsListed; Omitted counts those that are not listed. The bytes of
	// allowed ones among them are in lines at the end, one for each rule, whose
	// name is "others".
	Connections []Connection `json:"connections,omitempty"`
	Omitted     int64        `json:"omitted,omitempty"`
	// Denied sums up what was refused, by server and reason.
	Denied []EgressDenied `json:"denied,omitempty"`
	// SentBytes and ReceivedBytes are of all connections, listed or not.
	SentBytes     int64 `json:"sent_bytes"`
	ReceivedBytes int64 `json:"received_bytes"`
}

// MaxConnectionsListed is how many connections a NetworkUse lists.
const MaxConnectionsListed = 2048

// Decision about a connection.
type Decision string

const (
	EgressAllowed Decision = "allowed"
	EgressRefused Decision = "denied"
	// EgressFailed: it was allowed, and the server could not be reached.
	EgressFailed Decision = "failed"
)

// Connection is one line of the transcript.
type Connection struct {
	At time.Time `json:"at"`
	// Name is the server that was asked for, in its one spelling or, where it has
	// none, as a quoted string.
	Name string `json:"name"`
	Port int64  `json:"port,omitempty"`
	// Address is the one that was connected to.
	Address       string   `json:"address,omitempty"`
	Decision      Decision `json:"decision"`
	SentBytes     int64    `json:"sent_bytes"`
	ReceivedBytes int64    `json:"received_bytes"`
	// Rule is the entry of Network.Allow that allowed it.
	Rule string `json:"rule,omitempty"`
	// Reason says why it was refused, failed or cut.
	Reason string `json:"reason,omitempty"`
	// Duration is zero while it is open.
	Duration time.Duration `json:"duration"`
}

// EgressDenied counts refusals of one kind.
type EgressDenied struct {
	Name   string `json:"name"`
	Port   int64  `json:"port,omitempty"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}
