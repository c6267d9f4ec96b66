-- The engine's own time to first token of a request, seconds, where its metrics tell.

ALTER TABLE request ADD COLUMN engine_ttft DOUBLE;
