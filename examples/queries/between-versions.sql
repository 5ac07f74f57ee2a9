-- Figures whose median over valid trials changed by more than 5 % from one version of Leadline to another.
WITH figures AS (
    SELECT version, "case", test, metric, median(value) AS value, count(*) AS trials
    FROM (
        SELECT *, split_part(filename, '/', -2) AS run_id
        FROM read_parquet('runs/*/results.parquet', union_by_name = true, filename = true)
    )
    JOIN read_json('runs/*/run.json', columns = {run_id: 'VARCHAR', version: 'VARCHAR'}) USING (run_id)
    WHERE trial IS NOT NULL AND validity = 'valid'
    GROUP BY ALL
)
SELECT "case", test, metric, old.value AS old_value, new.value AS new_value, new.value / old.value - 1 AS change,
       old.trials AS old_trials, new.trials AS new_trials
FROM figures AS old
JOIN figures AS new USING ("case", test, metric)
WHERE old.version = '0.1.0' AND new.version = '0.2.0' AND abs(change) > 0.05
ORDER BY abs(change) DESC, "case", test, metric;
