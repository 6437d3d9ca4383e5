package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// socks is a SOCKS5 request to connect.
func socks(kind byte, addr string, port int64, command byte) string {
	p := binary.BigEndian.AppendUint16(nil, uint16(port))
	return "\x05\x01\x00" + "\x05" + string([]byte{command, 0, kind}) + addr + string(p)
}

func name(text string) string { return string([]byte{byte(len(text))}) + text }

// Whatever is tried, the transcript has the denial with its reason, and no server
// was reached.
func TestHostilePrograms(t *testing.T) {
	w := newWorld(t)
	w.dns.Set("example.com", "127.0.0.1")
	tlsPort := portNumber(w.tls)
	for n, addr := range map[string]string{
		"private.zone.test": "10.0.0.1", "loopback.zone.test": "127.0.0.1", "metadata.zone.test": "169.254.169.254", "mapped.zone.test": "::ffff:169.254.169.254",
		"nat64.zone.test": "64:ff9b::a9fe:a9fe", "sixtofour.zone.test": "2002:a9fe:a9fe::1", "ula.zone.test": "fd00:ec2::254", "linklocal.zone.test": "fe80::1",
		"cgnat.zone.test": "100.64.0.1", "multicast.zone.test": "224.0.0.1", "zero.zone.test": "0.0.0.0", "mixed.zone.test": "93.184.215.14 10.0.0.1",
		"outside.zone.test": "93.184.215.14",
	} {
		w.dns.Set(n, addr)
	}
	w.dns.Set("target.internal", "192.168.1.1")
	w.dns.Alias("middle.zone.test", "target.internal")
	w.dns.Alias("chain.zone.test", "middle.zone.test")
	n := w.allow("*.zone.test:80", "*.zone.test:443", "chain.internal:443", "169.254.169.254:80", "10.0.0.1:80", "[::1]:80", "[fd00:ec2::254]:80", fmt.Sprintf("127.0.0.1:%d", tlsPort))
	n.MaxConnections = 200
	w.open(n)
	get := func(url string) string { return "GET " + url + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" }
	connect := func(authority string) string {
		return "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n\r\n"
	}
	type attempt struct{ sent, answer, name, reason string }
	table := map[string]attempt{
		"a name that is not allowed":      {get("http://evil.example/"), " 403 ", "evil.example", "not allowed"},
		"a tunnel to one":                 {connect("evil.example:443"), " 403 agentdock: no connection to evil.example:443: it is not allowed", "evil.example", "not allowed"},
		"another port":                    {connect("example.com:22"), " 403 ", "example.com", "not allowed"},
		"mail":                            {connect("example.com:25"), " 403 ", "example.com", "not allowed"},
		"a tunnel without a port":         {connect("example.com"), " 403 ", "example.com", "no port"},
		"port zero":                       {connect("example.com:0"), " 403 ", `"example.com:0"`, "port that there cannot be"},
		"https without a tunnel":          {get("https://example.com/"), " 403 ", `"example.com"`, "use CONNECT"},
		"file":                            {get("file:///etc/passwd"), " 403 ", `"h"`, "use CONNECT"},
		"a path and no server":            {get("/latest/meta-data"), " 403 ", `"h"`, "no request for a proxy"},
		"another server, opaque":          {get("http:evil.example/"), " 403 ", `"h"`, "names no path"},
		"metadata, decimal":               {get("http://2852039166/"), " 403 ", `"2852039166"`, "ends in a number"},
		"metadata, octal":                 {get("http://0251.0376.0251.0376/"), " 403 ", `"0251.0376.0251.0376"`, "ends in a number"},
		"metadata, hexadecimal":           {get("http://0xa9fea9fe/"), " 403 ", `"0xa9fea9fe"`, "ends in a number"},
		"metadata, hexadecimal parts":     {get("http://0xa9.0xfe.0xa9.0xfe/"), " 403 ", `"0xa9.0xfe.0xa9.0xfe"`, "ends in a number"},
		"metadata, three parts":           {get("http://169.254.43518/"), " 403 ", `"169.254.43518"`, "ends in a number"},
		"metadata, full width":            {get("http://１６９.254.169.254/"), " 403 ", "", "ASCII"},
		"metadata, listed":                {get("http://169.254.169.254/"), " 403 ", "169.254.169.254", "private, local or reserved"},
		"metadata, listed, mapped":        {get("http://[::ffff:169.254.169.254]/"), " 403 ", "169.254.169.254", "private, local or reserved"},
		"metadata, listed, mapped in hex": {get("http://[::ffff:a9fe:a9fe]/"), " 403 ", "169.254.169.254", "private, local or reserved"},
		"metadata, version 6, listed":     {get("http://[fd00:ec2::254]/"), " 403 ", "[fd00:ec2::254]", "private, local or reserved"},
		"an address that is not listed":   {get("http://93.184.215.14/"), " 403 ", "93.184.215.14", "not allowed"},
		"an address with a zone":          {get("http://[fe80::1%25eth0]/"), " 403 ", "", "no address"},
		"loopback, listed":                {get("http://[::1]/"), " 403 ", "[::1]", "private, local or reserved"},
		"localhost":                       {connect(fmt.Sprintf("localhost:%d", tlsPort)), " 403 ", "localhost", "not allowed"},
		"a name for a private one":        {get("http://private.zone.test/"), " 403 ", "private.zone.test", "leads to 10.0.0.1"},
		"a name for loopback":             {get("http://loopback.zone.test/"), " 403 ", "loopback.zone.test", "leads to 127.0.0.1"},
		"a name for metadata":             {get("http://metadata.zone.test/"), " 403 ", "metadata.zone.test", "leads to 169.254.169.254"},
		"a name, mapped":                  {get("http://mapped.zone.test/"), " 403 ", "mapped.zone.test", "leads to 169.254.169.254"},
		"a name, NAT64":                   {get("http://nat64.zone.test/"), " 403 ", "nat64.zone.test", "leads to 64:ff9b::"},
		"a name, 6to4":                    {get("http://sixtofour.zone.test/"), " 403 ", "sixtofour.zone.test", "leads to 2002:"},
		"a name, unique-local":            {get("http://ula.zone.test/"), " 403 ", "ula.zone.test", "leads to fd00:ec2::254"},
		"a name, link-local":              {get("http://linklocal.zone.test/"), " 403 ", "linklocal.zone.test", "leads to fe80::1"},
		"a name, CGNAT":                   {get("http://cgnat.zone.test/"), " 403 ", "cgnat.zone.test", "leads to 100.64.0.1"},
		"a name, multicast":               {get("http://multicast.zone.test/"), " 403 ", "multicast.zone.test", "leads to 224.0.0.1"},
		"a name, unspecified":             {get("http://zero.zone.test/"), " 403 ", "zero.zone.test", "leads to 0.0.0.0"},
		"one private among public":        {connect("mixed.zone.test:443"), " 403 ", "mixed.zone.test", "leads to 10.0.0.1"},
		"a chain of aliases":              {connect("chain.zone.test:443"), " 403 ", "chain.zone.test", "leads to 192.168.1.1"},
		"a name of 255 bytes":             {connect(strings.Repeat("a.", 127) + "a:443"), " 403 ", "", "too long"},
		"a label of 64 bytes":             {connect(strings.Repeat("a", 64) + ".zone.test:443"), " 403 ", "", "endless part"},
		"data in labels, not allowed":     {connect("c2VjcmV0.exfil.example:443"), " 403 ", "c2vjcmv0.exfil.example", "not allowed"},
		"a user in a name":                {connect("example.com:443@evil.example:443"), " 4", "", ""},
		"SOCKS, an address":               {socks(socksIPv4, "\xa9\xfe\xa9\xfe", 80, 1), "\x05\x00\x05\x02", "169.254.169.254", "private, local or reserved"},
		"SOCKS, an unlisted address":      {socks(socksIPv4, "\x08\x08\x08\x08", 443, 1), "\x05\x00\x05\x02", "8.8.8.8", "not allowed"},
		"SOCKS, version 6":                {socks(socksIPv6, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xa9\xfe\xa9\xfe", 80, 1), "\x05\x00\x05\x02", "169.254.169.254", "private, local or reserved"},
		"SOCKS, an address as a name":     {socks(socksName, name("0x7f.1"), 80, 1), "\x05\x00\x05\x02", `"0x7f.1"`, "ends in a number"},
		"SOCKS, NUL in a name":            {socks(socksName, name("example.com\x00.evil.example"), 443, 1), "\x05\x00\x05\x02", `"example.com\x00.evil.example"`, "character"},
		"SOCKS, UDP":                      {socks(socksName, name("example.com"), 53, 3), "\x05\x00\x05\x07", "example.com", "no UDP"},
		"SOCKS, UDP, lines in a name":     {socks(socksName, name("a\n\x1b[2J"), 53, 3), "\x05\x00\x05\x02", `"a\n\x1b[2J"`, "character"},
		"SOCKS, the Kelvin sign":          {socks(socksName, name("\u212a.example.com"), 443, 1), "\x05\x00\x05\x02", `"\u212a.example.com"`, "ASCII"},
		"SOCKS, bind":                     {socks(socksName, name("example.com"), 53, 2), "\x05\x00\x05\x07", "example.com", "connect and nothing else"},
		"SOCKS with a password only":      {"\x05\x01\x02", "\x05\xff", "", "no method"},
		"SOCKS 4":                         {"\x04\x01\x00\x50\x0a\x00\x00\x01\x00", "", "", "neither HTTP nor SOCKS5"},
		"DNS over TCP":                    {"\x00\x1d\x12\x34\x01\x00\x00\x01", "", "", "neither HTTP nor SOCKS5"},
	}
	for what, a := range table {
		t.Run(what, func(t *testing.T) {
			before := w.use()
			got := w.say(a.sent)
			if !strings.Contains(got, a.answer) {
				t.Errorf("the answer is %q, want %q in it", got, a.answer)
			}
			if a.reason == "" {
				return // package http refuses it by itself
			}
			use := w.use()
			if len(use.Connections) != len(before.Connections)+1 {
				t.Fatalf("%d lines are new", len(use.Connections)-len(before.Connections))
			}
			c := use.Connections[len(use.Connections)-1]
			if c.Decision != run.EgressRefused || !strings.Contains(c.Reason, a.reason) || a.name != "" && c.Name != a.name {
				t.Errorf("the transcript has %+v, want %q and %q", c, a.name, a.reason)
			}
		})
	}
	asked := w.dns.Questions()
	for _, never := range []string{"evil", "exfil", "localhost", "0x", "2852039166"} {
		if strings.Contains(asked, never) {
			t.Errorf("%s was asked for: %s", never, asked)
		}
	}
	if w.visits.Load() != 0 {
		t.Errorf("servers had %d requests", w.visits.Load())
	}
}

// What is said in a tunnel decides too.
func TestHostileTunnels(t *testing.T) {
	w := newWorld(t)
	w.dns.Set("kelvin.example", "127.0.0.1")
	w.open(w.allow("127.0.0.1:"+port(w.tls), "kelvin.example:"+port(w.tls)))
	plain := "example.com:" + port(w.plain)
	for what, tc := range map[string]struct{ authority, sent, reason string }{
		"TLS for another server":         {"example.com:" + port(w.tls), hello("evil.example"), "another server"},
		"TLS for a name below":           {"example.com:" + port(w.tls), hello("a.example.com"), "another server"},
		"TLS for the Kelvin sign":        {"kelvin.example:" + port(w.tls), hello("\u212aelvin.example"), "another server"},
		"TLS without a name":             {"example.com:" + port(w.tls), hello("127.0.0.1"), "names no server"},
		"TLS for a name on an address":   {"127.0.0.1:" + port(w.tls), hello("example.com"), "on an address"},
		"TLS with a hidden name":         {"example.com:" + port(w.tls), withExtension(hello("example.com"), extensionECH), "hides the name"},
		"TLS with an old hidden name":    {"example.com:" + port(w.tls), withExtension(hello("example.com"), extensionESNI), "hides the name"},
		"a hello that is none":           {"example.com:" + port(w.tls), "\x16\x03\x01\x00\x04\x02\x00\x00\x00", "cannot be read"},
		"TLS of version 2":               {"example.com:" + port(w.tls), "\x80\x2e\x01\x03\x01", "neither TLS nor HTTP"},
		"SSH":                            {plain, "SSH-2.0-x\r\n\r\n", "no request in it"},
		"bytes":                          {plain, "\x00\x01", "neither TLS nor HTTP"},
		"a request for another server":   {plain, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "another server, evil.example"},
		"a whole address of another":     {plain, "GET http://evil.example/ HTTP/1.1\r\nHost: " + plain + "\r\n\r\n", "another server, evil.example"},
		"another server, opaque":         {plain, "GET x:http://evil.example/s HTTP/1.1\r\nHost: " + plain + "\r\n\r\n", "names no path"},
		"opaque, http":                   {plain, "GET http:evil.example/s HTTP/1.1\r\nHost: " + plain + "\r\n\r\n", "names no path"},
		"another protocol":               {plain, "GET ftp://" + plain + "/ HTTP/1.1\r\nHost: " + plain + "\r\n\r\n", "another protocol"},
		"HTTP/2's preface":               {plain, "PRI * HTTP/2.0\r\nHost: " + plain + "\r\n\r\n", "another version"},
		"another port of the same":       {plain, "GET / HTTP/1.1\r\nHost: example.com:1\r\n\r\n", "another server, example.com:1"},
		"the second request for another": {plain, "GET /1 HTTP/1.1\r\nHost: " + plain + "\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n", "another server, evil.example"},
		"a proxy behind the proxy":       {plain, "CONNECT example.com:" + port(w.plain) + " HTTP/1.1\r\nHost: example.com\r\n\r\n", "a proxy behind the proxy"},
		"two hosts":                      {plain, "GET / HTTP/1.1\r\nHost: " + plain + "\r\nHost: evil.example\r\n\r\n", "no request in it"},
	} {
		t.Run(what, func(t *testing.T) {
			conn := w.tunnel(tc.authority)
			_, _ = io.WriteString(conn, tc.sent)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.ReadAll(conn)
			w.await("the denial", func(u run.NetworkUse) bool {
				for _, d := range u.Denied {
					if strings.Contains(d.Reason, tc.reason) {
						return true
					}
				}
				return false
			})
		})
	}
	if n := w.visits.Load(); n > 1 { // the first of two requests
		t.Errorf("servers had %d requests", n)
	}
}

// hello is the first that TLS says to a server.
func hello(server string) string {
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: server, InsecureSkipVerify: true}).Handshake()
	}()
	defer ours.Close()
	buf := make([]byte, 4096)
	n, _ := ours.Read(buf)
	return string(buf[:n])
}

