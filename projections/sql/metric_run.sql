select
    planned, missing, model, state,
    coalesce(config->>'$.taskset.name', parse_filename(config->>'$.taskset.jsonl_fpath', true), parse_filename(config->>'$.taskset.path'))
from runs join run_requested using (run_id) where run_id = $1;
