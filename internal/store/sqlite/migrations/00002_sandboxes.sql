-- Live sandboxes, and what they take of the quotas.

-- +goose Up
ALTER TABLE tenants ADD COLUMN quota_sandboxes INTEGER NOT NULL DEFAULT 16;
ALTER TABLE tenant_load ADD COLUMN sandboxes INTEGER NOT NULL DEFAULT 0 CHECK (sandboxes >= 0);

CREATE TABLE sandboxes (
	id           TEXT PRIMARY KEY,
	tenant_id    TEXT NOT NULL REFERENCES tenants (id),
	spec         TEXT NOT NULL,
	milli_cpu    INTEGER NOT NULL,
	memory_bytes INTEGER NOT NULL,
	state        TEXT NOT NULL CHECK (state IN ('creating', 'running', 'ending', 'ended')),
	node         TEXT NOT NULL DEFAULT '',
	access_token TEXT NOT NULL,
	outcome      TEXT,
	resolved     TEXT NOT NULL,
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER NOT NULL,
	deadline     INTEGER NOT NULL,
	ended_at     INTEGER,
	CHECK ((state IN ('ending', 'ended')) = (outcome IS NOT NULL)),
	CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
	CHECK (expires_at <= deadline)
) STRICT;
CREATE INDEX sandboxes_list ON sandboxes (tenant_id, created_at, id);
CREATE INDEX sandboxes_open ON sandboxes (id) WHERE state <> 'ended';
CREATE INDEX sandboxes_due ON sandboxes (expires_at) WHERE state IN ('creating', 'running');
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE sandbox_labels (
	sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	name       TEXT NOT NULL,
	value      TEXT NOT NULL,
	PRIMARY KEY (sandbox_id, name)
) STRICT;
