-- The typed tables, filled from a staged batch. The line above a statement names the types that it is about.

-- types: claim.v1
insert into claims
select shard, seq, recorded_at, p[4], p[5], attempt, p[6], p[7], event_id, field(x, 'worker'), field(x, 'request_id')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'claim.v1');

-- types: run_requested.v1
insert into run_requested
select
    shard, seq, recorded_at, p[4], event_id, data->'$.config', field(x, 'config_digest'), field(x, 'output_dir'), data->'$.versions',
    coalesce(try_cast(data->>'$.config.num_repeats' as integer), 1), coalesce(try_cast(data->>'$.config.retries.max_attempts' as integer), 3)
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'run_requested.v1');

-- types: run_started.v1
insert into run_started
select shard, seq, recorded_at, p[4], event_id, field(x, 'plan.sha256'), field(x, 'tasks'), field(x, 'planned'), field(x, 'shards'), field(x, 'taskset_digest'), field(x, 'model')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'run_started.v1');

-- types: run_paused.v1 run_resumed.v1 run_cancelled.v1
insert into run_changes
select shard, seq, recorded_at, p[4], event_id, substr(kind, 5), field(x, 'kind'), field(x, 'reason'), field(x, 'request_id')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type in ('run_paused.v1', 'run_resumed.v1', 'run_cancelled.v1'));

-- types: run_finished.v1
insert into run_finished
select
    shard, seq, recorded_at, p[4], event_id, field(x, 'state'), field(x, 'planned'), field(x, 'scored'), field(x, 'failed'), field(x, 'masked'), field(x, 'missing'), field(x, 'failure.kind'), field(x, 'failure.message')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'run_finished.v1');

-- types: session_requested.v1
insert into session_requested
select shard, seq, recorded_at, p[4], p[5], attempt, event_id, field(x, 'task.task_id'), field(x, 'repeat'), field(x, 'task.awaits_input_s'),
    coalesce(json_array_length(data, '$.task.follow_ups'), 0)
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'session_requested.v1');

-- types: session_closed.v1 session_failed.v1
insert into session_finished
select
    shard, seq, recorded_at, p[4], p[5], attempt, event_id, field(x, 'request_id'), substr(kind, 9),
    field(x, 'evidence.answer'), field(x, 'evidence.stop_reason'), field(x, 'evidence.turns'),
    field(x, 'failure.kind'), field(x, 'failure.message'), case when field(x, 'failure.kind') is not null then coalesce(field(x, 'failure.stage'), 'agent') end
from (select *, json_extract_string(data, fields()) as x from staged where fit and type in ('session_closed.v1', 'session_failed.v1'));

-- types: rollout_finished.v1
insert into rollout_finished
select
    shard, seq, recorded_at, p[4], p[5], attempt, event_id, field(x, 'state'), field(x, 'reward'), field(x, 'failure.kind'), field(x, 'failure.message'),
    case when field(x, 'failure.kind') is not null then coalesce(field(x, 'failure.stage'), 'agent') end, field(x, 'retry_at')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'rollout_finished.v1');

-- types: verdict_issued.v1 verdict_failed.v1
insert into verdicts
select
    shard, seq, recorded_at, p[4], p[5], attempt, event_id, field(x, 'request_id'), substr(kind, 9), field(x, 'reward'), data->'$.components', field(x, 'failure_reason'),
    field(x, 'evidence_digest'), field(x, 'verifier_version'), field(x, 'failure.kind'), field(x, 'failure.message'),
    case when kind = 'verdict_issued' then coalesce(field(x, 'graded'), 'answer') end
from (select *, json_extract_string(data, fields()) as x from staged where fit and type in ('verdict_issued.v1', 'verdict_failed.v1'));

-- types: model_call_requested.v1
insert into model_call_requested
select shard, seq, recorded_at, p[4], p[5], attempt, p[7], event_id, field(x, 'turn'), field(x, 'tries'), field(x, 'dialect'), field(x, 'parent_id'),
    coalesce(field(x, 'activation')::integer, 1), coalesce(field(x, 'launch')::integer, 1)
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'model_call_requested.v1');

-- types: model_call_recalled.v1
insert into model_call_recalled
select shard, seq, recorded_at, p[4], p[5], attempt, p[7], event_id, field(x, 'call_id'), field(x, 'turn'), field(x, 'activation'), field(x, 'launch')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'model_call_recalled.v1');

