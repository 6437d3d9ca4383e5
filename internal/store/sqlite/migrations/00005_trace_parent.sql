-- The trace that a job belongs to, as its request said.

-- +goose Up
ALTER TABLE jobs ADD COLUMN trace_parent TEXT NOT NULL DEFAULT '';
