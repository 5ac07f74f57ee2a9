-- Hosts whose last sample in a trial is more than 3 s older than the trial's last one.
WITH ends AS (
    SELECT split_part(filename, '/', -2) AS run,
           regexp_extract(trial, '^[^/]+/[^/]+') AS of_trial,
           host,
           max(t_ns) AS last_ns
    FROM read_parquet('runs/*/samples.parquet', union_by_name = true, filename = true)
    WHERE trial IS NOT NULL
    GROUP BY ALL
)
SELECT run, of_trial AS trial, host, (max(last_ns) OVER (PARTITION BY run, of_trial) - last_ns) / 1e9 AS silent_s
FROM ends
QUALIFY silent_s > 3
ORDER BY run, trial, host;
