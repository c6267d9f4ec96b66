-- Where a boot's time went beside its path (table phase), what would help, and what a hang looked like inside.

ALTER TABLE boot ADD COLUMN attribution JSON;
ALTER TABLE boot ADD COLUMN hints JSON;
ALTER TABLE boot ADD COLUMN failure_diagnosis JSON;
ALTER TABLE boot ADD COLUMN harness_time DOUBLE;

-- What a cache's new files are: kind -> files; and their bytes together.
ALTER TABLE cache ADD COLUMN new_kinds JSON;
ALTER TABLE cache ADD COLUMN new_bytes BIGINT;
