-- The record. What the tables mean is in docs/adr; times are microseconds since
-- 1970. Whoever changes this file after a release breaks databases that exist:
-- add another.

-- +goose Up
CREATE TABLE tenants (
	id                   TEXT PRIMARY KEY,
	name                 TEXT NOT NULL,
	disabled             INTEGER NOT NULL,
	grants               TEXT NOT NULL,
	quota_running        INTEGER NOT NULL,
	quota_queued         INTEGER NOT NULL,
	quota_milli_cpu      INTEGER NOT NULL,
	quota_memory_bytes   INTEGER NOT NULL,
	quota_artifact_bytes INTEGER NOT NULL,
	requests_per_minute  INTEGER NOT NULL,
	created_at           INTEGER NOT NULL
) STRICT;

-- What a tenant has on record and uses. Its row is locked before any of the
-- tenant's jobs is, by whoever changes what is counted.
CREATE TABLE tenant_load (
	tenant_id      TEXT PRIMARY KEY REFERENCES tenants (id),
	queued         INTEGER NOT NULL DEFAULT 0 CHECK (queued >= 0),
	running        INTEGER NOT NULL DEFAULT 0 CHECK (running >= 0),
	milli_cpu      INTEGER NOT NULL DEFAULT 0 CHECK (milli_cpu >= 0),
	memory_bytes   INTEGER NOT NULL DEFAULT 0 CHECK (memory_bytes >= 0),
	artifact_bytes INTEGER NOT NULL DEFAULT 0 CHECK (artifact_bytes >= 0),
	succeeded      INTEGER NOT NULL DEFAULT 0 CHECK (succeeded >= 0),
	failed         INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
	cancelled      INTEGER NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
	served_at      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX tenant_load_turn ON tenant_load (served_at, tenant_id) WHERE queued > 0;

CREATE TABLE api_keys (
	id           TEXT PRIMARY KEY,
	tenant_id    TEXT NOT NULL REFERENCES tenants (id),
	name         TEXT NOT NULL,
	prefix       TEXT NOT NULL,
	hash         BLOB NOT NULL UNIQUE,
	scopes       TEXT NOT NULL,
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER,
	last_used_at INTEGER,
	revoked_at   INTEGER
) STRICT;
CREATE INDEX api_keys_tenant ON api_keys (tenant_id, created_at);

CREATE TABLE uploads (
	id         TEXT PRIMARY KEY,
	tenant_id  TEXT NOT NULL REFERENCES tenants (id),
	blob_key   TEXT NOT NULL,
	bytes      INTEGER NOT NULL,
	sha256     TEXT NOT NULL,
	complete   INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	used_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX uploads_age ON uploads (created_at, id);

CREATE TABLE jobs (
	id               TEXT PRIMARY KEY,
	tenant_id        TEXT NOT NULL REFERENCES tenants (id),
	spec             TEXT NOT NULL,
	milli_cpu        INTEGER NOT NULL,
	memory_bytes     INTEGER NOT NULL,
	upload_id        TEXT,
	idempotency_key  TEXT,
	request_digest   BLOB NOT NULL,
	state            TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'succeeded', 'failed', 'cancelled')),
	attempt          INTEGER NOT NULL DEFAULT 0,
	node             TEXT NOT NULL DEFAULT '',
	lost             INTEGER NOT NULL DEFAULT 0,
	cancel_requested INTEGER NOT NULL DEFAULT 0,
	steps            TEXT NOT NULL,
	outcome          TEXT,
	usage            TEXT NOT NULL,
	resolved         TEXT NOT NULL,
	receipt          BLOB,
	log_seq          INTEGER NOT NULL DEFAULT 0,
	fence            INTEGER NOT NULL DEFAULT 0,
	worker           TEXT NOT NULL DEFAULT '',
	lease_until      INTEGER,
	created_at       INTEGER NOT NULL,
	started_at       INTEGER,
	finished_at      INTEGER,
	CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (outcome IS NOT NULL)),
	CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
	CHECK ((state IN ('starting', 'running')) = (lease_until IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX jobs_idempotency ON jobs (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_list ON jobs (tenant_id, created_at, id);
CREATE INDEX jobs_state ON jobs (tenant_id, state, created_at, id);
CREATE INDEX jobs_queue ON jobs (tenant_id, created_at, id) WHERE state = 'queued';
CREATE INDEX jobs_waiting ON jobs (created_at) WHERE state = 'queued';
CREATE INDEX jobs_lease ON jobs (lease_until) WHERE state IN ('starting', 'running');
CREATE INDEX jobs_ended ON jobs (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_unsigned ON jobs (finished_at, id) WHERE finished_at IS NOT NULL AND receipt IS NULL;
CREATE INDEX jobs_upload ON jobs (upload_id) WHERE upload_id IS NOT NULL AND finished_at IS NULL;

CREATE TABLE job_labels (
	job_id     TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	tenant_id  TEXT NOT NULL,
	name       TEXT NOT NULL,
	value      TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_labels_find ON job_labels (tenant_id, name, value, created_at, job_id);

CREATE TABLE job_log (
	job_id  TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	seq     INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	step    INTEGER NOT NULL,
	stream  TEXT NOT NULL,
	start   INTEGER NOT NULL,
	bytes   INTEGER NOT NULL CHECK (bytes = length(data)),
	data    BLOB NOT NULL,
	at      INTEGER NOT NULL,
	PRIMARY KEY (job_id, seq)
) STRICT;
CREATE UNIQUE INDEX job_log_place ON job_log (job_id, attempt, step, start);

CREATE TABLE artifacts (
	job_id   TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	path     TEXT NOT NULL,
	bytes    INTEGER NOT NULL CHECK (bytes >= 0),
	sha256   TEXT NOT NULL,
	blob_key TEXT NOT NULL,
	PRIMARY KEY (job_id, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
	seq       INTEGER PRIMARY KEY AUTOINCREMENT,
	at        INTEGER NOT NULL,
	tenant_id TEXT NOT NULL,
	key_id    TEXT NOT NULL,
	action    TEXT NOT NULL,
	object    TEXT NOT NULL,
	result    TEXT NOT NULL,
	remote    TEXT NOT NULL
) STRICT;
CREATE INDEX audit_tenant ON audit (tenant_id, seq);

-- +goose StatementBegin
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN
	SELECT RAISE(ABORT, 'the audit log is only ever added to');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN
	SELECT RAISE(ABORT, 'the audit log is only ever added to');
END;
-- +goose StatementEnd
-- REPLACE deletes without asking the trigger above.
-- +goose StatementBegin
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq) BEGIN
	SELECT RAISE(ABORT, 'the audit log is only ever added to');
END;
-- +goose StatementEnd
