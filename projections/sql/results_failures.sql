select
    r.run_id, r.rollout_id, r.task_id, r.task_index, r.repeat, r.state, c.counted as counted_as,
    r.failure_kind, r.failure_stage, r.failure_message, r.attempts, r.started_at, r.finished_at
from rollouts r join counted_as c on c.state = r.state
where r.run_id = $1 and (c.counted = 'failed' or (c.counted = 'missing' and r.failure_kind is not null))
order by r.task_index, r.repeat, r.rollout_id;
