-- Uploads count against a quota of their own. Tenants that exist get the same as
-- for artifacts.

-- +goose Up
ALTER TABLE tenants ADD COLUMN quota_upload_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE tenants SET quota_upload_bytes = quota_artifact_bytes;
ALTER TABLE tenant_load ADD COLUMN upload_bytes INTEGER NOT NULL DEFAULT 0 CHECK (upload_bytes >= 0);
UPDATE tenant_load SET upload_bytes = (SELECT coalesce(sum(bytes), 0) FROM uploads WHERE uploads.tenant_id = tenant_load.tenant_id);
