select rollout_id, is_done, state, reward, attempt, stage, failures, retry_at, open_requests, holders
from resume_state where run_id = $1 order by task_index, repeat, rollout_id;