-- types: model_call_completed.v1 model_call_failed.v1 model_call_lost.v1
insert into model_call_answered
select
    shard, seq, recorded_at, p[4], p[5], attempt, p[7], event_id, field(x, 'request_id'), substr(kind, 12), field(x, 'turn'), field(x, 'stop_reason'),
    case when kind = 'model_call_completed' then coalesce(field(x, 'usage.input_tokens')::bigint, 0) end,
    case when kind = 'model_call_completed' then coalesce(field(x, 'usage.output_tokens')::bigint, 0) end,
    case when kind = 'model_call_completed' then coalesce(field(x, 'usage.cached_tokens')::bigint, 0) end,
    case when kind = 'model_call_completed' then coalesce(field(x, 'usage.reasoning_tokens')::bigint, 0) end,
    field(x, 'duration_s'), field(x, 'failure.kind'), field(x, 'failure.message'), field(x, 'retry_in_s'),
    field(x, 'first_token_s'), field(x, 'queue_s'), field(x, 'cost_usd'), field(x, 'served_model'),
    case when field(x, 'tokens.digest') is not null then json_array_length(data, '$.tokens.prompt') + coalesce(field(x, 'tokens.shared')::bigint, 0) end,
    case when field(x, 'tokens.digest') is not null then json_array_length(data, '$.tokens.generated') end,
    case when kind = 'model_call_completed' then field(x, 'tokens.digest') is not null end, field(x, 'untrainable')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type in ('model_call_completed.v1', 'model_call_failed.v1', 'model_call_lost.v1'));

-- types: tool_call_requested.v1
insert into tool_call_requested
select shard, seq, recorded_at, p[4], p[5], attempt, p[7], event_id, field(x, 'call_id'), field(x, 'turn'), field(x, 'index'), field(x, 'tool'), coalesce(field(x, 'tries')::integer, 1), coalesce(field(x, 'number')::integer, 1)
from (select *, json_extract_string(data, fields()) as x from staged where fit and type = 'tool_call_requested.v1');

-- types: tool_call_completed.v1 tool_call_failed.v1 tool_call_lost.v1
insert into tool_call_answered
select
    shard, seq, recorded_at, p[4], p[5], attempt, p[7], event_id, field(x, 'request_id'), substr(kind, 11), field(x, 'exit_code'), field(x, 'output_bytes'),
    case when kind = 'tool_call_completed' then coalesce(field(x, 'truncated')::boolean, false) end,
    case when kind = 'tool_call_completed' then coalesce(field(x, 'ended_by'), 'exit') end,
    field(x, 'duration_s'), field(x, 'failure.kind'), coalesce(field(x, 'failure.message'), field(x, 'reason'))
from (select *, json_extract_string(data, fields()) as x from staged where fit and type in ('tool_call_completed.v1', 'tool_call_failed.v1', 'tool_call_lost.v1'));

-- types: launch_told.v1
insert into program_tool_calls
select shard, seq, recorded_at, p[4], p[5], attempt, event_id, data->>'$.launch_id', coalesce(item.told->>'$.id', event_id || '/' || item.place)
from (
    select *, unnest(list_transform(from_json(data->'$.items', '["json"]'), lambda told, place: {told: told, place: place})) as item
    from staged where fit and type = 'launch_told.v1'
) where item.told->>'$.kind' = 'tool_asked';

-- types: sandbox_created.v1 sandbox_failed.v1 sandbox_lost.v1 sandbox_destroyed.v1
insert into sandbox_changes
select
    shard, seq, recorded_at, p[4], p[5], attempt, p[7], event_id, field(x, 'request_id'), substr(kind, 9), field(x, 'place'), field(x, 'provider'),
    field(x, 'failure.kind'), coalesce(field(x, 'reason'), field(x, 'failure.message')), field(x, 'label'),
    case when kind = 'sandbox_created' then coalesce(field(x, 'is_warm')::boolean, false) end
from (select *, json_extract_string(data, fields()) as x from staged where fit and type in ('sandbox_created.v1', 'sandbox_failed.v1', 'sandbox_lost.v1', 'sandbox_destroyed.v1'));

-- types: checkpoint_saved.v1 checkpoint_failed.v1
insert into checkpoint_changes
select
    shard, seq, recorded_at, p[4], p[5], attempt, p[7], event_id, field(x, 'request_id'), substr(kind, 12), field(x, 'snapshot.sha256'),
    field(x, 'files'), field(x, 'bytes'), field(x, 'stored_bytes'), case when kind = 'checkpoint_saved' then coalesce(field(x, 'left_out')::bigint, 0) end,
    field(x, 'duration_s'), field(x, 'paused_s'), field(x, 'failure.kind'), field(x, 'failure.message')
from (select *, json_extract_string(data, fields()) as x from staged where fit and type in ('checkpoint_saved.v1', 'checkpoint_failed.v1'));
