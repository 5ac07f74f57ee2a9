-- For each figure, in how many trials of all runs it is valid, and the most frequent reason against it.
SELECT test,
       metric,
       count(*) AS trials,
       count(*) FILTER (validity = 'valid') / count(*) AS valid_share,
       mode(reasons) FILTER (validity <> 'valid') AS usual_reasons
FROM read_parquet('runs/*/results.parquet', union_by_name = true)
WHERE trial IS NOT NULL
GROUP BY test, metric
ORDER BY valid_share, test, metric;
