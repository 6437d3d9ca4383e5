-- The request that made a sandbox, by the key that names it.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN idempotency_key TEXT;
ALTER TABLE sandboxes ADD COLUMN request_digest BLOB;
CREATE UNIQUE INDEX sandboxes_idempotency ON sandboxes (tenant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
