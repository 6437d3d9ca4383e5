-- Whether a running sandbox is paused.

-- +goose Up
ALTER TABLE sandboxes ADD COLUMN paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1));
