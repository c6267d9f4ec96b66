-- What small fixed work took after each boot's stop: name -> value, source and reason.

ALTER TABLE boot ADD COLUMN reference_workloads JSON;
