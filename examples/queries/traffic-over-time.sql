-- What all hosts sent, in bits for each second of each test: a counter's differences, downsampled.
WITH sent AS (
    SELECT split_part(filename, '/', -2) AS run,
           trial,
           t_ns,
           value - lag(value) OVER (PARTITION BY filename, trial, host, labels ORDER BY t_ns) AS bytes
    FROM read_parquet('runs/*/samples.parquet', union_by_name = true, filename = true)
    WHERE metric = 'interface_tx_bytes' AND labels ->> 'interface' <> 'lo' AND trial IS NOT NULL
),
timed AS (
    SELECT run, trial, (t_ns - min(t_ns) OVER (PARTITION BY run, trial)) // 1000000000 AS second, bytes
    FROM sent
)
SELECT run, trial, second, sum(bytes) * 8 AS bits
FROM timed
WHERE bytes IS NOT NULL
GROUP BY run, trial, second
ORDER BY run, trial, second;
