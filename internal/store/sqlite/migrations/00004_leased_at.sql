-- When a lease was given or renewed, by the record's clock: one that is in the
-- future was given before that clock stepped back.

-- +goose Up
ALTER TABLE jobs ADD COLUMN leased_at INTEGER;
CREATE INDEX jobs_leased ON jobs (leased_at) WHERE state IN ('starting', 'running');
