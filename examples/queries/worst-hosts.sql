-- The ten hosts with the slowest flows: the 99th percentile of their flows' mean latency, and the longest of all.
SELECT host,
       count(*) AS flows,
       quantile_cont(latency_mean_us, 0.99) AS p99_of_flows_us,
       max(latency_max_us) AS max_us,
       sum(lost) / sum(sent_units) AS lost_ratio
FROM read_parquet('runs/*/flows.parquet', union_by_name = true)
WHERE latency_mean_us IS NOT NULL
GROUP BY host
ORDER BY p99_of_flows_us DESC, host
LIMIT 10;