// withExtension adds an extension without contents at the end of a TLS hello.
func withExtension(hello string, kind uint16) string {
	b := []byte(hello)
	add := func(at, width int) {
		n := 0
		for _, c := range b[at : at+width] {
			n = n<<8 | int(c)
		}
		n += 4
		for i := range width {
			b[at+i] = byte(n >> (8 * (width - 1 - i)))
		}
	}
	at := 5 + 4 + 2 + 32
	at += 1 + int(b[at])                           // session
	at += 2 + int(binary.BigEndian.Uint16(b[at:])) // ciphers
	at += 1 + int(b[at])                           // compression
	add(3, 2)                                      // record
	add(6, 3)                                      // handshake
	add(at, 2)                                     // extensions
	return string(binary.BigEndian.AppendUint16(b, kind)) + "\x00\x00"
}

// A name that leads elsewhere the second time gains nothing: there is one look-up
// for each connection, and what it said is what is dialled.
func TestRebinding(t *testing.T) {
	w := newWorld(t)
	w.dns.Set("rebind.test", "10.0.0.1", "169.254.169.254", "127.0.0.1")
	w.open(w.allow("rebind.test:" + port(w.plain)))
	for range 4 {
		if got := w.say("CONNECT rebind.test:" + port(w.plain) + " HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, " 403 ") {
			t.Errorf("the answer is %q", got)
		}
	}
	// For a mirror too, each answer is checked.
	w.dns.Set("other.example", "127.0.0.1", "10.0.0.1", "127.0.0.1")
	w.open(w.allow("other.example:" + port(w.plain)))
	url := "GET http://other.example:" + port(w.plain) + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for i, want := range []string{" 200 ", " 403 ", " 200 "} {
		if got := w.say(url); !strings.Contains(got, want) {
			t.Errorf("answer %d is %q, want %q", i, got, want)
		}
	}
}

