-- The record. What the tables mean is in docs/adr; times are microseconds since
-- 1970. Whoever changes this file after a release breaks databases that exist:
-- add another.

-- +goose Up
-- Now, for every statement that compares or keeps a time. It stands still within
-- a statement, so that an index can be searched for it.
-- +goose StatementBegin
CREATE FUNCTION agentdock_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::BIGINT $$;
-- +goose StatementEnd

CREATE TABLE tenants (
	id                   TEXT COLLATE "C" PRIMARY KEY,
	name                 TEXT COLLATE "C" NOT NULL,
	disabled             BOOLEAN NOT NULL,
	grants               JSON NOT NULL,
	quota_running        BIGINT NOT NULL,
	quota_queued         BIGINT NOT NULL,
	quota_milli_cpu      BIGINT NOT NULL,
	quota_memory_bytes   BIGINT NOT NULL,
	quota_artifact_bytes BIGINT NOT NULL,
	requests_per_minute  BIGINT NOT NULL,
	created_at           BIGINT NOT NULL
);

-- What a tenant has on record and uses. Its row is locked before any of the
-- tenant's jobs is, by whoever changes what is counted.
CREATE TABLE tenant_load (
	tenant_id      TEXT COLLATE "C" PRIMARY KEY REFERENCES tenants (id),
	queued         BIGINT NOT NULL DEFAULT 0 CHECK (queued >= 0),
	running        BIGINT NOT NULL DEFAULT 0 CHECK (running >= 0),
	milli_cpu      BIGINT NOT NULL DEFAULT 0 CHECK (milli_cpu >= 0),
	memory_bytes   BIGINT NOT NULL DEFAULT 0 CHECK (memory_bytes >= 0),
	artifact_bytes BIGINT NOT NULL DEFAULT 0 CHECK (artifact_bytes >= 0),
	succeeded      BIGINT NOT NULL DEFAULT 0 CHECK (succeeded >= 0),
	failed         BIGINT NOT NULL DEFAULT 0 CHECK (failed >= 0),
	cancelled      BIGINT NOT NULL DEFAULT 0 CHECK (cancelled >= 0),
	served_at      BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX tenant_load_turn ON tenant_load (served_at, tenant_id) WHERE queued > 0;

CREATE TABLE api_keys (
	id           TEXT COLLATE "C" PRIMARY KEY,
	tenant_id    TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
	name         TEXT COLLATE "C" NOT NULL,
	prefix       TEXT NOT NULL,
	hash         BYTEA NOT NULL UNIQUE,
	scopes       JSON NOT NULL,
	created_at   BIGINT NOT NULL,
	expires_at   BIGINT,
	last_used_at BIGINT,
	revoked_at   BIGINT
);
CREATE INDEX api_keys_tenant ON api_keys (tenant_id, created_at);

CREATE TABLE uploads (
	id         TEXT COLLATE "C" PRIMARY KEY,
	tenant_id  TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
	blob_key   TEXT NOT NULL,
	bytes      BIGINT NOT NULL,
	sha256     TEXT NOT NULL,
	complete   BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	used_at    BIGINT NOT NULL
);
CREATE INDEX uploads_age ON uploads (created_at, id);

CREATE TABLE jobs (
	id               TEXT COLLATE "C" PRIMARY KEY,
	tenant_id        TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
	spec             JSON NOT NULL,
	milli_cpu        BIGINT NOT NULL,
	memory_bytes     BIGINT NOT NULL,
	upload_id        TEXT COLLATE "C",
	idempotency_key  TEXT,
	request_digest   BYTEA NOT NULL,
	state            TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'succeeded', 'failed', 'cancelled')),
	attempt          BIGINT NOT NULL DEFAULT 0,
	node             TEXT NOT NULL DEFAULT '',
	lost             BIGINT NOT NULL DEFAULT 0,
	cancel_requested BOOLEAN NOT NULL DEFAULT FALSE,
	steps            JSON NOT NULL,
	outcome          JSON,
	usage            JSON NOT NULL,
	resolved         JSON NOT NULL,
	receipt          BYTEA,
	log_seq          BIGINT NOT NULL DEFAULT 0,
	fence            BIGINT NOT NULL DEFAULT 0,
	worker           TEXT NOT NULL DEFAULT '',
	lease_until      BIGINT,
	created_at       BIGINT NOT NULL,
	started_at       BIGINT,
	finished_at      BIGINT,
	CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (outcome IS NOT NULL)),
	CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
	CHECK ((state IN ('starting', 'running')) = (lease_until IS NOT NULL))
);
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
	job_id     TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	tenant_id  TEXT COLLATE "C" NOT NULL,
	name       TEXT COLLATE "C" NOT NULL,
	value      TEXT COLLATE "C" NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (job_id, name)
);
CREATE INDEX job_labels_find ON job_labels (tenant_id, name, value, created_at, job_id);

CREATE TABLE job_log (
	job_id  TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	seq     BIGINT NOT NULL,
	attempt BIGINT NOT NULL,
	step    BIGINT NOT NULL,
	stream  TEXT NOT NULL,
	start   BIGINT NOT NULL,
	bytes   BIGINT NOT NULL CHECK (bytes = octet_length(data)),
	data    BYTEA NOT NULL,
	at      BIGINT NOT NULL,
	PRIMARY KEY (job_id, seq)
);
CREATE UNIQUE INDEX job_log_place ON job_log (job_id, attempt, step, start);

CREATE TABLE artifacts (
	job_id   TEXT COLLATE "C" NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	path     TEXT COLLATE "C" NOT NULL,
	bytes    BIGINT NOT NULL CHECK (bytes >= 0),
	sha256   TEXT NOT NULL,
	blob_key TEXT NOT NULL,
	PRIMARY KEY (job_id, path)
);

CREATE TABLE audit (
	seq       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at        BIGINT NOT NULL,
	tenant_id TEXT COLLATE "C" NOT NULL,
	key_id    TEXT NOT NULL,
	action    TEXT NOT NULL,
	object    TEXT NOT NULL,
	result    TEXT NOT NULL,
	remote    TEXT NOT NULL
);
CREATE INDEX audit_tenant ON audit (tenant_id, seq);

-- +goose StatementBegin
CREATE FUNCTION audit_only_grows() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the audit log is only ever added to';
END;
$$;
-- +goose StatementEnd
CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
	FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows();
-- Not even a session that leaves out triggers may.
ALTER TABLE audit ENABLE ALWAYS TRIGGER audit_only_grows;
REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM PUBLIC, CURRENT_USER;
