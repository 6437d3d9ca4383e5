package execrpc

import (
	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/run"
)

func networkToWire(n run.Network) *execdv1.Network {
	if n.Equal(run.Network{}) {
		return nil
	}
	m := &execdv1.Network{Mode: text(string(n.Mode)), MaxBytes: n.MaxBytes, MaxConnections: n.MaxConnections, BytesPerSecond: n.BytesPerSecond}
	for _, a := range n.Allow {
		m.Allow = append(m.Allow, text(a))
	}
	return m
}

func networkFromWire(m *execdv1.Network) run.Network {
	return run.Network{
		Mode: run.NetworkMode(m.GetMode()), Allow: m.GetAllow(),
		MaxBytes: m.GetMaxBytes(), MaxConnections: m.GetMaxConnections(), BytesPerSecond: m.GetBytesPerSecond(),
	}
}

func networkUseToWire(u run.NetworkUse) *execdv1.GetNetworkUseResponse {
	m := &execdv1.GetNetworkUseResponse{Omitted: u.Omitted, SentBytes: u.SentBytes, ReceivedBytes: u.ReceivedBytes}
	for _, c := range u.Connections {
		m.Connections = append(m.Connections, &execdv1.Connection{
			At: timeToWire(c.At), Name: text(c.Name), Port: c.Port, Address: text(c.Address), Decision: text(string(c.Decision)),
			SentBytes: c.SentBytes, ReceivedBytes: c.ReceivedBytes, Rule: text(c.Rule), Reason: text(c.Reason), Duration: durationToWire(c.Duration),
		})
	}
	for _, d := range u.Denied {
		m.Denied = append(m.Denied, &execdv1.EgressDenied{Name: text(d.Name), Port: d.Port, Reason: text(d.Reason), Count: d.Count})
	}
	return m
}

func networkUseFromWire(m *execdv1.GetNetworkUseResponse) (run.NetworkUse, error) {
	u := run.NetworkUse{Omitted: m.GetOmitted(), SentBytes: m.GetSentBytes(), ReceivedBytes: m.GetReceivedBytes()}
	for _, c := range m.GetConnections() {
		duration, err := durationFromWire("duration", c.GetDuration())
		if err != nil {
			return run.NetworkUse{}, err
		}
		u.Connections = append(u.Connections, run.Connection{
			At: timeFromWire(c.GetAt()), Name: c.GetName(), Port: c.GetPort(), Address: c.GetAddress(), Decision: run.Decision(c.GetDecision()),
			SentBytes: c.GetSentBytes(), ReceivedBytes: c.GetReceivedBytes(), Rule: c.GetRule(), Reason: c.GetReason(), Duration: duration,
		})
	}
	for _, d := range m.GetDenied() {
		u.Denied = append(u.Denied, run.EgressDenied{Name: d.GetName(), Port: d.GetPort(), Reason: d.GetReason(), Count: d.GetCount()})
	}
	return u, nil
}
