-- The throughput of a case's tests in all runs, the oldest first: a row about all repeats has no trial.
SELECT split_part(filename, '/', -2) AS run, test, value, unit, low, high, validity
FROM read_parquet('runs/*/results.parquet', union_by_name = true, filename = true)
WHERE "case" = 'c01' AND metric = 'throughput_bps' AND trial IS NULL
ORDER BY run, test;