// A mirror opens its networks, and not the gateway's own host besides them.
func TestAMirrorIsNotTheGatewaysHost(t *testing.T) {
	w := newWorld(t)
	w.gateway.own = func() ([]net.Addr, error) {
		var own []net.Addr
		for _, ip := range []string{"127.0.0.1", "93.184.215.14"} {
			own = append(own, &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(24, 32)})
		}
		return own, nil
	}
	for addr, denial := range map[string]string{"127.0.0.1": "", "93.184.215.14": "the gateway's own host"} {
		w.dns.Set("other.example", addr)
		_, err := w.gateway.addresses(context.Background(), "other.example")
		if (err == nil) != (denial == "") || err != nil && !strings.Contains(err.Error(), denial) {
			t.Errorf("%s: %v, want %q", addr, err, denial)
		}
	}
}

// Two readers must not see different requests in the same bytes.
func TestSmuggling(t *testing.T) {
	w := newWorld(t)
	w.open(w.allow())
	at := "http://example.com:" + port(w.plain)
	hidden := "GET " + "/hidden" + " HTTP/1.1\r\nHost: example.com\r\n\r\n"
	for what, head := range map[string]string{
		"two lengths":           "Content-Length: 0\r\nContent-Length: 40\r\n",
		"length and chunks":     "Content-Length: 40\r\nTransfer-Encoding: chunked\r\n",
		"chunks, obfuscated":    "Transfer-Encoding: xchunked\r\n",
		"chunks, twice":         "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
		"a space before colon":  "Content-Length : 40\r\n",
		"a folded line":         "X: y\r\n Content-Length: 40\r\n",
		"a bare line feed":      "X: y\nTransfer-Encoding: chunked\r\n",
		"a negative length":     "Content-Length: -1\r\n",
		"a length with a plus":  "Content-Length: +40\r\n",
		"NUL in a header":       "X: a\x00b\r\n",
		"a connection's header": "Connection: Content-Length\r\nContent-Length: 40\r\n",
	} {
		before := w.visits.Load()
		w.say("POST " + at + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + "\r\n" + "0\r\n\r\n" + hidden)
		if n := w.visits.Load() - before; n > 1 {
			t.Errorf("%s: the server had %d requests", what, n)
		}
	}
	if got := w.say("GET " + at + "/ HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n"); !strings.Contains(got, " 431 ") {
		t.Errorf("an endless header: %.80q", got)
	}
}

// However many connections there are, and however slow, others get through and
// nothing is kept for ever.
func TestManyAndSlow(t *testing.T) {
	w := newWorld(t)
	w.open(w.allow())
	var slow []net.Conn
	for range 400 {
		conn, err := net.Dial("tcp", w.proxy)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, "GET http://exa")
		slow = append(slow, conn)
	}
	if got := w.say("GET http://example.com:" + port(w.plain) + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.Contains(got, " 200 ") {
		t.Errorf("beside 400 slow ones: %q", got)
	}
	for _, conn := range slow {
		_ = conn.SetReadDeadline(time.Now().Add(20 * patience))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatalf("a slow one goes on: %v", err)
		}
	}
	for range 3000 {
		w.say("CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	use := w.use()
	if len(use.Connections) > run.MaxConnectionsListed || use.Omitted != 3000-maxRefusedListed {
		t.Errorf("%d are listed, %d omitted", len(use.Connections), use.Omitted)
	}
	if len(use.Denied) != 1 || use.Denied[0].Count != 3000 {
		t.Errorf("denied: %+v", use.Denied)
	}
	if n := bytes.Count([]byte(fmt.Sprint(use.Denied)), []byte("evil")); n != 1 {
		t.Errorf("%d kinds", n)
	}
}
