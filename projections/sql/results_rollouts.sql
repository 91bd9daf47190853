select
    r.run_id, r.rollout_id, r.task_id, r.task_index, r.repeat, r.state, r.reward, r.attempts, r.answer, r.stop_reason, r.failure_reason,
    r.components::varchar as components, r.verifier_version, r.turns, r.tool_calls, r.model_calls, r.tries,
    r.input_tokens, r.output_tokens, r.cached_tokens, r.reasoning_tokens,
    r.started_at, r.finished_at, r.duration_s::double as duration_s, r.model_s, r.tool_s
from rollouts r join counted_as c on c.state = r.state
where r.run_id = $1 and c.counted in ('scored', 'masked') order by r.task_index, r.repeat, r.rollout_id;
