-- One row a model call try, and one a tool call, with what came of it (state null: no answer yet). prompt_tokens and generated_tokens count
-- the ids that the backend gave (docs/samples.md), input_tokens and output_tokens are what it counted itself.

create or replace view model_calls as
select
    q.run_id, q.rollout_id, q.attempt, q.key, q.event_id as call_id, q.turn, q.tries, q.recorded_at as requested_at,
    a.state, a.recorded_at as answered_at, a.stop_reason, a.input_tokens, a.output_tokens, a.cached_tokens, a.reasoning_tokens,
    a.duration_s, a.failure_kind, a.failure_message, a.retry_in_s, q.dialect, q.parent_id, a.first_token_s, a.queue_s, a.cost_usd, a.served_model,
    a.prompt_tokens, a.generated_tokens, a.has_tokens, a.untrainable, q.shard, q.seq
from model_call_requested q left join model_call_answered a on a.run_id = q.run_id and a.request_id = q.event_id;

-- number: which of the attempt's sandboxes; each after the first follows one that was lost, in which a call may have run before.
create or replace view tool_calls as
select
    q.run_id, q.rollout_id, q.attempt, q.key, q.event_id as request_id, q.call_id, q.turn, q.call_index, q.tool, q.tries, q.number,
    q.recorded_at as requested_at, a.state, a.recorded_at as answered_at, a.exit_code, a.output_bytes, a.truncated, a.ended_by, a.duration_s,
    a.failure_kind, a.failure_message, q.shard, q.seq
from tool_call_requested q left join tool_call_answered a on a.run_id = q.run_id and a.request_id = q.event_id;

-- label: what is written on the machine; is_warm: it was made before it was asked for.
create or replace view sandboxes as
select
    run_id, rollout_id, attempt, key, max(place) as place, max(provider) as provider,
    min(recorded_at) filter (state = 'created') as created_at, min(recorded_at) filter (state = 'lost') as lost_at,
    min(recorded_at) filter (state = 'destroyed') as destroyed_at, min(recorded_at) filter (state = 'failed') as failed_at,
    max(reason) filter (state in ('failed', 'lost')) as reason, max(label) as label, bool_or(is_warm) as is_warm
from sandbox_changes group by run_id, rollout_id, attempt, key;

create or replace view checkpoints as
select
    run_id, rollout_id, attempt, key, request_id, state, recorded_at, snapshot, files, bytes, stored_bytes, left_out, duration_s, paused_s,
    failure_kind, failure_message, shard, seq
from checkpoint_changes;
