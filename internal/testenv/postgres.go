package testenv

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Postgres is a real PostgreSQL server, on a unix socket in a directory of its
// own.
type Postgres struct {
	*server
	bin   string
	names atomic.Int64
}

// roleOfTests owns the databases of tests and is no superuser, as in production.
const roleOfTests = "agentdock"

// StartPostgres starts a server; the test's clean-up stops it. Settings are
// like "work_mem=1MB".
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	program := requireProgram(t, "postgres", "postgresql", "/usr/lib/postgresql/*/bin/postgres")
	// postgres refuses root.
	p := &Postgres{server: newServer(t, "pg", "postgres", "nobody"), bin: filepath.Dir(program)}
	p.stop = unix.SIGINT // without waiting for those who are connected
	p.ready = "database system is ready to accept connections"
	data := filepath.Join(p.dir, "data")
	p.run("initdb", "--pgdata="+data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	p.argv = []string{program, "-D", data, "-k", p.dir, "-c", "listen_addresses=",
		// Nothing here outlives the machine, so nothing waits for its disk. It
		// does outlive the server: commits are written before they are answered.
		"-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "max_connections=200", "-c", "shared_buffers=64MB"}
	for _, s := range settings {
		p.argv = append(p.argv, "-c", s)
	}
	p.Start()
	p.Admin("CREATE ROLE " + roleOfTests + " LOGIN CREATEDB")
	return p
}

// run runs one of the server's own programs to its end.
func (p *Postgres) run(name string, args ...string) string {
	p.t.Helper()
	out, err := p.command(append([]string{filepath.Join(p.bin, name)}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// Admin executes statements as the superuser, each in a transaction of its own.
func (p *Postgres) Admin(statements ...string) {
	p.t.Helper()
	p.execute("postgres", statements)
}

// AdminIn is Admin in the database that dsn names.
func (p *Postgres) AdminIn(dsn string, statements ...string) {
	p.t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		p.t.Fatal(err)
	}
	p.execute(strings.TrimPrefix(u.Path, "/"), statements)
}

func (p *Postgres) execute(database string, statements []string) {
	p.t.Helper()
	args := []string{"--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--host=" + p.dir, "--username=postgres", "--dbname=" + database}
	for _, s := range statements {
		args = append(args, "--command="+s)
	}
	p.run("psql", args...)
}

// Database makes an empty database and returns how to connect to it.
func (p *Postgres) Database() (dsn string) {
	p.t.Helper()
	name := fmt.Sprintf("test%d", p.names.Add(1))
	p.Admin("CREATE DATABASE " + name + " OWNER " + roleOfTests)
	return p.DSN(name)
}

// DSN says how to connect to a database by name.
func (p *Postgres) DSN(name string) string {
	u := url.URL{Scheme: "postgres", User: url.User(roleOfTests), Path: "/" + name,
		RawQuery: url.Values{"host": {p.dir}}.Encode()}
	return u.String()
}

// Dump is everything in a database, as statements that make it again.
func (p *Postgres) Dump(dsn string) string {
	p.t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.run("pg_dump", "--host="+p.dir, "--username=postgres", strings.TrimPrefix(u.Path, "/"))
}

// Dir holds all its files.
func (p *Postgres) Dir() string { return p.dir }

// Cut closes all connections to a database and allows no others, until the
// function returned is called. Other databases are not disturbed.
func (p *Postgres) Cut(dsn string) (back func()) {
	p.t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		p.t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	p.Admin("ALTER DATABASE "+name+" ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"'")
	return func() {
		p.t.Helper()
		p.Admin("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	}
}

// Log is what the server has logged.
func (p *Postgres) Log() string { return p.log.String() }

// Crash ends the server as a failing machine would: nothing is put in order.
func (p *Postgres) Crash() { p.end(unix.SIGQUIT) }
