-- Live sandboxes, and what they take of the quotas.

-- +goose Up
ALTER TABLE tenants ADD COLUMN quota_sandboxes BIGINT NOT NULL DEFAULT 16;
ALTER TABLE tenant_load ADD COLUMN sandboxes BIGINT NOT NULL DEFAULT 0 CHECK (sandboxes >= 0);

CREATE TABLE sandboxes (
	id           TEXT COLLATE "C" PRIMARY KEY,
	tenant_id    TEXT COLLATE "C" NOT NULL REFERENCES tenants (id),
	spec         JSON NOT NULL,
	milli_cpu    BIGINT NOT NULL,
	memory_bytes BIGINT NOT NULL,
	state        TEXT NOT NULL CHECK (state IN ('creating', 'running', 'ending', 'ended')),
	node         TEXT NOT NULL DEFAULT '',
	access_token TEXT NOT NULL,
	outcome      JSON,
	resolved     JSON NOT NULL,
	created_at   BIGINT NOT NULL,
	expires_at   BIGINT NOT NULL,
	deadline     BIGINT NOT NULL,
	ended_at     BIGINT,
	CHECK ((state IN ('ending', 'ended')) = (outcome IS NOT NULL)),
	CHECK ((state = 'ended') = (ended_at IS NOT NULL)),
	CHECK (expires_at <= deadline)
);
CREATE INDEX sandboxes_list ON sandboxes (tenant_id, created_at, id);
CREATE INDEX sandboxes_open ON sandboxes (id) WHERE state <> 'ended';
CREATE INDEX sandboxes_due ON sandboxes (expires_at) WHERE state IN ('creating', 'running');
CREATE INDEX sandboxes_ended ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE sandbox_labels (
	sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
	name       TEXT COLLATE "C" NOT NULL,
	value      TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (sandbox_id, name)
);
